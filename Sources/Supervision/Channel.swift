// One life's channel: a folder that only this life's environment names, with the ring, the bell
// and the notify socket. A new one for every life, so that a writer of an old life can reach
// nothing of the new one; made ahead, so that a restart does not pay for it.
import CLinux
import Glibc
import Kernel
import Ring

final class Channel {
  let life: UInt32
  /// Empty: there is none, and nothing can reach guardian by it.
  let folder: String
  let bell: StrangersSocket
  let notify: StrangersSocket
  /// Standard error.
  let errors: ProgramOutput
  /// Standard output, where it goes through guardian.
  let output: ProgramOutput?
  /// Why its life is without a handler: there was no room for the ring.
  let noRing: SystemError?
  /// Where the program writes a newline when it is ready; nil: it says so otherwise.
  let readiness: ReadinessPipe?
  private let ring: FileDescriptor
  private var sizeGuard: EventSource?

  /// Under `runtime`, which others may pass through but not read.
  /// - Parameter takesDescriptors: whether they may come with a message to the notify socket.
  init(
    life: UInt32, runtime: String, captureTimeout: Duration, readinessPipe: Bool,
    streams: StandardStreams, user: Launch.User, loop: EventLoop, takesDescriptors: Bool = true,
    mayBeTerminal: Bool = true
  ) throws(SystemError) {
    self.life = life
    folder = runtime + "/" + Randomness.hex(bytes: 16)
    try Files.makeDirectory(folder)
    do {
      ring = try FileDescriptor.open(folder + "/ring", O_RDWR | O_CREAT | O_EXCL)
      noRing = try Channel.begin(ring, life: life, captureTimeout: captureTimeout)
      bell = StrangersSocket(try Sockets.bindDatagram(folder + "/bell", mode: 0o666))
      notify = StrangersSocket(
        try Sockets.bindDatagram(folder + "/notify", mode: 0o666, descriptors: takesDescriptors))
      readiness = readinessPipe ? try ReadinessPipe(folder: folder) : nil
      errors = try ProgramOutput(
        folder: folder, stream: .stderr, sink: streams.error, reader: streams.reader, user: user,
        loop: loop, mayBeTerminal: mayBeTerminal)
      if let sink = streams.output {
        output = try ProgramOutput(
          folder: folder, stream: .stdout, sink: sink, reader: streams.reader, user: user,
          loop: loop)
      } else {
        output = nil
      }
      // The program may run as another user: it may enter, and must know the name.
      try Files.setPermissions(folder, 0o711)
    } catch {
      Files.removeShallow(folder)
      throw error
    }
  }

  /// Whatever of the program's goes through guardian; standard error is the last, as reports read
  /// it to its end.
  var outputs: [ProgramOutput] { (output.map { [$0] } ?? []) + [errors] }

  func beginOutputs() { for output in outputs { output.begin() } }
  func resumeOutputs() { for output in outputs { output.resume() } }
  func drainOutputs() { for output in outputs { output.drain() } }

  /// The kept last lines of both, in the order they came.
  var lastLines: [OutputTail.Line] {
    guard let output else { return errors.tail.all }
    let (first, second) = (output.tail.all, errors.tail.all)
    var lines: [OutputTail.Line] = []
    var (one, other) = (first[...], second[...])
    while let left = one.first, let right = other.first {
      if left.time <= right.time {
        lines.append(left)
        one.removeFirst()
      } else {
        lines.append(right)
        other.removeFirst()
      }
    }
    return lines + one + other
  }

  /// Where no folder can be made: the program's output still comes to guardian, nothing else does.
  init(
    withoutFolder life: UInt32, because error: SystemError, readinessPipe: Bool,
    streams: StandardStreams, user: Launch.User, loop: EventLoop
  ) throws(SystemError) {
    self.life = life
    folder = ""
    noRing = error
    ring = try FileDescriptor.open("/dev/null", O_RDWR)
    bell = StrangersSocket(try Sockets.silent())
    notify = StrangersSocket(try Sockets.silent())
    readiness = readinessPipe ? try ReadinessPipe(folder: nil) : nil
    errors = try ProgramOutput(
      folder: nil, stream: .stderr, sink: streams.error, reader: streams.reader, user: user,
      loop: loop)
    if let sink = streams.output {
      output = try ProgramOutput(
        folder: nil, stream: .stdout, sink: sink, reader: streams.reader, user: user, loop: loop)
    } else {
      output = nil
    }
  }

