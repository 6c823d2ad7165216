import Glibc
import Kernel
import Testing

/// A FIFO that the test writes to and the programs read: what is not taken by one life waits for
/// the next.
final class Input {
  let path: String
  private let descriptor: FileDescriptor
  init(in scratch: Scratch) throws {
    path = scratch.path + "/input"
    try Files.makeFIFO(path, mode: 0o666)
    descriptor = try FileDescriptor.open(path, O_RDWR)
  }
  func send(_ text: String) throws { try descriptor.writeAll(Array(text.utf8)) }
}

/// The processes that `tree_probe` says it started.
private func noted(_ file: String, _ count: Int) throws -> [Int32] {
  try eventually("\(count) processes in '\(file)'") {
    let lines = ((try? Files.readText(file, limit: 1 << 20)) ?? "").split(separator: "\n")
    let pids = lines.compactMap { Int32($0.dropFirst(4)) }
    return pids.count >= count ? pids : nil
  }
}

private func sweeper(of guardian: Guardian) throws -> Int32 {
  try eventually("guardian-sweep") {
    let pid = guardian.process.pid
    let text = (try? Files.readText("/proc/\(pid)/task/\(pid)/children", limit: 4096)) ?? ""
    return text.split(separator: " ").compactMap { Int32($0) }.first {
      // The helper may be on its way to exec.
      let line = (try? Files.read("/proc/\($0)/cmdline", limit: 4096)) ?? []
      return String(decoding: line, as: UTF8.self).contains("guardian-sweep")
        && (try? Files.readText("/proc/\($0)/wchan", limit: 64)) != nil
        && Processes.state(of: $0) == "S"
    }
  }
}

private func ended(_ pids: [Int32]) throws {
  for pid in pids {
    try eventually("the end of \(pid), \(Processes.name(of: pid) ?? "?")") {
      isAlive(pid) ? nil : true
    }
  }
}

@Suite struct `When guardian is killed` {
  let probe = Root.fixture("tree_probe")

  @Test(arguments: ["double", "title", "stubborn", "leaderless"])
  func `nothing of the program is left`(way: String) throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let guardian = try Guardian([], [probe, way, file], in: scratch)
    let pids = try noted(file, 2)
    _ = try sweeper(of: guardian)
    guardian.process.signal(SIGKILL)
    #expect(try guardian.run() == .signaled(SIGKILL))
    try ended(pids)
    try eventually("a word about it") {
      guardian.process.errorText.contains("guardian-sweep: guardian died: ended ") ? true : nil
    }
  }

  @Test(.enabled(if: geteuid() == 0, "only root may change its user"))
  func `a program that changed its user is ended too`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let guardian = try Guardian(
      [], [probe, "user", file, "65534"], in: scratch,
      wrapper: "touch \(file); chmod 666 \(file); exec \"$@\"")
    let pids = try noted(file, 1)
    _ = try sweeper(of: guardian)
    guardian.process.signal(SIGKILL)
    _ = try guardian.run()
    try ended(pids)
  }

  @Test func `with its helper, the next one ends what is left before it starts`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let first = try Guardian([], [probe, "double", file], in: scratch)
    let pids = try noted(file, 2)
    let helper = try sweeper(of: first)
    // Both at once: neither has a turn between.
    kill(first.process.pid, SIGSTOP)
    kill(helper, SIGKILL)
    first.process.signal(SIGKILL)
    _ = try first.run()
    try ended([helper])
    #expect(pids.contains(where: isAlive))
    let second = try Guardian([], ["/bin/sh", "-c", "echo new"], in: scratch)
    #expect(try second.run() == .exited(0))
    #expect(!pids.contains(where: isAlive))
    #expect(
      second.process.errorText.contains("the guardian before this one died: ended tree_probe"))
    #expect(try Files.list(second.runtime) == ["lock"])
  }

  @Test func `its helper leaves with it when it leaves in order`() throws {
    let guardian = try Guardian([], [probe, "wait"])
    _ = try guardian.programPID()
    let helper = try sweeper(of: guardian)
    #expect(try guardian.stop() == .exited(143))
    try ended([helper])
    #expect(!guardian.process.errorText.contains("guardian-sweep"))
  }

  @Test func `a helper that is killed is replaced`() throws {
    let guardian = try Guardian([], [probe, "wait"])
    _ = try guardian.programPID()
    let helper = try sweeper(of: guardian)
    kill(helper, SIGKILL)
    let next = try eventually("another helper") {
      let found = try sweeper(of: guardian)
      return found == helper ? nil : found
    }
    #expect(isAlive(next))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test(arguments: ["process", "group"])
  func `only what kill-mode names goes with it`(mode: String) throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let guardian = try Guardian(["--kill-mode", mode], [probe, "double", file], in: scratch)
    let pids = try noted(file, 2)
    let main = try guardian.programPID()
    let helper = try sweeper(of: guardian)
    guardian.process.signal(SIGKILL)
    _ = try guardian.run()
    try ended([main, helper])
    let others = pids.filter { $0 != main }
    #expect(others.allSatisfy(isAlive))
    for pid in others { kill(pid, SIGKILL) }
  }
}

