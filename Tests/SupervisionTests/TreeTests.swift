// Programs whose processes are hard to get rid of.
import Glibc
import Kernel
import Testing

/// Living processes that have `word` in their command line, without guardian: it and what it is
/// about to start name the program too.
private func processes(with word: String) -> [Int32] {
  ((try? Files.list("/proc", limit: 1 << 22)) ?? []).compactMap { Int32($0) }.filter { pid in
    let line = (try? Files.read("/proc/\(pid)/cmdline", limit: 4096)) ?? []
    let text = String(decoding: line, as: UTF8.self)
    let first = text.prefix { $0 != "\0" }
    return text.contains(word) && !first.hasSuffix("/guardian") && isAlive(pid)
  }
}

@Suite struct `All that a program started` {
  let probe = Root.fixture("tree_probe")

  private func lines(_ file: String) -> Int {
    ((try? Files.readText(file, limit: 1 << 20)) ?? "").split(separator: "\n").count
  }

  @Test(arguments: ["double", "naked", "title", "stubborn"])
  func `goes with a stop, and what had to be killed is named`(way: String) throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let guardian = try Guardian(["--stop-timeout", "300ms"], [probe, way, file], in: scratch)
    try eventually("two processes") { lines(file) == 2 ? true : nil }
    #expect(try guardian.stop() == .exited(143))
    // The fixture's own processes; guardian-sweep may still be on its way out.
    #expect(processes(with: file) == [])
    #expect(
      guardian.process.errorText.contains("killed what was left of it: tree_probe (pid ")
        == (way == "stubborn"), "\(guardian.process.errorText)")
  }

  @Test func `is not what guardian had before it started anything`() throws {
    let guardian = try Guardian(
      [], ["/bin/sh", "-c", "echo pid $$; kill -SEGV $$"],
      wrapper: "sleep 1000 & echo \"helper $!\"; exec \"$@\"")
    let helper = try eventually("the helper") {
      guardian.process.outputLines.first { $0.hasPrefix("helper ") }.flatMap {
        Int32($0.dropFirst(7))
      }
    }
    _ = try guardian.programPID(3)
    #expect(isAlive(helper))
    #expect(!guardian.process.errorText.contains("killed what was left"))
    _ = try guardian.stop()
    #expect(isAlive(helper))
    kill(helper, SIGKILL)
  }

  @Test func `goes before the next life starts`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let guardian = try Guardian([], [probe, "stubborn", file], in: scratch)
    try eventually("two processes") { lines(file) == 2 ? true : nil }
    let main = try guardian.programPID()
    kill(main, SIGSEGV)
    try eventually("two more; \(guardian.process.errorText)") { lines(file) == 4 ? true : nil }
    #expect(processes(with: file).count == 2)
    try eventually("the word; \(guardian.process.errorText)") {
      guardian.process.errorText.contains("killed what was left of it: tree_probe") ? true : nil
    }
    for pid in processes(with: file) { #expect(pid != main) }
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `goes also where its main thread has ended and another one goes on`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let guardian = try Guardian(
      ["--stop-timeout", "300ms"], [probe, "leaderless", file], in: scratch)
    func pids(_ count: Int) throws -> [Int32] {
      try eventually("\(count) processes; \(guardian.process.errorText)") {
        let text = (try? Files.readText(file, limit: 1 << 20)) ?? ""
        let pids = text.split(separator: "\n").compactMap { Int32($0.dropFirst(4)) }
        return pids.count == count ? pids : nil
      }
    }
    let first = try pids(2)
    kill(try guardian.programPID(), SIGSEGV)
    let both = try pids(4)
    #expect(!first.contains(where: isAlive))
    #expect(try guardian.stop() == .exited(143))
    #expect(!both.contains(where: isAlive))
    #expect(guardian.process.errorText.contains("killed what was left of it: tree_probe (pid "))
  }

  @Test func `goes while it keeps forking into new sessions`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    // So long that it is still at it when it is killed; it ends by itself in any case.
    let guardian = try Guardian(
      ["--stop-timeout", "100ms"], [probe, "forks", file, "20000"], in: scratch)
    _ = try guardian.programPID()
    #expect(try guardian.stop() == .exited(143))
    #expect(processes(with: file) == [])
  }

  @Test(.enabled(if: geteuid() == 0, "only root may start a guardian of another user"))
  func `goes when it multiplies, without root and within a limit`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    // The limit counts the processes of the user, whom nobody else here is.
    let user = "54321"
    let guardian = try Guardian(
      ["--stop-timeout", "200ms"], [probe, "bomb", file, "8"], in: scratch,
      wrapper: "chmod 777 '\(scratch.path)'; ulimit -u 200; "
        + "exec setpriv --reuid=\(user) --regid=\(user) --clear-groups \"$@\"")
    try eventually("a crowd; \(guardian.process.errorText)") { lines(file) > 50 ? true : nil }
    #expect(try guardian.stop() == .exited(143), "\(guardian.process.errorText)")
    #expect(processes(with: file) == [])
  }

  /// Runs guardian in a cgroup that is marked as systemd marks what it delegates.
  private func delegated(_ name: String) -> String {
    "exec unshare -m sh -c 'mount -t cgroup2 none /sys/fs/cgroup && "
      + "mkdir -p /sys/fs/cgroup/\(name) && python3 -c \"import os; "
      + "os.setxattr(\\\"/sys/fs/cgroup/\(name)\\\", \\\"trusted.delegate\\\", b\\\"1\\\")\" && "
      + "echo $$ >/sys/fs/cgroup/\(name)/cgroup.procs && exec \"$@\"' sh \"$@\""
  }
  private func clear(_ name: String) throws {
    let script =
      "mount -t cgroup2 none /sys/fs/cgroup; rmdir /sys/fs/cgroup/\(name)/life-* 2>&-; "
      + "rmdir /sys/fs/cgroup/\(name)"
    _ = try Process(["unshare", "-m", "sh", "-c", script]).wait()
  }

  @Test(.enabled(if: geteuid() == 0, "only root may mount a cgroup tree"))
  func `is found by its cgroup when it threw away everything else, life after life`() throws {
    let scratch = Scratch()
    let name = "guardian-" + Randomness.hex(bytes: 4)
    let file = scratch.path + "/pids"
    let guardian = try Guardian(
      ["--stop-timeout", "300ms", "--restart-delay", "0"], [probe, "naked", file], in: scratch,
      wrapper: delegated(name))
    var seen: Set<Int32> = []
    for life in 1...3 {
      try eventually("two processes; \(guardian.process.errorText)") {
        lines(file) == 2 * life ? true : nil
      }
      let main = try guardian.programPID(life)
      #expect(
        (try? Files.readText("/proc/\(main)/cgroup", limit: 4096))?
          .contains("0::/\(name)/life-") ?? false)
      seen.insert(main)
      if life < 3 { kill(main, SIGKILL) }
    }
    #expect(seen.count == 3)
    // Killed: the helper finds the naked one of the last life by nothing but the cgroup.
    try eventually("the life file") {
      LifeRecord.read(in: guardian.runtime)?.life == 3 ? true : nil
    }
    let helper = try eventually("guardian-sweep") {
      processes(with: "guardian-sweep\0--runtime\0\(guardian.runtime)").first
    }
    guardian.process.signal(SIGKILL)
    _ = try guardian.run()
    try eventually("the end of the helper") { isAlive(helper) ? nil : true }
    let pids = try Files.readText(file, limit: 1 << 20).split(separator: "\n").compactMap {
      Int32($0.dropFirst(4))
    }
    #expect(pids.count == 6)
    #expect(!pids.contains(where: isAlive))
    try clear(name)
  }
}
