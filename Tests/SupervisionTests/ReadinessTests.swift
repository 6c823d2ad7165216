// What a program says of itself while it runs: ready, alive, in which process; and what guardian
// makes of it, towards the program and towards a service manager.
import Glibc
import Kernel
import Testing

let lively = Root.fixture("lively")

/// A service manager's notify socket.
final class Manager {
  let scratch = Scratch()
  var path: String { scratch.path + "/manager" }
  private let socket: SharedDescriptor
  private(set) var messages: [String] = []

  init() throws {
    socket = SharedDescriptor(try Sockets.bindDatagram(scratch.path + "/manager", mode: 0o600))
  }

  var variable: String { "NOTIFY_SOCKET=" + path }

  func look() {
    while let datagram = Sockets.receive(socket.descriptor, limit: 4096) {
      messages.append(String(decoding: datagram.bytes, as: UTF8.self))
    }
  }

  @discardableResult
  func wait(for line: String) throws -> String {
    try eventually("\(line); there were: \(messages)") {
      look()
      return messages.first { $0.split(separator: "\n").contains { $0.hasPrefix(line) } }
    }
  }

  func has(_ line: String) -> Bool {
    look()
    return messages.contains { $0.split(separator: "\n").contains { $0.hasPrefix(line) } }
  }
}

func passes(_ time: Duration) {
  let end = Clock.monotonic + time
  while Clock.monotonic < end { usleep(5000) }
}

@Suite struct `A program is ready` {
  @Test func `when it writes a newline to its descriptor, and systemd hears of it then`() throws {
    let manager = try Manager()
    let guardian = try Guardian(
      ["--ready", "fd:7"], [lively, "fd", "7"], environment: [manager.variable])
    let pid = try guardian.programPID()
    try manager.wait(for: "STATUS=")
    #expect(!manager.has("READY=1"))
    kill(pid, SIGUSR1)
    try manager.wait(for: "READY=1")
    // A service manager takes 0 alone for success.
    #expect(try guardian.stop() == .exited(0))
  }

  @Test func `when it says READY=1, and what it says of itself is in guardian's status`() throws {
    let manager = try Manager()
    let guardian = try Guardian(
      ["--ready", "notify"], [lively, "say", "STATUS=warming up", "READY=1\nSTATUS=serving"],
      environment: [manager.variable])
    let pid = try guardian.programPID()
    try eventually("its words in systemd's status") { manager.has("STATUS=") ? true : nil }
    let ctl = {
      try Process(
        [
          Root.path + "/.build/release/guardianctl", "--runtime-directory", guardian.runtime,
          "status",
        ])
    }
    try eventually("its words in guardianctl's status") {
      let status = try ctl()
      _ = try status.wait()
      return status.outputText.contains("Says: warming up") ? true : nil
    }
    #expect(!manager.has("READY=1"))
    kill(pid, SIGUSR1)
    try manager.wait(for: "READY=1")
    try eventually("the new words in systemd's status") {
      manager.look()
      return manager.messages.contains { $0.contains("STATUS=") && $0.hasSuffix(": serving") }
        ? true : nil
    }
    // A service manager takes 0 alone for success.
    #expect(try guardian.stop() == .exited(0))
  }

  @Test(arguments: [("notify", "no READY=1"), ("fd:3", "no newline came on descriptor 3")])
  func `or else it hangs when its start time is over`(how: String, words: String) throws {
    let guardian = try Guardian(
      ["--ready", how, "--start-timeout", "300ms", "--max-crashes", "0"], [lively, "spin"])
    #expect(try guardian.run() == .exited(134))
    let report = try guardian.reportText()
    #expect(report.contains("\"kind\": \"hang\""))
    #expect(report.contains("start timeout"))
    #expect(report.contains(words))
    #expect(report.contains("\"threads\": \"all\""))
    #expect(guardian.process.errorText.contains(words))
  }

  @Test func `later, if it asks for more time; systemd is asked for it too`() throws {
    let manager = try Manager()
    let guardian = try Guardian(
      ["--ready", "notify", "--start-timeout", "3s"],
      [lively, "say", "EXTEND_TIMEOUT_USEC=300000000", "READY=1"], environment: [manager.variable])
    let pid = try guardian.programPID()
    try manager.wait(for: "EXTEND_TIMEOUT_USEC=300000000")
    passes(.milliseconds(3500))
    kill(pid, SIGUSR1)
    try manager.wait(for: "READY=1")
    #expect(guardian.reports.isEmpty)
    // A service manager takes 0 alone for success.
    #expect(try guardian.stop() == .exited(0))
  }

  @Test func `is said on a private notify socket, whose messages end a barrier`() throws {
    let guardian = try Guardian(["--ready", "notify"], [lively, "barrier"])
    _ = try guardian.programPID()
    #expect(guardian.process.outputText.contains("barrier 1\n"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `A reload is passed on with its time, and so is its end`() throws {
    let manager = try Manager()
    let guardian = try Guardian(
      ["--ready", "notify"],
      [lively, "say", "READY=1", "RELOADING=1\nMONOTONIC_USEC=4711", "READY=1"],
      environment: [manager.variable])
    let pid = try guardian.programPID()
    try manager.wait(for: "READY=1")
    kill(pid, SIGUSR1)
    let reload = try manager.wait(for: "RELOADING=1")
    #expect(reload.contains("MONOTONIC_USEC=4711"))
    kill(pid, SIGUSR1)
    try eventually("a second READY=1") {
      manager.look()
      return manager.messages.filter { $0.hasPrefix("READY=1") }.count == 2 ? true : nil
    }
    // A service manager takes 0 alone for success.
    #expect(try guardian.stop() == .exited(0))
  }
}

