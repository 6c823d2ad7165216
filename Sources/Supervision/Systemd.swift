// Upwards: what the service manager and the journal are told. Nothing here may block supervision
// or fail it: without systemd every call does nothing.
import CLinux
import CSystemd
import Glibc
import Kernel

struct ServiceManager {
  /// Removed from our own environment by nobody: sd_notify(3) reads NOTIFY_SOCKET each time.
  let isPresent: Bool

  init() { isPresent = unsafe getenv("NOTIFY_SOCKET") != nil }

  func ready(status: String) { say("READY=1\nSTATUS=" + status) }
  func status(_ text: String) { say("STATUS=" + text) }
  func stopping(status: String) { say("STOPPING=1\nSTATUS=" + status) }
  /// - Parameter monotonic: microseconds on CLOCK_MONOTONIC.
  func reloading(_ monotonic: UInt64) { say("RELOADING=1\nMONOTONIC_USEC=\(monotonic)") }
  func extendTimeout(_ duration: Duration) {
    say("EXTEND_TIMEOUT_USEC=\(duration.milliseconds * 1000)")
  }

  /// The command that starts this service again; nil: guardian is not one.
  var startAgain: String? {
    guard isPresent, let text = try? Files.readText("/proc/self/cgroup", limit: 4096) else {
      return nil
    }
    for line in text.split(separator: "\n")
    where line.hasPrefix("0::") || line.contains(":name=systemd:") {
      let parts = line.split(separator: "/")
      guard let unit = parts.last(where: { $0.hasSuffix(".service") && !$0.hasPrefix("user@") })
      else { continue }
      let user = parts.contains { $0.hasPrefix("user@") } ? "--user " : ""
      return "systemctl \(user)start \(unit)"
    }
    return nil
  }

  private func say(_ text: String) {
    if isPresent { _ = unsafe sd_notify(0, text) }
  }
}

/// What one entry says; the keys are part of guardian's interface.
struct JournalEntry {
  /// Stable: the catalog explains them, and people search for them.
  enum Event: String {
    case restarted = "7270223273964df0a73f220a739c3dfe"
    case gaveUp = "bf1fb90b69374ed2b120194a15f355a3"
    case ended = "0ab173f2825447cba3981d40f738835e"
    case interrupted = "bf7f48303676400c89626d50da17e62c"
    case descendantCrashed = "88758350beb1414fb83692416e795aff"
  }
  let event: Event
  /// The program's: the unit has its lines under the same identifier, and `journalctl -t` finds all.
  let name: String
  /// As in syslog(3).
  let priority: Int32
  let message: String
  var fields: [(name: String, value: String)] = []
}

struct Journal {
  private static let socket = "/run/systemd/journal/socket"

  /// Whether standard error ends up in the journal (systemd.exec(5), JOURNAL_STREAM).
  static let isStandardError: Bool = {
    guard let value = unsafe getenv("JOURNAL_STREAM") else { return false }
    var status = stat()
    guard unsafe fstat(2, &status) == 0 else { return false }
    return unsafe String(cString: value) == "\(status.st_dev):\(status.st_ino)"
  }()

  /// false: there is no journal, or it takes nothing now.
  @discardableResult
  func send(_ entry: JournalEntry) -> Bool {
    guard takesMessages() else { return false }
    var lines = [
      "MESSAGE=" + entry.message, "MESSAGE_ID=" + entry.event.rawValue,
      "PRIORITY=\(entry.priority)", "SYSLOG_IDENTIFIER=\(entry.name)",
    ]
    lines += entry.fields.map { $0.name + "=" + $0.value }
    let bytes = CStrings(lines.map { Array($0.utf8) })
    return withExtendedLifetime(bytes) {
      var vectors: [iovec] = unsafe []
      for index in 0..<lines.count {
        let text = unsafe bytes.vector[index]!
        unsafe vectors.append(iovec(iov_base: text, iov_len: strlen(text)))
      }
      return unsafe vectors.withUnsafeBufferPointer {
        unsafe sd_journal_sendv_with_location(
          "CODE_FILE=Supervision", "CODE_LINE=0", "supervise", $0.baseAddress,
          Int32(vectors.count)) >= 0
      }
    }
  }

  /// The library's send waits while the journal's queue is full: a journal that hangs must not
  /// hang us. A connected socket tells whether the other side's queue has room.
  private func takesMessages() -> Bool {
    if !Files.exists(Self.socket) { return false }
    let probe = unsafe guardian_connect_datagram(Self.socket)
    if probe < 0 { return false }
    defer { close(probe) }
    var ready = pollfd(fd: probe, events: Int16(POLLOUT), revents: 0)
    return unsafe poll(&ready, 1, 0) == 1 && Int32(ready.revents) & POLLOUT != 0
  }
}

/// So many a second, on CLOCK_MONOTONIC.
struct Budget {
  private let perSecond: Int
  private var second: Int64 = .min
  private var left = 0

  init(perSecond: Int) { self.perSecond = perSecond }

  /// false: it is used up.
  mutating func take() -> Bool {
    let now = Clock.monotonic.components.seconds
    if now != second { (second, left) = (now, perSecond) }
    if left == 0 { return false }
    left -= 1
    return true
  }
}
