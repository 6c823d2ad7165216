/// What is remembered of earlier endings: the failures in the window and the row of restarts.
/// Plain values, so that the state file can keep them; it outlives guardian.
package struct CrashHistory: Hashable, Sendable {
  /// One failure that counts.
  package struct Failure: Hashable, Sendable {
    /// When, on CLOCK_BOOTTIME.
    package var at: Duration
    package var life: Life
    /// `Ending.words` of it.
    package var words: String
    package init(at: Duration, life: Life, words: String) {
      self.at = at
      self.life = life
      self.words = words
    }
  }

  /// How guardian left.
  package enum Departure: String, CaseIterable, Hashable, Sendable {
    /// It did not say: it was killed, or the machine lost power.
    case none
    /// The policy gave up.
    case gaveUp = "gave-up"
    /// It was told to stop, or the program ended and was not to be restarted.
    case stopped
  }

  /// What a count is bound to. Opaque texts, compared and nothing else.
  package struct Identity: Hashable, Sendable {
    package var binary: String
    package var command: String
    package var configuration: String
    package init(binary: String, command: String, configuration: String) {
      self.binary = binary
      self.command = command
      self.configuration = configuration
    }
  }

  /// A cap above this would have the state file grow without a use: settings refuse it.
  package static let maxCrashesLimit = 10_000
  /// Without a cap the count is only for show, and no more failures than this are kept.
  package static let keptWithoutCap = 100

  /// The kernel's boot id: `at` of another boot means nothing.
  package var bootID: String
  package var identity: Identity
  package var departure = Departure.none
  /// The number of the last life that was started; 0: none yet.
  package var lastLife = Life(rawValue: 0)
  /// Oldest first.
  package var failures: [Failure] = []
  /// Restarts in a row since the last stable life: decides the next delay.
  package var row = 0
  /// The signature of the last ending, and how many in a row had it.
  package var lastSignature: CrashSignature?
  package var identical = 0
  /// Whether the last life could not be executed: one report per row of those.
  package var lastExecFailed = false

  package init(bootID: String, identity: Identity) {
    self.bootID = bootID
    self.identity = identity
  }
}

extension CrashHistory {
  /// What a guardian that starts makes of the state file.
  package struct Resumption: Hashable, Sendable {
    package let history: CrashHistory
    /// Whether the count goes on.
    package let continued: Bool
    /// One sentence for people that says so and why.
    package let sentence: String
  }

  /// Decides whether the count goes on. `saved` is nil when there was no state file that
  /// could be read. `bootID` and `identity` are those of now.
  package static func resume(
    _ saved: CrashHistory?, bootID: String, identity: Identity
  ) -> Resumption {
    func cleared(_ sentence: String) -> Resumption {
      Resumption(
        history: CrashHistory(bootID: bootID, identity: identity), continued: false,
        sentence: sentence)
    }
    guard let saved else { return cleared("no earlier count: the failure count begins at 0") }
    let count = saved.failures.count
    let was = "\(count) earlier failure\(count == 1 ? "" : "s")"
    switch saved.departure {
    case .gaveUp:
      return cleared(
        "the last guardian of this name gave up: the failure count is cleared (\(was))")
    case .stopped:
      return cleared(
        "the last guardian of this name was stopped or ended with its program: the failure count is "
          + "cleared (\(was))")
    case .none: break
    }
    if saved.bootID != bootID {
      return cleared("the machine was started anew: the failure count is cleared (\(was))")
    }
    var changed: [String] = []
    if saved.identity.binary != identity.binary { changed.append("binary") }
    if saved.identity.command != identity.command { changed.append("command") }
    if saved.identity.configuration != identity.configuration { changed.append("configuration") }
    if !changed.isEmpty {
      let what = changed.joined(separator: " and ")
      return cleared("the \(what) changed: the failure count is cleared (\(was))")
    }
    return Resumption(
      history: saved, continued: true,
      sentence: "guardian was killed last time: the failure count goes on (\(was))")
  }
}
