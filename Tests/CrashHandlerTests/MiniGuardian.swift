// A guardian of a hundred lines: makes the channel, starts a program with the handler
// preloaded, answers the bell and tells how the program ended. It reads the ring by the
// offsets of its layout and nothing else, so that writer and reader are checked apart.
import Glibc

/// Where things are, from this file's own place.
enum Places {
  static let root: String = {
    var parts = #filePath.split(separator: "/")
    parts.removeLast(3)
    return "/" + parts.joined(separator: "/")
  }()
  static let handler = root + "/.build/release/libguardian-handler.so"
  static func fixture(_ name: String) -> String { root + "/.build/fixtures/" + name }
  static let dies = fixture("dies")
}

struct Failure: Error, CustomStringConvertible {
  let description: String
  init(_ what: String) { description = "\(what): \(String(cString: strerror(errno)))" }
}

/// How a process ended, and what it wrote.
struct Outcome {
  /// As waitpid tells it.
  var status: Int32 = 0
  var output = ""
  var bells: [Bell] = []
  var ring = RingBytes(bytes: [])
  var notified: [String] = []

  var signal: Int32? { status & 0x7f == 0 ? nil : status & 0x7f }
  var exitCode: Int32? { status & 0x7f == 0 ? (status >> 8) & 0xff : nil }
  var coreDumped: Bool { status & 0x80 != 0 }
}

struct Bell: Hashable {
  /// Of the sender, as the kernel says.
  var senderPID: Int32
  var slot: Int
  var tid: Int32
  var signal: Int32
}

/// A ring's bytes, read by offset.
struct RingBytes {
  static let size = 4096 + 4 * 40960 + 1024 * 256 + 64 * 512
  let bytes: [UInt8]

  func number<T: FixedWidthInteger>(_ offset: Int, _: T.Type = T.self) -> T {
    bytes.withUnsafeBytes { $0.loadUnaligned(fromByteOffset: offset, as: T.self) }
  }
  func text(_ offset: Int, _ count: Int) -> String {
    String(decoding: bytes[offset..<offset + count], as: UTF8.self)
  }

  var handlerFlags: UInt32 { number(256) }
  var handlerRuns: UInt32 { number(260) }
  var slotNext: UInt32 { number(264) }
  var mainPID: Int32 { number(268) }
  var crumbNext: UInt64 { number(272) }
  var heartbeat: UInt64 { number(280) }
  var replacedSignals: UInt64 { number(288) }

  struct Record {
    let ring: RingBytes
    let at: Int
    var state: UInt32 { ring.number(at) }
    var parts: UInt32 { ring.number(at + 4) }
    var architecture: UInt32 { ring.number(at + 12) }
    var pid: Int32 { ring.number(at + 16) }
    var tid: Int32 { ring.number(at + 20) }
    var signal: Int32 { ring.number(at + 24) }
    var code: Int32 { ring.number(at + 28) }
    var senderPID: Int32 { ring.number(at + 36) }
    var address: UInt64 { ring.number(at + 48) }
    var realtime: UInt64 { ring.number(at + 56) }
    var pc: UInt64 { ring.number(at + 72) }
    var sp: UInt64 { ring.number(at + 80) }
    var context: UInt64 { ring.number(at + 88) }
    var altstack: UInt64 { ring.number(at + 96) }
    var altstackSize: UInt64 { ring.number(at + 104) }
    func register(_ index: Int) -> UInt64 { ring.number(at + 128 + 8 * index) }
    var siginfoSignal: Int32 { ring.number(at + 448) }
    var siginfoCode: Int32 { ring.number(at + 448 + 8) }
    var threadName: String {
      String(ring.text(at + 576, 16).prefix { $0 != "\0" })
    }
    var abortMessage: String { ring.text(at + 624, Int(ring.number(at + 592, UInt32.self))) }
    var exceptionLanguage: UInt32 { ring.number(at + 596) }
    var exceptionType: String { ring.text(at + 1648, Int(ring.number(at + 600, UInt32.self))) }
    var exceptionReason: String { ring.text(at + 1904, Int(ring.number(at + 604, UInt32.self))) }
    var exceptionFrames: [UInt64] {
      (0..<Int(ring.number(at + 608, UInt32.self))).map { ring.number(at + 2928 + 8 * $0) }
    }
    var stackLength: UInt32 { ring.number(at + 612) }
    var stackAddress: UInt64 { ring.number(at + 616) }
    func stackWord(_ address: UInt64) -> UInt64 {
      ring.number(at + 3440 + Int(address - stackAddress))
    }
  }
  /// The records that were begun, in slot order.
  var records: [Record] {
    (0..<4).map { Record(ring: self, at: 4096 + $0 * 40960) }.filter { $0.state != 0 }
  }

