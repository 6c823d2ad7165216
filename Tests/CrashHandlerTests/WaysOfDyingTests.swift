// One program dies in every way there is; each test says what must be true of it.
import Glibc
import Testing

/// What is expected of one way. The numbers are the kernel's, measured without guardian.
struct Way: Sendable, CustomTestStringConvertible {
  enum Address: Sendable {
    case exactly(UInt64)
    /// Of the instruction itself.
    case pc
    /// Near the stack pointer.
    case stack
    /// Some other one, or none.
    case any
  }
  let arguments: [String]
  let signal: Int32
  let code: Int32
  let address: Address
  var abortMessage = ""

  init(
    _ name: String, _ signal: Int32, _ code: Int32, _ address: Address = .any, says: String = ""
  ) {
    arguments = name.split(separator: " ").map(String.init)
    self.signal = signal
    self.code = code
    self.address = address
    abortMessage = says
  }
  var testDescription: String { arguments.joined(separator: " ") }

  static let tkill: Int32 = -6
  static let queued: Int32 = -1
  static let user: Int32 = 0
  static let kernel: Int32 = 128

  static let all: [Way] = [
    Way("null-read", SIGSEGV, 1, .exactly(0)),
    Way("null-write", SIGSEGV, 1, .exactly(0)),
    Way("field-read", SIGSEGV, 1, .exactly(0x10)),
    Way("garbage-read", SIGSEGV, 1, .exactly(0x1234_5678_9000)),
    Way("noncanonical-read", SIGSEGV, kernel, .exactly(0)),
    Way("readonly-write", SIGSEGV, 2),
    Way("after-munmap", SIGSEGV, 1),
    Way("call-null", SIGSEGV, 1, .pc),
    Way("call-garbage", SIGSEGV, 1, .pc),
    Way("call-nx", SIGSEGV, 2, .pc),
    Way("stack-overflow", SIGSEGV, 1, .stack),
    Way("bus-truncated-file", SIGBUS, 2),
    Way("no-stack", SIGSEGV, 1),
    Way("alignment-check", SIGBUS, 1, .exactly(0)),
    Way("movaps", SIGSEGV, kernel, .exactly(0)),
    Way("privileged", SIGSEGV, kernel, .exactly(0)),
    Way("direction-flag", SIGSEGV, 1, .exactly(0)),
    Way("ill", SIGILL, 2, .pc),
    Way("trap", SIGTRAP, kernel),
    Way("fpe", SIGFPE, 1, .pc),
    Way("fpe-float", SIGFPE, 3, .pc),
    Way("abort", SIGABRT, tkill),
    Way("assert", SIGABRT, tkill, says: "die_assert: Assertion `zero == 1' failed.\n"),
    Way(
      "double-free", SIGABRT, tkill, says: "free(): double free detected in tcache 2\n"),
    Way(
      "double-free-large", SIGABRT, tkill, says: "double free or corruption (!prev)\n"),
    Way("invalid-free", SIGABRT, tkill, says: "free(): invalid pointer\n"),
    Way("heap-overflow", SIGABRT, tkill, says: "double free or corruption (out)\n"),
    Way("stack-smash", SIGABRT, tkill, says: "*** stack smashing detected ***: terminated\n"),
    Way("fortify", SIGABRT, tkill, says: "*** buffer overflow detected ***: terminated\n"),
    Way("malloc-lock", SIGSEGV, 1, .exactly(0x20)),
    Way("raise 11", SIGSEGV, tkill),
    Way("raise 16", SIGSTKFLT, tkill),
    Way("raise 3", SIGQUIT, tkill),
    Way("kill 7", SIGBUS, user),
    Way("tgkill 4", SIGILL, tkill),
    Way("sigqueue 8", SIGFPE, queued),
    Way("killed-by-child 6", SIGABRT, user),
    Way("sigpipe", SIGPIPE, user),
    Way("xcpu", SIGXCPU, kernel),
    Way("xfsz", SIGXFSZ, user),
    Way("sys", SIGSYS, 1),
    Way("memory-limit", SIGSEGV, 1, .exactly(0)),
    Way("abort-while-blocked", SIGABRT, tkill),
    Way("handler-then-default", SIGSEGV, tkill),
    Way("handler-then-refault", SIGSEGV, 1, .exactly(0)),
    Way("handler-once", SIGSEGV, 1, .exactly(0)),
    Way("crash-in-handler", SIGSEGV, 1, .exactly(0)),
    Way("no-altstack", SIGSEGV, 1, .exactly(0)),
    Way("own-altstack", SIGSEGV, 1, .exactly(0)),
    Way("tiny-altstack", SIGSEGV, 1, .exactly(0)),
    Way("two-threads-at-once", SIGSEGV, 1, .exactly(0)),
    Way("two-threads-at-once 32", SIGSEGV, 1, .exactly(0)),
    Way("detached-thread", SIGSEGV, 1, .exactly(0)),
    Way("cancelled-thread", SIGSEGV, 1, .exactly(0)),
    Way("thread-exit", SIGSEGV, 1, .exactly(0)),
    Way("exec field-read", SIGSEGV, 1, .exactly(0x10)),
    Way("closed-fds", SIGSEGV, 1, .exactly(0)),
    Way("close-range", SIGSEGV, 1, .exactly(0)),
    Way("stolen-fds", SIGSEGV, 1, .exactly(0)),
    Way("exhausted-fds", SIGSEGV, 1, .exactly(0)),
    Way("closed-and-exhausted-fds", SIGSEGV, 1, .exactly(0)),
    Way("no-core", SIGSEGV, 1, .exactly(0)),
    Way("seccomp-refusing", SIGSEGV, 1, .exactly(0)),
    Way("seccomp-killing", SIGSEGV, 1, .exactly(0)),
    Way("atexit", SIGSEGV, 1, .exactly(0)),
    Way("constructor", SIGSEGV, 1, .exactly(0)),
    Way("--thread null-read", SIGSEGV, 1, .exactly(0)),
    Way("--thread stack-overflow", SIGSEGV, 2, .stack),
    Way("--thread abort", SIGABRT, tkill),
    Way("--thread trap", SIGTRAP, kernel),
    Way("--thread --threads 40 ill", SIGILL, 2, .pc),
    Way("--threads 3 --spin --thread fpe", SIGFPE, 1, .pc),
    Way("--malloc-lock null-read", SIGSEGV, 1, .exactly(0)),
    Way("--malloc-lock --threads 2 --thread abort", SIGABRT, tkill),
  ]
  /// Those that a program may only do as root.
  static let privileged: [Way] = [
    Way("setuid", SIGSEGV, 1, .exactly(0)),
    Way("chroot", SIGSEGV, 1, .exactly(0)),
    Way("namespaces", SIGSEGV, 1, .exactly(0)),
  ]
}

