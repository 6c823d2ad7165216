// guardianctl against real guardians, and clients that mean harm.
import Control
import Glibc
import Kernel
import Reports
import Testing

private let guardianctl = Root.path + "/.build/release/guardianctl"

private struct Outcome {
  let left: Left
  let output: String
  let errors: String

  init(_ process: Process) throws {
    left = try process.wait()
    output = process.outputText
    errors = process.errorText
  }

  var isSafeToShow: Bool {
    (output + errors).unicodeScalars.allSatisfy { $0 == "\n" || !$0.isUnsafeToShow }
  }

  /// The value of a member of JSON text, as it stands there.
  func member(_ key: String) -> String? {
    guard let range = output.find("\"\(key)\": ") else { return nil }
    return String(output[range.upperBound...].prefix { $0 != "\n" && $0 != "," })
  }
}

/// guardianctl once, without a guardian.
private func control(_ words: [String]) throws -> Outcome {
  try Outcome(Process([guardianctl] + words))
}

extension Guardian {
  fileprivate func control(_ words: [String]) throws -> Outcome {
    try Outcome(Process([guardianctl, "--runtime-directory", runtime] + words))
  }

  fileprivate func connect() throws -> PacketSocket {
    try eventually("the control socket") { try? PacketSocket.connect(runtime + "/control") }
  }

  /// The answer to one request.
  fileprivate func ask(_ bytes: [UInt8]) throws -> PacketSocket.Received {
    let socket = try connect()
    _ = socket.send(bytes)
    return socket.receive(limit: 1 << 20, within: patience)
  }

  fileprivate var statusNow: Outcome {
    get throws { try control(["status", "--json"]) }
  }
}

/// Prints its pid and lives until it is stopped.
private let lives = ["/bin/sh", "-c", "echo pid $$; exec sleep 1000"]

@Suite struct `Requests of two clients` {
  @Test func `are both answered when the one overtakes the other`() throws {
    let guardian = try Guardian(
      ["--stop-timeout", "1min"], [Root.fixture("spawn_probe"), "stubborn"])
    let pid = try guardian.programPID()
    let first = try Process([guardianctl, "--runtime-directory", guardian.runtime, "stop"])
    try eventually("the stop") {
      try guardian.statusNow.output.contains("stopping") ? true : nil
    }
    let second = try guardian.connect()
    _ = second.send(ControlRequest.start.bytes)
    // Whoever asks after it is answered after it was heard.
    #expect(try guardian.statusNow.output.contains("stopping"))
    kill(pid, SIGKILL)
    #expect(try first.wait() == .exited(1))
    #expect(first.errorText.contains("overtaken by another request"))
    let next = try guardian.programPID(2)
    guardian.process.signal(SIGTERM)
    try eventually("the stop of the second life") {
      try guardian.statusNow.output.contains("stopping") ? true : nil
    }
    kill(next, SIGKILL)
    #expect(try guardian.run() == .exited(137))
  }
}

