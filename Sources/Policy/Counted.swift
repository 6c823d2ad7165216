/// What counts at a moment: the history itself forgets only when another ending comes.
extension ServiceMachine {
  /// The failures within the window. `now` is on CLOCK_BOOTTIME.
  package func failures(at now: Duration) -> [CrashHistory.Failure] {
    guard let window = policy.crashWindow else { return history.failures }
    return history.failures.filter { now - $0.at < window }
  }

  /// When the next of them is forgotten, on CLOCK_BOOTTIME; nil: there is none, or it never is.
  package func nextForgotten(at now: Duration) -> Duration? {
    guard let window = policy.crashWindow else { return nil }
    return failures(at: now).map { $0.at + window }.min()
  }
}
