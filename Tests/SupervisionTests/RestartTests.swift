import Glibc
import Kernel
import Testing

@Suite struct `A restart` {
  @Test func `follows each failure until the cap, and guardian leaves with the program's code`()
    throws
  {
    let guardian = try Guardian(
      ["--max-crashes", "2", "--restart-delay", "1ms"], ["/bin/sh", "-c", "echo life; exit 5"])
    #expect(try guardian.run() == .exited(5))
    #expect(guardian.process.outputLines.count == 3)
    #expect(guardian.process.errorText.contains("giving up"))
    #expect(guardian.reports.count == 3)
  }

  @Test func `does not follow a clean exit`() throws {
    let guardian = try Guardian([], ["/bin/sh", "-c", "echo life"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.outputLines.count == 1)
    #expect(guardian.reports.isEmpty)
  }

  @Test func `waits longer each time in a row`() throws {
    let guardian = try Guardian(
      ["--max-crashes", "4", "--restart-delay", "40ms"],
      ["/bin/sh", "-c", "read up rest </proc/uptime; echo $up; exit 1"])
    #expect(try guardian.run() == .exited(1))
    let times = guardian.process.outputLines.compactMap { Double($0) }
    #expect(times.count == 5)
    let gaps = zip(times.dropFirst(), times).map { $0 - $1 }
    // The second restart in a row after 40 ms, then 80, then 160, each ± 10 %; no upper bound, for
    // the machine may be busy. /proc/uptime has hundredths.
    #expect(gaps[1] >= 0.02 && gaps[2] >= 0.06 && gaps[3] >= 0.13)
  }

  @Test func `says that it gives up, with the reason once, also when it is quiet`() throws {
    let guardian = try Guardian(["--quiet", "--max-crashes", "0"], ["/bin/sh", "-c", "exit 3"])
    #expect(try guardian.run() == .exited(3))
    let text = guardian.process.errorText
    #expect(text.contains("; giving up: no restart after a failure (max-crashes is 0)"), "\(text)")
    #expect(text.split(separator: "\n").count == 1)
  }

  @Test func `goes on counting after guardian was killed, and anew after it gave up`() throws {
    let scratch = Scratch()
    let options = ["--max-crashes", "2", "--restart-delay", "1h", "--restart-delay-max", "1h"]
    let command = ["/bin/sh", "-c", "echo life; exit 1"]
    let first = try Guardian(options, command, in: scratch)
    // Two failures, then an hour of waiting.
    try eventually("two lives") { first.process.outputLines.count == 2 ? true : nil }
    try eventually("the state") {
      let text = try? Files.readText(first.state + "/state", limit: 1 << 20)
      return (text ?? "").contains("\nrow 2\n") ? true : nil
    }
    first.process.signal(SIGKILL)
    _ = try first.run()
    let second = try Guardian(options, command, in: scratch)
    #expect(try second.run() == .exited(1))
    #expect(second.process.outputLines.count == 1)
    #expect(second.process.errorText.contains("giving up"))
    let third = try Guardian(options, command, in: scratch)
    try eventually("two lives of a new count, and the hour") {
      third.process.outputLines.count == 2
        && third.process.errorText.contains("restarting in ") ? true : nil
    }
    #expect(try third.stop() == .exited(143))
  }

  @Test func `is not stopped by a damaged state file`() throws {
    let scratch = Scratch()
    try Files.makeDirectory(scratch.path + "/state")
    try Files.replace(
      scratch.path + "/state/state", with: (0..<5000).map { UInt8(truncatingIfNeeded: $0 &* 37) })
    let guardian = try Guardian([], ["/bin/true"], in: scratch)
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.errorText.contains("damaged"))
  }

  @Test func `is not stopped by a state folder that cannot be made`() throws {
    let scratch = Scratch()
    try Files.replace(scratch.path + "/state", with: [])
    let guardian = try Guardian(
      ["--max-crashes", "1", "--restart-delay", "1ms"], ["/bin/sh", "-c", "echo life; exit 9"],
      in: scratch)
    #expect(try guardian.run() == .exited(9))
    #expect(guardian.process.outputLines.count == 2)
  }

