import Glibc
import Kernel
import Policy
import Settings
import Supervision
import Testing

@Suite struct `A launch` {
  func launch(_ words: [String]) -> Launch {
    var launch = Launch()
    launch.path = Array(words[0].utf8)
    launch.arguments = words.map { Array($0.utf8) }
    return launch
  }

  func finish(_ child: Child) throws -> WaitResult.How {
    try eventually("its end") { Processes.take(child.pid)?.how }
  }

  @Test(arguments: [false, true])
  func `runs the program, whether memory is shared until exec or not`(plain: Bool) throws {
    var launch = launch(["/bin/sh", "-c", "exit 42"])
    launch.plainFork = plain
    #expect(try finish(launch.start()) == .exited(42))
  }

  @Test(arguments: [false, true])
  func `tells the step that failed and its errno`(plain: Bool) throws {
    for (path, directory, errno) in [
      ("/nonexistent", nil, ENOENT), ("/usr", nil, EACCES), ("/bin/true", "/nonexistent", ENOENT),
      ("/etc/passwd", nil, EACCES),
    ] {
      var launch = launch([path])
      launch.plainFork = plain
      launch.directory = directory
      let failure = #expect(throws: LaunchFailure.self) { _ = try launch.start() }
      #expect(failure?.errno == errno)
    }
  }

  @Test(arguments: [false, true])
  func `places descriptors where they were asked for, also crossed over`(plain: Bool) throws {
    let first = try FileDescriptor.open("/dev/null", O_RDONLY)
    let second = try FileDescriptor.open("/dev/zero", O_RDONLY)
    var launch = launch([
      "/bin/sh", "-c",
      "[ $(readlink /proc/self/fd/3) = /dev/zero ] && [ $(readlink /proc/self/fd/4) = /dev/null ]"
        + " && [ ! -e /proc/$$/fd/5 ]",
    ])
    launch.plainFork = plain
    launch.descriptors += [(second.raw, 3), (first.raw, 4)]
    #expect(try finish(launch.start()) == .exited(0))
    withExtendedLifetime((first.raw, second.raw)) {}
  }

  @Test func `sets umask, limits and working directory`() throws {
    var launch = launch([
      "/bin/sh", "-c",
      "[ $(umask) = 0027 ] && [ $(ulimit -n) = 99 ] && [ $(pwd) = /usr ] && [ $(ulimit -c) = 0 ]",
    ])
    launch.umask = 0o027
    launch.directory = "/usr"
    launch.limits = [.init(resource: 7, soft: 99, hard: 99), .init(resource: 4, soft: 0, hard: 0)]
    #expect(try finish(launch.start()) == .exited(0))
  }
}

@Suite struct `The decision to preload` {
  @Test func `is for an ordinary program and for a script of one`() {
    #expect(ExecutableLookup.decide("/bin/sh", user: 0) == .preload)
    #expect(ExecutableLookup.decide("/usr/bin/ldd", user: 0) == .preload)
  }

  @Test func `opens nothing that a script names but a plain file`() throws {
    let scratch = Scratch()
    let (script, fifo) = (scratch.path + "/script", scratch.path + "/fifo")
    try Files.makeFIFO(fifo, mode: 0o600)
    try Files.replace(script, with: Array("#!\(fifo)\n".utf8), mode: 0o755)
    let watch = FileDescriptor(owning: inotify_init1(Int32(IN_NONBLOCK)))
    #expect(inotify_add_watch(watch.raw, fifo, UInt32(IN_OPEN)) >= 0)
    #expect(ExecutableLookup.decide(script, user: 0) == .preload)
    var events = [UInt8](repeating: 0, count: 256)
    let error = #expect(throws: SystemError.self) { _ = try watch.read(into: &events) }
    #expect(error?.errno == EAGAIN)
  }

  @Test func `is against a static executable, with the reason`() throws {
    // guardian-capture is one.
    #expect(
      ExecutableLookup.decide(Root.path + "/.build/release/guardian-capture", user: 0)
        == .none("static executable"))
  }

  @Test func `is against a setuid program of another user`() {
    #expect(ExecutableLookup.decide("/bin/su", user: 1000) != .preload)
  }

  @Test func `is against a program with a sanitizer's runtime`() throws {
    let scratch = Scratch()
    let source = scratch.path + "/a.c"
    try Files.replace(source, with: Array("int main(void){return 0;}\n".utf8))
    let build = try Process(["gcc", "-fsanitize=address", "-o", scratch.path + "/a", source])
    guard try build.wait() == .exited(0) else { return }
    #expect(ExecutableLookup.decide(scratch.path + "/a", user: 0) != .preload)
  }

  @Test func `survives files cut off anywhere and headers full of nonsense`() throws {
    let scratch = Scratch()
    let whole = try Files.read("/bin/true", limit: 1 << 20)
    let file = scratch.path + "/file"
    for length in stride(from: 0, to: 700, by: 13) {
      try Files.replace(file, with: Array(whole[..<min(length, whole.count)]))
      _ = ExecutableLookup.decide(file, user: 0)
    }
    var seed: UInt64 = 88_172_645_463_325_252
    for _ in 0..<300 {
      var bytes = Array(whole[..<min(8192, whole.count)])
      for _ in 0..<16 {
        seed ^= seed << 13
        seed ^= seed >> 7
        seed ^= seed << 17
        bytes[16 + Int(seed % 700)] = UInt8(truncatingIfNeeded: seed >> 40)
      }
      try Files.replace(file, with: bytes)
      _ = ExecutableLookup.decide(file, user: 0)
    }
  }
}

