// The system-call layer: names the calls, knows nothing of guardian's own ideas.
import Glibc

/// A descriptor that is closed once, when its owner lets go of it.
package struct FileDescriptor: ~Copyable, Sendable {
  package let raw: Int32

  /// Takes ownership of `raw`.
  package init(owning raw: Int32) { self.raw = raw }

  deinit { _ = Glibc.close(raw) }

  /// Gives the number away: the caller closes it.
  package consuming func release() -> Int32 {
    let number = raw
    discard self
    return number
  }
}