@Suite struct `every way of dying` {
  private func check(_ way: Way) throws {
    let outcome = try MiniGuardian().run([Places.dies] + way.arguments)
    #expect(outcome.signal == way.signal, "\(outcome.output)")
    let bell = try #require(outcome.bells.first, "the bell was not rung: \(outcome.output)")
    #expect(outcome.bells.count == 1)
    let record = try #require(outcome.ring.records.first)
    #expect(outcome.ring.records.count == 1)
    #expect(record.state == 2)
    #expect(record.architecture == 62 || record.architecture == 183)
    #expect(record.signal == way.signal)
    #expect(record.code == way.code)
    #expect(record.siginfoSignal == way.signal)
    #expect(record.siginfoCode == way.code)
    #expect(bell.signal == way.signal && bell.tid == record.tid && bell.slot == 0)
    #expect(bell.senderPID == record.pid && outcome.ring.mainPID == record.pid)
    if way.code <= 0 && way.arguments[0] != "killed-by-child" {
      #expect(record.senderPID == record.pid)
    }
    switch way.address {
    case .exactly(let address): #expect(record.address == address)
    case .pc: #expect(record.address == record.pc)
    case .stack:
      #expect(record.address > record.sp - 4096 && record.address < record.sp + 4096)
    case .any: break
    }
    if way.abortMessage.isEmpty {
      #expect(record.abortMessage == "")
    } else {
      #expect(record.abortMessage.hasSuffix(way.abortMessage))
    }
    let sandboxed = ["sys", "seccomp-refusing", "seccomp-killing"].contains(way.arguments[0])
    if !sandboxed {
      let other = ["exec": "exe"][way.arguments[0]] ?? "dies"
      #expect(record.threadName == (way.arguments.contains("--thread") ? "dying" : other))
    }
    // Signal, registers, abort message and stack are whole in every case, the name in most.
    #expect(record.parts & 0b11011 == 0b11011)
    if way.arguments[0] != "no-stack" {
      #expect(record.stackLength >= 64)
      #expect(record.stackAddress < record.sp + (1 << 20))
    }
    let inThread = record.pid != record.tid
    #expect(
      inThread
        == (way.arguments.contains("--thread") || way.arguments[0].contains("thread")))
  }

  @Test(arguments: Way.all) func `is recorded with its signal, code, address and message`(way: Way)
    throws
  {
    try check(way)
  }

  @Test(.enabled(if: geteuid() == 0, "needs root"), arguments: Way.privileged)
  func `is recorded after the program changed its user, root or namespaces`(way: Way) throws {
    try check(way)
  }

  /// All that end by themselves in a moment.
  static let comparable =
    Way.all.map(\.arguments)
    + [
      ["exit", "0"], ["exit", "7"], ["quick-exit", "255"], ["exec-missing"],
      ["segv-while-blocked"], ["segv-while-ignored"], ["abort-while-ignored"],
      ["handler-lives-on"], ["handler-exits"], ["ignored-lives-on"], ["no-altstack-overflow"],
      ["system"],
    ]

  @Test(arguments: comparable)
  func `has the wait status and the output it has without guardian`(arguments: [String]) throws {
    var without = MiniGuardian()
    without.preload = false
    without.channel = false
    let expected = try without.run([Places.dies] + arguments)
    let outcome = try MiniGuardian().run([Places.dies] + arguments)
    #expect(outcome.status == expected.status)
    #expect(outcome.output == expected.output)
    #expect(expected.bells.isEmpty)
  }

  @Test(arguments: [
    "exit 0", "exit 7", "quick-exit 3", "handler-lives-on", "handler-exits", "ignored-lives-on",
    "system", "exec-missing",
  ])
  func `that is no crash is not reported`(way: String) throws {
    let outcome = try MiniGuardian().run(
      [Places.dies] + way.split(separator: " ").map(String.init))
    #expect(outcome.exitCode != nil)
    #expect(outcome.bells.isEmpty)
    #expect(outcome.ring.handlerRuns == 0)
    #expect(outcome.ring.records.isEmpty)
  }
}

