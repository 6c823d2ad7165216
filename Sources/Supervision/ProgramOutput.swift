// One life's standard error, or its standard output where that goes through guardian: a FIFO that
// the program holds open for reading too, so that it is not killed by SIGPIPE when guardian dies, or a pseudo-terminal when guardian writes to a
// terminal, so that colours stay. What comes is passed on, its tail kept.
import CLinux
import Glibc
import Kernel

final class ProgramOutput {
  private let loop: EventLoop
  private let sink: ProgramSink
  private let tap: OutputTap
  let stream: OutputStream
  private let reading: FileDescriptor
  /// For the child; ours is closed after the spawn, or the end would never be seen.
  private var writing: FileDescriptor?
  private var source: EventSource?
  private var buffer: [UInt8] = []
  private(set) var tail = OutputTail()
  private(set) var isOpen = true
  let isTerminal: Bool

  /// Made ahead of the life that writes to it; not watched until `begin`.
  /// - Parameters:
  ///   - folder: for the FIFO; nil: a pipe, which ends with guardian.
  ///   - user: the program's; it may open its own /dev/stderr then.
  ///   - mayBeTerminal: a pseudo-terminal dies with guardian, a FIFO does not.
  init(
    folder: String?, stream: OutputStream, sink: ProgramSink, tap: OutputTap, user: Launch.User,
    loop: EventLoop, mayBeTerminal: Bool = true
  ) throws(SystemError) {
    self.loop = loop
    self.stream = stream
    self.sink = sink
    self.tap = tap
    if mayBeTerminal, sink.isTerminal, let pair = Terminal.openPair(like: 2) {
      reading = FileDescriptor(owning: pair.master)
      writing = FileDescriptor(owning: pair.slave)
      isTerminal = true
      try reading.setNonBlocking()
      if let uid = user.uid { _ = fchown(pair.slave, uid, .max) }
      return
    }
    isTerminal = false
    guard let folder else {
      let (from, to) = try Files.makePipe()
      reading = try from.descriptor.duplicate()
      writing = try to.descriptor.duplicate()
      try reading.setNonBlocking()
      return
    }
    let path = folder + "/" + stream.rawValue
    try Files.makeFIFO(path, mode: 0o600)
    reading = try FileDescriptor.open(path, O_RDONLY | O_NONBLOCK)
    writing = try FileDescriptor.open(path, O_RDWR)
    if let uid = user.uid, let raw = writing?.raw { _ = fchown(raw, uid, .max) }
    // Fails when the user's share of pipe pages is used up: then it is 64 KiB.
    _ = guardian_set_pipe_size(reading.raw, Limit.pipeBytes)
  }

  /// Goes on with the FIFO of a life that an earlier guardian started.
  init(
    adopting folder: String, stream: OutputStream, sink: ProgramSink, tap: OutputTap,
    loop: EventLoop
  ) throws(SystemError) {
    self.loop = loop
    self.stream = stream
    self.sink = sink
    self.tap = tap
    isTerminal = false
    reading = try FileDescriptor.open(
      folder + "/" + stream.rawValue, O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
  }

  /// Goes on with what was open before this program was executed.
  init(
    resuming number: Int32, stream: OutputStream, isTerminal: Bool, tail: OutputTail,
    sink: ProgramSink, tap: OutputTap, loop: EventLoop
  ) {
    self.loop = loop
    self.stream = stream
    self.sink = sink
    self.tap = tap
    self.isTerminal = isTerminal
    self.tail = tail
    reading = FileDescriptor(owning: number)
  }

  var readingNumber: Int32 { reading.raw }

  /// The number to give to the child.
  var childDescriptor: Int32? { writing?.raw }

  /// The child has it: read.
  func begin() {
    writing = nil
    source = try? loop.watch(reading.raw, urgency: .output) { [unowned self] _ in
      pump(limit: Limit.readBytes * 4)
    }
    if !sink.hasRoom { source?.isEnabled = false }
  }

  /// The terminal's size changed: the pseudo-terminal's follows, and the kernel tells the program.
  func copySize() {
    if isTerminal { Terminal.copySize(from: 2, to: reading.raw) }
  }

  func resume() { if isOpen, let source, !source.isEnabled { source.isEnabled = true } }

  /// Reads what is there without waiting, at most `limit` bytes.
  private func pump(limit: Int) {
    var total = 0
    if buffer.isEmpty { buffer = [UInt8](repeating: 0, count: Limit.readBytes) }
    while total < limit {
      let count: Int
      do { count = try reading.read(into: &buffer) } catch {
        if error.errno == EAGAIN { break }
        // EIO: the last process closed the pseudo-terminal.
        close()
        return
      }
      if count == 0 {
        close()
        return
      }
      total += count
      let bytes = buffer[..<count]
      tail.append(bytes, at: Clock.wall)
      sink.write(bytes)
      tap.see?(stream, bytes)
      if !sink.hasRoom {
        source?.isEnabled = false
        break
      }
      if count < Limit.readBytes / 4 { break }
    }
    if total < Limit.readBytes / 4 && buffer.count > 0 { buffer = [] }
  }

  /// At the ending: the last lines are in the pipe already. A descendant that holds it open and
  /// writes on is not waited for.
  func drain() {
    if !isOpen { return }
    var left = Int(Limit.pipeBytes) * 2
    var piece = [UInt8](repeating: 0, count: Limit.readBytes)
    while left > 0, let count = try? reading.read(into: &piece), count > 0 {
      left -= count
      tail.append(piece[..<count], at: Clock.wall)
      sink.write(piece[..<count])
      tap.see?(stream, piece[..<count])
    }
  }

  func close() {
    isOpen = false
    source = nil
    buffer = []
  }
}