@Suite struct `The main process` {
  @Test func `is the one that MAINPID names, and its ending is the life's`() throws {
    let guardian = try Guardian(
      ["--ready", "notify", "--restart", "no"], [lively, "main"])
    let pid = try guardian.programPID()
    try eventually("guardian's view of it") {
      let status = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", guardian.runtime,
        "status",
      ])
      _ = try status.wait()
      return status.outputText.contains("PID: \(pid)\n") ? true : nil
    }
    #expect(isAlive(pid))
    kill(pid, SIGUSR1)
    #expect(try guardian.run() == .exited(7))
  }

  @Test func `is asked to stop, wherever it went`() throws {
    let guardian = try Guardian(["--ready", "notify"], [lively, "main"])
    let pid = try guardian.programPID()
    try eventually("the end of the one before it") {
      Processes.parent(of: pid) == guardian.process.pid ? true : nil
    }
    #expect(try guardian.stop() == .exited(143))
    #expect(!isAlive(pid))
  }

  @Test func `cannot be a stranger`() throws {
    let guardian = try Guardian(["--watchdog", "10min", "--restart", "no"], [lively, "stranger"])
    let pid = try guardian.programPID()
    kill(pid, SIGUSR1)
    try eventually("its question") { guardian.process.outputText.contains("asked") ? true : nil }
    #expect(guardian.process.errorText.contains("the main process stays \(pid)"))
    #expect(try guardian.stop() == .exited(143))
  }
}

@Suite struct `A watchdog` {
  @Test(arguments: ["ring", "message"])
  func `does not bite because guardian itself was stopped`(how: String) throws {
    let guardian = try Guardian(["--watchdog", "1s"], [lively, "beat", how, "50"])
    _ = try guardian.programPID()
    passes(.milliseconds(300))
    guardian.process.signal(SIGSTOP)
    passes(.seconds(2))
    guardian.process.signal(SIGCONT)
    passes(.seconds(2))
    #expect(!guardian.process.errorText.contains("hangs"), "\(guardian.process.errorText)")
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `is told to the program, with the program's own pid`() throws {
    let guardian = try Guardian(
      ["--watchdog", "90s"], [Root.fixture("spawn_probe"), "env", "WATCHDOG_USEC", "WATCHDOG_PID"])
    #expect(try guardian.run() == .exited(0))
    let pid = try guardian.programPID()
    #expect(guardian.process.outputLines.contains("WATCHDOG_USEC=90000000"))
    #expect(guardian.process.outputLines.contains("WATCHDOG_PID=\(pid)"))
  }

  @Test(arguments: ["ring", "message"])
  func `lets a program be that beats, and ends one that stopped beating`(how: String) throws {
    let guardian = try Guardian(
      ["--watchdog", "3s", "--max-crashes", "0"], [lively, "beat", how, "50"])
    let pid = try guardian.programPID()
    passes(.seconds(4))
    #expect(guardian.process.errorText.isEmpty)
    kill(pid, SIGUSR1)
    #expect(try guardian.run() == .exited(134))
    let report = try guardian.reportText()
    #expect(report.contains("\"kind\": \"hang\""))
    #expect(report.contains("no heartbeat for 3 s"))
    #expect(report.contains("\"threads\": \"all\""))
  }

  @Test func `can be pulled by the program itself`() throws {
    let guardian = try Guardian(
      ["--watchdog", "10min", "--max-crashes", "0"], [lively, "say", "WATCHDOG=trigger"])
    #expect(try guardian.run() == .exited(134))
    #expect(try guardian.reportText().contains("WATCHDOG=trigger"))
  }

  @Test func `restarts what it ended`() throws {
    let guardian = try Guardian(
      ["--watchdog", "500ms", "--max-crashes", "1"], [lively, "spin"])
    #expect(try guardian.run() == .exited(134))
    #expect(guardian.reports.count == 2)
  }
}

@Suite struct `A stop that takes too long` {
  @Test func `is a hang: the threads are captured, then it is killed`() throws {
    let guardian = try Guardian(["--stop-timeout", "300ms"], [lively, "deaf"])
    _ = try guardian.programPID()
    #expect(try guardian.stop() == .exited(137))
    let report = try guardian.reportText()
    #expect(report.contains("\"kind\": \"hang\""))
    #expect(report.contains("stop timeout"))
    #expect(report.contains("still there 300 ms after SIGTERM"))
    #expect(report.contains("\"SIGKILL\""))
    #expect(report.contains("\"threads\": \"all\""))
  }
}

@Suite struct `Descriptors that are kept` {
  @Test func `come back in the next life with their names; what hung up does not`() throws {
    let guardian = try Guardian(
      ["--ready", "notify", "--start-timeout", "infinity"], [lively, "store"])
    _ = try guardian.programPID()
    #expect(
      guardian.process.outputText.contains("passed 1 named cargo to me holding coffee\n"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `are not more than there is room for`() throws {
    let guardian = try Guardian(
      ["--ready", "notify", "--start-timeout", "infinity"], [lively, "hoard", "20"])
    _ = try guardian.programPID()
    #expect(guardian.process.outputText.contains("passed 16\n"))
    #expect(guardian.process.errorText.contains("more than 16 descriptors"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `can be taken back`() throws {
    let guardian = try Guardian(
      ["--ready", "notify", "--start-timeout", "infinity"], [lively, "drop"])
    _ = try guardian.programPID()
    #expect(guardian.process.outputText.contains("passed 0\n"))
    #expect(try guardian.stop() == .exited(143))
  }
}
