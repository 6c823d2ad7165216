import Glibc

/// A system call that failed: operation, object and cause.
package struct SystemError: Error, Hashable, Sendable, CustomStringConvertible {
  /// As a person would say it: "open", "create the control socket".
  package let operation: String
  /// The path or thing it was done to; empty if there is none.
  package let object: String
  package let errno: Int32

  package init(_ operation: String, _ object: String = "", errno: Int32) {
    self.operation = operation
    self.object = object
    self.errno = errno
  }

  package var description: String {
    let cause = SystemError.text(errno)
    return object.isEmpty
      ? "cannot \(operation): \(cause)" : "cannot \(operation) '\(object)': \(cause)"
  }

  /// The C library's words for an error number.
  package static func text(_ errno: Int32) -> String {
    // guardian has one thread: strerror's static buffer is enough.
    let words = unsafe String(cString: strerror(errno))
    guard errno == EMFILE else { return words }
    var limit = rlimit()
    _ = unsafe getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    return "\(words) (the limit nofile, LimitNOFILE= of a unit, is \(limit.rlim_cur))"
  }
}

/// Repeats a call that a signal interrupted. Returns the result or throws the errno.
package func retrying<Result: SignedInteger>(
  _ operation: String, _ object: @autoclosure () -> String = "", _ call: () -> Result
) throws(SystemError) -> Result {
  while true {
    let result = call()
    if result != -1 { return result }
    let cause = errno
    if cause == EINTR { continue }
    throw SystemError(operation, object(), errno: cause)
  }
}
