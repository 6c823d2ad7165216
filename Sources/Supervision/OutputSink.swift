// guardian's own standard error, or a stream like it: what the program wrote goes on to it, and
// guardian's messages between. Writing never blocks the loop. A stuck sink is waited for (the program then feels the
// back-pressure), after a while its oldest output is dropped and counted; it never stops anything.
import CLinux
import CSystemd
import Glibc
import Kernel

final class OutputSink: ProgramSink {
  private let loop: EventLoop
  /// Our own open file where the kernel lets us re-open it: O_NONBLOCK is a property of the open
  /// file, and the one we got is shared with whoever started us.
  private var descriptor: SharedDescriptor?
  private let isSocket: Bool
  private let isPipe: Bool
  /// The pipe took no more of what lies in another pipe.
  private var isFull = false
  private let mayBlock: Bool
  private var backlog: [UInt8] = []
  private var done = 0
  private var writable: EventSource?
  private var patience: EventLoop.Timer?
  private var stuck = false
  private var dropped: UInt64 = 0
  /// Called when output may be read again.
  var onRoom: () -> Void = {}
  /// For a connection whose other side may go away and come back, as the journal does: makes a new
  /// one; nil: not now.
  var reconnect: (() -> SharedDescriptor?)?
  /// The other side went away, with the errno, and is not back.
  var onGone: ((Int32) -> Void)?
  /// It is back, and so many bytes were lost meanwhile; what this returns is written there first.
  var onReturn: ((UInt64) -> String)?
  /// Bytes lost since it went away.
  private(set) var lost: UInt64 = 0
  private var isGone = false
  /// On CLOCK_MONOTONIC.
  private var nextAttempt = Duration.zero
  let isTerminal: Bool
  private let title: String

  /// - Parameter number: copied or opened anew.
  init(_ number: Int32, loop: EventLoop, title: String = "standard error") {
    self.loop = loop
    self.title = title
    isTerminal = isatty(number) == 1
    var status = stat()
    let known = unsafe fstat(number, &status) == 0
    isSocket = known && status.st_mode & S_IFMT == S_IFSOCK
    isPipe = known && status.st_mode & S_IFMT == S_IFIFO
    // A plain file never blocks, and its offset is shared with all who write to it.
    let isFile = known && status.st_mode & S_IFMT == S_IFREG
    if !known {
      descriptor = nil
      mayBlock = false
    } else if !isSocket, !isFile,
      let own = try? SharedDescriptor(
        FileDescriptor.open(
          "/proc/self/fd/\(number)", O_WRONLY | O_NONBLOCK | O_NOCTTY))
    {
      descriptor = own
      mayBlock = false
    } else {
      let copy = fcntl(number, F_DUPFD_CLOEXEC, 3)
      descriptor = copy < 0 ? nil : SharedDescriptor(FileDescriptor(owning: copy))
      mayBlock = !isSocket && !isFile
    }
    patience = try? loop.timer(CLOCK_MONOTONIC) { [unowned self] in giveUpOnSink() }
    watch()
  }

  private func watch() {
    guard let raw = descriptor?.raw else { return }
    // A plain file cannot be polled, and need not be.
    writable = try? loop.watch(raw, events: EPOLLOUT.rawValue, urgency: .output) {
      [unowned self] _ in flush()
    }
    writable?.isEnabled = false
  }

  /// Goes on with a new connection in the place of one that is gone. Tried when there is something to
  /// write, and not more often than `Limit.sinkRetry`, so that nothing wakes up for it.
  private func takeNew() -> Bool {
    guard let reconnect, Clock.monotonic >= nextAttempt else { return false }
    nextAttempt = Clock.monotonic + Limit.sinkRetry
    guard let new = reconnect() else { return false }
    writable = nil
    descriptor = new
    watch()
    isGone = false
    if lost > 0, let onReturn {
      let count = lost
      lost = 0
      _ = attempt(Array(onReturn(count).utf8)[...])
    }
    return true
  }

  /// The other side is known to be back.
  func reconnectNow() {
    if !isGone { return }
    nextAttempt = .zero
    _ = takeNew()
  }

  /// false: the rest can be written to a new connection.
  private func loses(_ count: Int, because cause: Int32) -> Bool {
    guard reconnect != nil, [EPIPE, ECONNRESET, ENOTCONN].contains(cause) else {
      dropped += UInt64(count)
      return true
    }
    if takeNew() { return false }
    lost += UInt64(count)
    if !isGone {
      isGone = true
      onGone?(cause)
    }
    return true
  }

