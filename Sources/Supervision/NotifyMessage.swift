// What a program says on its notify socket (sd_notify(3)). Bounded text of a stranger: a line that
// is not understood is left out, never an error.
import Kernel

package struct NotifyMessage: Hashable {
  package var ready = false
  package var stopping = false
  package var reloading = false
  /// CLOCK_MONOTONIC, microseconds: when the reload began.
  package var monotonic: UInt64?
  package var status: String?
  package var mainPID: Int32?
  package var extendTimeout: Duration?
  package var heartbeat = false
  package var watchdogTriggered = false
  package var watchdogInterval: Duration?
  /// Keep the descriptors that came along.
  package var storesDescriptors = false
  /// Let go of those called `descriptorName`.
  package var removesDescriptors = false
  /// Always valid (`isDescriptorName`).
  package var descriptorName: String?
  /// false: keep them also after the other side hung up.
  package var watchesDescriptors = true
  /// The descriptor that came along is to be closed, and nothing else.
  package var barrier = false

  package init(_ bytes: [UInt8]) {
    if bytes.count > Limit.notifyBytes { return }
    for line in bytes.split(separator: UInt8(ascii: "\n")) {
      guard let equals = line.firstIndex(of: UInt8(ascii: "=")) else { continue }
      let value = line[(equals + 1)...]
      let isYes = value.elementsEqual("1".utf8)
      switch String(decoding: line[..<equals], as: UTF8.self) {
      case "READY": if isYes { ready = true }
      case "STOPPING": if isYes { stopping = true }
      case "RELOADING": if isYes { reloading = true }
      case "MONOTONIC_USEC": monotonic = Self.number(value)
      case "STATUS": status = Printable.text(value, limit: Limit.statusBytes)
      case "MAINPID": mainPID = Self.number(value).flatMap { Int32(exactly: $0) }
      case "EXTEND_TIMEOUT_USEC": extendTimeout = Self.microseconds(value)
      case "WATCHDOG_USEC": watchdogInterval = Self.microseconds(value)
      case "WATCHDOG":
        if isYes { heartbeat = true }
        if value.elementsEqual("trigger".utf8) { watchdogTriggered = true }
      case "FDSTORE": if isYes { storesDescriptors = true }
      case "FDSTOREREMOVE": if isYes { removesDescriptors = true }
      case "FDNAME": if Self.isDescriptorName(value) { descriptorName = Self.text(value) }
      case "FDPOLL": if value.elementsEqual("0".utf8) { watchesDescriptors = false }
      case "BARRIER": if isYes { barrier = true }
      default: break
      }
    }
  }

  /// What may stand in LISTEN_FDNAMES, which colons separate: as systemd has it, 1 to 255
  /// printable ASCII characters but the colon.
  package static func isDescriptorName(_ name: some Collection<UInt8>) -> Bool {
    (1...255).contains(name.count)
      && name.allSatisfy { $0 >= 32 && $0 < 127 && $0 != UInt8(ascii: ":") }
  }

  private static func text(_ bytes: ArraySlice<UInt8>) -> String {
    String(decoding: bytes, as: UTF8.self)
  }

  private static func number(_ digits: ArraySlice<UInt8>) -> UInt64? {
    UInt64(text(digits.prefix(24)))
  }

  /// A day at most: more is a slip of the pen, and sums of it must not overflow.
  private static func microseconds(_ text: ArraySlice<UInt8>) -> Duration? {
    number(text).map { .microseconds(Int64(min($0, 86_400_000_000))) }
  }
}