  struct Crumb {
    let sequence: UInt64
    let pid: Int32
    let tid: Int32
    let level: UInt8
    let category: String
    let message: String
    let realtime: UInt64
  }
  var crumbs: [Crumb] {
    (0..<1024).compactMap { place in
      let at = 4096 + 4 * 40960 + place * 256
      let sequence: UInt64 = number(at)
      if sequence == 0 { return nil }
      return Crumb(
        sequence: sequence, pid: number(at + 16), tid: number(at + 20), level: number(at + 24),
        category: text(at + 32, min(24, Int(bytes[at + 25]))),
        message: text(at + 56, min(192, Int(number(at + 26, UInt16.self)))),
        realtime: number(at + 8))
    }
  }
  var annotations: [String: String] {
    var result: [String: String] = [:]
    for place in 0..<64 {
      let at = 4096 + 4 * 40960 + 1024 * 256 + place * 512
      let sequence: UInt64 = number(at)
      let length = Int(number(at + 10, UInt16.self))
      if sequence == 0 || sequence % 2 == 1 || length == 0 { continue }
      let key = text(at + 16, Int(number(at + 8, UInt16.self)))
      result[key] = result[key] == nil ? text(at + 80, length) : "TWICE"
    }
    return result
  }
}

/// What the mini guardian does when the bell rings.
enum Answer {
  case release
  /// The capture hangs: the program must go on by itself.
  case silence
}

struct MiniGuardian {
  var captureTimeoutMilliseconds: UInt32 = 5000
  var handlerRunsMax: UInt32 = 100
  var answer = Answer.release
  var environment: [String: String] = [:]
  /// What goes before the handler in LD_PRELOAD.
  var preloadFirst: String?
  var preload = true
  var channel = true
  /// Called when the channel is made, before the program starts.
  var prepare: (_ folder: String) throws -> Void = { _ in }
  /// Called at each bell, before the answer.
  var atBell: (_ bell: Bell, _ folder: String) -> Void = { _, _ in }
  /// Numbers that the program finds ignored when it starts.
  var ignored: [Int32] = []
  /// A noisy machine may take its time; a program that hangs may not.
  var deadlineSeconds: Int = 60

  /// Runs a program to its end.
  func run(_ arguments: String...) throws -> Outcome { try run(arguments) }

  func run(_ arguments: [String]) throws -> Outcome {
    _ = noCores
    var template = Array("/tmp/crash-handler-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw Failure("mkdtemp") }
    let folder = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    defer { removeAll(folder) }
    chmod(folder, 0o777)
    let ring = try makeRing(folder + "/ring")
    let bell = bindDatagram(folder + "/bell")
    let notify = bindDatagram(folder + "/notify")
    guard bell >= 0, notify >= 0 else { throw Failure("bind") }
    chmod(folder + "/bell", 0o666)
    chmod(folder + "/notify", 0o666)
    defer { for fd in [ring, bell, notify] { close(fd) } }
    try prepare(folder)

    var values = environment
    values["PATH"] = "/usr/bin:/bin:/usr/sbin:/sbin"
    if channel { values["GUARDIAN_CHANNEL"] = folder }
    if preload {
      values["LD_PRELOAD"] = [preloadFirst, Places.handler].compactMap { $0 }.joined(separator: ":")
    }
    let output = folder + "/output"
    let pid = try spawn(arguments, values, folder: folder, output: output)
    var outcome = Outcome()
    let deadline = seconds() + deadlineSeconds
    var ended = false
    while !ended {
      // Either may come first, and only one of them is a descriptor.
      var watched = pollfd(fd: bell, events: Int16(POLLIN), revents: 0)
      poll(&watched, 1, 3)
      if seconds() > deadline {
        kill(pid, SIGKILL)
        outcome.output = "TIMED OUT "
      }
      // A bell that was rung by the time of the end is in the queue.
      ended = waitpid(pid, &outcome.status, WNOHANG) == pid
      while let received = receive(bell, folder) {
        outcome.bells.append(received)
        atBell(received, folder)
        if answer == .release {
          var one: UInt32 = 1
          pwrite(ring, &one, 4, off_t(4096 + received.slot * 40960 + 8))
        }
      }
    }
    while let message = receiveDatagram(notify) {
      outcome.notified.append(String(decoding: message.bytes, as: UTF8.self))
    }
    var bytes = [UInt8](repeating: 0, count: RingBytes.size)
    guard pread(ring, &bytes, bytes.count, 0) == bytes.count else { throw Failure("read ring") }
    outcome.ring = RingBytes(bytes: bytes)
    outcome.output += try readAll(output)
    return outcome
  }

  private func makeRing(_ path: String) throws -> Int32 {
    close(creat(path, 0o666))
    chmod(path, 0o666)
    let fd = open(path, O_RDWR | O_CLOEXEC)
    guard fd >= 0, ftruncate(fd, off_t(RingBytes.size)) == 0 else { throw Failure("ring") }
    var header: [UInt8] = []
    func add<T: FixedWidthInteger>(_ value: T) {
      withUnsafeBytes(of: value) { header.append(contentsOf: $0) }
    }
    header.append(contentsOf: Array("GRDRING1".utf8))
    add(UInt32(2))
    add(UInt32(RingBytes.size))
    add(UInt32(1))
    add(getpid())
    add(captureTimeoutMilliseconds)
    add(handlerRunsMax)
    guard pwrite(fd, header, header.count, 0) == header.count else { throw Failure("ring") }
    return fd
  }

  private func receive(_ bell: Int32, _ folder: String) -> Bell? {
    guard let message = receiveDatagram(bell), message.bytes.count == 24 else { return nil }
    let ring = RingBytes(bytes: message.bytes)
    guard ring.number(0, UInt32.self) == 0x4c4c_4542, ring.number(4, UInt32.self) == 2 else {
      return nil
    }
    return Bell(
      senderPID: message.sender, slot: Int(ring.number(8, UInt32.self)), tid: ring.number(12),
      signal: ring.number(16))
  }

  private func spawn(
    _ arguments: [String], _ values: [String: String], folder: String, output: String
  ) throws -> Int32 {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0o666)
    posix_spawn_file_actions_adddup2(&actions, 1, 2)
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var all = sigset_t()
    sigfillset(&all)
    for number in ignored { sigdelset(&all, number) }
    posix_spawnattr_setsigdefault(&attributes, &all)
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(
      &attributes, Int16(POSIX_SPAWN_SETSIGDEF) | Int16(POSIX_SPAWN_SETSIGMASK))
    // In its own folder: for cores, and for a program that changes its root.
    let command = ["env", "-C", folder] + arguments
    var words: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) }
    words.append(nil)
    var variables: [UnsafeMutablePointer<CChar>?] = values.map { strdup("\($0.key)=\($0.value)") }
    variables.append(nil)
    defer {
      for text in words + variables { free(text) }
    }
    var pid: Int32 = 0
    let error = posix_spawn(&pid, "/usr/bin/env", &actions, &attributes, words, variables)
    errno = error
    guard error == 0 else { throw Failure("spawn \(arguments[0])") }
    return pid
  }
}

