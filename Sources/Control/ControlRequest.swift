// What guardianctl may ask of a guardian: one short packet, one request a connection. The text is
// hostile to the one who reads it.
import Policy

package enum ControlRequest: Hashable, Sendable {
  case status
  case why
  case start
  case stop
  case restart
  case reload
  case upgrade
  case signal(Signal)
  case logs(follow: Bool)
  case watch

  /// The socket's name in a guardian's runtime folder.
  package static let socketName = "control"
  /// No request is longer.
  package static let maximumBytes = 64
  /// No answer's packet is longer: below what a socket's buffer takes (wmem_default, 208 KiB).
  package static let maximumAnswerBytes = 128 * 1024

  package var bytes: [UInt8] {
    let text =
      switch self {
      case .status: "status"
      case .why: "why"
      case .start: "start"
      case .stop: "stop"
      case .restart: "restart"
      case .reload: "reload"
      case .upgrade: "upgrade"
      case .signal(let signal): "signal \(signal.rawValue)"
      case .logs(let follow): follow ? "logs follow" : "logs"
      case .watch: "watch"
      }
    return Array(text.utf8)
  }

  /// nil: not a request.
  package init?(_ bytes: [UInt8]) {
    guard bytes.count <= Self.maximumBytes, let text = String(validating: bytes, as: UTF8.self)
    else { return nil }
    let words = text.split(separator: " ", omittingEmptySubsequences: false)
    switch (words.first, words.count) {
    case ("status", 1): self = .status
    case ("why", 1): self = .why
    case ("start", 1): self = .start
    case ("stop", 1): self = .stop
    case ("restart", 1): self = .restart
    case ("reload", 1): self = .reload
    case ("upgrade", 1): self = .upgrade
    case ("watch", 1): self = .watch
    case ("logs", 1): self = .logs(follow: false)
    case ("logs", 2) where words[1] == "follow": self = .logs(follow: true)
    case ("signal", 2):
      // The C library keeps 32 and 33 for itself.
      guard let number = Int32(words[1]), (1...64).contains(number), number != 32, number != 33
      else { return nil }
      self = .signal(Signal(rawValue: number))
    default: return nil
    }
  }
}
