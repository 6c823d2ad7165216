/// The verdict on one ending, and what is remembered of it. Pure: no clock, no state.
extension RestartPolicy {
  /// One ending, as the policy sees it.
  package struct Occurrence: Hashable, Sendable {
    package var life: Life
    package var ending: Ending
    package var signature: CrashSignature?
    /// From spawn to ending, on CLOCK_BOOTTIME.
    package var uptime: Duration
    /// Of the ending, on CLOCK_BOOTTIME.
    package var at: Duration
    package init(
      life: Life, ending: Ending, signature: CrashSignature? = nil, uptime: Duration, at: Duration
    ) {
      self.life = life
      self.ending = ending
      self.signature = signature
      self.uptime = uptime
      self.at = at
    }
  }

  package struct Judgement: Hashable, Sendable {
    package let verdict: Verdict
    package let history: CrashHistory
    /// Whether a report of this ending is to be written.
    package let reports: Bool
  }

  /// The verdict for an ending that nobody asked for. `name` is the program's: it only sets
  /// the jitter.
  package func judge(
    _ occurrence: Occurrence, name: String, history: CrashHistory
  ) -> Judgement {
    let ending = occurrence.ending
    let kind = classify(ending)
    let execFailed = if case .execFailed = ending.status { true } else { false }
    let stable = occurrence.uptime >= stableAfter && !execFailed

    var next = history
    if stable { next.row = 0 }
    if let signature = occurrence.signature, !stable, kind.isFailure {
      next.identical = signature == next.lastSignature ? next.identical + 1 : 1
      next.lastSignature = signature
    } else {
      next.identical = 0
      next.lastSignature = nil
    }
    next.lastExecFailed = execFailed
    next.forget(at: occurrence.at, window: crashWindow)
    if kind.isFailure {
      next.failures.append(
        CrashHistory.Failure(at: occurrence.at, life: occurrence.life, words: ending.words))
      next.limit(to: cap.map { $0 + 1 } ?? CrashHistory.keptWithoutCap)
    }
    let failures = next.failures.count

    let decision: Verdict.Decision
    let reason: String
    let what = "\(ending.words) after \(occurrence.uptime.words)"
    if case .detached = kind {
      decision = .stop
      reason = ending.words
    } else if !restart.restarts(after: kind) {
      decision = .stop
      reason = "\(what): restart is '\(restart.rawValue)', which does not restart after this"
    } else if kind.isFailure, let cap, failures > cap {
      decision = .giveUp
      reason = giveUpReason(next.failures, cap: cap, at: occurrence.at)
    } else if ending.cannotHealByItself, occurrence.life.rawValue == 1 {
      // A later life that fails so is a binary that is being replaced: that heals.
      decision = .giveUp
      reason = "\(what): it never ran, and that does not heal by itself"
    } else if maxIdentical > 0, next.identical >= maxIdentical {
      decision = .giveUp
      reason =
        "\(what): the same crash \(next.identical) times in a row within "
        + "\(stableAfter.words) of the start (max-identical is \(maxIdentical)): it will not heal"
    } else {
      let delay = delay(beforeRestart: next.row, name: name, life: occurrence.life)
      next.row += 1
      decision = .restart(after: delay)
      let when = delay == .zero ? "restart at once" : "restart in \(delay.words)"
      reason = kind.isFailure ? "\(what): \(standing(failures)), \(when)" : "\(what): \(when)"
    }
    return Judgement(
      verdict: Verdict(
        decision: decision, failures: failures, maxCrashes: cap, window: crashWindow,
        reason: reason),
      history: next,
      reports: (kind.isFailure || kind == .detached) && !(execFailed && history.lastExecFailed))
  }

