import Glibc
import Kernel
import Policy
import Supervision
import Testing

/// Endings, each caused for real, and what guardian makes of them.
@Suite struct `An ending` {
  @Test func `by the hard limit of processor time is not put down to somebody else`() throws {
    let guardian = try Guardian(
      once + ["--limit", "cpu=1"], ["/bin/sh", "-c", "while :; do :; done"])
    #expect(try guardian.run() == .exited(137))
    #expect(try report(guardian).contains("its limit of processor time, 1 s, was reached"))
  }

  @Test func `by a pipe that lost its reader is no reason for another life`() throws {
    let guardian = try Guardian(
      [], ["/bin/sh", "-c", "exec yes"], wrapper: "\"$@\" | head -1")
    #expect(try guardian.run() == .exited(0))
    try eventually("guardian's end: \(guardian.process.errorText)") {
      guardian.process.errorText.contains("stopped as asked") ? true : nil
    }
    #expect(guardian.process.errorText.contains("nobody reads standard output any more"))
    #expect(guardian.reports.isEmpty)
  }

  @Test func `of a program that detaches late is seen all the same`() throws {
    let guardian = try Guardian(
      [],
      [
        "/bin/sh", "-c",
        "(i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; exec setsid sleep 1000) & exit 0",
      ])
    #expect(try guardian.run() == .exited(78), "\(guardian.process.errorText)")
  }

  let dies = Root.fixture("dies")
  let probe = Root.fixture("spawn_probe")
  let once = ["--max-crashes", "0"]

  /// The finished report of a guardian that left.
  private func report(_ guardian: Guardian) throws -> String {
    #expect(guardian.reports.count == 1, "\(guardian.process.errorText)")
    return try guardian.reportText()
  }