@Suite struct `The state file` {
  var history: CrashHistory {
    var history = CrashHistory(
      bootID: "boot",
      identity: CrashHistory.Identity(binary: "1", command: "2", configuration: "3"))
    history.departure = .gaveUp
    history.lastLife = Life(rawValue: 7)
    history.row = 3
    history.identical = 2
    history.lastSignature = CrashSignature(rawValue: .max)
    history.failures = [
      CrashHistory.Failure(
        at: .seconds(12) + .nanoseconds(345), life: Life(rawValue: 6), words: "exit status 3")
    ]
    return history
  }

  @Test func `gives back what was written`() {
    #expect(StateFile.decode(StateFile.encode(history)) == StateFile.Contents(history: history))
    let running = StateFile.Unfinished(life: Life(rawValue: 7), pid: 4711, startedWall: 1 << 60)
    #expect(
      StateFile.decode(StateFile.encode(history, running: running))
        == StateFile.Contents(history: history, running: running))
  }

  @Test func `cut off anywhere is none`() {
    let bytes = StateFile.encode(history)
    for length in 0..<bytes.count { #expect(StateFile.decode(Array(bytes[..<length])) == nil) }
  }

  @Test func `of hostile bytes is none or a state within limits`() throws {
    let bytes = StateFile.encode(
      history, running: .init(life: Life(rawValue: 7), pid: 4711, startedWall: 1 << 60))
    let lines = Array(try #require(SealedText.open(bytes)).utf8)
    for index in lines.indices {
      for value: UInt8 in [0, 10, 32, 45, 57, 126] {
        var changed = lines
        changed[index] = value
        // As if guardian itself had written it.
        let sealed = SealedText.seal(String(decoding: changed, as: UTF8.self))
        if let state = StateFile.decode(sealed) {
          #expect(state.history.row <= 1_000_000_000)
          #expect(state.running.map { $0.pid > 0 } ?? true)
        }
      }
    }
  }
}

@Suite struct `On a full disk the state file` {
  private var history: CrashHistory { `The state file`().history }

  @Test func `is written over in its place, and read back`() throws {
    let scratch = Scratch()
    let path = scratch.path + "/state"
    try StateFile.save(history, to: path)
    let size = try Files.status(path).size
    #expect(size % 4096 == 0)
    #expect(StateFile.decode(try Files.read(path, limit: 1 << 20))?.history == history)
    // What `save` does there; that the disk is full is the end-to-end test's.
    var other = history
    other.departure = .stopped
    let bytes = StateFile.encode(other)
    let room = [UInt8](repeating: 10, count: Int(size) - bytes.count)
    try Files.overwrite(path, with: bytes + room)
    #expect(try Files.status(path).size == size)
    #expect(StateFile.decode(try Files.read(path, limit: 1 << 20))?.history == other)
  }

  @Test func `that was written half is damaged, wherever it broke off`() throws {
    func padded(_ history: CrashHistory) -> [UInt8] {
      let bytes = StateFile.encode(history)
      return bytes + [UInt8](repeating: 10, count: 4096 - bytes.count)
    }
    var other = history
    other.departure = .none
    other.failures.append(
      CrashHistory.Failure(at: .seconds(99), life: Life(rawValue: 7), words: "SIGSEGV"))
    let (old, new) = (padded(history), padded(other))
    for length in 0...old.count {
      let torn = Array(new[..<length] + old[length...])
      let read = StateFile.decode(torn)?.history
      #expect(read == nil || torn == old || torn == new)
    }
  }

  @Test func `still tells how guardian left`() throws {
    guard geteuid() == 0 else { return }
    let scratch = Scratch()
    let disk = scratch.path + "/disk"
    try Files.makeDirectory(disk)
    let guardian =
      "\(Root.guardian) --name full --max-crashes 0 --state-directory \(disk)/state "
      + "--runtime-directory \(scratch.path)/run -- "
    let script =
      "mount -t tmpfs -o size=256k none \(disk) || exit 77; "
      + guardian + "/bin/sh -c 'cat /dev/zero >\(disk)/fill 2>/dev/null; exit 3'; "
      + "echo left with $?; df \(disk) >&2; grep departure \(disk)/state/state; "
      + guardian + "/bin/true"
    let shell = try Process(["unshare", "-m", "/bin/sh", "-c", script])
    #expect(try shell.wait() == .exited(0), "\(shell.errorText)")
    #expect(shell.outputText == "left with 3\ndeparture gave-up\n", "\(shell.errorText)")
    #expect(!shell.errorText.contains("ended with its guardian"), "\(shell.errorText)")
    #expect(shell.errorText.contains("gave up: the failure count is cleared"), "\(shell.errorText)")
  }
}

@Suite struct `A unit` {
  @Test func `is found by guardian's place among the control groups`() {
    let system = OwnUnit(cgroups: "0::/system.slice/system-guardian.slice/guardian@api.service\n")
    #expect(system?.name == "guardian@api.service")
    #expect(system?.isUsers == false)
    let users = OwnUnit(
      cgroups: "0::/user.slice/user-7.slice/user@7.service/app.slice/api.service/life-1\n")
    #expect(users?.name == "api.service")
    #expect(users?.isUsers == true)
    #expect(OwnUnit(cgroups: "0::/user.slice/user-7.slice/session-2.scope\n") == nil)
  }

  @Test func `gives the program its folders without guardian's`() throws {
    let scratch = Scratch()
    let (own, link) = (scratch.path + "/own", scratch.path + "/link")
    try Files.makeDirectory(own)
    #expect(unsafe symlink(own, link) == 0)
    #expect(
      FolderList.text("/var/lib/a:\(own):/var/lib/b", without: own) == "/var/lib/a:/var/lib/b")
    #expect(FolderList.text("/var/lib/a:\(own)", without: link) == "/var/lib/a")
    #expect(FolderList.text(own, without: own) == nil)
  }

  @Test func `that could not be asked about its KillMode is told of`() {
    var configuration = Configuration()
    configuration.configurationFile = "/etc/guardian/api.toml"
    #expect(StartProblem.remarks(configuration) == [])
    configuration.onGuardianDeath = .keep
    // With a systemd there is no such unit on this machine, and without one nobody to ask.
    let remarks = StartProblem.remarks(configuration)
    #expect(remarks.count == 1 && remarks[0].contains("KillMode=process"), "\(remarks)")
  }

  @Test func `tells a program's stored descriptors from sockets by their names`() {
    for watches in [true, false] {
      let name = StoredName.make("clients", watches: watches)
      let read = name.flatMap(StoredName.read)
      #expect(read?.name == "clients")
      #expect(read?.watches == watches)
    }
    #expect(StoredName.read("clients") == nil)
    #expect(StoredName.read("guardian-stored.") == nil)
    #expect(StoredName.make(String(repeating: "x", count: 250), watches: true) == nil)
  }
}