  @Test func `a thousand times leaves no descriptor, zombie, file or memory behind`() throws {
    let scratch = Scratch()
    let mark = scratch.path + "/lives"
    // Each life writes a dot and dies; after the last one it waits to be looked at.
    let script = """
      printf . >> \(mark); set -- $(wc -c < \(mark)); \
      [ "$1" -gt 1000 ] && { echo "pid $$"; exec sleep 1000; }; exit 1
      """
    let guardian = try Guardian(
      ["--max-crashes", "infinity", "--restart-delay", "0", "--reports-keep", "5", "--quiet"],
      ["/bin/sh", "-c", script], in: scratch)
    func count(_ path: String) -> Int { ((try? Files.list(path)) ?? []).count }
    let me = guardian.process.pid
    let inherited = count("/proc/self/fd")
    try eventually("some lives") { ((try? Files.status(mark).size) ?? 0) > 50 ? true : nil }
    _ = try guardian.programPID()
    // Reporters of the last ones finish. Between two of them the program may be alone as well.
    try eventually("only the program and guardian-sweep are left") { () -> Bool? in
      if count(guardian.state + "/reports/partial") > 0 { return nil }
      let text = (try? Files.readText("/proc/\(me)/task/\(me)/children", limit: 4096)) ?? ""
      return text.split(separator: " ").count == 2 ? true : nil
    }
    // What waited for a reporter is let go of as its turn comes; what the test's own process had
    // open when guardian was started, guardian has too.
    try eventually("few descriptors") {
      count("/proc/\(me)/fd") - inherited < 48 ? true : nil
    }
    #expect(count("/proc/\(me)/task") == 1)
    // The lock, the control socket, the life file, this life's channel and the next one's.
    #expect(count(guardian.runtime) <= 5)
    #expect(count(guardian.state + "/reports/partial") == 0)
    #expect(try guardian.stop() == .exited(143))
  }
}

@Suite struct `A stop` {
  let probe = Root.fixture("spawn_probe")

  @Test func `by TERM ends the program and leaves with 143`() throws {
    let guardian = try Guardian([], [probe, "wait"])
    let pid = try guardian.programPID()
    #expect(try guardian.stop() == .exited(143))
    #expect(!isAlive(pid))
    #expect(guardian.reports.isEmpty)
  }

  @Test func `asked for a second time kills at once`() throws {
    let guardian = try Guardian(["--stop-timeout", "1h"], [probe, "stubborn"])
    _ = try guardian.programPID()
    guardian.process.signal(SIGTERM)
    try eventually("word of the stop") { () -> Bool? in
      // Signals of one number coalesce: the second may only be sent when the first was taken.
      pendingSignals(guardian.process.pid) == 0 ? true : nil
    }
    guardian.process.signal(SIGTERM)
    #expect(try guardian.run() == .exited(137))
  }

  @Test func `kills what does not stop in time`() throws {
    let guardian = try Guardian(["--stop-timeout", "100ms"], [probe, "stubborn"])
    _ = try guardian.programPID()
    #expect(try guardian.stop() == .exited(137))
  }

  @Test func `is immediate while a restart is waited for`() throws {
    let guardian = try Guardian(
      ["--restart-delay", "1h", "--restart-delay-max", "1h"],
      ["/bin/sh", "-c", "echo life; exit 1"])
    try eventually("the hour") {
      guardian.process.errorText.contains("restarting in ") ? true : nil
    }
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `ends what is left of the program's group`() throws {
    let guardian = try Guardian(
      [], ["/bin/sh", "-c", "sleep 1000 & echo pid $!; exec sleep 1000"])
    let pid = try guardian.programPID()
    #expect(try guardian.stop() == .exited(143))
    #expect(!isAlive(pid))
  }

  @Test func `ends descendants that ignore it, in sessions of their own too`() throws {
    let deaf = "trap '' TERM; echo pid $$; exec sleep 1000"
    let guardian = try Guardian(
      ["--stop-timeout", "300ms"],
      ["/bin/sh", "-c", "setsid sh -c \"$0\" & sh -c \"$0\" & exec sleep 1000", deaf])
    let pids = [try guardian.programPID(1), try guardian.programPID(2)]
    #expect(try guardian.stop() == .exited(143))
    for pid in pids { #expect(!isAlive(pid)) }
  }

  @Test(arguments: [SIGUSR1, SIGHUP, SIGQUIT, 40])
  func `is not what another signal asks for: it is passed on`(signal: Int32) throws {
    let guardian = try Guardian(["--restart", "no"], [probe, "wait"])
    _ = try guardian.programPID()
    guardian.process.signal(signal)
    #expect(try guardian.run() == .exited(128 + signal))
  }
}

/// Of /proc/PID/status: signals that wait for the process.
func pendingSignals(_ pid: Int32) -> UInt64 {
  let text = (try? Files.readText("/proc/\(pid)/status", limit: 1 << 16)) ?? ""
  for line in text.split(separator: "\n") where line.hasPrefix("ShdPnd:") {
    return UInt64(line.dropFirst(7).filter { $0.isHexDigit }, radix: 16) ?? 0
  }
  return 0
}