  @Test func `with 0 is none that needs a word or a report`() throws {
    let guardian = try Guardian([], ["/bin/true"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.reports.isEmpty)
  }

  @Test func `with an exit code is told with the code`() throws {
    let guardian = try Guardian(once, ["/bin/sh", "-c", "echo goodbye >&2; exit 42"])
    #expect(try guardian.run() == .exited(42))
    let text = try report(guardian)
    #expect(text.contains("\"kind\": \"exit\"") && text.contains("\"exitStatus\": 42"))
    #expect(text.contains("goodbye"))
    #expect(guardian.process.errorText.contains("exited with 42"))
  }

  @Test func `by a crash is told with the signal`() throws {
    let guardian = try Guardian(once, [dies, "null-read"])
    #expect(try guardian.run() == .exited(139))
    let text = try report(guardian)
    #expect(text.contains("\"kind\": \"crash\"") && text.contains("\"SIGSEGV\""))
    #expect(text.contains("\"SEGV_MAPERR\"") && text.contains("null pointer dereference"))
  }

  @Test func `by a fault signal from outside names who sent it`() throws {
    let guardian = try Guardian(once, [dies, "sleep"])
    let program = try eventually("the program with its handler") {
      child(of: guardian).flatMap { hasHandler($0) ? $0 : nil }
    }
    kill(program, SIGSEGV)
    #expect(try guardian.run() == .exited(139))
    let text = try report(guardian)
    #expect(text.contains("\"senderPID\": \(getpid())"))
    #expect(text.contains("\"senderUID\": \(getuid())"))
    #expect(text.contains("SIGSEGV was sent by pid \(getpid())"))
  }

  @Test func `by somebody's KILL is no lack of memory`() throws {
    let guardian = try Guardian(once, [probe, "wait"])
    kill(try guardian.programPID(), SIGKILL)
    #expect(try guardian.run() == .exited(137))
    let text = try report(guardian)
    #expect(text.contains("\"kind\": \"killed\""))
    #expect(text.contains("killed: by another process"))
    #expect(guardian.process.errorText.contains("died of SIGKILL"))
  }

  @Test func `that was asked for is no failure and leaves no report`() throws {
    let guardian = try Guardian([], [probe, "wait"])
    _ = try guardian.programPID()
    #expect(try guardian.stop() == .exited(143))
    #expect(guardian.reports.isEmpty)
  }

  @Test func `for want of processor time names the limit`() throws {
    let guardian = try Guardian(once, [dies, "xcpu"])
    #expect(try guardian.run() == .exited(128 + SIGXCPU))
    let text = try report(guardian)
    #expect(text.contains("\"SIGXCPU\"") && text.contains("the limit of CPU time was reached"))
  }

  @Test func `for a file that grew too large names the limit`() throws {
    let guardian = try Guardian(once, [dies, "xfsz"])
    #expect(try guardian.run() == .exited(128 + SIGXFSZ))
    let text = try report(guardian)
    #expect(text.contains("\"SIGXFSZ\"") && text.contains("the limit of a file's size"))
  }

  @Test func `by a seccomp filter names the system call`() throws {
    let guardian = try Guardian(once, [dies, "sys"])
    #expect(try guardian.run() == .exited(128 + SIGSYS))
    let text = try report(guardian)
    #expect(text.contains("\"SIGSYS\""))
    #expect(text.contains("a seccomp filter forbade the system call getsid ("), "\(text)")
    #expect(text.contains("\"name\": \"getsid\""))
  }

  @Test func `before the program began is told apart from the program's own`() throws {
    let guardian = try Guardian(once, ["/nonexistent/program"])
    #expect(try guardian.run() == .exited(127))
    #expect(try report(guardian).contains("\"kind\": \"exec-failed\""))
  }

  @Test func `of a main process whose daemon lives on is named, and guardian leaves with 78`()
    throws
  {
    let scratch = Scratch()
    let up = scratch.path + "/up"
    let guardian = try Guardian(
      ["--restart", "always"],
      [
        "/bin/sh", "-c",
        "setsid sh -c 'echo pid $$; echo up >\(up); exec sleep 1000' & "
          + "until [ -s \(up) ]; do sleep 0.01; done; exit 0",
      ], in: scratch)
    #expect(try guardian.run() == .exited(78))
    let daemon = try guardian.programPID()
    #expect(guardian.process.outputLines.count == 1)
    #expect(guardian.process.errorText.contains("detached"))
    #expect(guardian.process.errorText.contains("run it in the foreground"))
    let text = try report(guardian)
    #expect(text.contains("\"kind\": \"exit\"") && text.contains("\"detached\""))
    #expect(!isAlive(daemon))
  }

  @Test func `that is the same for the third time in a row will not heal`() throws {
    let guardian = try Guardian(
      ["--max-identical", "3", "--restart-delay", "1ms"], [dies, "null-read"])
    #expect(try guardian.run() == .exited(139))
    #expect(guardian.process.errorText.contains("the same crash 3 times in a row"))
    #expect(guardian.reports.count == 3)
  }

  @Test func `that differs each time is not the same`() throws {
    let scratch = Scratch()
    let guardian = try Guardian(
      ["--max-identical", "2", "--max-crashes", "3", "--restart-delay", "1ms"],
      [
        "/bin/sh", "-c",
        "n=$(cat \(scratch.path)/n 2>/dev/null || echo 0); echo $((n + 1)) >\(scratch.path)/n; "
          + "exit $((n + 1))",
      ], in: scratch)
    #expect(try guardian.run() == .exited(4))
    #expect(guardian.process.errorText.contains("more than max-crashes (3)"))
  }

  @Test func `at the cap runs the give-up command with all it may want to know`() throws {
    let scratch = Scratch()
    let book = scratch.path + "/given-up"
    let guardian = try Guardian(
      [
        "--name", "api", "--max-crashes", "1", "--restart-delay", "1ms", "--on-give-up",
        "env | grep ^GUARDIAN_ | sort >\(book)",
      ], ["/bin/sh", "-c", "exit 3"], in: scratch)
    #expect(try guardian.run() == .exited(3))
    let lines = try Files.readText(book, limit: 1 << 16).split(separator: "\n")
    #expect(lines.contains("GUARDIAN_NAME=api"))
    #expect(lines.contains("GUARDIAN_ENDING=exit status 3"))
    #expect(lines.contains("GUARDIAN_FAILURES=2"))
    #expect(lines.contains { $0.hasPrefix("GUARDIAN_REASON=2 failures within 10 min") })
    let last = guardian.reports.sorted().last?.split(separator: "/").last ?? "none"
    #expect(lines.contains("GUARDIAN_LAST_REPORT=" + last))
  }

  private func child(of guardian: Guardian) -> Int32? {
    let path = "/proc/\(guardian.process.pid)/task/\(guardian.process.pid)/children"
    return (try? Files.readText(path, limit: 256))?.split(separator: " ").first.flatMap {
      Int32($0)
    }
  }

  /// Its disposition of SEGV is no longer the default.
  private func hasHandler(_ pid: Int32) -> Bool {
    let text = (try? Files.readText("/proc/\(pid)/status", limit: 1 << 16)) ?? ""
    for line in text.split(separator: "\n") where line.hasPrefix("SigCgt:") {
      let caught = UInt64(line.dropFirst(7).filter { $0.isHexDigit }, radix: 16) ?? 0
      return caught & 1 << UInt64(SIGSEGV - 1) != 0
    }
    return false
  }
}

/// A control group of the test's own, with a limit of memory. This machine may have version 1 or 2.
private final class MemoryGroup {
  let path: String

