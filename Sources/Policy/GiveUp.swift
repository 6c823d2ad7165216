/// Why guardian gave up; the on-give-up command is told so.
package struct GiveUp: Hashable, Sendable {
  /// One sentence for people: the verdict's.
  package let reason: String
  /// How the last life ended.
  package let ending: Ending
  /// Failures counted in the window.
  package let failures: Int
  package init(reason: String, ending: Ending, failures: Int) {
    self.reason = reason
    self.ending = ending
    self.failures = failures
  }
}
