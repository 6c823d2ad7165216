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

  @Test func `is replaced whatever lies in the draft's place, with its own permissions`() throws {
    let (path, other) = (folder + "/file", folder + "/other")
    try Files.replace(other, with: Array("precious".utf8))
    _ = unsafe symlink(other, path + ".new")
    try Files.replace(path, with: Array("first".utf8), mode: 0o666)
    #expect(try Files.status(path, follow: false).isRegular)
    #expect(try Files.status(path).permissions == 0o666)
    try Files.makeFIFO(path + ".new", mode: 0o600)
    try Files.replace(path, with: Array("second".utf8), mode: 0o644)
    #expect(try Files.readText(path, limit: 100) == "second")
    #expect(try Files.readText(other, limit: 100) == "precious")
    #expect(try Files.status(other).permissions == 0o600)
    try Files.makeDirectory(path + ".new")
    let error = #expect(throws: SystemError.self) { try Files.replace(path, with: []) }
    #expect(error?.description == "cannot write '\(path)': File exists")
    try Files.removeDirectory(path + ".new")
    Files.removeShallow(folder)
  }

  @Test
  func `that cannot be replaced leaves no draft, and touches nothing in the working directory`()
    throws
  {
    // A folder in its place: the last step fails.
    let name = "gk-" + Randomness.hex(bytes: 6)
    try Files.makeDirectory(folder + "/" + name)
    let bystander = Files.currentDirectory() + "/" + name + ".new"
    try Files.replace(bystander, with: Array("somebody's".utf8))
    defer { Files.remove(bystander) }
    #expect(throws: SystemError.self) { try Files.replace(folder + "/" + name, with: [1]) }
    #expect(try Files.list(folder) == [name])
    #expect(try Files.readText(bystander, limit: 100) == "somebody's")
    try Files.removeDirectory(folder + "/" + name)
    Files.removeShallow(folder)
  }

  @Test func `in a folder that somebody else could put another in the place of is not trusted`()
    throws
  {
    let inner = folder + "/above/inner"
    try Files.makeDirectories(inner)
    try Files.checkAbove(inner)
    try Files.setPermissions(folder + "/above", 0o777)
    let error = #expect(throws: SystemError.self) { try Files.checkAbove(inner) }
    #expect(
      error?.description
        == "cannot trust a folder in one that others may write to '\(folder)/above': "
        + "Operation not permitted")
    // As /tmp is.
    try Files.setPermissions(folder + "/above", 0o1777)
    try Files.checkAbove(inner)
    try Files.removeDirectory(inner)
    try Files.removeDirectory(folder + "/above")
    Files.removeShallow(folder)
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
    let found = Processes.look(pid)
    #expect(found?.parent == getpid())
    #expect(found?.start == Processes.startTime(of: pid))
    #expect(found?.session == Processes.session(of: pid))
    #expect(found?.group == Processes.processGroup(of: pid))
    #expect(found?.threads == 1)
    #expect(found?.isAlive == true)
  }

  @Test func `may give itself a name that no terminal should see`() {
    #expect(Printable.text(Array("a\u{9b}b\u{202e}c\u{85}\u{1b}d".utf8)) == "a?b?c??d")
  }

  @Test func `is found by the marks in its memory`() throws {
    let folder = "/tmp/gk-marks"
    let mark = "GUARDIAN_CHANNEL=\(folder)/" + String(repeating: "0af9", count: 8)
    let pids = try [
      ["env", mark, "sh", "-c", "read line"], ["env", mark + "x/", "sh", "-c", "read line"],
      ["env", "GUARDIAN_CHANNEL=\(folder)/0af9", "sh", "-c", "read line"],
    ].map(start)
    defer {
      for pid in pids {
        kill(pid, SIGKILL)
        var status: Int32 = 0
        _ = unsafe waitpid(pid, &status, 0)
      }
    }
    let end = Clock.monotonic + .seconds(30)
    for pid in pids {
      while Processes.name(of: pid) != "sh" && Clock.monotonic < end { usleep(1000) }
    }
    func search(_ marks: LifeMarks) -> [Errands.Verdict] {
      Errands.search(pids.map { ($0, $0) }, marks: marks, until: end)
    }
    var marks = LifeMarks(folder: folder)
    #expect(search(marks) == [.marked, .marked, .unmarked])
    marks.channels = [String(repeating: "0af8", count: 8), String(repeating: "0af9", count: 8)]
    #expect(search(marks) == [.marked, .marked, .unmarked])
    marks.channels = [String(repeating: "0af8", count: 8)]
    #expect(search(marks) == [.unmarked, .unmarked, .unmarked])
    #expect(search(LifeMarks(folder: "/tmp/gk")) == [.unmarked, .unmarked, .unmarked])
  }

  @Test func `is read by another, whole and no further than asked`() throws {
    let texts = Errands.read(
      [("/proc/self/stat", 5), ("/no/such/file", 9), ("/proc/filesystems", 1 << 20)],
      within: .seconds(30))
    #expect(texts?.count == 3)
    #expect(texts?[0].count == 5)
    #expect(texts?[1] == [])
    #expect(try texts?[2] == Files.read("/proc/filesystems", limit: 1 << 20))
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
