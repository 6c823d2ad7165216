// The program's output into the journal: each line an entry with the program's name as identifier.
// A journal that goes away is waited for; what is written meanwhile is lost and counted.
import CLinux
import CSystemd
import Glibc
import Kernel

final class JournalStream: ProgramSink {
  private static let socket = "/run/systemd/journal/stdout"
  private let identifier: String
  private let priority: Int32
  private let loop: EventLoop
  private let onRoom: () -> Void
  private let complain: (String) -> Void
  private var sink: OutputSink?
  private var isBroken = false
  private var lost: UInt64 = 0
  private var lossIsTold = false
  private var lastAttempt = Clock.monotonic
  let isTerminal = false

  /// nil: there is no journal; that was said.
  init?(
    identifier: String, stream: OutputStream, loop: EventLoop, onRoom: @escaping () -> Void,
    complain: @escaping (String) -> Void
  ) {
    self.identifier = identifier
    // What a program writes to standard error is no error by that alone, but more than the rest.
    priority = stream == .stdout ? LOG_INFO : LOG_NOTICE
    self.loop = loop
    self.onRoom = onRoom
    self.complain = complain
    do { try connect() } catch {
      complain(
        "\(error): the program's \(stream == .stdout ? "standard output" : "standard error") "
          + "goes to guardian's own")
      return nil
    }
  }

  private func connect() throws(SystemError) {
    // The library's connect waits while the journal's queue of connections is full.
    if !(unsafe guardian_accepts_stream(Self.socket)) {
      throw SystemError("reach the journal at", Self.socket, errno: errno)
    }
    let number = unsafe sd_journal_stream_fd(identifier, priority, 0)
    if number < 0 { throw SystemError("reach the journal at", Self.socket, errno: -number) }
    let sink = OutputSink(number, loop: loop, title: "the journal")
    close(number)
    sink.onRoom = onRoom
    sink.onFailure = { [unowned self] errno, count in
      isBroken = true
      lost += UInt64(count)
      if lossIsTold { return }
      lossIsTold = true
      complain(
        "the journal takes nothing (\(SystemError.text(errno))): what the program writes there is "
          + "lost until it is back")
    }
    self.sink = sink
    isBroken = false
  }

  var hasRoom: Bool { isBroken || sink?.hasRoom ?? true }

  func write(_ bytes: ArraySlice<UInt8>) {
    if isBroken {
      let now = Clock.monotonic
      if now - lastAttempt >= Limit.sinkRetry {
        lastAttempt = now
        try? connect()
      }
      if isBroken {
        lost += UInt64(bytes.count)
        return
      }
      complain("the journal is back: \(lost) bytes of the program's output were lost")
      lost = 0
      lossIsTold = false
    }
    sink?.write(bytes)
  }

  func finish(within limit: Duration) {
    if !isBroken { sink?.finish(within: limit) }
    if lost > 0 { complain("the journal: \(lost) bytes of the program's output were lost") }
  }
}