@Suite struct `guardianctl status` {
  @Test func `shows life, pid and use of a running program and leaves with 0`() throws {
    let guardian = try Guardian(["--name", "api"], lives)
    let pid = try guardian.programPID()
    let text = try guardian.control(["status"])
    #expect(text.left == .exited(0))
    #expect(text.output.hasPrefix("api life 1, pid \(pid) is running, no failures\n"))
    for word in ["Memory: ", "CPU: ", "Up: ", "Restarts: 0\n", "0 of 10 that count within 10 min"] {
      #expect(text.output.contains(word), "\(word)")
    }
    let json = try guardian.statusNow
    #expect(json.left == .exited(0))
    #expect(json.member("state") == "\"running\"")
    #expect(json.member("pid") == "\(pid)")
    #expect(json.member("life") == "1")
    #expect(json.member("guardian_pid") == "\(guardian.process.pid)")
    // The kernel counts pages a while after they were taken.
    try eventually("the memory in use") {
      (try guardian.statusNow.member("memory_bytes").flatMap { Int($0) } ?? 0) >= 4096 ? true : nil
    }
    let memory = try #require(
      try guardian.control(["status"]).output.split(separator: "\n").first { $0.holds("Memory: ") })
    #expect(!memory.holds(": 0"), "\(memory)")
  }

  @Test func `leaves with 4 for a name that never was, and with 3 where guardian is gone`() throws {
    let unknown = try control(["status", "there-never-was-such-a-one"])
    #expect(unknown.left == .exited(4))
    #expect(unknown.errors.contains("there is no guarded program 'there-never-was-such-a-one'"))
    let guardian = try Guardian([], ["/bin/true"])
    #expect(try guardian.run() == .exited(0))
    let gone = try guardian.control(["status"])
    #expect(gone.left == .exited(3))
    #expect(gone.output.contains("no guardian runs"))
  }

  @Test func `tells of a guardian that gave up when, why, and what starts it again`() throws {
    let guardian = try Guardian(
      ["--name", "api", "--max-crashes", "1", "--restart-delay", "1ms"],
      ["/bin/sh", "-c", "exit 3"])
    #expect(try guardian.run() == .exited(3))
    let words = ["--state-directory", guardian.state]
    let status = try guardian.control(words + ["status"])
    #expect(status.left == .exited(3))
    #expect(status.output.hasPrefix("api gave up at "), "\(status.output)")
    for part in [
      " UTC, last exit status 3: 2 failures within 10 min, more than max-crashes (1): "
        + "exit status 3 ×2 (lives 1–2 in ",
      "(guardianctl -n api show latest)", "Start again: ", "--max-crashes 1",
    ] {
      #expect(status.output.contains(part), "\(part): \(status.output)")
    }
    let why = try guardian.control(words + ["why"])
    #expect(why.left == .exited(3))
    #expect(why.errors.contains("api gave up at "), "\(why.errors)")
    #expect(why.errors.contains("start it again with: "))
    let json = try guardian.control(words + ["status", "--json"])
    #expect(json.member("state") == "\"dead\"")
    #expect(json.member("last_ending") == "\"exit status 3\"")
    #expect(json.isSafeToShow)
    // A report that was deleted is not named.
    #expect(
      try control(["--state-directory", guardian.state, "delete", "--all"]).left == .exited(0))
    #expect(!(try guardian.control(words + ["status"]).output.contains("show latest")))
  }

  @Test func `starts it again from its folder where words are relative, and without secrets`()
    throws
  {
    let scratch = Scratch()
    try Files.replace(scratch.path + "/api.toml", with: [])
    func again(_ words: String...) -> String {
      Farewell.startAgain(words, redaction: Redaction(extra: ["HUSH"]), directory: scratch.path)
    }
    #expect(
      again("/usr/bin/guardian", "-e", "DB_PASSWORD=x y", "-e", "HUSH=a", "--", "/bin/a b")
        == "/usr/bin/guardian -e 'DB_PASSWORD=[redacted]' -e 'HUSH=[redacted]' -- '/bin/a b'")
    #expect(again("guardian", "--", "server") == "guardian -- server")
    #expect(again("/g", "-c", "api.toml") == "cd \(scratch.path) && /g -c api.toml")
    #expect(again("/g", "--config=api.toml") == "cd \(scratch.path) && /g --config=api.toml")
    #expect(again("./api.toml", "x").hasPrefix("cd "))
  }

  @Test func `lists those that gave up or were killed where no guardian runs`() throws {
    let scratch = Scratch()
    // Of a user who is not root, whose folders are the system's.
    let nobody =
      geteuid() == 0
      ? ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] : []
    let name = "gave-up"
    let state = scratch.path + "/state/guardian/" + name
    try Files.makeDirectories(state, mode: 0o755)
    var farewell = Farewell(.gaveUp)
    farewell.name = name
    farewell.ending = "SIGSEGV"
    farewell.time = "2026-11-30T10:00:00.000000Z"
    let facts = farewell.facts.map { "\($0.key) \($0.value)\n" }.joined()
    try Files.replace(
      state + "/state",
      with: SealedText.seal("guardian.state/1\ndeparture gave-up\n\(facts)"))
    if !nobody.isEmpty {
      for path in ["", "/state", "/state/guardian", "/state/guardian/\(name)/state"] {
        _ = chown(scratch.path + path, 65534, 65534)
      }
    }
    let listed = try Outcome(
      Process(
        nobody + [guardianctl, "status"],
        environment: [
          "HOME=\(scratch.path)", "XDG_STATE_HOME=\(scratch.path)/state",
          "XDG_RUNTIME_DIR=\(scratch.path)/run",
        ]))
    #expect(listed.left == .exited(3))
    #expect(listed.errors.contains("no guardian of this user runs"))
    #expect(listed.output.contains("Gave up or were killed"), "\(listed.output)\(listed.errors)")
    let line = listed.output.split(separator: "\n").first { $0.hasPrefix(name) }
    #expect(line?.contains("2026-11-30 10:00:00") == true && line?.hasSuffix("SIGSEGV") == true)
  }

  @Test(.enabled(if: geteuid() == 0))
  func `names whose guardian it is that does not answer another user, and leaves with 77`() throws {
    let guardian = try Guardian(["--name", "api"], lives)
    _ = try guardian.programPID()
    for verb in ["status", "why"] {
      let outcome = try Outcome(
        Process([
          "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", guardianctl,
          "--runtime-directory", guardian.runtime, "--name", "api", verb,
        ]))
      #expect(outcome.left == .exited(77))
      #expect(
        (outcome.output + outcome.errors).contains("api belongs to root: use sudo"),
        "\(outcome.output)\(outcome.errors)")
    }
  }

  @Test func `says when the next life begins, and how the last one ended`() throws {
    let guardian = try Guardian(
      ["--restart-delay", "1h", "--restart-delay-max", "1h"], ["/bin/sh", "-c", "exit 7"])
    let outcome = try eventually("the wait") {
      let outcome = try guardian.statusNow
      return outcome.member("state") == "\"waiting\"" ? outcome : nil
    }
    #expect(outcome.left == .exited(3))
    #expect(outcome.member("last_ending") == "\"exit status 7\"")
    #expect((outcome.member("next_restart_ms").flatMap { Int($0) } ?? 0) > 3_000_000)
    #expect(outcome.member("restarts") == "1")
    #expect(outcome.member("failures") == "2")
    #expect(try guardian.control(["status"]).output.contains("Last ending: exit status 7"))
  }

  @Test func `shows nothing that a terminal would act on`() throws {
    let guardian = try Guardian(
      ["--name", "evil"],
      [
        "/bin/sh", "-c",
        "echo pid $$; printf '\u{1b}]0;x\u{7}\\r\u{9b}31m\\n' >&2; exec sleep 1000",
      ])
    _ = try guardian.programPID()
    for verb in ["status", "why", "logs"] {
      let outcome = try guardian.control([verb])
      #expect(outcome.left == .exited(0))
      #expect(outcome.isSafeToShow, "\(verb)")
    }
  }

  @Test func `lists all guardians of this user`() throws {
    let scratch = Scratch()
    let names = ["test-a-", "test-b-"].map { $0 + Randomness.hex(bytes: 6) }
    let guardians = try names.map { name in
      try Process(
        [Root.guardian, "--name", name, "--state-directory", scratch.path + "/" + name, "--"]
          + lives)
    }
    defer { for name in names { Scratch.remove("/run/guardian/" + name) } }
    let outcome = try eventually("both in the list") {
      let outcome = try control(["status"])
      return names.allSatisfy { outcome.output.contains($0 + "  running  1 ") } ? outcome : nil
    }
    #expect(outcome.left == .exited(0))
    #expect(outcome.output.hasPrefix("NAME "))
    #expect(try control(["stop"]).errors.contains("name one: "))
    #expect(try control(["status", names[0]]).left == .exited(0))
    for guardian in guardians {
      guardian.signal(SIGTERM)
      _ = try guardian.wait()
    }
  }

  @Test(.enabled(if: geteuid() == 0, "only root sees the guardians of others"))
  func `shows root the guardians of other users, with the user's name`() throws {
    // Where the build folder is closed to others, they need a copy.
    let scratch = Scratch()
    let binary = scratch.path + "/guardian"
    try Files.replace(
      binary, with: try Files.read(Root.guardian, limit: 256 << 20), mode: 0o755)
    try Files.makeDirectory(scratch.path + "/xdg", mode: 0o777)
    try Files.setPermissions(scratch.path + "/xdg", 0o777)
    let name = "test-" + Randomness.hex(bytes: 6)
    let other = try Process(
      ["setpriv", "--reuid", "65534", "--clear-groups", binary, "--name", name, "--"] + lives,
      environment: [
        "XDG_RUNTIME_DIR=\(scratch.path)/xdg", "XDG_STATE_HOME=\(scratch.path)/xdg", "HOME=/",
      ])
    let json = try eventually("it is in the list; it says: \(other.errorText)") {
      let outcome = try control(["status", name, "--json"])
      return outcome.left == .exited(0) ? outcome : nil
    }
    #expect(json.member("name") == "\"\(name)\"")
    #expect(json.member("user") == "\"nobody\"")
    let list = try control(["status"])
    #expect(list.output.contains(name))
    #expect(list.output.contains("nobody"))
    #expect(list.isSafeToShow)
    #expect(try control(["stop", name]).left == .exited(0))
    other.signal(SIGTERM)
    #expect(try other.wait() == .exited(0) || other.wait() == .exited(143))
  }

  @Test(.enabled(if: geteuid() == 0, "only root sees the guardians of others"))
  func `waits for strangers that take no question together, not in turn`() throws {
    let scratch = Scratch()
    let crowd = try Process([
      "python3", "-c",
      """
      import os, signal, socket, sys
      def packet(): return socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
      kept = []
      for number in range(20):
        folder = f'{sys.argv[1]}/guardian/s{number}'
        os.makedirs(folder)
        listener = packet()
        listener.bind(folder + '/control')
        listener.listen(0)
        kept.append(listener)
        try:
          while True:
            kept.append(packet())
            kept[-1].setblocking(False)
            kept[-1].connect(folder + '/control')
        except BlockingIOError: pass
      print('full', flush=True)
      signal.pause()
      """, scratch.path,
    ])
    try eventually("full queues; \(crowd.errorText)") { crowd.outputLines.first.map { _ in true } }
    let began = Clock.monotonic
    let outcome = try control(["status"])
    #expect(outcome.output.contains("s19"))
    #expect(Clock.monotonic - began < .seconds(12))
  }

  @Test(.enabled(if: geteuid() == 0))
  func `is not for other users`() throws {
    let guardian = try Guardian([], lives)
    _ = try guardian.programPID()
    let other = try Outcome(
      Process(
        [
          "/usr/bin/setpriv", "--reuid", "65534", "--clear-groups", guardianctl,
          "--runtime-directory", guardian.runtime, "stop",
        ]))
    // Where the build folder is closed to others, guardianctl cannot even be started.
    #expect(other.left == .exited(77) || other.left == .exited(127) || other.left == .exited(126))
    #expect(try guardian.control(["status"]).left == .exited(0))
  }
}

