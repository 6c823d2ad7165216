import Glibc
import Kernel
import Testing

@Suite struct `A file` {
  let folder: String = {
    let path = "/tmp/gk-" + Randomness.hex(bytes: 6)
    try! Files.makeDirectory(path)
    return path
  }()

  @Test func `is replaced in one step, and read no further than asked`() throws {
    let path = folder + "/file"
    try Files.replace(path, with: Array("first".utf8))
    try Files.replace(path, with: Array("second".utf8), mode: 0o640)
    #expect(try Files.readText(path, limit: 100) == "second")
    #expect(try Files.readText(path, limit: 3) == "sec")
    #expect(try Files.list(folder) == ["file"])
    Files.removeShallow(folder)
    #expect(!Files.exists(folder))
  }

  @Test func `that is missing is an error with operation, object and cause`() {
    let error = #expect(throws: SystemError.self) {
      _ = try FileDescriptor.open(folder + "/none", O_RDONLY)
    }
    #expect(error?.description == "cannot open '\(folder)/none': No such file or directory")
    Files.removeShallow(folder)
  }

  @Test func `is locked by one at a time`() throws {
    let path = folder + "/lock"
    do {
      let first = try FileDescriptor.open(path, O_RDWR | O_CREAT)
      let second = try FileDescriptor.open(path, O_RDWR)
      #expect(try first.tryLock())
      #expect(try !second.tryLock())
      withExtendedLifetime(first.raw) {}
    }
    let third = try FileDescriptor.open(path, O_RDWR)
    #expect(try third.tryLock())
    Files.removeShallow(folder)
  }
}

@Suite struct `A datagram` {
  @Test func `comes with the sender that the kernel names`() throws {
    let path = "/tmp/gk-" + Randomness.hex(bytes: 6)
    let socket = try Sockets.bindDatagram(path, mode: 0o666)
    defer { Files.remove(path) }
    #expect(try Files.status(path).permissions == 0o666)
    #expect(Sockets.receive(socket, limit: 10) == nil)
    let pid = try start([
      "python3", "-c",
      "import socket, sys; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)"
        + ".sendto(b'hello, world', sys.argv[1])", path,
    ])
    var status: Int32 = 0
    _ = unsafe waitpid(pid, &status, 0)
    guard let message = Sockets.receive(socket, limit: 5) else {
      Issue.record("nothing came")
      return
    }
    #expect(message.bytes == Array("hello".utf8))
    #expect(message.truncated)
    #expect(message.senderPID == pid)
    #expect(message.senderUID == getuid())
  }
}

@Suite struct `A process` {
  @Test func `is looked at before it is taken`() throws {
    let pid = try start(["sh", "-c", "exit 7"])
    var status = siginfo_t()
    // Until it has ended, without taking it.
    _ = unsafe waitid(P_PID, id_t(pid), &status, WEXITED | WNOWAIT)
    #expect(Processes.state(of: pid) == "Z")
    #expect(Processes.take(pid)?.how == .exited(7))
    #expect(Processes.take(pid) == nil)
  }

  @Test func `stands below those that started it`() throws {
    #expect(Processes.parent(of: getpid()) == getppid())
    #expect(Processes.isDescendant(getpid(), of: getppid()))
    #expect(!Processes.isDescendant(getppid(), of: getpid()))
  }

  @Test func `may give itself any name without being mistaken`() throws {
    let pid = try start(["sh", "-c", "printf ') Z 1 1\\n' > /proc/$$/comm; read line"])
    defer {
      kill(pid, SIGKILL)
      var status: Int32 = 0
      _ = unsafe waitpid(pid, &status, 0)
    }
    let end = Clock.monotonic + .seconds(30)
    while Processes.name(of: pid)?.hasPrefix(")") != true && Clock.monotonic < end { usleep(1000) }
    #expect(Processes.name(of: pid) == ") Z 1 1")
    #expect(Processes.parent(of: pid) == getpid())
    #expect(Processes.state(of: pid) != "Z")
  }
}

/// With a pipe that nobody writes to as standard input.
func start(_ words: [String]) throws -> pid_t {
  var ends: [Int32] = [-1, -1]
  _ = unsafe pipe(&ends)
  _ = fcntl(ends[1], F_SETFD, FD_CLOEXEC)
  var actions = posix_spawn_file_actions_t()
  unsafe posix_spawn_file_actions_init(&actions)
  unsafe posix_spawn_file_actions_adddup2(&actions, ends[0], 0)
  var argv = unsafe words.map { unsafe strdup($0) } + [nil]
  var pid: pid_t = 0
  let outcome = unsafe posix_spawnp(&pid, words[0], &actions, nil, &argv, environ)
  for text in unsafe argv { unsafe free(text) }
  close(ends[0])
  if outcome != 0 { throw SystemError("start", words[0], errno: outcome) }
  return pid
}
