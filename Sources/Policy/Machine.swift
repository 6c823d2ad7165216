/// The service's state machine: pure. Events and the outcome of earlier effects go in,
/// effects come out; somebody else performs them, in their order. It must never know a file,
/// a process or a clock.
package struct ServiceMachine: Hashable, Sendable {
  package enum Input: Hashable, Sendable {
    /// guardian is up: begin the first life.
    case begin
    /// guardian is up and has taken over a program that an earlier guardian started at this
    /// time. The life is the history's last one.
    case adopted(Life, started: Now)
    /// `exec` succeeded.
    case spawned(Life)
    /// The clone, a set-up step or `exec` failed. Nothing of this life is left; no other
    /// event of it follows.
    case spawnFailed(Life, errno: Int32)
    /// The program said READY=1.
    case ready(Life)
    /// A crash handler in the main process rang the bell: it is held for a capture. (Bells of
    /// descendants never come here.)
    case crashAnnounced(Life)
    /// A capture is over, well or badly, one that a bell or `captureHang` began; the
    /// program was released.
    case captureEnded(Life)
    /// The main process ended and was reaped.
    case ended(Life, Ending, signature: CrashSignature?)
    /// The answer to `awaitTree`: no process of the life is left.
    case treeGone(Life)
    /// The program asks for more time from now (EXTEND_TIMEOUT_USEC).
    case extendTimeout(Life, Duration)
    /// The program's heartbeat. Where it is a counter in the ring, look at it before
    /// `deadline` is handed in.
    case heartbeat(Life)
    /// The program sets its own watchdog (WATCHDOG_USEC); zero or less turns it off.
    case watchdogInterval(Life, Duration)
    /// The program asks to be treated as hanging (WATCHDOG=trigger).
    case watchdogTriggered(Life)
    /// A health probe failed often enough in a row.
    case unhealthy(Life)
    /// TERM to guardian: stop the program, then leave.
    case terminate
    /// `guardianctl stop`: stop the program; guardian stays.
    case stop
    /// `guardianctl start`.
    case start
    /// `guardianctl restart`.
    case restart
    /// The time that `deadline` named has come. One that comes too early changes nothing.
    case deadline
    /// The answer to `awaitReporters`.
    case reportersDone
  }

  package enum Effect: Hashable, Sendable {
    /// Answered by `spawned` or `spawnFailed`.
    case spawn(Life)
    /// Send the stop signal (then CONT) to what the kill mode names.
    case signalStop(Life)
    /// Let go of a program that is held for a capture, and end that capture.
    case release(Life)
    /// Take a snapshot of all threads of what would not stop or hangs (report of kind hang).
    /// Answered by `captureEnded`.
    case captureHang(Life)
    /// ABRT to the main process.
    case abort(Life)
    /// KILL to what the kill mode names. The main process's end comes as `ended`, also when it
    /// had not got as far as `exec` (or else `spawnFailed`).
    case kill(Life)
    /// The main process ended: say `treeGone` as soon as nothing that the kill mode names is
    /// left of the life, which may be now.
    case awaitTree(Life)
    /// Not even KILL ended it in time: name what is left and forget it.
    case abandon(Life)
    /// This ending has a report. Where a spawn follows, the next life is told its id, and the
    /// writing waits until that life runs; so does what is announced.
    case report(Life, Ending, Verdict)
    /// Tell systemd, journal and status what was decided.
    case announce(Life, Ending, Verdict)
    /// Run the on-give-up command; it counts as a reporter.
    case runGiveUp(GiveUp)
    /// Write the state file: `history` changed.
    case persist
    /// Say `reportersDone` as soon as no reporter is at work, which may be now.
    case awaitReporters
    /// Their time is up: end them.
    case endReporters
    /// Leave with this. The last effect there is.
    case leave(Leave)
  }

  /// The name of the program: with the life it fixes the jitter of the delays.
  package let name: String
  package internal(set) var policy: RestartPolicy
  package internal(set) var history: CrashHistory
  package internal(set) var state = State.idle
  /// How the last life that ended did; nil before the first ending.
  package internal(set) var lastEnding: Ending?
  /// What was decided about it.
  package internal(set) var lastVerdict: Verdict?

  /// `history` is what `CrashHistory.resume` made of the state file.
  package init(name: String, policy: RestartPolicy, history: CrashHistory) {
    self.name = name
    self.policy = policy
    self.history = history
  }

  /// The options changed. What was decided stays; the next decision is the new policy's.
  package mutating func adopt(_ policy: RestartPolicy, identity: CrashHistory.Identity) {
    self.policy = policy
    history.identity = identity
  }
}