@Suite struct `guardianctl stop, start and restart` {
  @Test func `a stop ends the program and guardian stays; a start begins another life`() throws {
    let guardian = try Guardian(["--name", "api"], lives)
    let first = try guardian.programPID()
    let stop = try guardian.control(["stop"])
    #expect(stop.left == .exited(0))
    #expect(stop.output == "api is stopped\n")
    #expect(!isAlive(first))
    #expect(isAlive(guardian.process.pid))
    #expect(try guardian.control(["status"]).left == .exited(3))
    let start = try guardian.control(["start", "--json"])
    #expect(start.left == .exited(0))
    #expect(start.member("life") == "2")
    let second = try guardian.programPID(2)
    #expect(second != first && isAlive(second))
    // Again changes nothing.
    #expect(try guardian.control(["start"]).left == .exited(0))
    #expect(isAlive(second))
  }

  @Test func `a restart ends one life and begins the next; it is no failure`() throws {
    let guardian = try Guardian([], lives)
    let first = try guardian.programPID()
    let restart = try guardian.control(["restart", "--json"])
    #expect(restart.left == .exited(0))
    #expect(restart.member("life") == "2")
    #expect(restart.member("failures") == "0")
    #expect(!isAlive(first))
    #expect(guardian.reports.isEmpty)
  }

