/// The service's state machine: pure. Events and the outcome of earlier effects go in,
/// effects come out; somebody else performs them.
package struct ServiceMachine: Hashable, Sendable {
  package enum Input: Hashable, Sendable {
    /// guardian is up: begin the first life.
    case begin
    /// `exec` succeeded.
    case spawned(Life)
    /// The clone, a set-up step or `exec` failed.
    case spawnFailed(Life, errno: Int32)
    /// The program said READY=1 (or `exec` is readiness enough).
    case ready(Life)
    /// A crash handler rang the bell: the program is held for a capture.
    case crashAnnounced(Life)
    /// Its capture is over, well or badly; the program was released.
    case captureEnded(Life)
    /// The main process ended and was reaped.
    case ended(Life, Ending, signature: CrashSignature?)
    /// No process of the life is left (or it was given up waiting for, and named).
    case treeGone(Life)
    /// The program asks for more time (EXTEND_TIMEOUT_USEC).
    case extendTimeout(Life, Duration)
    /// The program's heartbeat.
    case heartbeat(Life)
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
    /// The time that `deadline` named has come.
    case deadline
    /// All reporters are done.
    case reportersDone
  }

  package enum Effect: Hashable, Sendable {
    case spawn(Life)
    /// Send the stop signal (then CONT) to what the kill mode names.
    case signalStop(Life)
    /// Take a snapshot of all threads of what would not stop or hangs (report of kind hang).
    case captureHang(Life)
    /// ABRT to the main process (watchdog).
    case abort(Life)
    /// KILL to what the kill mode names; answered by `treeGone`.
    case kill(Life)
    /// Write the report of this ending.
    case report(Life, Ending, Verdict)
    /// Tell systemd, journal and status what was decided.
    case announce(Verdict)
    case runGiveUp(GiveUp)
    /// Write the state file.
    case persist
    /// Leave with this.
    case leave(Leave)
  }
}
