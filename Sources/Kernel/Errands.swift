// What may wait in the kernel for ever is done by a child: guardian itself must go on, whatever a
// stranger's file system, socket or memory does. The child is a fork that makes nothing but system
// calls; one that hangs in the kernel is left behind and counted.
import CLinux
import Glibc

package enum Errands {
  /// More at one time are not sent: as many hang.
  package static let most = 16
  /// How long an errand may take that hangs for nobody: only a machine that has no time at all
  /// needs more than a few milliseconds.
  package static let patience = Duration.milliseconds(250)

  nonisolated(unsafe) private static var alive: Set<Int32> = []
  /// Descriptors that nobody could be sent to close.
  nonisolated(unsafe) private static var unclosed: [Int32] = []

  /// The children that were not reaped yet.
  package static var pids: Set<Int32> { unsafe alive }

  /// Whether no more can be sent now.
  package static var isFull: Bool {
    collect()
    return unsafe alive.count >= most
  }

  /// For who reaps children: whether this one, which ended, was one of them.
  package static func ended(_ pid: Int32) -> Bool {
    guard unsafe alive.remove(pid) != nil else { return false }
    closeLeft()
    return true
  }

  /// Reaps those that ended.
  private static func collect() {
    for pid in pids where Processes.take(pid) != nil { _ = ended(pid) }
  }

  private static func begun(_ pid: pid_t) -> Bool {
    if pid < 0 { return false }
    unsafe alive.insert(pid)
    return true
  }

  // MARK: descriptors

  package struct Taken {
    /// Close-on-exec, the caller's: to be given to `close` when they are not wanted.
    package var kept: [Int32] = []
    /// Such as are closed because a use of them may wait for ever.
    package var refused = 0
    /// Such as there was no room for.
    package var beyond = 0
    package init() {}
  }

  /// Takes the datagram that waits first at a socket, which was peeked at, with its descriptors: all of
  /// them are closed elsewhere but the first `room` that can do no harm.
  /// - Returns: nil: it could not be taken now, and waits still.
  package static func take(from socket: Int32, room: Int) -> Taken? {
    if isFull { return nil }
    var end: Int32 = -1
    let pid = unsafe guardian_errand_take(socket, Int32(room), &end)
    guard begun(pid) else { return nil }
    let answers = FileDescriptor(owning: end)
    var ready = pollfd(fd: answers.raw, events: Int16(POLLIN), revents: 0)
    guard unsafe poll(&ready, 1, Int32(patience.milliseconds)) == 1,
      let answer = Sockets.receiveNumbers(answers, limit: MemoryLayout<guardian_taken>.size),
      answer.bytes.count == MemoryLayout<guardian_taken>.size
    else {
      kill(pid, SIGKILL)
      return nil
    }
    let words = unsafe answer.bytes.withUnsafeBytes {
      unsafe $0.loadUnaligned(as: guardian_taken.self)
    }
    var taken = Taken()
    taken.kept = answer.numbers
    taken.refused = Int(words.refused)
    taken.beyond = Int(words.beyond)
    return taken
  }

  /// Closes what was a stranger's. Only for such as `take` lets through: another kind would wait here.
  package static func close(_ numbers: [Int32]) {
    if numbers.isEmpty { return }
    unsafe unclosed += numbers
    closeLeft()
  }

  private static func closeLeft() {
    let numbers = unsafe unclosed.sorted()
    if numbers.isEmpty || pids.count >= most { return }
    let some = Array(numbers.prefix(Int(GUARDIAN_MESSAGE_DESCRIPTORS)))
    var end: Int32 = -1
    let pid = unsafe some.withUnsafeBufferPointer {
      unsafe guardian_errand_hold($0.baseAddress, Int32($0.count), &end)
    }
    guard begun(pid) else { return }
    unsafe unclosed = Array(numbers.dropFirst(some.count))
    // The child has them too: here none is the last.
    for number in some { _ = Glibc.close(number) }
    _ = Glibc.close(end)
  }

  /// Closes a datagram socket that strangers send to: what waits in it would be closed with it.
  package static func closeSocket(_ socket: Int32) {
    guardian_deafen(socket)
    if Sockets.isWaiting(at: socket) { close([socket]) } else { _ = Glibc.close(socket) }
  }

  // MARK: reading

  /// Files that a process's memory is behind, or a stranger's file system.
  /// - Returns: nil: not within the time. A file that cannot be read is empty.
  package static func read(
    _ files: [(path: String, limit: Int)], within limit: Duration = patience
  ) -> [[UInt8]]? {
    if isFull { return nil }
    let paths = files.map { Array($0.path.utf8) + [0] }
    let all = paths.flatMap { $0 }
    let limits = files.map { UInt32(clamping: $0.limit) }
    var end: Int32 = -1
    let pid = unsafe all.withUnsafeBytes { bytes in
      let start = unsafe bytes.baseAddress!.assumingMemoryBound(to: CChar.self)
      var offset = 0
      let pointers: [UnsafePointer<CChar>?] = unsafe paths.map { path in
        defer { offset += path.count }
        return unsafe start + offset
      }
      return unsafe pointers.withUnsafeBufferPointer { pointers in
        unsafe limits.withUnsafeBufferPointer { limits in
          unsafe guardian_errand_read(
            pointers.baseAddress, limits.baseAddress, Int32(limits.count), &end)
        }
      }
    }
    guard begun(pid) else { return nil }
    let pipe = FileDescriptor(owning: end)
    let until = Clock.monotonic + limit
    var texts: [[UInt8]] = []
    var bytes: [UInt8] = []
    var text: [UInt8] = []
    var start = 0
    while texts.count < files.count {
      // One piece, if all of it is there.
      if bytes.count - start >= 4 {
        let size = unsafe bytes.withUnsafeBytes {
          Int(unsafe $0.loadUnaligned(fromByteOffset: start, as: UInt32.self))
        }
        if size == 0 {
          texts.append(text)
          text = []
          start += 4
          continue
        }
        if bytes.count - start >= 4 + size {
          text += bytes[(start + 4)..<(start + 4 + size)]
          start += 4 + size
          continue
        }
      }
      bytes.removeFirst(start)
      start = 0
      guard let more = next(pipe, until: until), !more.isEmpty else {
        kill(pid, SIGKILL)
        return nil
      }
      bytes += more
    }
    return texts
  }

  /// What is there in the pipe; empty: its end; nil: nothing until then.
  private static func next(_ pipe: borrowing FileDescriptor, until end: Duration) -> [UInt8]? {
    while true {
      var piece = [UInt8](repeating: 0, count: 65_536)
      if let count = try? pipe.read(into: &piece) {
        piece.removeLast(piece.count - count)
        return piece
      }
      let left = end - Clock.monotonic
      if left <= .zero { return nil }
      var ready = pollfd(fd: pipe.raw, events: Int16(POLLIN), revents: 0)
      _ = unsafe poll(&ready, 1, Int32(clamping: left.milliseconds))
    }
  }

  // MARK: looking for marks

  package enum Verdict { case marked, unmarked, unknown }

  /// Whether processes have the marks of a folder's channels in their memory. One that holds up who
  /// looks at it, for a quarter of a second, is `unmarked`.
  /// - Parameter threads: of each process one that lives.
  /// - Returns: of as many as there was time for, the first ones.
  package static func search(
    _ processes: [(pid: Int32, thread: Int32)], marks: LifeMarks, until end: Duration
  ) -> [Verdict] {
    // No channel is to be known.
    if marks.channels?.isEmpty ?? false { return processes.map { _ in .unmarked } }
    let names = (marks.channels ?? []).joined()
    let folder = marks.folder
    var verdicts: [Verdict] = []
    while verdicts.count < processes.count, Clock.monotonic < end, !isFull {
      let rest = processes[verdicts.count...]
      var pipeEnd: Int32 = -1
      let pid = unsafe rest.map(\.pid).withUnsafeBufferPointer { pids in
        unsafe rest.map(\.thread).withUnsafeBufferPointer { threads in
          unsafe guardian_errand_search(
            pids.baseAddress, threads.baseAddress, Int32(pids.count),
            "\(LifeMarks.variable)=\(folder)/", " \(folder)/", names, &pipeEnd)
        }
      }
      guard begun(pid) else { return verdicts }
      let pipe = FileDescriptor(owning: pipeEnd)
      while verdicts.count < processes.count {
        guard let some = next(pipe, until: min(end, Clock.monotonic + patience)), !some.isEmpty
        else {
          kill(pid, SIGKILL)
          if Clock.monotonic < end { verdicts.append(.unmarked) }
          break
        }
        for verdict in some {
          switch Int(verdict) {
          case Int(GUARDIAN_SEARCH_FOUND): verdicts.append(.marked)
          case Int(GUARDIAN_SEARCH_EMPTY): verdicts.append(.unknown)
          default: verdicts.append(.unmarked)
          }
        }
      }
    }
    return verdicts
  }
}