  @Test func `a restart of what dies at once leaves with 1`() throws {
    let scratch = Scratch()
    let guardian = try Guardian(
      ["--restart-delay", "1h", "--restart-delay-max", "1h"],
      ["/bin/sh", "-c", "test -e \(scratch.path)/bad && exit 3; echo pid $$; exec sleep 1000"])
    _ = try guardian.programPID()
    try Files.replace(scratch.path + "/bad", with: [])
    // It may be seen running for a moment, which is success enough; the one after is not.
    _ = try guardian.control(["restart"])
    try eventually("the wait") {
      try guardian.statusNow.member("state") == "\"waiting\"" ? true : nil
    }
    #expect(try guardian.control(["signal", "HUP"]).left == .exited(1))
  }

  @Test func `guardian still stops for good on TERM after a stop`() throws {
    let guardian = try Guardian([], lives)
    _ = try guardian.programPID()
    #expect(try guardian.control(["stop"]).left == .exited(0))
    guardian.process.signal(SIGTERM)
    _ = try guardian.run()
    #expect((try? Files.status(guardian.runtime + "/control")) == nil)
  }
}

@Suite struct `guardianctl reload` {
  @Test func `takes over what can change under a running program and names the rest`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/api.toml"
    func write(_ text: String) throws { try Files.replace(file, with: Array(text.utf8)) }
    try write("max-crashes = 5\n")
    let guardian = try Guardian(["--name", "api", "--config", file], lives)
    let pid = try guardian.programPID()
    #expect(
      try guardian.control(["reload"]).output == "api: nothing in its configuration changed\n")
    try write("max-crashes = 0\nreports-keep = 7\n")
    let outcome = try guardian.control(["reload"])
    #expect(outcome.left == .exited(0))
    #expect(
      outcome.output
        == "api: max-crashes: holds now\napi: reports-keep: holds when guardian is started "
        + "anew\n")
    #expect(try guardian.statusNow.member("max_crashes") == "0")
    try write("max-crashes = nonsense\n")
    let wrong = try guardian.control(["reload"])
    #expect(wrong.left == .exited(78))
    #expect(wrong.errors.contains("api.toml:1:"))
    #expect(wrong.errors.contains("nothing was changed"))
    #expect(isAlive(pid))
    // The new cap holds: one life.
    kill(pid, SIGKILL)
    #expect(try guardian.run() == .exited(137))
    #expect(guardian.process.errorText.contains("giving up"))
  }
}

