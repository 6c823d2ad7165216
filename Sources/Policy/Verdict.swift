/// What the policy decided about an ending, and why.
package struct Verdict: Hashable, Sendable {
  package enum Decision: Hashable, Sendable {
    case restart(after: Duration)
    case stop
    case giveUp
  }
  package let decision: Decision
  /// Failures counted in the window, this one included.
  package let failures: Int
  /// nil: no cap.
  package let maxCrashes: Int?
  /// nil: the whole life of guardian.
  package let window: Duration?
  /// One sentence for people.
  package let reason: String
  package init(
    decision: Decision, failures: Int, maxCrashes: Int?, window: Duration?, reason: String
  ) {
    self.decision = decision
    self.failures = failures
    self.maxCrashes = maxCrashes
    self.window = window
    self.reason = reason
  }
}
