// Upwards: what the service manager and the journal are told. Nothing here may block supervision
// or fail it: without systemd every call does nothing.
import CLinux
import CSystemd
import Glibc
import Kernel

struct ServiceManager {
  /// Removed from our own environment by nobody: sd_notify(3) reads NOTIFY_SOCKET each time.
  let isPresent: Bool

  /// FDSTORE says how many descriptors the manager keeps: since systemd 254 it says so by itself.
  private let storesDescriptors: Bool

  init() {
    isPresent = unsafe getenv("NOTIFY_SOCKET") != nil
    let room = unsafe getenv("FDSTORE").flatMap { Int(unsafe String(cString: $0)) } ?? 0
    storesDescriptors = isPresent && room > 0
  }

  func ready(status: String) { say("READY=1\nSTATUS=" + status) }
  func status(_ text: String) { say("STATUS=" + text) }
  func stopping(status: String) { say("STOPPING=1\nSTATUS=" + status) }
  /// - Parameter monotonic: microseconds on CLOCK_MONOTONIC.
  func reloading(_ monotonic: UInt64) { say("RELOADING=1\nMONOTONIC_USEC=\(monotonic)") }
  /// Keeps a descriptor over guardian's own death, where the unit has room for it
  /// (FileDescriptorStoreMax=; systemd would warn of each otherwise).
  func store(_ descriptor: Int32, name: String, watches: Bool) {
    guard storesDescriptors, let stored = StoredName.make(name, watches: watches) else { return }
    var number = descriptor
    _ = unsafe sd_pid_notify_with_fds(
      0, 0, "FDSTORE=1\nFDNAME=\(stored)" + (watches ? "" : "\nFDPOLL=0"), &number, 1)
  }
  func dropStored(_ name: String) {
    if !storesDescriptors { return }
    for watches in [true, false] {
      if let stored = StoredName.make(name, watches: watches) {
        say("FDSTOREREMOVE=1\nFDNAME=" + stored)
      }
    }
  }
  func extendTimeout(_ duration: Duration) {
    say("EXTEND_TIMEOUT_USEC=\(duration.milliseconds * 1000)")
  }

  /// The command that starts this service again; nil: guardian is none, or one that is forgotten when
  /// it ends (systemd-run).
  var startAgain: String? {
    guard isPresent, let unit = OwnUnit.found, !unit.isTransient else { return nil }
    return "systemctl \(unit.isUsers ? "--user " : "")start \(unit.name)"
  }

  private func say(_ text: String) {
    if isPresent { _ = unsafe sd_notify(0, text) }
  }
}

/// The service that guardian runs in, by its place in the tree of control groups.
package struct OwnUnit {
  package let name: String
  /// Of a user's own manager.
  package let isUsers: Bool

  /// nil: it runs in none. Asked once: guardian stays where it was put.
  static let found: OwnUnit? = {
    guard let text = try? Files.readText("/proc/self/cgroup", limit: 4096) else { return nil }
    return OwnUnit(cgroups: text)
  }()

  /// - Parameter cgroups: /proc/PID/cgroup.
  package init?(cgroups: String) {
    for line in cgroups.split(separator: "\n")
    where line.hasPrefix("0::") || line.contains(":name=systemd:") {
      let parts = line.split(separator: "/")
      guard let unit = parts.last(where: { $0.hasSuffix(".service") && !$0.hasPrefix("user@") })
      else { continue }
      name = String(unit)
      isUsers = parts.contains { $0.hasPrefix("user@") }
      return
    }
    return nil
  }

  /// systemd keeps the file of a transient unit here as long as the unit.
  var isTransient: Bool {
    let folder =
      isUsers
      ? unsafe getenv("XDG_RUNTIME_DIR").map { unsafe String(cString: $0) }
        ?? "/run/user/\(getuid())"
      : "/run"
    return Files.exists(folder + "/systemd/transient/" + name)
  }
}

/// What one entry says; the keys are part of guardian's interface.
package struct JournalEntry {
  /// Stable: the catalog explains them, and people search for them.
  package enum Event: String {
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

  package init(
    event: Event, name: String, priority: Int32, message: String,
    fields: [(name: String, value: String)] = []
  ) {
    self.event = event
    self.name = name
    self.priority = priority
    self.message = message
    self.fields = fields
  }
}

package final class Journal {
  private static let socket = "/run/systemd/journal/socket"
  /// On which the last entry was sent; nil: none was.
  private var last: SharedDescriptor?

  /// Whether standard error ends up in the journal (systemd.exec(5), JOURNAL_STREAM).
  static let isStandardError = InheritedJournal.isStream(2)

  /// Never waits, which the library's call does while the journal's queue is full.
  /// - Returns: false: there is no journal, or it takes nothing now.
  @discardableResult
  func send(_ entry: JournalEntry) -> Bool {
    let connected = unsafe guardian_connect_datagram(Self.socket)
    if connected < 0 { return false }
    let socket = SharedDescriptor(FileDescriptor(owning: connected))
    var bytes = Self.encode(entry, unit: OwnUnit.found)
    let isSent = unsafe bytes.withUnsafeMutableBytes { buffer in
      var part = unsafe iovec(iov_base: buffer.baseAddress, iov_len: buffer.count)
      return unsafe guardian_send_parts(socket.raw, &part, 1)
    }
    if isSent { last = socket }
    return isSent
  }

  /// The journal finds the unit of an entry by its sender's pid: guardian must not be gone before the
  /// last one was read.
  func waitUntilRead(within limit: Duration) {
    guard let last else { return }
    let end = Clock.monotonic + limit
    while guardian_is_unread(last.raw), Clock.monotonic < end { Clock.pause(.milliseconds(1)) }
  }

  /// As the journal's native protocol has it: NAME=value on a line, or for a value of several lines
  /// the name, its size as 64 bits (little endian), and the bytes.
  package static func encode(_ entry: JournalEntry, unit: OwnUnit?) -> [UInt8] {
    var fields = [
      ("MESSAGE", entry.message), ("MESSAGE_ID", entry.event.rawValue),
      ("PRIORITY", "\(entry.priority)"), ("SYSLOG_IDENTIFIER", entry.name),
    ]
    // For journalctl -u, should the sender be gone when the entry is read.
    if let unit {
      fields.append((unit.isUsers ? "OBJECT_SYSTEMD_USER_UNIT" : "OBJECT_SYSTEMD_UNIT", unit.name))
    }
    fields += entry.fields.map { ($0.name, $0.value) }
    var bytes: [UInt8] = []
    for (name, value) in fields {
      bytes += name.utf8
      if value.utf8.contains(10) {
        bytes.append(10)
        var size = UInt64(value.utf8.count)
        for _ in 0..<8 {
          bytes.append(UInt8(truncatingIfNeeded: size))
          size >>= 8
        }
      } else {
        bytes.append(UInt8(ascii: "="))
      }
      bytes += value.utf8
      bytes.append(10)
    }
    return bytes
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