@Suite struct `A program that is kept` {
  let keep = ["--on-guardian-death", "keep", "--name", "kept"]

  /// Kills guardian and nothing else.
  private func orphan(_ guardian: Guardian) throws {
    try eventually("the life file") {
      Files.exists(guardian.runtime + "/life") ? true : nil
    }
    guardian.process.signal(SIGKILL)
    #expect(try guardian.run() == .signaled(SIGKILL))
  }

  @Test func `lives on and is taken over by the next guardian`() throws {
    let scratch = Scratch()
    let command = [Root.fixture("spawn_probe"), "wait"]
    let first = try Guardian(keep, command, in: scratch)
    let pid = try first.programPID()
    try orphan(first)
    #expect(isAlive(pid))
    let second = try Guardian(keep, command, in: scratch)
    try eventually("the word; it said: \(second.process.errorText)") {
      second.process.errorText.contains("took over kept (life 1, pid \(pid))") ? true : nil
    }
    #expect(isAlive(pid))
    #expect(second.process.outputText == "", "nothing was started")
    #expect(try second.stop() == .exited(143))
    #expect(!isAlive(pid))
    #expect(try Files.list(second.runtime) == ["lock"])
  }

  @Test func `is taken over also when its main thread has ended`() throws {
    let scratch = Scratch()
    let command = [Root.fixture("tree_probe"), "headless", scratch.path + "/pids"]
    let first = try Guardian(keep, command, in: scratch)
    let pid = try first.programPID()
    try orphan(first)
    let second = try Guardian(keep, command, in: scratch)
    try eventually("the word; it said: \(second.process.errorText)") {
      second.process.errorText.contains("took over kept (life 1, pid \(pid))") ? true : nil
    }
    #expect(isAlive(pid))
    #expect(try second.stop() == .exited(143))
    #expect(!isAlive(pid))
  }

  @Test func `crashes with a whole report, and the counts go on`() throws {
    let scratch = Scratch()
    let input = try Input(in: scratch)
    let command = [
      Root.fixture("dies"), "--threads", "3", "--wait", "assert",
    ]
    let first = try Guardian(keep, command, in: scratch, input: input.path)
    try eventually("life 1") { first.process.outputLines.count == 1 ? true : nil }
    try input.send("\n")
    try eventually("life 2") { first.process.outputLines.count == 2 ? true : nil }
    try eventually("the first report") {
      first.reports.first { $0.contains("/new/") }.map { _ in true }
    }
    try eventually("the life file of life 2") {
      LifeRecord.read(in: first.runtime)?.life == 2 ? true : nil
    }
    let pid = LifeRecord.read(in: first.runtime)!.pid
    try orphan(first)
    #expect(isAlive(pid))
    let second = try Guardian(keep, command, in: scratch, input: input.path)
    try eventually("the word; it said: \(second.process.errorText)") {
      second.process.errorText.contains("took over kept (life 2, pid \(pid))") ? true : nil
    }
    try input.send("\n")
    try eventually("life 3; it said: \(second.process.errorText)") {
      second.process.outputLines.count == 1 ? true : nil
    }
    // Its last words came through the same pipe, its ending was seen without being its parent.
    #expect(second.process.errorText.contains("Assertion"))
    try eventually("the second report; \(second.process.errorText)") {
      second.reports.filter { $0.contains("/new/") }.count == 2 ? true : nil
    }
    let text = try second.reportText(1)
    #expect(text.contains("\"life\": 2"))
    #expect(text.contains("\"pid\": \(pid)"))
    #expect(text.contains("\"SIGABRT\""))
    #expect(text.contains("\"threads\": \"all\""))
    #expect(text.contains("waiter-2"))
    #expect(text.contains("\"failures\": 2"))
    #expect(text.contains("Assertion"))
    #expect(second.process.errorText.contains("life 2, pid \(pid)"))
    #expect(try second.stop() == .exited(143))
  }