  private var waiting: Int { backlog.count - done }

  /// Whether more output should be read now.
  var hasRoom: Bool { stuck || isGone || !isFull && waiting < Limit.backlogBytes }

  func copy(from pipe: Int32, limit: Int) -> PipeCopy {
    guard isPipe, waiting == 0, !stuck, let raw = descriptor?.raw else { return .impossible }
    // A copied piece takes a place of its own in the pipe, however short it is.
    var there: Int32 = 0
    guard unsafe ioctl(pipe, UInt(FIONREAD), &there) == 0, there >= Limit.copyBytes
    else { return .impossible }
    let count = guardian_tee(pipe, raw, limit)
    if count > 0 { return .copied(count, behind: Int(there) - count) }
    guard count < 0, errno == EAGAIN else { return .impossible }
    if !isFull {
      isFull = true
      patience?.set(after: Limit.sinkPatience)
      writable?.isEnabled = true
    }
    return .full
  }

  func write(_ bytes: ArraySlice<UInt8>) {
    if waiting > 0 {
      keep(bytes)
      return
    }
    let sent = attempt(bytes)
    if sent < bytes.count { keep(bytes.dropFirst(sent)) }
  }

  func write(_ text: String) { write(Array(text.utf8)[...]) }

  /// How many bytes it took.
  private func attempt(_ bytes: ArraySlice<UInt8>) -> Int {
    var sent = 0
    while sent < bytes.count {
      guard let raw = descriptor?.raw else { return bytes.count }
      var size = bytes.count - sent
      if mayBlock {
        // poll(2) promises that a pipe takes PIPE_BUF bytes without blocking, no more.
        var ready = pollfd(fd: raw, events: Int16(POLLOUT), revents: 0)
        if unsafe poll(&ready, 1, 0) != 1 { return sent }
        size = min(size, Int(PIPE_BUF))
      }
      let count = unsafe bytes.withUnsafeBytes { buffer in
        let start = unsafe buffer.baseAddress! + sent
        return unsafe isSocket
          ? send(raw, start, size, Int32(MSG_DONTWAIT | MSG_NOSIGNAL))
          : Glibc.write(raw, start, size)
      }
      if count >= 0 {
        sent += count
        continue
      }
      if errno == EINTR { continue }
      if errno == EAGAIN { return sent }
      // Nobody reads any more, or the disk is full: it is lost, and the program goes on.
      if loses(bytes.count - sent, because: errno) { return bytes.count }
    }
    return sent
  }

  private func keep(_ bytes: ArraySlice<UInt8>) {
    if waiting == 0 {
      backlog.removeAll(keepingCapacity: true)
      done = 0
      patience?.set(after: Limit.sinkPatience)
      writable?.isEnabled = true
    }
    backlog.append(contentsOf: bytes)
    let limit = stuck ? Limit.backlogBytes : Limit.backlogDrainBytes
    if waiting > limit { drop(waiting - limit) }
  }

  private func drop(_ count: Int) {
    done += count
    dropped += UInt64(count)
    compact()
  }

  private func compact() {
    if done < Limit.backlogBytes && done < backlog.count { return }
    backlog.removeFirst(done)
    done = 0
  }

  private func flush() {
    let sent = attempt(backlog[done...])
    isFull = false
    done += sent
    if sent > 0 || waiting == 0 { stuck = false }
    if sent > 0 { patience?.set(after: Limit.sinkPatience) }
    compact()
    if waiting == 0 {
      // A burst must not hold its memory for ever.
      backlog = []
      done = 0
      writable?.isEnabled = false
      patience?.disarm()
      if dropped > 0 {
        let text = "guardian: \(title) took nothing for a while: \(dropped) bytes dropped\n"
        dropped = 0
        write(text)
      }
    }
    if hasRoom { onRoom() }
  }

  private func giveUpOnSink() {
    if waiting == 0 && !isFull { return }
    stuck = true
    onRoom()
  }

  /// Before guardian leaves: what still goes without waiting longer than `limit`.
  func finish(within limit: Duration) {
    let end = Clock.monotonic + limit
    while waiting > 0, let raw = descriptor?.raw {
      let left = end - Clock.monotonic
      if left <= .zero { return }
      var ready = pollfd(fd: raw, events: Int16(POLLOUT), revents: 0)
      let milliseconds = Int32(clamping: left.components.seconds * 1000 + 10)
      if unsafe poll(&ready, 1, milliseconds) != 1 { continue }
      done += attempt(backlog[done...])
    }
  }
}