  /// nil: this machine permits none; `obstacle` says why.
  static let obstacle: String? = {
    do {
      let group = try MemoryGroup(bytes: 64 << 20)
      return Files.exists(group.path + "/cgroup.procs") ? nil : "the group has no cgroup.procs"
    } catch { return "no memory cgroup can be made here: \(error)" }
  }()

  init(bytes: Int) throws {
    let lines = try Files.readText("/proc/self/cgroup", limit: 8192).split(separator: "\n")
    func own(_ match: (Substring) -> Bool) -> Substring? {
      lines.first(where: match)?.split(
        separator: ":", maxSplits: 2, omittingEmptySubsequences: false)[2]
    }
    let name = "/guardian-test-" + Randomness.hex(bytes: 6)
    let limit: String
    if let group = own({ $0.contains(":memory:") }) {
      path = "/sys/fs/cgroup/memory" + (group == "/" ? "" : group) + name
      limit = "/memory.limit_in_bytes"
    } else {
      let group = own { $0.hasPrefix("0::") } ?? "/"
      path = "/sys/fs/cgroup" + (group == "/" ? "" : group) + name
      limit = "/memory.max"
    }
    try Files.makeDirectory(path, mode: 0o755)
    let file = open(path + limit, O_WRONLY | O_CLOEXEC)
    defer { close(file) }
    let text = Array("\(bytes)\n".utf8)
    guard file >= 0, write(file, text, text.count) == text.count else {
      try? Files.removeDirectory(path)
      throw TimedOut(description: "the group's memory cannot be limited (\(limit))")
    }
  }

  deinit { try? Files.removeDirectory(path) }
}

@Suite(
  .enabled(if: MemoryGroup.obstacle == nil, Comment(rawValue: MemoryGroup.obstacle ?? "")))
struct `The kernel's kill for lack of memory` {
  @Test func `is told apart from another KILL by the control group's own count`() throws {
    let group = try MemoryGroup(bytes: 96 << 20)
    let enter = "echo $$ >\(group.path)/cgroup.procs; exec \"$@\""
    do {
      let guardian = try Guardian(
        ["--max-crashes", "0"], [Root.fixture("dies"), "--say", "growing", "oom"], wrapper: enter)
      #expect(try guardian.run() == .exited(137))
      let text = try guardian.reportText()
      #expect(text.contains("\"kind\": \"oom\""), "\(guardian.process.errorText)")
      #expect(text.contains("\"oomKills\": 1"))
      #expect(text.contains("growing"))
      #expect(guardian.process.errorText.contains("was killed for lack of memory"))
    }
    do {
      // The same group, whose count is not 0 any more, and an ordinary KILL.
      let guardian = try Guardian(
        ["--max-crashes", "0"], [Root.fixture("spawn_probe"), "wait"], wrapper: enter)
      kill(try guardian.programPID(), SIGKILL)
      #expect(try guardian.run() == .exited(137))
      let text = try guardian.reportText()
      #expect(text.contains("\"kind\": \"killed\""))
      #expect(text.contains("the kernel counted no kill for lack of memory"))
    }
  }

  @Test func `of the program leaves guardian to restart it`() throws {
    let group = try MemoryGroup(bytes: 96 << 20)
    let scratch = Scratch()
    let guardian = try Guardian(
      [], [Root.fixture("dies"), "--life-file", scratch.path + "/n", "oom"], in: scratch,
      wrapper: "echo $$ >\(group.path)/cgroup.procs; exec \"$@\"")
    _ = try guardian.reportText()
    try eventually("life 2") {
      guardian.process.errorText.contains("restarting at once") ? true : nil
    }
    #expect(try guardian.stop() == .exited(143))
  }
}

@Suite struct `The memory of a control group` {
  /// A folder that looks like /sys/fs/cgroup.
  private func tree(_ files: [String: String]) throws -> Scratch {
    let scratch = Scratch()
    for (path, text) in files {
      let folder = scratch.path + "/" + path.split(separator: "/").dropLast().joined(separator: "/")
      try Files.makeDirectories(folder, mode: 0o755)
      try Files.replace(scratch.path + "/" + path, with: Array(text.utf8))
    }
    return scratch
  }
  private let events = "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n"

