// Starts a program to look at and guardian-capture beside it, as guardian does: descriptors 3,
// 4 and 5, no guardian in between.
import Glibc
import Reports
import Ring
import Testing

enum Place {
  static let root: String = {
    var parts = #filePath.split(separator: "/")
    parts.removeLast(3)
    return "/" + parts.joined(separator: "/")
  }()
  static func fixture(_ name: String) -> String { root + "/.build/fixtures/" + name }
  static let capture = root + "/.build/release/guardian-capture"

  static func temporaryFolder() throws -> String {
    var template = Array("/tmp/capture-test-XXXXXX\0".utf8CString)
    let made = template.withUnsafeMutableBufferPointer { buffer -> String? in
      guard let start = buffer.baseAddress, mkdtemp(start) != nil else { return nil }
      return String(cString: start)
    }
    return try #require(made)
  }
}

func milliseconds() -> Int64 {
  var now = timespec()
  clock_gettime(CLOCK_MONOTONIC, &now)
  return Int64(now.tv_sec) * 1000 + Int64(now.tv_nsec) / 1_000_000
}

/// Starts `words`; `descriptors` become 0, 1, 2, … there (-1: left as it is).
func start(_ words: [String], descriptors: [Int32]) throws -> pid_t {
  var actions = posix_spawn_file_actions_t()
  posix_spawn_file_actions_init(&actions)
  defer { posix_spawn_file_actions_destroy(&actions) }
  var high: [Int32] = []
  defer { for descriptor in high { close(descriptor) } }
  for (number, descriptor) in descriptors.enumerated() where descriptor >= 0 {
    let copy = guardian_duplicate(descriptor)
    try #require(copy >= 0)
    high.append(copy)
    posix_spawn_file_actions_adddup2(&actions, copy, Int32(number))
  }
  var arguments = words.map { strdup($0) } + [nil]
  defer { for argument in arguments { free(argument) } }
  // The worker threads of the test runner block most signals; a program must not inherit that (gdb,
  // for one, then waits for a SIGCHLD for ever).
  var attributes = posix_spawnattr_t()
  posix_spawnattr_init(&attributes)
  defer { posix_spawnattr_destroy(&attributes) }
  var none = sigset_t()
  sigemptyset(&none)
  posix_spawnattr_setsigmask(&attributes, &none)
  posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
  var pid: pid_t = 0
  let failed = posix_spawnp(&pid, words[0], &actions, &attributes, &arguments, environ)
  try #require(failed == 0, "cannot start \(words[0]): \(failed)")
  return pid
}

/// Both ends close-on-exec.
func makePipe(_ ends: inout [Int32]) throws {
  try #require(pipe(&ends) == 0)
  for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
}

/// At or above 100, close-on-exec.
func guardian_duplicate(_ descriptor: Int32) -> Int32 {
  fcntl(descriptor, F_DUPFD_CLOEXEC, 100)
}

/// Reads until `stop` says so or the end; fails the test when the deadline passes.
func read(_ descriptor: Int32, for limit: Int64 = 30_000, until stop: (String) -> Bool) throws
  -> String
{
  var text: [UInt8] = []
  let deadline = milliseconds() + limit
  while !stop(String(decoding: text, as: UTF8.self)) {
    var watch = pollfd(fd: descriptor, events: Int16(POLLIN), revents: 0)
    let ready = poll(&watch, 1, Int32(max(0, deadline - milliseconds())))
    try #require(ready > 0, "nothing to read in \(limit) ms")
    var part = [UInt8](repeating: 0, count: 65_536)
    let count = Glibc.read(descriptor, &part, part.count)
    if count <= 0 { break }
    text += part[..<count]
  }
  return String(decoding: text, as: UTF8.self)
}

/// Runs a tool to its end and returns what it printed on both outputs.
func output(of words: [String], for limit: Int64 = 120_000) throws -> String {
  var ends: [Int32] = [0, 0]
  try makePipe(&ends)
  let pid = try start(words, descriptors: [-1, ends[1], ends[1]])
  close(ends[1])
  defer { close(ends[0]) }
  let text = try read(ends[0], for: limit) { _ in false }
  var status: Int32 = 0
  waitpid(pid, &status, 0)
  return text
}

/// The program that is looked at.
final class Victim {
  let folder: String
  let pid: pid_t
  /// What it says after `ready`.
  let thread: Int32
  private let out: Int32
  let ring: Int32
  private var reaped: Int32?

  /// - Parameter wrapper: words before the program's own.
  init(
    _ what: String, threads: Int, library: Bool = false, executable: String? = nil,
    wrapper: [String] = []
  ) throws {
    folder = try Place.temporaryFolder()
    let path = folder + "/ring"
    ring = guardian_open_for_test(path)
    try #require(ring >= 0 && ftruncate(ring, off_t(RingLayout.size)) == 0)
    var words = wrapper + [executable ?? Place.fixture("capture_victim"), path, "\(threads)", what]
    if library { words.append(Place.fixture("capture_library")) }
    var ends: [Int32] = [0, 0]
    try makePipe(&ends)
    out = ends[0]
    pid = try start(words, descriptors: [-1, ends[1]])
    close(ends[1])
    let line = try read(out) { $0.contains("\n") }
    let number = line.split(whereSeparator: { " \n".contains($0) }).dropFirst().first
    thread = try #require(number.flatMap { Int32($0) }, "the program said '\(line)'")
  }

