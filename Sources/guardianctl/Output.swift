import Glibc
import Reports

/// A command that could not do what it was asked: one line for people, and the exit status
/// (sysexits.h; 1: there is no such report).
struct ControlError: Error {
  let text: String
  let status: Int32
  init(_ text: String, status: Int32) {
    self.text = text
    self.status = status
  }
}

enum Output {
  /// Standard output is written at once: a closed pipe ends us, as any filter.
  nonisolated(unsafe) private static var buffer: [UInt8] = []

  static func print(_ text: String) { unsafe buffer += Array(text.utf8) + [UInt8(ascii: "\n")] }
  static func print(bytes: [UInt8]) { unsafe buffer += bytes }

  static func flush() -> Bool {
    defer { unsafe buffer = [] }
    return write(unsafe buffer, to: 1)
  }

  static func error(_ text: String) {
    _ = write(Array("guardianctl: \(SafeText.oneLine(text))\n".utf8), to: 2)
  }

  private static func write(_ bytes: [UInt8], to descriptor: Int32) -> Bool {
    var done = 0
    while done < bytes.count {
      let count = unsafe bytes[done...].withUnsafeBytes {
        unsafe Glibc.write(descriptor, $0.baseAddress, $0.count)
      }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { return false }
      done += count
    }
    return true
  }
}