  @Test func `of version 2 is its own count`() throws {
    let tree = try tree(["a/b/memory.events": events])
    let memory = CgroupMemory(membership: "0::/a/b\n", root: tree.path)
    #expect(memory.kills == 2)
    #expect(!memory.sawKill(at: .seconds(1)))
    let file = tree.path + "/a/b/memory.events"
    try Files.replace(file, with: Array(events.replacing("kill 2", with: "kill 3").utf8))
    #expect(memory.sawKill(at: .seconds(2)))
    #expect(!memory.sawKill(at: .seconds(2)))
    #expect(memory.kills == 3)
    // A worker was killed a minute before: this KILL is another's.
    try Files.replace(file, with: Array(events.replacing("kill 2", with: "kill 4").utf8))
    memory.look(at: .seconds(10))
    #expect(!memory.sawKill(at: .seconds(70)))
    // A moment before: it took the program some time to go.
    try Files.replace(file, with: Array(events.replacing("kill 2", with: "kill 5").utf8))
    memory.look(at: .seconds(80))
    #expect(memory.sawKill(at: .seconds(81)))
  }

  @Test func `of version 1 is in oom_control, beside a version 2 without memory`() throws {
    let tree = try tree([
      "memory/x/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
      "unified/x/cgroup.procs": "",
    ])
    let memory = CgroupMemory(
      membership: "5:cpu,cpuacct:/x\n4:memory:/x\n0::/x\n", root: tree.path)
    #expect(memory.kills == 5)
  }

  @Test func `of a container that sees its group as the root is found there`() throws {
    let tree = try tree(["memory.events": events])
    let memory = CgroupMemory(membership: "0::/docker/0123\n", root: tree.path)
    #expect(memory.kills == 2)
  }

  @Test func `that cannot be read is unknown, never a kill`() throws {
    for (membership, text) in [("0::/a\n", "nonsense\n"), ("0::/none\n", events), ("", events)] {
      let tree = try tree(["a/memory.events": text])
      let memory = CgroupMemory(membership: membership, root: tree.path)
      #expect(memory.kills == nil)
      #expect(!memory.sawKill(at: .seconds(1)))
    }
  }

  @Test func `that is killed as a whole is named, also when it is one further up`() throws {
    let tree = try tree([
      "s/a/b/memory.events": events, "s/a/b/memory.oom.group": "0\n", "s/a/memory.oom.group": "1\n",
      "s/memory.oom.group": "0\n",
    ])
    let memory = CgroupMemory(membership: "0::/s/a/b\n", root: tree.path)
    #expect(memory.groupKilledTogether == tree.path + "/s/a")
    let above = CgroupMemory(membership: "0::/s\n", root: tree.path)
    #expect(above.groupKilledTogether == nil)
  }
}

@Suite struct `An ending that guardian could not see` {
  @Test func `counts, so that a program which takes guardian along reaches the cap`() throws {
    let scratch = Scratch()
    let options = ["--name", "api", "--max-crashes", "2"]
    for _ in 0..<3 {
      let guardian = try Guardian(options, [probe, "wait"], in: scratch)
      let pid = try guardian.programPID()
      guardian.process.signal(SIGKILL)
      _ = try guardian.run()
      try eventually("the end of the program") { isAlive(pid) ? nil : true }
    }
    let last = try Guardian(options, [probe, "wait"], in: scratch)
    #expect(try last.run() == .exited(1))
    #expect(last.process.errorText.contains("giving up"))
    #expect(last.process.outputLines.isEmpty)
  }