  /// Takes over the channel of a life that an earlier guardian started: the ring is the one that
  /// the program has mapped, the sockets are new ones under the same names.
  init(
    adopting folder: String, life: UInt32, streams: StandardStreams, loop: EventLoop
  ) throws(SystemError) {
    self.life = life
    self.folder = folder
    noRing = nil
    ring = try FileDescriptor.open(folder + "/ring", O_RDWR | O_NOFOLLOW)
    let status = try ring.status()
    if !status.isRegular || status.size < Int64(RingLayout.size) {
      throw SystemError("take over the ring", folder + "/ring", errno: EINVAL)
    }
    try ring.write(
      RingHeaderEncoder.guardianPID(getpid()), at: Int64(RingLayout.Header.guardianPID))
    Files.remove(folder + "/bell")
    bell = StrangersSocket(try Sockets.bindDatagram(folder + "/bell", mode: 0o666))
    Files.remove(folder + "/notify")
    notify = StrangersSocket(
      try Sockets.bindDatagram(folder + "/notify", mode: 0o666, descriptors: true))
    readiness = nil
    errors = try ProgramOutput(
      adopting: folder, stream: .stderr, sink: streams.error, reader: streams.reader, loop: loop)
    output = streams.output.flatMap {
      try? ProgramOutput(
        adopting: folder, stream: .stdout, sink: $0, reader: streams.reader, loop: loop)
    }
  }

  /// Goes on with what was open before this program was executed.
  init(
    resuming folder: String, life: UInt32, ring: Int32, bell: Int32, notify: Int32,
    readiness: Int32?, errors: ProgramOutput, output: ProgramOutput?
  ) {
    self.life = life
    self.folder = folder
    noRing = nil
    self.ring = FileDescriptor(owning: ring)
    self.bell = StrangersSocket(FileDescriptor(owning: bell))
    self.notify = StrangersSocket(FileDescriptor(owning: notify))
    self.readiness = readiness.map { ReadinessPipe(resuming: $0) }
    self.errors = errors
    self.output = output
  }

  /// Whether nobody took it away since it was made.
  var isThere: Bool { Files.exists(folder + "/bell") }

  /// Whether a folder's name is that of a channel.
  static func isName(_ name: String) -> Bool {
    name.utf8.count == LifeMarks.channelDigits
      && name.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
  }

  deinit { if !folder.isEmpty { Files.removeShallow(folder) } }

  /// What is wrong if there is no room for it: then it stays empty.
  private static func begin(
    _ ring: borrowing FileDescriptor, life: UInt32, captureTimeout: Duration
  ) throws(SystemError) -> SystemError? {
    // All of it now: a program's start does not wait for it, and its handler is not the first to
    // find the file system full.
    do { try ring.allocate(Int64(RingLayout.size)) } catch {
      // Better a life without a handler than none: it does not take a ring of this size.
      try ring.truncate(to: 0)
      return error
    }
    let header = RingHeaderEncoder.bytes(
      life: life, guardianPID: getpid(),
      captureTimeoutMilliseconds: UInt32(clamping: captureTimeout.milliseconds),
      handlerRunsMax: Limit.handlerRuns)
    try ring.write(header, at: 0)
    try ring.setPermissions(0o666)
    return nil
  }

  var ringNumber: Int32 { ring.raw }
  /// Of its folder.
  var name: String { String(folder.suffix(LifeMarks.channelDigits)) }

  /// A copy of the ring as it is now; the program may be writing. A ring that somebody made
  /// longer is cut back: it would fill the runtime folder's file system.
  func readRing() -> [UInt8] {
    if let status = try? ring.status(), status.size > Int64(RingLayout.size) {
      try? ring.truncate(to: Int64(RingLayout.size))
    }
    return (try? ring.read(count: RingLayout.size, at: 0)) ?? []
  }