@Suite struct `a child of the program` {
  /// "child 17 signal 11" → 17
  private func child(_ outcome: Outcome) throws -> Int32 {
    let words = outcome.output.split(separator: " ")
    #expect(words.count == 4 && words[2] == "signal", "\(outcome.output)")
    return try #require(words.count > 1 ? Int32(words[1]) : nil)
  }

  @Test(arguments: ["fork-child", "fork-child-thread", "vfork-child", "clone-child"])
  func `that crashes is recorded under its own name, and the program lives on`(way: String) throws {
    let outcome = try MiniGuardian().run(Places.dies, way)
    #expect(outcome.exitCode == 0)
    let pid = try child(outcome)
    #expect(outcome.bells.map(\.senderPID) == [pid])
    let record = try #require(outcome.ring.records.first)
    #expect(record.pid == pid)
    #expect(record.signal == SIGSEGV)
    #expect((record.tid == pid) == (way != "fork-child-thread"))
    #expect(outcome.ring.mainPID != pid)
  }

  @Test(.enabled(if: geteuid() == 0, "needs root"))
  func `that is the first of its pid namespace dies of its fault too`() throws {
    let outcome = try MiniGuardian().run(Places.dies, "pid-one")
    let pid = try child(outcome)
    let record = try #require(outcome.ring.records.first)
    #expect(record.pid == 1)
    #expect(record.tid == 1)
    #expect(outcome.bells.map(\.senderPID) == [pid])
    #expect(outcome.output.hasSuffix("signal 11\n"))
  }

