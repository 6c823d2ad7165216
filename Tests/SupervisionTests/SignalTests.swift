import Glibc
import Kernel
import Testing

/// A program that says which signals it gets, one line each, and lives on.
private func listener(_ signals: [Int32], besides: String = "") -> [String] {
  let traps = signals.map { "trap 'echo got \($0)' \($0); " }.joined()
  // The shell waits for a child that a signal does not end: a wait is interrupted, and goes on.
  return ["/bin/sh", "-c", traps + besides + "echo pid $$; sleep 1000 & while :; do wait; done"]
}

extension Guardian {
  fileprivate func got(_ signal: Int32) -> Int {
    process.outputLines.filter { $0 == "got \(signal)" }.count
  }
}

@Suite struct `A signal to guardian` {
  let probe = Root.fixture("spawn_probe")

  @Test(arguments: ["HUP:USR1", "SIGHUP:SIGUSR1", "1:10", "hup:10"])
  func `reaches the program as another one if that was asked for`(rewrite: String) throws {
    let guardian = try Guardian(["--rewrite-signal", rewrite], listener([SIGHUP, SIGUSR1]))
    _ = try guardian.programPID()
    guardian.process.signal(SIGHUP)
    try eventually("USR1") { guardian.got(SIGUSR1) == 1 ? true : nil }
    #expect(guardian.got(SIGHUP) == 0)
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `does not reach it when it is dropped, and the last word on a signal holds`() throws {
    let guardian = try Guardian(
      ["--rewrite-signal", "USR2:HUP", "--rewrite-signal", "USR2:0"],
      listener([SIGHUP, SIGUSR1, SIGUSR2]))
    _ = try guardian.programPID()
    guardian.process.signal(SIGUSR2)
    try eventually("guardian took it") {
      pendingSignals(guardian.process.pid) == 0 ? true : nil
    }
    guardian.process.signal(SIGUSR1)
    try eventually("USR1") { guardian.got(SIGUSR1) == 1 ? true : nil }
    #expect(guardian.got(SIGHUP) == 0)
    #expect(guardian.got(SIGUSR2) == 0)
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `that asks for a stop may reach the program as another one, and stays a stop`() throws
  {
    let guardian = try Guardian(
      ["--rewrite-signal", "TERM:QUIT", "--restart", "always"],
      ["/bin/sh", "-c", "trap 'echo quit; exit 9' QUIT; echo pid $$; sleep 1000 & wait; wait"])
    _ = try guardian.programPID()
    #expect(try guardian.stop() == .exited(9))
    #expect(guardian.process.outputLines.filter { $0 == "quit" }.count == 1)
    #expect(guardian.process.outputLines.filter { $0.hasPrefix("pid ") }.count == 1)
    #expect(guardian.reports.isEmpty)
  }

  @Test func `that is rewritten to a dump of the program is no crash when it asks for a stop`()
    throws
  {
    let guardian = try Guardian(["--rewrite-signal", "TERM:ABRT"], [probe, "wait"])
    _ = try guardian.programPID()
    #expect(try guardian.stop() == .exited(134))
    #expect(guardian.reports.isEmpty)
  }

  @Test func `that would ask for a stop asks for nothing when it is dropped`() throws {
    let guardian = try Guardian(["--rewrite-signal", "TERM:0"], [probe, "wait"])
    let pid = try guardian.programPID()
    guardian.process.signal(SIGTERM)
    try eventually("guardian took it") {
      pendingSignals(guardian.process.pid) == 0 ? true : nil
    }
    #expect(isAlive(pid))
    // INT is another word for the same.
    guardian.process.signal(SIGINT)
    #expect(try guardian.run() == .exited(143))
  }

  @Test func `rewritten to TERM reaches the program only: guardian goes on by its policy`() throws {
    let guardian = try Guardian(
      ["--rewrite-signal", "HUP:TERM", "--restart", "always"], [probe, "wait"])
    _ = try guardian.programPID()
    guardian.process.signal(SIGHUP)
    _ = try guardian.programPID(2)
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `reaches the whole group if that was asked for, a stranger's session not`() throws {
    let said =
      "trap 'echo child got 10' USR1; echo child ready; sleep 1000 & while :; do wait; done"
    let guardian = try Guardian(
      ["--forward-to", "group"],
      listener(
        [SIGUSR1],
        besides: "sh -c \"\(said)\" & setsid sh -c \"\(said.replacing("child", with: "other"))\" & "
      ))
    _ = try guardian.programPID()
    try eventually("all three") {
      let lines = guardian.process.outputLines
      return lines.contains("child ready") && lines.contains("other ready") ? true : nil
    }
    guardian.process.signal(SIGUSR1)
    try eventually("both") {
      guardian.got(SIGUSR1) == 1 && guardian.process.outputLines.contains("child got 10")
        ? true : nil
    }
    #expect(!guardian.process.outputLines.contains("other got 10"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `of guardian's own making, a broken pipe, is not passed on`() throws {
    // guardian writes what the program says into a pipe whose reader is gone.
    let scratch = Scratch()
    let fifo = scratch.path + "/fifo"
    try Files.makeFIFO(fifo, mode: 0o600)
    let guardian = try Guardian(
      [],
      [
        "/bin/sh", "-c",
        "trap 'echo got 13' PIPE; trap 'echo got 10' USR1; echo pid $$; "
          + "echo text >&2; echo text >&2; echo written; sleep 1000 & while :; do wait; done",
      ], in: scratch,
      // A reader that is gone before guardian starts.
      wrapper: "cat <\(fifo) >/dev/null & exec 3>\(fifo); kill $!; wait $!; exec \"$@\" 2>&3 3>&-")
    _ = try guardian.programPID()
    try eventually("its words") { guardian.process.outputLines.contains("written") ? true : nil }
    guardian.process.signal(SIGUSR1)
    try eventually("USR1") { guardian.got(SIGUSR1) == 1 ? true : nil }
    #expect(guardian.got(SIGPIPE) == 0)
    // One from outside is.
    guardian.process.signal(SIGPIPE)
    try eventually("PIPE") { guardian.got(SIGPIPE) == 1 ? true : nil }
    #expect(try guardian.stop() == .exited(143))
  }
}

@Suite(
  .enabled(
    if: geteuid() == 0
      && (try? Process(["unshare", "--pid", "--fork", "true"]).wait()) == .exited(0),
    "no pid namespace can be made here"))
struct `As PID 1` {
  private func container(_ options: [String] = [], _ command: [String]) throws -> Guardian {
    try Guardian(
      options, command,
      wrapper: "exec unshare --pid --fork --mount-proc --kill-child \"$@\"")
  }

  /// guardian's pid as this side sees it.
  private func guardianPID(_ container: Guardian) throws -> Int32 {
    try eventually("guardian") {
      let path = "/proc/\(container.process.pid)/task/\(container.process.pid)/children"
      return (try? Files.readText(path, limit: 256)).flatMap { Int32($0.filter(\.isNumber)) }
    }
  }

  @Test func `guardian passes signals on that PID 1 would not get by itself`() throws {
    let container = try container(["--restart", "no"], [Root.fixture("spawn_probe"), "wait"])
    #expect(try container.programPID() > 1)
    kill(try guardianPID(container), SIGUSR2)
    // The program has the default action that PID 1 has not.
    #expect(try container.run() == .exited(128 + SIGUSR2))
  }

  @Test func `guardian leaves at TERM with the program's own status`() throws {
    let container = try container([], [Root.fixture("spawn_probe"), "wait"])
    _ = try container.programPID()
    kill(try guardianPID(container), SIGTERM)
    #expect(try container.run() == .exited(143))
  }

  @Test func `guardian cannot die of the program's signal, and says its number`() throws {
    let container = try container(
      ["--exit-as-signal", "--max-crashes", "0"], [Root.fixture("dies"), "abort"])
    #expect(try container.run() == .exited(134))
    #expect(try container.reportText().contains("\"SIGABRT\""))
  }

  @Test func `guardian reaps every orphan and asks all of them to stop before it leaves`() throws {
    let orphan = "trap 'echo orphan stops; exit' TERM; echo orphan ready; sleep 1000 & wait"
    let container = try container(
      [],
      [
        "/bin/sh", "-c",
        "for i in 1 2 3 4 5; do sh -c 'sleep 0 &'; done; "
          + "(setsid sh -c \"\(orphan)\" &); echo pid $$; exec sleep 1000",
      ])
    _ = try container.programPID()
    try eventually("the orphan") {
      container.process.outputLines.contains("orphan ready") ? true : nil
    }
    let guardian = try guardianPID(container)
    try eventually("no zombie") {
      let text = try Files.readText("/proc/\(guardian)/task/\(guardian)/children", limit: 4096)
      let children = text.split(separator: " ").compactMap { Int32($0) }
      return children.contains { Processes.state(of: $0) == "Z" } ? nil : true
    }
    kill(guardian, SIGTERM)
    #expect(try container.run() == .exited(143))
    #expect(container.process.outputLines.contains("orphan stops"))
  }

  @Test func `guardian restarts what crashes, with its report`() throws {
    let container = try container(
      ["--max-crashes", "1", "--restart-delay", "1ms"], [Root.fixture("dies"), "null-read"])
    #expect(try container.run() == .exited(139))
    #expect(container.reports.count == 2)
    #expect(try container.reportText().contains("\"threads\": \"all\""))
  }
}
