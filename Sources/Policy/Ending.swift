/// How a life ended: the kernel's word, and what guardian knows of the cause.
package struct Ending: Hashable, Sendable {
  package enum Status: Hashable, Sendable {
    case exited(Int32)
    case signaled(Signal, coreDumped: Bool)
    /// The program could not be executed: `errno` of the step that failed.
    case execFailed(errno: Int32)
    /// It ended, but nobody can say how (an adopted program on an old kernel, or a process
    /// that not even KILL ended in time).
    case unknown
  }
  package enum Cause: Hashable, Sendable {
    /// Of its own, or by a signal from outside.
    case own
    case outOfMemory
    /// The heartbeat did not come, or the program itself said WATCHDOG=trigger.
    case watchdog
    case startTimeout
    /// A health probe failed.
    case health
    /// Asked to stop, it did not within the stop timeout.
    case stopTimeout
    /// The main process left with 0 at once while descendants live on in sessions of their own.
    case detached
    /// The machine went down while it ran: power loss, a crash of the kernel, a reset.
    case machineDown
    /// guardian itself was killed, and the program with it.
    case guardianDied
  }
  package let status: Status
  package let cause: Cause
  package init(status: Status, cause: Cause = .own) {
    self.status = status
    self.cause = cause
  }
}

/// What makes two endings "the same" before anything is symbolicated: signal, module
/// offset of the faulting code and abort message, hashed. Opaque to the policy.
package struct CrashSignature: RawRepresentable, Hashable, Sendable {
  package let rawValue: UInt64
  package init(rawValue: UInt64) { self.rawValue = rawValue }
}

extension Ending {
  /// What happened, in a few words: "SIGSEGV (core dumped)", "exit status 3", "out of memory".
  package var words: String {
    let how =
      switch status {
      case .exited(let code): "exit status \(code)"
      case .signaled(let signal, let dumped): signal.name + (dumped ? " (core dumped)" : "")
      case .execFailed(let errno): "start failed (\(Self.words(errno)))"
      case .unknown: "ended, nobody knows how"
      }
    return switch cause {
    case .own: how
    case .outOfMemory: "out of memory (\(how))"
    case .watchdog: "watchdog timeout (\(how))"
    case .startTimeout: "start timeout (\(how))"
    case .health: "health check failed (\(how))"
    case .stopTimeout: "stop timeout (\(how))"
    case .detached: "it detached: run it in the foreground"
    case .machineDown: "the machine went down"
    case .guardianDied: "guardian was killed, and the program with it"
    }
  }

  /// Of the errors that a start runs into; the message of the failed step says more.
  private static func words(_ errno: Int32) -> String {
    switch errno {
    case 1: "operation not permitted"
    case 2: "no such file"
    case 7: "argument list too long"
    case 8: "no format that can be executed"
    case 11: "too many processes"
    case 12: "out of memory"
    case 13: "permission denied"
    case 20: "not a folder"
    case 22: "invalid argument"
    case 23, 24: "too many open files"
    case 26: "the file is being written to"
    case 28: "no space left"
    case 30: "read-only file system"
    case 40: "too many links"
    case 97: "no sockets of this kind, see RestrictAddressFamilies= of the unit"
    default: "errno \(errno)"
    }
  }

  /// The program, its interpreter or its working directory is not there or cannot be executed, or
  /// guardian has no right to what was asked for it (another user, a higher limit): EPERM, ENOENT,
  /// ENOEXEC, EACCES, ENOTDIR, ELOOP. Somebody has to do something about it.
  package var cannotHealByItself: Bool {
    if case .execFailed(let errno) = status, cause == .own {
      return [1, 2, 8, 13, 20, 40].contains(errno)
    }
    return false
  }

  /// The code that guardian itself leaves with after this: the program's own, 128 + n for a
  /// death by signal n, 126 or 127 when it could not be executed (sh's convention), 78
  /// (EX_CONFIG) when it detached, 1 when nobody knows.
  package var exitCode: Int32 {
    if case .detached = cause { return 78 }
    return switch status {
    case .exited(let code): code
    case .signaled(let signal, _): 128 + signal.rawValue
    case .execFailed(let errno): errno == 2 /* ENOENT */ ? 127 : 126
    case .unknown: 1
    }
  }
}