@Suite struct `A journal entry` {
  @Test func `is written as the journal's protocol has it`() throws {
    let entry = JournalEntry(
      event: .ended, name: "api", priority: 3, message: "it\nended",
      fields: [("GUARDIAN_LIFE", "1")])
    let unit = try #require(OwnUnit(cgroups: "0::/system.slice/api.service"))
    #expect(
      Journal.encode(entry, unit: unit)
        == Array(
          "MESSAGE\n\u{8}\0\0\0\0\0\0\0it\nended\nMESSAGE_ID=0ab173f2825447cba3981d40f738835e\n"
            .utf8)
        + Array("PRIORITY=3\nSYSLOG_IDENTIFIER=api\nOBJECT_SYSTEMD_UNIT=api.service\n".utf8)
        + Array("GUARDIAN_LIFE=1\n".utf8))
  }
}

@Suite struct `A notify message` {
  @Test func `is read line by line`() {
    let message = NotifyMessage(
      Array("READY=1\nSTATUS=serving\nnonsense\nMAINPID=12\nEXTEND_TIMEOUT_USEC=2000000\n".utf8))
    #expect(message.ready)
    #expect(message.status == "serving")
    #expect(message.mainPID == 12)
    #expect(message.extendTimeout == .seconds(2))
    #expect(!message.heartbeat)
  }