@Suite struct `guardianctl signal` {
  @Test func `sends it to the program`() throws {
    let guardian = try Guardian(
      [],
      [
        "/bin/sh", "-c",
        "trap 'echo usr1' USR1; echo pid $$; while :; do sleep 1000 & wait; done",
      ])
    _ = try guardian.programPID()
    for word in ["USR1", "sigusr1", "10"] {
      #expect(try guardian.control(["signal", word]).left == .exited(0))
    }
    try eventually("the trap") { guardian.process.outputText.contains("usr1") ? true : nil }
    #expect(try guardian.control(["signal", "NOPE"]).left == .exited(64))
  }
}

@Suite struct `guardianctl logs` {
  @Test func `shows the kept lines, also those of the life before`() throws {
    let scratch = Scratch()
    let guardian = try Guardian(
      [],
      [
        "/bin/sh", "-c",
        "echo line $$ >&2; test -e \(scratch.path)/x || { : >\(scratch.path)/x; exit 1; }; "
          + "echo pid $$; exec sleep 1000",
      ])
    let pid = try guardian.programPID()
    let lines = try guardian.control(["logs"]).output.split(separator: "\n")
    #expect(lines.count == 2)
    #expect(lines.last == "line \(pid)")
    let json = try guardian.control(["logs", "--json"])
    #expect(json.output.contains("\"text\":\"line \(pid)\"}\n"))
  }

  @Test func `-f goes on as lines come`() throws {
    let guardian = try Guardian(
      [],
      [
        "/bin/sh", "-c",
        "trap 'echo now >&2' USR1; echo first >&2; echo pid $$; while :; do sleep 1000 & wait; done",
      ])
    let pid = try guardian.programPID()
    let follower = try Process([guardianctl, "--runtime-directory", guardian.runtime, "logs", "-f"])
    try eventually("the first line") { follower.outputLines.contains("first") ? true : nil }
    kill(pid, SIGUSR1)
    try eventually("the second line") { follower.outputLines.contains("now") ? true : nil }
    _ = try guardian.stop()
    #expect(try follower.wait() == .exited(0))
  }
}

@Suite struct `guardianctl watch` {
  @Test func `tells of endings and new lives as they come`() throws {
    let guardian = try Guardian(["--name", "api"], lives)
    let first = try guardian.programPID()
    let watcher = try Process(
      [guardianctl, "--runtime-directory", guardian.runtime, "watch", "--json"])
    try eventually("the first event") { watcher.outputText.contains("\"now\"") ? true : nil }
    kill(first, SIGKILL)
    let second = try guardian.programPID(2)
    try eventually("the events: \(watcher.outputText)") {
      let text = watcher.outputText
      return text.contains("\"ended\"") && text.contains("died of SIGKILL")
        && text.contains("life 2, pid \(second) is running") ? true : nil
    }
  }
}

@Suite struct `guardianctl why` {
  @Test func `lists the failures that count and what resets the count`() throws {
    let guardian = try Guardian(
      ["--restart-delay", "1h", "--restart-delay-max", "1h", "--crash-window", "20min"],
      ["/bin/sh", "-c", "exit 7"])
    let outcome = try eventually("two failures") {
      let outcome = try guardian.control(["why"])
      return outcome.output.contains("2 of 10 that count within 20 min") ? outcome : nil
    }
    #expect(outcome.left == .exited(0))
    #expect(outcome.output.contains("1     exit status 7  "))
    #expect(outcome.output.contains("2     exit status 7  "))
    #expect(outcome.output.contains("crash-window"))
    #expect(try guardian.control(["why", "--json"]).member("failures") == "2")
  }
}