  init(hostile: Void) throws {
    folder = try Place.temporaryFolder()
    ring = guardian_open_for_test(folder + "/ring")
    try #require(ring >= 0 && ftruncate(ring, off_t(RingLayout.size)) == 0)
    var ends: [Int32] = [0, 0]
    try makePipe(&ends)
    out = ends[0]
    pid = try start(
      [Place.fixture("capture_hostile"), folder + "/a\nb"], descriptors: [-1, ends[1]])
    close(ends[1])
    _ = try read(out) { $0.contains("\n") }
    thread = pid
  }

  /// Its wait status, and what else it said.
  func end(kill: Bool = false) throws -> (status: Int32, said: String) {
    if kill { Glibc.kill(pid, SIGKILL) }
    let said = try read(out) { _ in false }
    var status: Int32 = 0
    waitpid(pid, &status, 0)
    reaped = status
    return (status, said)
  }

  deinit {
    if reaped == nil {
      Glibc.kill(pid, SIGKILL)
      var status: Int32 = 0
      waitpid(pid, &status, 0)
    }
    close(out)
    close(ring)
    for name in ["ring", "core", "a\nb"] { unlink(folder + "/" + name) }
    rmdir(folder)
  }
}

func guardian_open_for_test(_ path: String) -> Int32 {
  Glibc.open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0o600)
}

struct CaptureResult {
  var exitStatus: Int32
  var summary: CaptureSummary
  var descriptors: [Int32]
  var core: String
  var milliseconds: Int64
}

/// - Parameter wrapper: words before guardian-capture's own.
func capture(
  _ victim: Victim, pid: pid_t? = nil, slot: Int? = 0, timeout: Int = 20_000,
  wrapper: [String] = []
) throws -> CaptureResult {
  var sockets: [Int32] = [0, 0]
  try #require(
    socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue) | Int32(SOCK_CLOEXEC.rawValue), 0, &sockets)
      == 0)
  defer { close(sockets[0]) }
  let path = victim.folder + "/core"
  let core = guardian_open_for_test(path)
  defer { close(core) }
  var words =
    wrapper + [Place.capture, "--pid", "\(pid ?? victim.pid)", "--timeout-ms", "\(timeout)"]
  words += ["--tid", "\(slot == nil ? 0 : victim.thread)"]
  if let slot { words += ["--slot", "\(slot)"] }
  let began = milliseconds()
  let child = try start(words, descriptors: [-1, -1, -1, sockets[1], core, victim.ring])
  close(sockets[1])
  var watch = pollfd(fd: sockets[0], events: Int16(POLLIN), revents: 0)
  try #require(poll(&watch, 1, 60_000) > 0, "no summary came")
  let message = try receive(sockets[0])
  var status: Int32 = 0
  waitpid(child, &status, 0)
  return CaptureResult(
    exitStatus: status >> 8, summary: CaptureSummary(decoding: message.bytes),
    descriptors: message.descriptors, core: path, milliseconds: milliseconds() - began)
}

private func receive(_ socket: Int32) throws -> (bytes: [UInt8], descriptors: [Int32]) {
  var bytes = [UInt8](repeating: 0, count: CaptureSummary.maximumBytes)
  var control = [UInt64](repeating: 0, count: 64)
  var descriptors: [Int32] = []
  let count = bytes.withUnsafeMutableBytes { bytes in
    control.withUnsafeMutableBytes { control in
      var vector = iovec(iov_base: bytes.baseAddress, iov_len: bytes.count)
      return withUnsafeMutablePointer(to: &vector) { vector in
        var message = msghdr()
        message.msg_iov = vector
        message.msg_iovlen = 1
        message.msg_control = control.baseAddress
        message.msg_controllen = control.count
        let count = recvmsg(socket, &message, Int32(MSG_CMSG_CLOEXEC))
        if message.msg_controllen >= MemoryLayout<cmsghdr>.size {
          let header = control.load(as: cmsghdr.self)
          let number = (Int(header.cmsg_len) - MemoryLayout<cmsghdr>.size) / 4
          for index in 0..<number {
            descriptors.append(
              control.load(
                fromByteOffset: MemoryLayout<cmsghdr>.size + index * 4, as: Int32.self))
          }
        }
        return count
      }
    }
  }
  try #require(count >= 0)
  return (Array(bytes[..<count]), descriptors)
}

/// gdb on a minicore, one command after another.
func gdb(_ program: String, _ core: String, _ commands: [String]) throws -> String {
  try output(
    of: ["gdb", "-nx", "-batch", "-iex", "set debuginfod enabled off"]
      + commands.flatMap { ["-ex", $0] } + [program, core])
}

extension String {
  func count(of part: String) -> Int {
    var result = 0
    var at = startIndex
    while at < endIndex {
      if self[at...].hasPrefix(part) { result += 1 }
      at = index(after: at)
    }
    return result
  }
  func lineCount(where matches: (Substring) -> Bool) -> Int {
    split(separator: "\n").count(where: matches)
  }
}
