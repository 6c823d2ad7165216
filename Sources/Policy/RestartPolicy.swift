/// Every option that decides about starts, stops and restarts, with its default. Plain
/// values: who reads them from flags and files is no business of this target.
package struct RestartPolicy: Hashable, Sendable {
  package enum Mode: String, CaseIterable, Hashable, Sendable {
    case no
    case onSuccess = "on-success"
    case onFailure = "on-failure"
    case onAbnormal = "on-abnormal"
    case onAbort = "on-abort"
    case onWatchdog = "on-watchdog"
    case always
  }

  /// After which endings to restart.
  package var restart = Mode.onFailure
  /// N failures in the window are answered by N restarts, the next one is not; 0: one life;
  /// nil: no cap. At most `CrashHistory.maxCrashesLimit`.
  package var maxCrashes: Int? = 10
  /// Length of the sliding window, on CLOCK_BOOTTIME. nil: no failure is ever forgotten.
  package var crashWindow: Duration? = .seconds(600)
  /// Delay before the second restart in a row; the first comes at once.
  package var restartDelay: Duration = .milliseconds(100)
  /// Each further delay is so many times the last. At least 1.
  package var restartBackoff: Double = 2
  package var restartDelayMax: Duration = .seconds(30)
  /// A life that reached this age, on CLOCK_BOOTTIME, starts the row of delays anew.
  package var stableAfter: Duration = .seconds(10)
  /// So many endings with one signature in a row, each before `stableAfter`: give up at once.
  /// 0: off.
  package var maxIdentical = 0
  /// guardian dies of the signal that the program died of, rather than leave with 128 + n.
  package var exitAsSignal = false
  /// Whoever started guardian takes 0 alone for success, as a service manager does: clean endings
  /// are told as 0.
  package var leavesCleanWithZero = false
  /// Exit codes that are as clean as 0.
  package var successExitStatuses: Set<Int32> = []
  /// Signals that are as clean a death as HUP, INT and TERM.
  package var successSignals: Set<Signal> = []

  /// Sent to stop the program; a death of it inside a stop is no crash.
  package var stopSignal = Signal.term
  /// From the stop signal to the snapshot and KILL. Less than the 10 s that Docker gives.
  package var stopTimeout: Duration = .seconds(8)
  /// From the watchdog's ABRT to KILL.
  package var abortTimeout: Duration = .seconds(8)
  /// How long the dead of a KILL are waited for, before what is left is named and left behind.
  package var killTimeout: Duration = .seconds(5)
  /// How long a capture may hold the program.
  package var captureTimeout: Duration = .seconds(2)
  /// How long guardian waits for its reporters before it leaves.
  package var reportTimeout: Duration = .seconds(30)
  /// The least that reporters get when guardian was asked to leave; they get what is left of
  /// the stop timeout if that is more.
  package var reportTimeoutInStop: Duration = .milliseconds(1500)

  /// The program says when it is ready; else a successful exec is readiness enough.
  package var awaitsReadiness = false
  /// From the spawn to readiness (without `awaitsReadiness`: to exec). nil: no limit.
  package var startTimeout: Duration? = .seconds(90)
  /// The most by which a program may put off one deadline with EXTEND_TIMEOUT_USEC, in all.
  package var extensionMax: Duration = .seconds(600)
  /// The longest time between two heartbeats of a program that is ready. nil: off.
  package var watchdog: Duration?

  package init() {}
}