  /// The verdict for an ending that was asked for: never a failure, whatever it was; a crash
  /// is reported all the same.
  package func judge(
    _ occurrence: Occurrence, asked request: ServiceMachine.Request, history: CrashHistory
  ) -> Judgement {
    var next = history
    next.forget(at: occurrence.at, window: crashWindow)
    next.identical = 0
    next.lastSignature = nil
    next.lastExecFailed = false
    let ending = occurrence.ending
    let decision: Verdict.Decision
    let reason: String
    switch request {
    case .again:
      next.clear()
      decision = .restart(after: .zero)
      reason = "\(ending.words): restarted as asked; the failure count is cleared"
    case .stay, .leave:
      decision = .stop
      reason = "\(ending.words): stopped as asked"
    }
    let reports =
      switch ending.cause {
      case .watchdog, .health, .startTimeout, .stopTimeout, .outOfMemory, .machineDown,
        .guardianDied:
        true
      case .detached: false
      case .own:
        if case .signaled(let signal, let dumped) = ending.status {
          signal != stopSignal && (dumped || signal.tellsOfCrash)
        } else {
          false
        }
      }
    return Judgement(
      verdict: Verdict(
        decision: decision, failures: next.failures.count, maxCrashes: cap, window: crashWindow,
        reason: reason),
      history: next, reports: reports)
  }

  /// `maxCrashes` within its limits.
  private var cap: Int? { maxCrashes.map { min(max($0, 0), CrashHistory.maxCrashesLimit) } }

  private func standing(_ failures: Int) -> String {
    let of = cap.map { "failure \(failures) of \($0)" } ?? "failure \(failures)"
    return crashWindow.map { "\(of) within \($0.words)" } ?? of
  }

  private func giveUpReason(
    _ failures: [CrashHistory.Failure], cap: Int, at now: Duration
  ) -> String {
    // The message that this ends up in has told how the only one ended.
    if failures.count == 1 { return "no restart after a failure (max-crashes is \(cap))" }
    let within = crashWindow.map { " within \($0.words)" } ?? ""
    return "\(failures.count) failures\(within), more than max-crashes (\(cap)): "
      + FailureCount.list(failures, at: now)
  }
}

extension RestartPolicy {
  /// The delay before a restart that follows `row` others without a stable life between:
  /// none before the first, then growing, capped, and then spread by ± 10 % so that many
  /// guardians of one broken backend do not come back together. A fixed function of its
  /// arguments: a plan can show it beforehand.
  package func delay(beforeRestart row: Int, name: String, life: Life) -> Duration {
    guard row > 0, restartDelay > .zero else { return .zero }
    let limit = Double(max(restartDelayMax, .zero).nanoseconds)
    var delay = min(Double(restartDelay.nanoseconds), limit)
    let factor = max(restartBackoff, 1)
    var step = 1
    while step < row, delay < limit, factor > 1 {
      delay = min(delay * factor, limit)
      step += 1
    }
    let unit = Double(Self.hash(name, life) >> 11) / Double(UInt64(1) << 53)
    return .nanoseconds(Int64(delay * (0.9 + 0.2 * unit)))
  }

  /// FNV-1a over the name and the life, then a finaliser that spreads neighbouring lives
  /// (MurmurHash3's). Fixed for ever: `Hasher` is seeded anew in every process.
  private static func hash(_ name: String, _ life: Life) -> UInt64 {
    var hash: UInt64 = 0xcbf2_9ce4_8422_2325
    func mix(_ byte: UInt8) { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01b3 }
    for byte in name.utf8 { mix(byte) }
    for shift in [0, 8, 16, 24] { mix(UInt8(truncatingIfNeeded: life.rawValue >> UInt32(shift))) }
    hash = (hash ^ (hash >> 33)) &* 0xff51_afd7_ed55_8ccd
    hash = (hash ^ (hash >> 33)) &* 0xc4ce_b9fe_1a85_ec53
    return hash ^ (hash >> 33)
  }
}

extension CrashHistory {
  /// Drops the failures that have left the window: a failure exactly as old as the window is
  /// out of it. One that seems to lie in the future counts.
  mutating func forget(at now: Duration, window: Duration?) {
    guard let window else { return }
    failures.removeAll { now - $0.at >= window }
  }

  mutating func limit(to count: Int) {
    if failures.count > count { failures.removeFirst(failures.count - count) }
  }

  /// What an operator's start does: the count and the row begin anew.
  mutating func clear() {
    failures = []
    row = 0
    identical = 0
    lastSignature = nil
    lastExecFailed = false
  }
}