@Suite struct `guardianctl plan` {
  @Test func `shows the timetable and the verdict and runs nothing`() throws {
    let outcome = try control(
      ["plan", "--simulate", "segv@2s x4", "--", "--max-crashes", "3", "--name", "api"])
    #expect(outcome.left == .exited(0))
    let lines = outcome.output.split(separator: "\n", omittingEmptySubsequences: false)
    #expect(lines.first?.hasPrefix("LIFE  STARTS") == true)
    #expect(lines.dropFirst().first?.contains("SIGSEGV  1 of 3          restart at once") == true)
    #expect(outcome.output.contains("4, more than 3  give up"))
    #expect(outcome.output.contains("more than max-crashes (3): SIGSEGV ×4 (lives 1–4 in "))
    #expect(outcome.output.hasSuffix("guardian would leave with 139\n"))
    let json = try control(["plan", "--simulate", "exit:3 x2", "--json", "--", "-m1", "/no/such"])
    #expect(json.member("exit") == "3")
    #expect(json.output.contains("\"decision\": \"give-up\""))
  }

  @Test func `says what it does not understand`() throws {
    #expect(try control(["plan", "--simulate", "segv@never"]).left == .exited(64))
    #expect(try control(["plan", "--", "--max-crashes", "many"]).left == .exited(64))
  }
}

@Suite struct `guardianctl reports` {
  @Test func `asks a running guardian where its reports lie, and takes a name`() throws {
    let guardian = try Guardian(
      ["--name", "api", "--restart-delay", "1h", "--restart-delay-max", "1h"],
      ["/bin/sh", "-c", "exit 7"])
    _ = try eventually("a final report") {
      (try? Files.list(guardian.state + "/reports/new"))?.isEmpty == false ? true : nil
    }
    for words in [["reports"], ["reports", "api"], ["--name", "api", "reports"]] {
      let outcome = try guardian.control(words)
      #expect(outcome.left == .exited(0))
      #expect(outcome.output.contains("exit 7"), "\(words): \(outcome.errors)")
      #expect(outcome.output.hasPrefix("ID "))
      #expect(outcome.output.contains("TIME (UTC)"))
    }
    #expect(try guardian.control(["show", "api"]).output.hasPrefix("exit 7, life "))
    #expect(try guardian.control(["show", "api", "latest"]).left == .exited(0))
    let unknown = try control(["reports", "there-never-was-such-a-one"])
    #expect(unknown.left == .exited(4))
    let same = try control(["status", "there-never-was-such-a-one"])
    #expect(unknown.errors == same.errors)
    #expect(unknown.errors.contains("there is no guarded program 'there-never-was-such-a-one'"))
  }

  @Test func `a program whose name looks like the beginning of an id is found by its name`() throws
  {
    let guardian = try Guardian(
      ["--name", "cafe", "--restart-delay", "1h", "--restart-delay-max", "1h"],
      ["/bin/sh", "-c", "exit 7"])
    _ = try eventually("a final report") {
      (try? Files.list(guardian.state + "/reports/new"))?.isEmpty == false ? true : nil
    }
    #expect(try guardian.control(["show", "cafe"]).output.hasPrefix("exit 7, life "))
    #expect(try guardian.control(["completion-names"]).output.contains("cafe\n"))
  }
}

@Suite struct `guardianctl doctor` {
  @Test func `checks this machine`() throws {
    let outcome = try control(["doctor", "--json"])
    #expect(outcome.left == .exited(0) || outcome.left == .exited(1))
    for check in [
      "crash handler", "ptrace", "core_pattern", "debug information", "sandbox", "state folder",
      "runtime folder", "memory events",
    ] {
      #expect(outcome.output.contains("\"check\": \"\(check)\""), "\(check)")
    }
    #expect(try control(["doctor"]).isSafeToShow)
  }
}

@Suite struct `A client of the control socket` {
  @Test func `that talks nonsense is told so and dropped`() throws {
    let guardian = try Guardian([], lives)
    _ = try guardian.programPID()
    var random = SystemRandomNumberGenerator()
    for size in [1, 7, 64, 65, 4096, 100_000] {
      let bytes = (0..<size).map { _ in UInt8.random(in: 0...255, using: &random) }
      switch try guardian.ask(bytes) {
      case .packet(let answer):
        #expect(String(decoding: answer, as: UTF8.self).contains("not a request"))
      case .gone: break
      case let other: Issue.record("\(other)")
      }
    }
    for text in ["signal 0", "signal 99", "signal -1", "stop ", "status\n", "logs  follow"] {
      let answer = try guardian.ask(Array(text.utf8))
      guard case .packet(let bytes) = answer else {
        Issue.record("\(text): \(answer)")
        continue
      }
      #expect(String(decoding: bytes, as: UTF8.self).contains("not a request"), "\(text)")
    }
    #expect(try guardian.statusNow.member("state") == "\"running\"")
  }