  @Test func `is one report with the snapshot where guardian dies during it`() throws {
    let scratch = Scratch()
    let first = try Guardian(["--name", "api"], [Root.fixture("dies"), "null-read"], in: scratch)
    let partial = first.state + "/reports/partial"
    try eventually("a snapshot") {
      ((try? Files.list(partial)) ?? []).contains {
        ((try? Files.status(partial + "/" + $0 + "/core"))?.size ?? 0) > 0
      } ? true : nil
    }
    first.process.signal(SIGKILL)
    _ = try first.run()
    let second = try Guardian(
      ["--name", "api", "--max-crashes", "0"], [Root.fixture("dies"), "null-read"], in: scratch)
    _ = try second.run()
    for path in second.reports {
      let text = try Files.readText(path + "/report.json", limit: 4 << 20)
      #expect(!text.contains("\"pid\": 0,") && text.contains("\"SIGSEGV\""), "\(text.prefix(600))")
    }
  }

  private let probe = Root.fixture("spawn_probe")

  /// A guardian that was killed while its program ran, and its state.
  private func killed(in scratch: Scratch) throws -> (program: Int32, state: String) {
    let first = try Guardian(["--name", "api"], [probe, "wait"], in: scratch)
    let pid = try first.programPID()
    let state = try eventually("the state with the running life") {
      let text = (try? Files.readText(first.state + "/state", limit: 1 << 20)) ?? ""
      return text.contains("\nrunning 1 \(pid) ") ? text : nil
    }
    first.process.signal(SIGKILL)
    _ = try first.run()
    try eventually("the end of the program") { isAlive(pid) ? nil : true }
    return (pid, state)
  }

  @Test func `because it was killed itself is told by the next one`() throws {
    let scratch = Scratch()
    let (pid, _) = try killed(in: scratch)
    let second = try Guardian(
      ["--name", "api"], [probe, "env", "GUARDIAN_CRASHED_LAST_RUN"], in: scratch)
    #expect(try second.run() == .exited(0))
    #expect(second.process.errorText.contains("api (life 1, pid \(pid)) ended with its guardian"))
    #expect(second.process.outputLines.contains("GUARDIAN_CRASHED_LAST_RUN=1"))
    #expect(second.reports.count == 1)
    let text = try second.reportText()
    #expect(text.contains("\"kind\": \"killed\"") && text.contains("\"guardian killed\""))
    #expect(text.contains("\"life\": 1") && text.contains("\"pid\": \(pid)"))
    #expect(text.contains("\"startedAt\""))
    // It is told once.
    let third = try Guardian(["--name", "api"], ["/bin/true"], in: scratch)
    #expect(try third.run() == .exited(0))
    #expect(!third.process.errorText.contains("ended with its guardian"))
  }

  @Test func `because the machine went down is told apart by the boot id`() throws {
    let scratch = Scratch()
    let (pid, state) = try killed(in: scratch)
    // As if it had been written before the last boot.
    let boot = state.split(separator: "\n").first { $0.hasPrefix("boot ") }!
    try Files.replace(
      scratch.path + "/state/state",
      with: SealedText.seal(
        (SealedText.open(Array(state.utf8)) ?? "")
          .replacing(boot, with: "boot 00000000-0000-0000-0000-000000000000")))
    let second = try Guardian(["--name", "api"], [probe, "env", "GUARDIAN_LIFE"], in: scratch)
    #expect(try second.run() == .exited(0))
    #expect(
      second.process.errorText.contains(
        "api (life 1, pid \(pid)) ended when the machine went down"))
    #expect(second.process.outputLines.contains("GUARDIAN_LIFE=1"))
    let text = try second.reportText()
    #expect(text.contains("\"machine down\"") && text.contains("\"kind\": \"killed\""))
  }

  @Test func `is none after a stop, or when no life ran`() throws {
    let scratch = Scratch()
    let first = try Guardian(["--name", "api"], [probe, "wait"], in: scratch)
    _ = try first.programPID()
    #expect(try first.stop() == .exited(143))
    let second = try Guardian(
      ["--name", "api", "--restart-delay", "1h", "--restart-delay-max", "1h"],
      ["/bin/sh", "-c", "echo life; exit 1"], in: scratch)
    try eventually("two lives and the state of waiting") {
      let text = (try? Files.readText(second.state + "/state", limit: 1 << 20)) ?? ""
      return text.contains("\nrow 2\n") && !text.contains("\nrunning ") ? true : nil
    }
    second.process.signal(SIGKILL)
    _ = try second.run()
    let third = try Guardian(["--name", "api"], ["/bin/true"], in: scratch)
    #expect(try third.run() == .exited(0))
    for guardian in [second, third] {
      #expect(!guardian.process.errorText.contains("ended with its guardian"))
      #expect(!guardian.process.errorText.contains("the machine went down"))
    }
  }
}
