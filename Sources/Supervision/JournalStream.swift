// The journal's streams: each line that is written to one becomes an entry (sd_journal_stream_fd(3)).
// One for the program's output where the options say so, with the program's name as identifier; and
// those that guardian was started with, which die with the journal's process and are made anew.
import CLinux
import CSystemd
import Glibc
import Kernel

enum JournalConnection {
  static let path = "/run/systemd/journal/stdout"

  /// A new stream. Lines may begin with <N> as a priority (sd-daemon(3)), as in those of a unit;
  /// the others are informational.
  static func make(_ identifier: String) throws(SystemError) -> SharedDescriptor {
    // The library's connect waits while the journal's queue of connections is full.
    if !(unsafe guardian_accepts_stream(path)) {
      throw SystemError("reach the journal at", path, errno: errno)
    }
    let number = unsafe sd_journal_stream_fd(identifier, LOG_INFO, 1)
    if number < 0 { throw SystemError("reach the journal at", path, errno: -number) }
    return SharedDescriptor(FileDescriptor(owning: number))
  }
}

/// The program's output into the journal. A journal that goes away is waited for; what is written
/// meanwhile is lost and counted.
final class JournalStream: ProgramSink {
  private let sink: OutputSink
  private let complain: (String) -> Void
  let isTerminal = false

  /// nil: there is no journal; that was said.
  init?(
    identifier: String, stream: OutputStream, loop: EventLoop, onRoom: @escaping () -> Void,
    complain: @escaping (String) -> Void
  ) {
    self.complain = complain
    do {
      let first = try JournalConnection.make(identifier)
      sink = OutputSink(first.raw, loop: loop, title: "the journal")
    } catch {
      complain(
        "\(error): the program's \(stream == .stdout ? "standard output" : "standard error") "
          + "goes to guardian's own")
      return nil
    }
    sink.onRoom = onRoom
    sink.reconnect = { try? JournalConnection.make(identifier) }
    sink.onGone = { cause in
      complain(
        "the journal takes nothing (\(SystemError.text(cause))): what the program writes there is "
          + "lost until it is back")
    }
    sink.onReturn = { count in
      complain("the journal is back: \(count) bytes of the program's output were lost")
      return ""
    }
  }

  var hasRoom: Bool { sink.hasRoom }

  func write(_ bytes: ArraySlice<UInt8>) { sink.write(bytes) }

  func finish(within limit: Duration) {
    sink.finish(within: limit)
    if sink.lost > 0 {
      complain("the journal: \(sink.lost) bytes of the program's output were lost")
    }
  }
}

/// guardian's own standard output and error where they are streams of the journal. The program
/// inherits them: a life that began with a dead one would die of its first line, and so would all
/// lives after it.
final class InheritedJournal {
  private let identifier: String
  private let numbers: [Int32]
  /// The value of JOURNAL_STREAM (systemd.exec(5)) once one was made anew.
  private(set) var variable: String?

  /// nil: neither is one.
  init?(identifier: String) {
    self.identifier = identifier
    numbers = [1, 2].filter(Self.isStream)
    if numbers.isEmpty { return nil }
  }

  /// Whether it is the stream that the service manager made, or one that was made since.
  static func isStream(_ number: Int32) -> Bool {
    if unsafe guardian_peer_is(number, JournalConnection.path) { return true }
    guard let value = unsafe getenv("JOURNAL_STREAM"), let own = name(of: number) else {
      return false
    }
    return unsafe String(cString: value) == own
  }

  private static func name(of number: Int32) -> String? {
    var status = stat()
    guard unsafe fstat(number, &status) == 0 else { return nil }
    return "\(status.st_dev):\(status.st_ino)"
  }

  /// Whether its other side is gone for good.
  func isDead(_ number: Int32) -> Bool {
    if !numbers.contains(number) { return false }
    var state = pollfd(fd: number, events: 0, revents: 0)
    return unsafe poll(&state, 1, 0) == 1 && Int32(state.revents) & (POLLERR | POLLHUP) != 0
  }

  /// Puts a new stream in the place of each that is dead.
  /// - Returns: false: one still is, for there is no journal now.
  @discardableResult
  func renew() -> Bool {
    let dead = numbers.filter(isDead)
    if dead.isEmpty { return true }
    guard let new = try? JournalConnection.make(identifier) else { return false }
    // Helpers of guardian inherit them too: not close-on-exec.
    for number in dead where dup2(new.raw, number) < 0 { return false }
    variable = Self.name(of: new.raw)
    return true
  }

  /// For guardian's own words.
  func newStandardError() -> SharedDescriptor? {
    renew()
    if isDead(2) { return nil }
    let copy = fcntl(2, F_DUPFD_CLOEXEC, 3)
    return copy < 0 ? nil : SharedDescriptor(FileDescriptor(owning: copy))
  }
}
