/// How a life ended: the kernel's word, and what guardian knows of the cause.
package struct Ending: Hashable, Sendable {
  package enum Status: Hashable, Sendable {
    case exited(Int32)
    case signaled(Signal, coreDumped: Bool)
    /// The program could not be executed: `errno` of the step that failed.
    case execFailed(errno: Int32)
    /// It ended, but nobody can say how (adopted program on an old kernel).
    case unknown
  }
  package enum Cause: Hashable, Sendable {
    /// Of its own, or by a signal from outside.
    case own
    case outOfMemory
    case watchdog
    case startTimeout
    case health
    /// The main process left with 0 at once while descendants live on in sessions of their own.
    case detached
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
