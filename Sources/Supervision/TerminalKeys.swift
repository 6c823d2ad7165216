// ^C at the terminal. The program has the terminal to itself, so the key's INT goes to it alone: a
// process of guardian's own in the program's group tells guardian that it was typed.
import CSpawn
import Glibc
import Kernel

final class TerminalKeys {
  /// An ending so soon after ^C is what was asked for, and a second ^C so soon after the first is
  /// meant for guardian.
  static let together = Duration.seconds(2)

  let pid: Int32
  private let socket: FileDescriptor
  var source: EventSource?
  /// When ^C was typed last, on CLOCK_MONOTONIC.
  private(set) var last: Duration?

  /// nil: it cannot be had; then ^C is the program's own affair.
  init?(group: Int32) {
    var end: Int32 = -1
    pid = unsafe guardian_watch_keys(group, &end)
    if pid < 0 { return nil }
    socket = FileDescriptor(owning: end)
    try? socket.setNonBlocking()
  }

  var raw: Int32 { socket.raw }

  /// How often it was typed since the last look; for each whether it followed another at once.
  func typed() -> [Bool] {
    var buffer = [UInt8](repeating: 0, count: 16)
    guard let count = try? socket.read(into: &buffer), count > 0 else { return [] }
    let now = Clock.monotonic
    return (0..<count).map { _ in
      defer { last = now }
      return last.map { now - $0 < Self.together } ?? false
    }
  }

  /// Whether it was typed so short a time ago; nil: at any time.
  func wasTyped(within limit: Duration?) -> Bool {
    guard let last else { return false }
    return limit.map { Clock.monotonic - last < $0 } ?? true
  }

  /// Takes what was typed before the program ended, and ends the process: its group must be empty
  /// when the program's last process has left it.
  func finish() {
    source = nil
    shutdown(socket.raw, Int32(SHUT_WR))
    let end = Clock.monotonic + .milliseconds(200)
    while true {
      var poller = pollfd(fd: socket.raw, events: Int16(POLLIN), revents: 0)
      let left = max(0, Int32((end - Clock.monotonic).milliseconds))
      let ready = unsafe poll(&poller, 1, left)
      if ready < 0, errno == EINTR { continue }
      if ready <= 0 { break }
      if typed().isEmpty { break }
    }
    // Our own child and not reaped: the number is its own.
    kill(pid, SIGKILL)
    var status: Int32 = 0
    while unsafe waitpid(pid, &status, 0) < 0 && errno == EINTR {}
  }
}