/// The test process's own programs leave no cores; a test that wants one raises the soft limit.
private let noCores: Void = {
  var limit = rlimit()
  getrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
  limit.rlim_cur = 0
  setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
}()

func seconds() -> Int {
  var now = timespec()
  clock_gettime(CLOCK_MONOTONIC, &now)
  return now.tv_sec
}

func readAll(_ path: String) throws -> String {
  let fd = open(path, O_RDONLY | O_CLOEXEC)
  guard fd >= 0 else { throw Failure("open \(path)") }
  defer { close(fd) }
  var all: [UInt8] = []
  var piece = [UInt8](repeating: 0, count: 65536)
  while case let count = read(fd, &piece, piece.count), count > 0 {
    all.append(contentsOf: piece[..<count])
  }
  return String(decoding: all, as: UTF8.self)
}

/// A folder of plain files.
private func removeAll(_ folder: String) {
  if let listing = opendir(folder) {
    while let entry = readdir(listing) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { unlink(folder + "/" + name) }
    }
    closedir(listing)
  }
  rmdir(folder)
}

/// A bound datagram socket that the kernel tells senders of; -1 on failure.
func bindDatagram(_ path: String) -> Int32 {
  var address = sockaddr_un()
  address.sun_family = sa_family_t(AF_UNIX)
  withUnsafeMutableBytes(of: &address.sun_path) { place in
    place.copyBytes(from: path.utf8.prefix(place.count - 1))
  }
  let fd = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
  var on: Int32 = 1
  setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, 4)
  let result = withUnsafePointer(to: &address) {
    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
      bind(fd, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
    }
  }
  return result == 0 ? fd : -1
}

/// One datagram with its sender's pid, if one is there.
func receiveDatagram(_ fd: Int32) -> (bytes: [UInt8], sender: Int32)? {
  var bytes = [UInt8](repeating: 0, count: 512)
  // A cmsghdr of 16 bytes and a ucred: pid, uid, gid.
  var control = [UInt8](repeating: 0, count: 64)
  let count = bytes.withUnsafeMutableBytes { place in
    control.withUnsafeMutableBytes { room in
      var piece = iovec(iov_base: place.baseAddress, iov_len: place.count)
      return withUnsafeMutablePointer(to: &piece) { pieces in
        var header = msghdr()
        header.msg_iov = pieces
        header.msg_iovlen = 1
        header.msg_control = room.baseAddress
        header.msg_controllen = room.count
        return recvmsg(fd, &header, Int32(MSG_DONTWAIT))
      }
    }
  }
  if count < 0 { return nil }
  return (Array(bytes[..<count]), RingBytes(bytes: control).number(16))
}