  @Test(.enabled(if: geteuid() == 0, "needs root"))
  func `that is the first of its pid namespace stays deaf to what it sends itself`() throws {
    // The kernel ignores SIGTRAP and SIGABRT here; abort() then ends by a privileged instruction.
    let outcome = try MiniGuardian().run(Places.dies, "pid-one-abort")
    _ = try child(outcome)
    #expect(outcome.output.hasSuffix("signal 11\n"))
    #expect(outcome.ring.records.map(\.signal) == [SIGSEGV])
    #expect(outcome.ring.records.map(\.code) == [Way.kernel])
  }

  @Test func `that is ended by a broken pipe is not reported`() throws {
    let outcome = try MiniGuardian().run("/bin/sh", "-c", "yes | head -n 1; exit 3")
    #expect(outcome.exitCode == 3)
    #expect(outcome.bells.isEmpty)
    #expect(outcome.ring.records.isEmpty)
  }

  @Test func `that another process killed is not reported`() throws {
    let outcome = try MiniGuardian().run("/bin/sh", "-c", "sleep 600 & kill -ABRT $!; wait; exit 3")
    #expect(outcome.exitCode == 3)
    #expect(outcome.bells.isEmpty)
  }
}

@Suite struct `the end of a program` {
  /// What a core's note says of the signal, for a core in the program's own folder.
  private func coreNote(_ way: String, preload: Bool) throws -> (Outcome, String) {
    var guardian = MiniGuardian()
    guardian.preload = preload
    guardian.channel = preload
    let outcome = try guardian.run(
      "/bin/sh", "-c",
      """
      ulimit -S -c unlimited; \(Places.dies) \(way) 2>/dev/null; status=$?
      LD_PRELOAD= eu-readelf -n core* | grep -A 2 SIGINFO; exit $status
      """)
    return (outcome, outcome.output)
  }

  static let coresAreFiles: Bool =
    ((try? readAll("/proc/sys/kernel/core_pattern")) ?? "").hasPrefix("core")

  @Test(
    .enabled(if: coresAreFiles, "core_pattern sends cores elsewhere"),
    arguments: ["field-read", "noncanonical-read", "abort", "trap", "--thread field-read"])
  func `leaves the kernel's core with the original signal information`(way: String) throws {
    let (without, expected) = try coreNote(way, preload: false)
    let (with, found) = try coreNote(way, preload: true)
    #expect(expected.contains("si_signo"), "\(expected)")
    // The sender of an abort() is the process itself: another one each time.
    let stable: (String) -> String = { text in
      text.split(separator: "\n").filter { !$0.contains("sender") }.joined(separator: "\n")
    }
    #expect(stable(found) == stable(expected))
    #expect(with.exitCode == without.exitCode)
    #expect(with.bells.count == 1)
  }

  @Test(.enabled(if: coresAreFiles, "core_pattern sends cores elsewhere"))
  func `tells its parent of the core exactly when there is one`() throws {
    for (limit, dumped) in [("unlimited", true), ("0", false)] {
      let outcome = try MiniGuardian().run(
        "/bin/sh", "-c", "ulimit -S -c \(limit); exec \(Places.dies) null-read")
      #expect(outcome.signal == SIGSEGV)
      #expect(outcome.coreDumped == dumped)
    }
  }

  @Test func `is recorded without the arguments and the environment above its stack`() throws {
    var tool = MiniGuardian()
    tool.environment["SECRET"] = "hunterenv"
    let outcome = try tool.run(Places.fixture("dies"), "null-read")
    let record = try #require(outcome.ring.records.first)
    // To the very end of what frames can be in.
    #expect(record.stackLength > 256)
    for secret in ["hunterenv", "null-read", "GUARDIAN_CHANNEL="] {
      #expect(outcome.ring.bytes.firstRange(of: Array(secret.utf8)) == nil, "\(secret)")
    }
  }

