// One life's standard error, or its standard output where that goes through guardian: a FIFO that
// the program holds open for reading too, so that it is not killed by SIGPIPE when guardian dies,
// or a pseudo-terminal when guardian writes to a terminal, so that colours stay. What comes is passed
// on, its tail kept.
import CLinux
import Glibc
import Kernel

final class ProgramOutput {
  private let loop: EventLoop
  private let sink: ProgramSink
  private let reader: OutputReader
  let stream: OutputStream
  private let reading: FileDescriptor
  /// For the child; ours is closed after the spawn, or the end would never be seen.
  private var writing: FileDescriptor?
  private var source: EventSource?
  private(set) var tail = OutputTail()
  private(set) var isOpen = true
  let isTerminal: Bool

  /// Made ahead of the life that writes to it; not watched until `begin`.
  /// - Parameters:
  ///   - folder: for the FIFO; nil: a pipe, which ends with guardian.
  ///   - user: the program's; it may open its own /dev/stderr then.
  ///   - mayBeTerminal: a pseudo-terminal dies with guardian, a FIFO does not.
  init(
    folder: String?, stream: OutputStream, sink: ProgramSink, reader: OutputReader,
    user: Launch.User,
    loop: EventLoop, mayBeTerminal: Bool = true
  ) throws(SystemError) {
    self.loop = loop
    self.stream = stream
    self.sink = sink
    self.reader = reader
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
    adopting folder: String, stream: OutputStream, sink: ProgramSink, reader: OutputReader,
    loop: EventLoop
  ) throws(SystemError) {
    self.loop = loop
    self.stream = stream
    self.sink = sink
    self.reader = reader
    isTerminal = false
    reading = try FileDescriptor.open(
      folder + "/" + stream.rawValue, O_RDONLY | O_NONBLOCK | O_NOFOLLOW)
  }

  /// Goes on with what was open before this program was executed.
  init(
    resuming number: Int32, stream: OutputStream, isTerminal: Bool, tail: OutputTail,
    sink: ProgramSink, reader: OutputReader, loop: EventLoop
  ) {
    self.loop = loop
    self.stream = stream
    self.sink = sink
    self.reader = reader
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
      pump(limit: Limit.outputBytesPerTurn)
    }
    if !sink.hasRoom { source?.isEnabled = false }
  }

  /// The terminal's size changed: the pseudo-terminal's follows, and the kernel tells the program.
  func copySize() {
    if isTerminal { Terminal.copySize(from: 2, to: reading.raw) }
  }

  func resume() { if isOpen, let source, !source.isEnabled { source.isEnabled = true } }

  /// Moves what is there without waiting, about `limit` bytes.
  private func pump(limit: Int) {
    var total = 0
    while total < limit {
      switch reader.step(reading, stream, into: sink, tail: &tail, limit: limit - total) {
      case .moved(let count):
        total += count
        if !sink.hasRoom {
          source?.isEnabled = false
          return
        }
        if count < Limit.readBytes / 4 { return }
      case .empty: return
      case .full:
        source?.isEnabled = false
        return
      case .end:
        close()
        return
      }
    }
  }

  /// At the ending: the last lines are in the pipe already. A descendant that holds it open and
  /// writes on is not waited for.
  func drain() {
    if !isOpen { return }
    var left = Int(Limit.pipeBytes) * 2
    while left > 0,
      case .moved(let count) = reader.step(
        reading, stream, into: sink, tail: &tail, limit: left, all: true)
    { left -= count }
  }

  func close() {
    isOpen = false
    source = nil
  }
}