  @Test func `that is silent holds a place for a while only, and delays no restart`() throws {
    let guardian = try Guardian([], lives)
    let first = try guardian.programPID()
    let silent = try (0..<40).map { _ in try guardian.connect() }
    kill(first, SIGKILL)
    _ = try guardian.programPID(2)
    // All places are taken until patience ends.
    try eventually("a place") { try guardian.statusNow.left == .exited(0) ? true : nil }
    for socket in silent {
      #expect(socket.receive(limit: 100, within: patience) == .gone)
    }
  }

  @Test func `that follows a flood and reads nothing is dropped; the program never waits`() throws {
    let guardian = try Guardian(
      [],
      [
        "/bin/sh", "-c",
        "echo pid $$; while test ! -e \"$0\"; do sleep 0.05; done; "
          + "yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 64000000 >&2; echo written; "
          + "exec sleep 1000", "/tmp/gs-go-\(getpid())",
      ], errors: "/dev/null")
    defer { Files.remove("/tmp/gs-go-\(getpid())") }
    _ = try guardian.programPID()
    let slow = try guardian.connect()
    _ = slow.send(Array("logs follow".utf8))
    try Files.replace("/tmp/gs-go-\(getpid())", with: [])
    try eventually("the end of the flood") {
      guardian.process.outputText.contains("written") ? true : nil
    }
    #expect(try guardian.statusNow.left == .exited(0))
    // What had been sent is there to be read, and then the end.
    try eventually("the drop") { slow.receive(limit: 1 << 20) == .gone ? true : nil }
  }

  @Test func `that asks twice is dropped`() throws {
    let guardian = try Guardian([], lives)
    _ = try guardian.programPID()
    let socket = try guardian.connect()
    _ = socket.send(Array("watch".utf8))
    guard case .packet = socket.receive(limit: 1 << 20, within: patience) else {
      Issue.record("no event")
      return
    }
    _ = socket.send(Array("stop".utf8))
    #expect(socket.receive(limit: 1 << 20, within: patience) == .gone)
    #expect(try guardian.statusNow.member("state") == "\"running\"")
  }
}

