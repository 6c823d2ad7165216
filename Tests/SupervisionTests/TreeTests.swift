// Programs whose processes are hard to get rid of.
import Glibc
import Kernel
import Testing

/// Living processes that have `word` in their command line.
private func processes(with word: String) -> [Int32] {
  ((try? Files.list("/proc", limit: 1 << 22)) ?? []).compactMap { Int32($0) }.filter { pid in
    let line = (try? Files.read("/proc/\(pid)/cmdline", limit: 4096)) ?? []
    return String(decoding: line, as: UTF8.self).contains(word) && isAlive(pid)
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

  @Test func `goes before the next life starts`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/pids"
    let guardian = try Guardian([], [probe, "stubborn", file], in: scratch)
    try eventually("two processes") { lines(file) == 2 ? true : nil }
    let main = try guardian.programPID()
    kill(main, SIGSEGV)
    try eventually("two more; \(guardian.process.errorText)") { lines(file) == 4 ? true : nil }
    #expect(processes(with: file).count == 2)
    #expect(guardian.process.errorText.contains("killed what was left of it: tree_probe"))
    for pid in processes(with: file) { #expect(pid != main) }
    #expect(try guardian.stop() == .exited(143))
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
}