  @Test func `ended while nobody watched: it counts, and the next life starts`() throws {
    let scratch = Scratch()
    let command = [Root.fixture("spawn_probe"), "wait"]
    let first = try Guardian(keep, command, in: scratch)
    let pid = try first.programPID()
    try orphan(first)
    kill(pid, SIGKILL)
    try ended([pid])
    let second = try Guardian(keep, command, in: scratch)
    let next = try second.programPID()
    #expect(next != pid)
    #expect(
      second.process.errorText.contains("(life 1, pid \(pid)) ended while no guardian was there"))
    #expect(try second.reportText().contains("\"failures\": 1"))
    #expect(try second.stop() == .exited(143))
  }

  @Test func `is said by guardianctl to run without a guardian, and what starts one again`() throws
  {
    let scratch = Scratch()
    let command = [Root.fixture("spawn_probe"), "wait"]
    let first = try Guardian(keep, command, in: scratch)
    let pid = try first.programPID()
    try orphan(first)
    func control(_ verb: String) throws -> Process {
      let process = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", first.runtime,
        "--state-directory", first.state, verb,
      ])
      #expect(try process.wait() == .exited(3))
      return process
    }
    let text = try control("status").outputText
    #expect(text.hasPrefix("kept life 1, pid \(pid) runs without a guardian"), "\(text)")
    for part in ["PID: \(pid)\n", "Start again: ", "--on-guardian-death keep --name kept -- "] {
      #expect(text.contains(part), "\(part): \(text)")
    }
    let refused = try control("stop").errorText
    #expect(
      refused.contains("runs without a guardian") && refused.contains("start it again with: "))
    let second = try Guardian(keep, command, in: scratch)
    try eventually("the word") {
      second.process.errorText.contains("took over kept") ? true : nil
    }
    #expect(try second.stop() == .exited(143))
  }

  @Test func `is stopped with all it started, though its orphans went elsewhere`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let command = [Root.fixture("tree_probe"), "stubborn", file]
    let options = keep + ["--stop-timeout", "300ms"]
    let first = try Guardian(options, command, in: scratch)
    let pids = try noted(file, 2)
    try orphan(first)
    #expect(pids.allSatisfy(isAlive))
    let second = try Guardian(options, command, in: scratch)
    try eventually("the word") {
      second.process.errorText.contains("took over kept") ? true : nil
    }
    #expect(try second.stop() == .exited(143))
    #expect(!pids.contains(where: isAlive))
    #expect(second.process.errorText.contains("killed what was left of it: tree_probe"))
  }

  @Test(arguments: [
    (["--name", "kept"], ["wait"]),
    (["--on-guardian-death", "keep", "--name", "kept"], ["stubborn"]),
  ])
  func `is ended by a next guardian that does not want it`(
    options: [String], words: [String]
  ) throws {
    let scratch = Scratch()
    let first = try Guardian(keep, [Root.fixture("spawn_probe"), "wait"], in: scratch)
    let pid = try first.programPID()
    try orphan(first)
    let second = try Guardian(options, [Root.fixture("spawn_probe")] + words, in: scratch)
    let next = try second.programPID()
    #expect(!isAlive(pid))
    #expect(isAlive(next))
    #expect(second.process.errorText.contains("ended spawn_probe (pid \(pid))"))
    second.process.signal(SIGTERM)
    second.process.signal(SIGTERM)
    _ = try second.run()
  }

  @Test func `of whom a forged life file speaks is left alone`() throws {
    let scratch = Scratch()
    let stranger = try Process(
      [Root.fixture("spawn_probe"), "wait"], wrapper: "exec setsid \"$@\"")
    let command = [Root.fixture("spawn_probe"), "wait"]
    let first = try Guardian(keep, command, in: scratch)
    let pid = try first.programPID()
    try orphan(first)
    kill(pid, SIGKILL)
    try ended([pid])
    // The number went to another process: only its start time tells.
    var record = try #require(LifeRecord.read(in: first.runtime))
    record.pid = stranger.pid
    // Both may have started within one tick of the kernel's clock, or of another.
    record.start &+= 1_000_000
    try Files.replace(first.runtime + "/life", with: record.bytes)
    let second = try Guardian(keep, command, in: scratch)
    _ = try second.programPID()
    #expect(second.process.errorText.contains("ended while no guardian was there"))
    #expect(isAlive(stranger.pid))
    #expect(try second.stop() == .exited(143))
    #expect(isAlive(stranger.pid))
  }
}

@Suite struct `The life file` {
  private let record = LifeRecord(
    boot: "b", life: 3, pid: 77, start: 12345, session: 70,
    channel: String(repeating: "a", count: 32), wall: 1, sinceBoot: 2, monotonic: 3,
    command: "c0ffee", handler: "static executable", cgroup: "")

  @Test func `is read as it was written`() { #expect(LifeRecord(record.bytes) == record) }

  @Test func `that is cut or changed in its form is none`() {
    let bytes = record.bytes
    for length in 0..<bytes.count { #expect(LifeRecord(Array(bytes[..<length])) == nil) }
    let text = String(decoding: bytes, as: UTF8.self)
    for (old, new) in [
      ("pid 77", "pid -77"), ("pid 77", "pid 0"), ("pid 77", "pid 77\npid 78"),
      ("aaaa\n", "/../\n"), ("cgroup ", "cgroup /../x"), ("start 12345", "start x"),
    ] {
      #expect(LifeRecord(Array(text.replacing(old, with: new).utf8)) == nil, "\(old) -> \(new)")
    }
  }
}