  @Test func `waits for a capture that hangs no longer than it may`() throws {
    var guardian = MiniGuardian()
    guardian.captureTimeoutMilliseconds = 300
    guardian.answer = .silence
    let outcome = try guardian.run(Places.dies, "--threads", "4", "null-read")
    #expect(outcome.signal == SIGSEGV)
    #expect(outcome.bells.count == 1)
    #expect(outcome.ring.records.map(\.state) == [2])
  }

  @Test func `does not wait for a guardian that is gone`() throws {
    var guardian = MiniGuardian()
    guardian.captureTimeoutMilliseconds = 60_000
    // Another socket under the bell's name, whose owner has closed it.
    guardian.prepare = { folder in
      unlink(folder + "/bell")
      close(bindDatagram(folder + "/bell"))
    }
    let began = seconds()
    let outcome = try guardian.run(Places.dies, "null-read")
    #expect(outcome.signal == SIGSEGV)
    #expect(seconds() - began < 30)
    #expect(outcome.ring.records.map(\.state) == [2])
  }

  @Test func `is not held up by more crashes than the ring has slots`() throws {
    let script = "for i in 1 2 3 4 5 6 7 8; do \(Places.dies) fork-child >/dev/null; done; exit 5"
    let outcome = try MiniGuardian().run("/bin/sh", "-c", script)
    #expect(outcome.exitCode == 5)
    #expect(outcome.ring.handlerRuns == 8)
    #expect(outcome.bells.count >= 4)
  }

  /// Four whole records; `oldest` is the one of the earliest time.
  private func fill(_ path: String, oldest: Int, released: Bool) throws {
    let fd = open(path, O_RDWR | O_CLOEXEC)
    defer { close(fd) }
    var next: UInt32 = 4
    pwrite(fd, &next, 4, 264)
    for slot in 0..<4 {
      let at = 4096 + slot * 40960
      var head: [UInt32] = [2, 0b11111, released ? 1 : 0, 62, 77, 77, 6]
      pwrite(fd, &head, 28, off_t(at))
      var time = UInt64(slot == oldest ? 1 : 2)
      pwrite(fd, &time, 8, off_t(at + 64))
      var length: UInt32 = 3
      pwrite(fd, &length, 4, off_t(at + 592))
    }
  }

  @Test func `gives a full ring's oldest released record to a later crash`() throws {
    var guardian = MiniGuardian()
    guardian.captureTimeoutMilliseconds = 500
    guardian.prepare = { try fill($0 + "/ring", oldest: 2, released: true) }
    let outcome = try guardian.run(Places.dies, "null-read")
    #expect(outcome.bells.map(\.slot) == [2])
    #expect(outcome.ring.records.map(\.signal) == [6, 6, SIGSEGV, 6])
    #expect(outcome.ring.records[2].abortMessage == "")
    #expect(outcome.ring.records[2].state == 2)
  }

  @Test func `never overwrites a record that was not released`() throws {
    var guardian = MiniGuardian()
    guardian.prepare = { try fill($0 + "/ring", oldest: 2, released: false) }
    let outcome = try guardian.run(Places.dies, "null-read")
    #expect(outcome.signal == SIGSEGV)
    #expect(outcome.bells.isEmpty)
    #expect(outcome.ring.records.map(\.signal) == [6, 6, 6, 6])
  }

  @Test func `counts how often the handler runs and stops at the cap`() throws {
    var guardian = MiniGuardian()
    guardian.handlerRunsMax = 2
    let outcome = try guardian.run(
      "/bin/sh", "-c", "for i in 1 2 3 4; do \(Places.dies) fork-child; done; exit 5")
    #expect(outcome.exitCode == 5)
    #expect(outcome.bells.count == 2)
    #expect(outcome.output.split(separator: "\n").count == 4)
    #expect(outcome.output.split(separator: "\n").allSatisfy { $0.hasSuffix("signal 11") })
  }
}
