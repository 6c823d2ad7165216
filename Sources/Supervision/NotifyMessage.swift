// What a program says on its notify socket (sd_notify(3)). Bounded text of a stranger: a line that
// is not understood is left out, never an error.

package struct NotifyMessage: Hashable {
  package var ready = false
  package var stopping = false
  package var reloading = false
  package var status: String?
  package var mainPID: Int32?
  package var extendTimeout: Duration?
  package var heartbeat = false
  package var watchdogTriggered = false
  package var watchdogInterval: Duration?

  package init(_ bytes: [UInt8]) {
    if bytes.count > Limit.notifyBytes { return }
    for line in bytes.split(separator: UInt8(ascii: "\n")) {
      guard let equals = line.firstIndex(of: UInt8(ascii: "=")) else { continue }
      let value = line[(equals + 1)...]
      switch String(decoding: line[..<equals], as: UTF8.self) {
      case "READY": if value.elementsEqual("1".utf8) { ready = true }
      case "STOPPING": if value.elementsEqual("1".utf8) { stopping = true }
      case "RELOADING": if value.elementsEqual("1".utf8) { reloading = true }
      case "STATUS": status = Printable.text(value, limit: Limit.statusBytes)
      case "MAINPID": mainPID = Self.number(value).flatMap { Int32(exactly: $0) }
      case "EXTEND_TIMEOUT_USEC": extendTimeout = Self.microseconds(value)
      case "WATCHDOG_USEC": watchdogInterval = Self.microseconds(value)
      case "WATCHDOG":
        if value.elementsEqual("1".utf8) { heartbeat = true }
        if value.elementsEqual("trigger".utf8) { watchdogTriggered = true }
      default: break
      }
    }
  }

  private static func number(_ text: ArraySlice<UInt8>) -> UInt64? {
    UInt64(String(decoding: text.prefix(24), as: UTF8.self))
  }

  /// A day at most: more is a slip of the pen, and sums of it must not overflow.
  private static func microseconds(_ text: ArraySlice<UInt8>) -> Duration? {
    number(text).map { .microseconds(Int64(min($0, 86_400_000_000))) }
  }
}