@Suite struct `The metrics file` {
  /// Prometheus' text format 0.0.4, as strict as its own parser: names, escapes, HELP and TYPE
  /// once and before the samples, samples of one name together, no series twice.
  static func problems(_ text: String) -> [String] {
    var problems: [String] = []
    var typed: [String: String] = [:]
    var helped: Set<String> = []
    var finished: Set<String> = []
    var series: Set<String> = []
    var current = ""
    if !text.hasSuffix("\n") { problems.append("no line end at the end") }
    func isName(_ word: some StringProtocol) -> Bool {
      guard let first = word.utf8.first, !(48...57).contains(first) else { return false }
      return word.utf8.allSatisfy {
        (97...122).contains($0) || (65...90).contains($0) || (48...57).contains($0) || $0 == 95
      }
    }
    func enter(_ name: String) {
      if name == current { return }
      if finished.contains(name) { problems.append("\(name) comes in two places") }
      finished.insert(current)
      current = name
    }
    for line in text.split(separator: "\n", omittingEmptySubsequences: false).dropLast() {
      let words = line.split(separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
      if line.hasPrefix("#") {
        guard words.count == 4, isName(words[2]) else {
          problems.append("bad comment: \(line)")
          continue
        }
        let name = String(words[2])
        enter(name)
        switch words[1] {
        case "HELP": if !helped.insert(name).inserted { problems.append("HELP twice: \(name)") }
        case "TYPE":
          if typed.updateValue(String(words[3]), forKey: name) != nil {
            problems.append("TYPE twice: \(name)")
          }
          if !["counter", "gauge"].contains(words[3]) { problems.append("bad type: \(line)") }
        default: problems.append("bad comment: \(line)")
        }
        continue
      }
      guard let open = line.firstIndex(of: "{"), let close = line.lastIndex(of: "}"),
        line[line.index(after: close)...].hasPrefix(" "),
        Double(line[line.index(close, offsetBy: 2)...]) != nil
      else {
        problems.append("bad sample: \(line)")
        continue
      }
      let name = String(line[..<open])
      enter(name)
      if !isName(name) { problems.append("bad name: \(name)") }
      guard let type = typed[name], helped.contains(name) else {
        problems.append("no HELP or TYPE before \(name)")
        continue
      }
      if (type == "counter") != name.hasSuffix("_total") { problems.append("suffix: \(name)") }
      if !series.insert(String(line[..<close])).inserted { problems.append("twice: \(line)") }
      var rest = line[line.index(after: open)..<close]
      while !rest.isEmpty {
        guard let equals = rest.firstIndex(of: "="), isName(rest[..<equals]) else {
          problems.append("bad label: \(line)")
          break
        }
        rest = rest[rest.index(after: equals)...]
        guard rest.popFirst() == "\"" else {
          problems.append("bad label: \(line)")
          break
        }
        var ended = false
        while let letter = rest.popFirst() {
          if letter == "\"" {
            ended = true
            break
          }
          if letter == "\\", let escaped = rest.popFirst(), !"\\\"n".contains(escaped) {
            problems.append("bad escape: \(line)")
          }
        }
        if !ended { problems.append("open label: \(line)") }
        if rest.first == "," { rest.removeFirst() }
      }
    }
    return problems
  }

  private static func value(_ text: String, _ start: String) -> Double? {
    text.split(separator: "\n").first { $0.hasPrefix(start) }
      .flatMap { $0.split(separator: " ").last }.flatMap { Double($0) }
  }

  @Test func `is right at each change and says so when guardian has left`() throws {
    let scratch = Scratch()
    let path = scratch.path + "/api.prom"
    let guardian = try Guardian(["--name", "api", "--metrics-file", path], lives)
    func text() -> String { (try? Files.readText(path, limit: 1 << 20)) ?? "" }
    let first = try guardian.programPID()
    try eventually("a running program") {
      Self.value(text(), "guardian_program_up{") == 1 ? true : nil
    }
    #expect(Self.problems(text()) == [])
    #expect(Self.value(text(), "guardian_up{name=\"api\"}") == 1)
    try eventually("the memory in use") {
      (Self.value(text(), "guardian_program_resident_memory_bytes{") ?? 0) >= 4096 ? true : nil
    }
    kill(first, SIGSEGV)
    _ = try guardian.programPID(2)
    try eventually("the second life: \(text())") {
      Self.value(text(), "guardian_life{") == 2
        && Self.value(text(), "guardian_program_up{") == 1 ? true : nil
    }
    #expect(Self.problems(text()) == [])
    // Prometheus' own judge, where it is installed.
    if access("/usr/bin/promtool", X_OK) == 0 {
      try Files.replace(scratch.path + "/copy", with: Array(text().utf8))
      let judge = try Process(
        ["/usr/bin/promtool", "check", "metrics"], input: scratch.path + "/copy")
      #expect(try judge.wait() == .exited(0), "\(judge.errorText)")
      Files.remove(scratch.path + "/copy")
    }
    #expect(Self.value(text(), "guardian_restarts_total{") == 1)
    #expect(Self.value(text(), "guardian_failures_in_window{") == 1)
    #expect(Self.value(text(), "guardian_last_ending_signal{") == 11)
    #expect(Self.value(text(), "guardian_last_ending_exit_code{") == 139)
    #expect(text().contains("guardian_endings_total{name=\"api\",cause=\"signal\"} 1\n"))
    let status = try Files.status(path)
    #expect(status.permissions == 0o644)
    _ = try guardian.stop()
    #expect(Self.value(text(), "guardian_up{") == 0)
    #expect(Self.value(text(), "guardian_program_up{") == 0)
    #expect(Self.problems(text()) == [])
    #expect(try Files.list(scratch.path) == ["api.prom"])
  }

  @Test func `escapes what its format needs escaped`() {
    var metrics = Metrics(program: "a\\b\"c\nd")
    metrics.add("x_total", .counter, "A \\ and\na line", 1)
    metrics.add("y", .gauge, "Half", 0.5)
    metrics.add("z", .gauge, "Nothing", nil)
    metrics.add("x_total", .counter, "A \\ and\na line", 2, labels: [("k", "v")])
    #expect(Self.problems(metrics.text) == [])
    #expect(metrics.text.hasPrefix("# HELP x_total A \\\\ and\\na line\n# TYPE x_total counter\n"))
    #expect(metrics.text.contains("x_total{name=\"a\\\\b\\\"c\\nd\"} 1\nx_total{"))
    #expect(metrics.text.contains("y{name=\"a\\\\b\\\"c\\nd\"} 0.5\n"))
    #expect(!metrics.text.contains("z{"))
  }

  @Test func `that cannot be written is said once and stops nothing`() throws {
    let guardian = try Guardian(
      ["--metrics-file", "/no/such/folder/x.prom", "-m", "2", "--restart-delay", "1ms"],
      ["/bin/sh", "-c", "exit 4"])
    #expect(try guardian.run() == .exited(4))
    let said = guardian.process.errorText.split(separator: "\n").filter {
      $0.contains("metrics are not written")
    }
    #expect(said.count == 1)
  }
}