  /// One crash record, as far as it can be believed.
  func crashRecord(slot: Int) -> RingContents.CrashRecord? {
    let start = RingLayout.slotsOffset + slot * RingLayout.slotSize
    guard let bytes = try? ring.read(count: RingLayout.slotSize, at: Int64(start)) else {
      return nil
    }
    return RingDecoder.crash(slot: slot, slotBytes: bytes)?.record
  }

  /// Bits of `guardian_handler_flag`.
  var handlerFlags: UInt32 {
    let head = try? ring.read(count: RingLayout.Header.size, at: 0)
    return RingDecoder.header(head ?? []).handlerFlags
  }

  /// The ring's size is guardian's: whoever changes it would fill the runtime folder's file system,
  /// or have other processes of the life die at their next breadcrumb. Nobody wakes guardian by
  /// writing to the mapped ring.
  func guardSize(_ loop: EventLoop) {
    if noRing != nil { return }
    sizeGuard = try? loop.watchChanges(of: folder + "/ring") { [unowned self] in
      guard let size = try? ring.status().size, size != Int64(RingLayout.size) else { return }
      try? ring.truncate(to: Int64(RingLayout.size))
      try? ring.allocate(Int64(RingLayout.size))
    }
  }

  /// For the next crash of this life: its process is dead and what it wrote is copied.
  func free(slot: Int) {
    guard (0..<RingLayout.slotCount).contains(slot) else { return }
    let offset = RingLayout.slotsOffset + slot * RingLayout.slotSize + RingLayout.Record.state
    try? ring.write([UInt8](repeating: 0, count: 4), at: Int64(offset))
  }

  /// How often the program called guardian_heartbeat().
  var heartbeat: UInt64 {
    let head = try? ring.read(count: RingLayout.Header.size, at: 0)
    return RingDecoder.header(head ?? []).heartbeat
  }

  /// Lets the thread go that waits in the handler. It wakes by itself: its waits are short.
  func release(slot: Int) {
    guard (0..<RingLayout.slotCount).contains(slot) else { return }
    let offset = Int64(RingLayout.releaseOffset(slot: slot))
    var one: UInt32 = 1
    let bytes = unsafe withUnsafeBytes(of: &one) { unsafe Array($0) }
    try? ring.write(bytes, at: offset)
  }
}

/// A socket that strangers send to: what waits in it when it is closed holds nobody up here.
final class StrangersSocket {
  let raw: Int32
  init(_ descriptor: consuming FileDescriptor) { raw = descriptor.release() }
  deinit { Errands.closeSocket(raw) }
}

/// The pipe of `--ready fd:N`, as s6 has it: the program writes a newline when it is ready.
final class ReadinessPipe {
  private let reading: FileDescriptor
  private var writing: FileDescriptor?
  private var source: EventSource?

  /// - Parameter folder: for a FIFO, which the program holds open itself: a write to it is no broken
  ///   pipe when guardian dies. nil: a pipe.
  init(folder: String?) throws(SystemError) {
    if let folder {
      let path = folder + "/ready"
      try Files.makeFIFO(path, mode: 0o600)
      reading = try FileDescriptor.open(path, O_RDONLY | O_NONBLOCK)
      writing = try FileDescriptor.open(path, O_RDWR)
      return
    }
    let (from, to) = try Files.makePipe()
    reading = try from.descriptor.duplicate()
    writing = try to.descriptor.duplicate()
  }

  /// Goes on with what was open before this program was executed.
  init(resuming number: Int32) { reading = FileDescriptor(owning: number) }

  var childDescriptor: Int32 { writing?.raw ?? -1 }
  var readingNumber: Int32 { reading.raw }

  /// The child has its end. What comes before a newline is not looked at; an end without one is
  /// no readiness, and the start timeout goes on.
  func begin(_ loop: EventLoop, _ ready: @escaping () -> Void) {
    writing = nil
    source = try? loop.watch(reading.raw) { [unowned self] _ in
      var bytes = [UInt8](repeating: 0, count: 4096)
      guard let count = try? reading.read(into: &bytes) else { return }
      if count > 0, !bytes[..<count].contains(10) { return }
      source = nil
      if count > 0 { ready() }
    }
  }
}

extension Duration {
  var seconds: Double {
    Double(components.seconds) + Double(components.attoseconds) / 1e18
  }
}