  @Test func `names what is to be kept, in names that an environment can hold`() {
    let message = NotifyMessage(Array("FDSTORE=1\nFDNAME=cargo 1\nFDPOLL=0".utf8))
    #expect(message.storesDescriptors && !message.watchesDescriptors)
    #expect(message.descriptorName == "cargo 1")
    for name in ["", "a:b", "a\u{7}b", "ä", String(repeating: "x", count: 256)] {
      #expect(NotifyMessage(Array("FDNAME=\(name)".utf8)).descriptorName == nil, "\(name)")
    }
    #expect(NotifyMessage(Array("FDSTOREREMOVE=1".utf8)).removesDescriptors)
    #expect(NotifyMessage(Array("BARRIER=1".utf8)).barrier)
    #expect(NotifyMessage(Array("RELOADING=1\nMONOTONIC_USEC=12".utf8)).monotonic == 12)
  }

  @Test func `of any bytes is within limits`() {
    let pieces = [
      "READY=1", "STATUS=", "MAINPID=", "EXTEND_TIMEOUT_USEC=", "WATCHDOG_USEC=", "WATCHDOG=",
      "FDNAME=", "FDSTORE=1", "\n", "=", "\0", "\u{1b}", "18446744073709551616", "99999999999",
      "-1",
      "1", "é", ":",
    ].map { Array($0.utf8) }
    var seed: UInt64 = 0x9e37_79b9_7f4a_7c15
    func next(_ limit: Int) -> Int {
      seed ^= seed << 13
      seed ^= seed >> 7
      seed ^= seed << 17
      return Int(seed % UInt64(limit))
    }
    for _ in 0..<20_000 {
      var bytes: [UInt8] = []
      for _ in 0..<next(40) {
        bytes += next(4) == 0 ? [UInt8(next(256))] : pieces[next(pieces.count)]
      }
      let message = NotifyMessage(bytes)
      if let name = message.descriptorName {
        #expect(NotifyMessage.isDescriptorName(Array(name.utf8)))
      }
      #expect((message.extendTimeout ?? .zero) <= .seconds(86_400))
      #expect((message.watchdogInterval ?? .zero) <= .seconds(86_400))
      #expect(
        message.status?.unicodeScalars.allSatisfy { $0.value >= 32 && $0.value != 127 } ?? true)
    }
  }

  @Test func `of hostile bytes says nothing dangerous`() {
    #expect(NotifyMessage(Array(repeating: 61, count: 5000)) == NotifyMessage([]))
    let message = NotifyMessage(
      Array("EXTEND_TIMEOUT_USEC=18446744073709551615\nSTATUS=a\u{1b}[2Jb\nMAINPID=-1".utf8))
    #expect(message.extendTimeout == .seconds(86_400))
    #expect(message.status == "a?[2Jb")
    #expect(message.mainPID == nil)
  }
}

@Suite struct `The tail of output` {
  func texts(_ tail: OutputTail) -> [String] {
    tail.all.map { String(decoding: $0.bytes, as: UTF8.self) }
  }

  @Test func `holds lines with the time of their first byte`() {
    var tail = OutputTail()
    tail.append(Array("one\ntw".utf8)[...], at: 1)
    tail.append(Array("o\n".utf8)[...], at: 2)
    tail.append(Array("three".utf8)[...], at: 3)
    #expect(texts(tail) == ["one", "two", "three"])
    #expect(tail.all.map(\.time) == [1, 1, 3])
  }

  @Test func `keeps the last lines of many`() {
    var tail = OutputTail()
    for number in 0..<5000 { tail.append(Array("line \(number)\n".utf8)[...], at: Int64(number)) }
    #expect(texts(tail).count == 200)
    #expect(texts(tail).last == "line 4999")
    #expect(tail.all.last?.time == 4999)
  }

  @Test func `cuts a line that has no end, and stays small in a flood`() {
    var tail = OutputTail()
    for _ in 0..<100 { tail.append([UInt8](repeating: 120, count: 50_000)[...], at: 0) }
    #expect(tail.all.reduce(0) { $0 + $1.bytes.count } <= 64 * 1024)
    tail.append(Array("\nlast\n".utf8)[...], at: 1)
    #expect(texts(tail).last == "last")
  }
}

@Suite struct `The journal catalog` {
  @Test func `explains exactly the messages that there are`() throws {
    let source = try Files.readText(
      Root.path + "/Sources/Supervision/Systemd.swift", limit: 1 << 20)
    let catalog = try Files.readText(Root.path + "/Units/guardian.catalog", limit: 1 << 20)
    let sent = Set(
      source.split(separator: "\"").filter { $0.utf8.count == 32 && $0.allSatisfy(\.isHexDigit) })
    let explained = Set(
      catalog.split(separator: "\n").filter { $0.hasPrefix("-- ") }.map { $0.dropFirst(3) })
    #expect(sent.count == 5)
    #expect(sent == explained)
  }
}
