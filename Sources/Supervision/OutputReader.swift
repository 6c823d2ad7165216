// Reads what a program writes: one buffer for all its streams and lives, and a way past it. Where
// the sink is a pipe too, the kernel gives it the pages (tee), and only the tail is read.
import CLinux
import Glibc
import Kernel

final class OutputReader {
  /// Not zeroed: its pages come into being with the first large read.
  private var buffer = unsafe [UInt8](unsafeUninitializedCapacity: Limit.readBytes) { _, count in
    count = Limit.readBytes
  }
  /// Where pages go that nobody reads; nil: there is no /dev/null, and they are read.
  private lazy var nowhere = try? SharedDescriptor(FileDescriptor.open("/dev/null", O_WRONLY))
  /// Sees what the program wrote, while somebody follows it.
  var see: ((OutputStream, ArraySlice<UInt8>) -> Void)?

  enum Step {
    case moved(Int)
    /// Nothing is there now.
    case empty
    /// The sink takes nothing now; it says when it does.
    case full
    /// Nobody has it open for writing any more.
    case end
  }

  /// Moves what is there into `sink` and `tail`, without waiting.
  /// - Parameters:
  ///   - limit: in bytes; a hint, as one read may bring more.
  ///   - all: also what the sink does not take now: it keeps it.
  func step(
    _ pipe: borrowing FileDescriptor, _ stream: OutputStream, into sink: ProgramSink,
    tail: inout OutputTail, limit: Int, all: Bool = false
  ) -> Step {
    if see == nil {
      switch sink.copy(from: pipe.raw, limit: limit) {
      case .copied(let count, let behind):
        consume(pipe, count, behind: behind, into: &tail)
        return .moved(count)
      case .full: if !all { return .full }
      case .impossible: break
      }
    }
    do {
      let count = try pipe.read(into: &buffer)
      if count == 0 { return .end }
      let bytes = buffer[..<count]
      tail.append(bytes, at: Clock.wall)
      sink.write(bytes)
      see?(stream, bytes)
      return .moved(count)
    } catch {
      // EIO: the last process closed the pseudo-terminal.
      return error.errno == EAGAIN ? .empty : .end
    }
  }

  /// What the sink has is taken out of the pipe, unread where what lies behind it will push it out of
  /// the tail. The program may have been faster, it has the pipe open too.
  private func consume(
    _ pipe: borrowing FileDescriptor, _ count: Int, behind: Int, into tail: inout OutputTail
  ) {
    var left = count
    let unread = count - max(0, Limit.tailBytes - behind)
    if unread > 0, let null = nowhere {
      let skipped = guardian_splice(pipe.raw, null.raw, unread)
      if skipped > 0 {
        left -= skipped
        tail.skip()
      }
    }
    while left > 0 {
      guard let got = try? pipe.read(into: &buffer, limit: left), got > 0 else { return }
      tail.append(buffer[..<got], at: Clock.wall)
      left -= got
    }
  }
}
