import Glibc
import Testing

/// Who wrote the core.
enum CoreKind: String, CaseIterable, Sendable {
  case kernel
  /// guardian-capture, asked by the handler inside the program.
  case minicore
}

/// Plays guardian's part for one life: channel, bell, capture.
enum Minicore {
  static let capture = "\(Place.root)/.build/release/guardian-capture"
  static let handler = "\(Place.root)/.build/release/libguardian-handler.so"

  static var isBuilt: Bool { Place.exists(capture) && Place.exists(handler) }

  /// Lets a program die in `folder` and returns its minicore.
  static func of(_ program: String, _ how: String, in folder: String) throws -> String? {
    let channel = "\(folder)/channel"
    try #require(mkdir(channel, 0o755) == 0)
    let ring = try makeRing("\(channel)/ring")
    defer { close(ring) }
    let bell = try makeBell("\(channel)/bell")
    defer { close(bell) }

    let victim = try spawn(
      [program, how],
      environment: [
        "GUARDIAN_CHANNEL=\(channel)", "LD_PRELOAD=\(handler)", "SWIFT_BACKTRACE=enable=no",
      ], descriptors: [])
    defer {
      kill(victim, SIGKILL)
      var status: Int32 = 0
      while waitpid(victim, &status, 0) == -1 && errno == EINTR {}
    }
    var message = [UInt8](repeating: 0, count: 64)
    var waiting = pollfd(fd: bell, events: Int16(POLLIN), revents: 0)
    try #require(poll(&waiting, 1, 30_000) == 1, "no bell")
    try #require(recv(bell, &message, message.count, 0) == 24)
    let word = { (offset: Int) -> Int in
      message[offset..<(offset + 4)].reversed().reduce(0) { $0 << 8 | Int($1) }
    }
    let (slot, thread) = (word(8), word(12))

    let path = "\(folder)/minicore"
    let core = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    defer { close(core) }
    var pair: [Int32] = [-1, -1]
    try #require(
      socketpair(AF_UNIX, Int32(SOCK_SEQPACKET.rawValue | SOCK_CLOEXEC.rawValue), 0, &pair) == 0)
    defer { pair.forEach { close($0) } }
    let helper = try spawn(
      [
        capture, "--pid", "\(victim)", "--tid", "\(thread)", "--slot", "\(slot)", "--timeout-ms",
        "20000",
      ], environment: [], descriptors: [(pair[1], 3), (core, 4), (ring, 5)])
    var status: Int32 = -1
    while waitpid(helper, &status, 0) == -1 && errno == EINTR {}
    #expect(status == 0, "guardian-capture's exit status")
    return status == 0 ? path : nil
  }

  private static func makeRing(_ path: String) throws -> Int32 {
    let size: UInt64 = 462_848
    let ring = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0o666)
    try #require(ring >= 0 && ftruncate(ring, off_t(size)) == 0)
    var header: [UInt8] = []
    let put = { (value: UInt64, width: UInt64) in
      for byte in 0..<width { header.append(UInt8(truncatingIfNeeded: value >> (8 * byte))) }
    }
    // Magic, version, size, life, guardian's pid, capture timeout, runs of the handler.
    put(magic, 8)
    put(2, 4)
    put(size, 4)
    put(1, 4)
    put(UInt64(getpid()), 4)
    put(20_000, 4)
    put(8, 4)
    try #require(pwrite(ring, header, header.count, 0) == header.count)
    return ring
  }

  private static let magic: UInt64 = 0x3147_4e49_5244_5247

  private static func makeBell(_ path: String) throws -> Int32 {
    let bell = socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    let bytes = Array(path.utf8)
    try #require(bell >= 0 && bytes.count < MemoryLayout.size(ofValue: address.sun_path))
    withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
    let bound = withUnsafePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(bell, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    try #require(bound == 0)
    chmod(path, 0o666)
    return bell
  }

  private static func spawn(
    _ command: [String], environment: [String], descriptors: [(from: Int32, to: Int32)]
  ) throws -> pid_t {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    defer { posix_spawn_file_actions_destroy(&actions) }
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDWR, 0)
    posix_spawn_file_actions_adddup2(&actions, 0, 1)
    posix_spawn_file_actions_adddup2(&actions, 0, 2)
    // Out of the way first: a source may have the number of another's target.
    let high = descriptors.map { fcntl($0.from, F_DUPFD_CLOEXEC, 500) }
    defer { high.forEach { close($0) } }
    for (copy, wanted) in zip(high, descriptors) {
      posix_spawn_file_actions_adddup2(&actions, copy, wanted.to)
    }
    var words: [UnsafeMutablePointer<CChar>?] = []
    for word in command { words.append(strdup(word)) }
    words.append(nil)
    var variables: [UnsafeMutablePointer<CChar>?] = []
    for variable in environment + ["PATH=/usr/bin:/bin"] { variables.append(strdup(variable)) }
    variables.append(nil)
    defer { (words + variables).forEach { free($0) } }
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
    try #require(posix_spawn(&pid, command[0], &actions, &attributes, &words, &variables) == 0)
    return pid
  }
}
