// Where the program's output goes: nowhere, to a file that is rotated, to the journal; and that
// nothing of it stops the program.
import Glibc
import Kernel
import Testing

private let probe = Root.fixture("spawn_probe")
private let isRoot = geteuid() == 0

private func text(_ path: String) -> String {
  (try? Files.readText(path, limit: 64 << 20)) ?? ""
}

private func eventuallyText(_ path: String, _ part: String) throws {
  try eventually("'\(part)' in \(path), which has: \(text(path).suffix(300))") {
    text(path).contains(part) ? true : nil
  }
}

@Suite struct `stdout and stderr` {
  @Test func `null go nowhere, and the report has the last lines of stderr`() throws {
    let guardian = try Guardian(
      ["--stdout", "null", "--stderr", "null", "--max-crashes", "0"],
      ["/bin/sh", "-c", "echo unseen; echo kept >&2; exit 3"])
    #expect(try guardian.run() == .exited(3))
    #expect(guardian.process.outputText == "")
    #expect(!guardian.process.errorText.contains("kept\n"))
    #expect(guardian.process.errorText.contains("exited with 3"))
    #expect(try guardian.reportText(0, "stderr.log") == "kept\n")
  }

  @Test func `inherit is guardian's own standard output, with nothing between`() throws {
    let guardian = try Guardian([], ["/bin/sh", "-c", "readlink /proc/self/fd/1"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.outputText == guardian.process.output + "\n")
  }

  @Test func `to files are written there to the last byte, and the report has the tail`() throws {
    let scratch = Scratch()
    let (out, err) = (scratch.path + "/out.log", scratch.path + "/err.log")
    let guardian = try Guardian(
      ["--stdout", "file:\(out)", "--stderr", "file:\(err)", "--log-bytes", "infinity"]
        + ["--max-crashes", "0"],
      [
        "/bin/sh", "-c", "umask; seq 1 50000; \"$0\" flood 20000000; echo the end >&2; exit 3",
        probe,
      ],
      in: scratch, wrapper: "umask 022; exec \"$@\"")
    #expect(try guardian.run() == .exited(3))
    #expect(guardian.process.outputText == "")
    let numbers = (1...50000).map { "\($0)\n" }.joined()
    #expect(text(out) == "0022\n" + numbers)
    #expect(try Files.status(err).size == 20_000_000 + 14 + 8)
    #expect(text(err).hasSuffix("the last line\nthe end\n"))
    #expect(try Files.status(out).permissions == 0o640)
    #expect(try guardian.reportText(0, "stderr.log").hasSuffix("the last line\nthe end\n"))
    #expect(guardian.process.errorText.contains("exited with 3"), "its own words stay its own")
    #expect(!text(err).contains("guardian:"))
  }

  @Test func `append to what is there, over lives and guardians`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    for _ in 1...2 {
      let guardian = try Guardian(
        ["--stdout", "file:\(log)", "--stderr", "file:\(log)", "--max-crashes", "1"],
        ["/bin/sh", "-c", "echo life $GUARDIAN_LIFE; echo error >&2; exit 1"], in: scratch)
      #expect(try guardian.run() == .exited(1))
    }
    let lines = text(log).split(separator: "\n").sorted()
    #expect(lines.count == 8)
    #expect(lines.filter { $0 == "error" }.count == 4)
  }

  @Test func `by a relative path is meant from where guardian was started`() throws {
    let scratch = Scratch()
    let guardian = try Guardian(
      ["--stdout", "file:here.log", "-C", "/"], ["/bin/echo", "text"], in: scratch,
      wrapper: "cd \(scratch.path); exec \"$@\"")
    #expect(try guardian.run() == .exited(0))
    #expect(text(scratch.path + "/here.log") == "text\n")
  }

  @Test func `are both in the kept lines that logs shows`() throws {
    let scratch = Scratch()
    let guardian = try Guardian(
      ["--stdout", "file:\(scratch.path)/log", "--stderr", "null"], [probe, "log"], in: scratch)
    try eventuallyText(scratch.path + "/log", "out 0")
    func logs() throws -> String {
      let process = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", guardian.runtime, "logs",
      ])
      #expect(try process.wait() == .exited(0), "\(process.errorText)")
      return process.outputText
    }
    try eventually("both lines") {
      let lines = try logs()
      return lines.contains("out 0 pid") && lines.contains("err 0\n") ? true : nil
    }
    #expect(try guardian.stop() == .exited(143))
  }
}

@Suite struct `log-bytes and log-keep` {
  @Test func `rotate between lines, in order, and lose nothing`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    let guardian = try Guardian(
      ["--stdout", "file:\(log)", "--log-bytes", "10000", "--log-keep", "1000"],
      ["/usr/bin/seq", "1", "100000"], in: scratch)
    #expect(try guardian.run() == .exited(0))
    let names = try Files.list(scratch.path).filter { $0.hasPrefix("log") }
    let files = (1..<names.count).reversed().map { "\(log).\($0)" } + [log]
    #expect((58...62).contains(names.count))
    for file in files { #expect(try Files.status(file).size <= 10_000) }
    for file in files { #expect(text(file).hasSuffix("\n")) }
    #expect(files.map { text($0) }.joined() == (1...100000).map { "\($0)\n" }.joined())
  }

  @Test func `keep so many and no more, and those of before are cleared away`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    for number in 3...6 { try Files.replace("\(log).\(number)", with: Array("old\n".utf8)) }
    let guardian = try Guardian(
      ["--stderr", "file:\(log)", "--log-bytes", "100kB", "--log-keep", "2"],
      [probe, "flood", "1000000"], in: scratch)
    #expect(try guardian.run() == .exited(0))
    let names = try Files.list(scratch.path).filter { $0.hasPrefix("log") }
    #expect(names == ["log", "log.1", "log.2"])
    #expect(text(log).hasSuffix("the last line\n"))
    let none = try Guardian(
      ["--stderr", "file:\(log)", "--log-bytes", "100kB", "--log-keep", "0"],
      [probe, "flood", "1000000"], in: scratch)
    #expect(try none.run() == .exited(0))
    #expect(try Files.list(scratch.path).filter { $0.hasPrefix("log") } == ["log"])
  }

  @Test func `tear a line only if it is longer than lines are`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    let guardian = try Guardian(
      ["--stdout", "file:\(log)", "--log-bytes", "1000", "--log-keep", "100"],
      ["/usr/bin/python3", "-c", "print('a' * 5000); print('b' * 30000); print('c')"], in: scratch)
    #expect(try guardian.run() == .exited(0))
    let names = try Files.list(scratch.path).filter { $0.hasPrefix("log") }
    let files = (1..<names.count).reversed().map { "\(log).\($0)" } + [log]
    #expect(text(files[0]) == String(repeating: "a", count: 5000) + "\n")
    for file in files { #expect(try Files.status(file).size <= 1000 + 8192) }
    #expect(
      files.map { text($0) }.joined()
        == String(repeating: "a", count: 5000) + "\n" + String(repeating: "b", count: 30000)
        + "\nc\n")
  }

  @Test func `that cannot rotate let the file grow, and say so once`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    // A folder in the place of the next name: rename refuses, for root too.
    try Files.makeDirectory(log + ".1")
    try Files.replace(log + ".1/file", with: [])
    let guardian = try Guardian(
      ["--stdout", "file:\(log)", "--log-bytes", "100000", "--log-keep", "1"],
      ["/usr/bin/seq", "1", "20000"], in: scratch)
    #expect(try guardian.run() == .exited(0))
    #expect(text(log) == (1...20000).map { "\($0)\n" }.joined())
    let complaints = guardian.process.errorText.split(separator: "\n").filter {
      $0.contains("grows on")
    }
    #expect(complaints.count == 1)
    #expect(!Files.exists(log + ".new"))
  }

  @Test func `that cannot rotate grow to twice their limit, and what follows is counted`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    try Files.makeDirectory(log + ".1")
    try Files.replace(log + ".1/file", with: [])
    let guardian = try Guardian(
      ["--stdout", "file:\(log)", "--log-bytes", "10000", "--log-keep", "1"],
      ["/usr/bin/seq", "1", "20000"], in: scratch)
    #expect(try guardian.run() == .exited(0))
    #expect(try Files.status(log).size <= 20_000 + 8192)
    #expect(guardian.process.errorText.contains("what follows is lost"))
    #expect(guardian.process.errorText.contains("bytes of the program's output were lost"))
  }

  @Test func `rotate although a folder has the draft's name`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    try Files.makeDirectory(log + ".new")
    let guardian = try Guardian(
      ["--stdout", "file:\(log)", "--log-bytes", "60000", "--log-keep", "1"],
      ["/usr/bin/seq", "1", "20000"], in: scratch)
    #expect(try guardian.run() == .exited(0))
    #expect(text(log + ".1") + text(log) == (1...20000).map { "\($0)\n" }.joined())
    #expect(
      try Files.list(scratch.path).filter { $0.hasPrefix("log") } == ["log", "log.1", "log.new"])
  }
}

@Suite struct `HUP` {
  @Test func `opens the files anew and goes on to the program`() throws {
    let scratch = Scratch()
    let (out, err) = (scratch.path + "/out", scratch.path + "/err")
    let guardian = try Guardian(
      ["--stdout", "file:\(out)", "--stderr", "file:\(err)"], [probe, "log"], in: scratch)
    try eventuallyText(out, "out 0")
    try eventuallyText(err, "err 0")
    // As logrotate does it.
    try Files.rename(out, to: out + ".old")
    try Files.rename(err, to: err + ".old")
    guardian.process.signal(SIGHUP)
    try eventuallyText(out, "out 1")
    try eventuallyText(err, "err 1")
    #expect(text(out + ".old").hasPrefix("out 0") && !text(out + ".old").contains("out 1"))
    #expect(text(err + ".old") == "err 0\n")
    #expect(try Files.status(out).permissions == 0o640)
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `to a file whose folder is gone goes on with the old one`() throws {
    let scratch = Scratch()
    let folder = scratch.path + "/logs"
    try Files.makeDirectory(folder)
    let guardian = try Guardian(
      ["--stdout", "file:\(folder)/out"], [probe, "log"], in: scratch)
    try eventuallyText(folder + "/out", "out 0")
    try Files.rename(folder, to: scratch.path + "/moved")
    guardian.process.signal(SIGHUP)
    try eventuallyText(scratch.path + "/moved/out", "out 1")
    #expect(
      guardian.process.errorText.contains("No such file or directory: the file opened before"))
    // It is back.
    try Files.makeDirectory(folder)
    guardian.process.signal(SIGHUP)
    try eventuallyText(folder + "/out", "out 2")
    #expect(try guardian.stop() == .exited(143))
  }
}

@Suite struct `A file that cannot be written` {
  @Test func `because it is a link, a FIFO or has another name is refused, and the program runs`()
    throws
  {
    let scratch = Scratch()
    let other = scratch.path + "/other"
    try Files.replace(other, with: Array("precious\n".utf8))
    let (link, fifo, twin) = (
      scratch.path + "/link", scratch.path + "/fifo", scratch.path + "/twin"
    )
    #expect(unsafe symlink(other, link) == 0)
    try Files.makeFIFO(fifo, mode: 0o600)
    #expect(unsafe Glibc.link(other, twin) == 0)
    for path in [link, fifo, twin, scratch.path, "/nonexistent/file"] {
      let guardian = try Guardian(
        ["--stderr", "file:\(path)", "--max-crashes", "0"],
        ["/bin/sh", "-c", "echo kept >&2; exit 3"], in: scratch)
      #expect(try guardian.run() == .exited(3))
      let said = guardian.process.errorText
      #expect(said.contains("what the program writes there is lost until it can be opened"))
      #expect(said.contains("'\(path)': 5 bytes of the program's output were lost"))
    }
    #expect(text(other) == "precious\n")
    let folder = scratch.path + "/state/reports/new"
    for report in try Files.list(folder) {
      #expect(text(folder + "/" + report + "/stderr.log") == "kept\n")
    }
  }

  @Test(.enabled(if: isRoot))
  func `on a full disk loses output, says so, and says when it is over`()
    throws
  {
    let scratch = Scratch()
    let folder = scratch.path + "/small"
    try Files.makeDirectory(folder)
    let log = folder + "/log"
    let guardian = try Guardian(
      ["--stderr", "file:\(log)", "--log-bytes", "infinity"],
      [
        "/bin/sh", "-c",
        "trap 'echo later >&2' USR1; \"$0\" flood 300000; echo pid $$; "
          + "while :; do sleep 1000 & wait; done", probe,
      ], in: scratch,
      wrapper: "exec unshare -m sh -c 'mount -t tmpfs -o size=64k none \(folder) && "
        + "exec \"$@\"' sh \"$@\"")
    let pid = try guardian.programPID()
    try eventuallyText(guardian.process.errors, "No space left on device: what the program writes")
    // What is on its way would fill the room that is made.
    try eventually("that all of it was read") {
      try Files.list(guardian.runtime).allSatisfy { name in
        guard
          let fifo = try? FileDescriptor.open(
            guardian.runtime + "/" + name + "/stderr", O_RDONLY | O_NONBLOCK)
        else { return true }
        var there: Int32 = 0
        return unsafe ioctl(fifo.raw, UInt(FIONREAD), &there) == 0 && there == 0
      } ? true : nil
    }
    // The file as guardian sees it; somebody makes room.
    let seen = "/proc/\(guardian.process.pid)/root\(log)"
    #expect(try Files.status(seen).size == 65536)
    try FileDescriptor.open(seen, O_WRONLY).truncate(to: 0)
    kill(pid, SIGUSR1)
    try eventuallyText(seen, "later\n")
    let lost = 300_000 + 14 - 65536
    #expect(text(seen).contains("guardian: \(lost) bytes of output are missing here\nlater\n"))
    try eventuallyText(
      guardian.process.errors, "can be written to again: \(lost) bytes were lost")
    #expect(isAlive(pid))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `because of guardian's own limit of file size leaves the program alone`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/log"
    let guardian = try Guardian(
      ["--stderr", "file:\(log)", "--limit", "fsize=infinity", "--log-bytes", "infinity"],
      ["/bin/sh", "-c", "\"$0\" flood 300000; exit 0", probe], in: scratch,
      wrapper: "ulimit -Sf 400; exec \"$@\"")
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.errorText.contains("File too large: what the program writes"))
  }
}

@Suite struct `journal` {
  @Test func `where there is none falls back to guardian's own, with one line`() throws {
    if Files.exists("/run/systemd/journal/stdout") { return }
    let guardian = try Guardian(
      ["--stdout", "journal"], ["/bin/sh", "-c", "echo out; echo err >&2"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.outputText == "out\n")
    #expect(
      guardian.process.errorText.hasPrefix(
        "guardian: cannot reach the journal at '/run/systemd/journal/stdout': No such file or "
          + "directory: the program's standard output goes to guardian's own\nerr\n"))
  }

  /// journald itself, in a mount namespace of its own; nil: not here.
  private final class RealJournal {
    let scratch = Scratch()
    private(set) var pid: Int32 = 0
    private static let program = "/lib/systemd/systemd-journald"
    static var isHere: Bool { Files.exists(program) && geteuid() == 0 }

    /// The same, with guardian's own output and error as a service's are.
    var inherited: String {
      wrapper.replacing("exec \"$@\"'", with: "exec systemd-cat -t service \"$@\"'")
    }

    var wrapper: String {
      "exec unshare -m sh -c 'mount -t tmpfs none /run && mkdir -p /run/systemd/journal "
        + "/run/log/journal && \(start) && exec \"$@\"' sh \"$@\""
    }
    /// Not as a child of the guardian that the shell becomes.
    private var start: String {
      "rm -f /run/systemd/journal/stdout \(scratch.path)/pid && "
        + "(setsid sh -c \"echo \\$\\$ >\(scratch.path)/pid; exec \(Self.program)\" "
        + "</dev/null >/dev/null 2>&1 &) && "
        + "until [ -S /run/systemd/journal/stdout ]; do sleep 0.01; done"
    }

    func findPID() throws {
      pid = try eventually("journald") {
        Int32(text(scratch.path + "/pid").split(separator: "\n").first ?? "")
      }
    }
    /// Returns when it holds its sockets no more.
    func kill() throws {
      let pid = pid
      if pid <= 0 { return }
      self.pid = 0
      Glibc.kill(pid, SIGKILL)
      try eventually("the end of journald") { isAlive(pid) ? nil : true }
    }
    func startAgain(beside guardian: Int32) throws {
      let shell = try Process(
        ["nsenter", "-t", "\(guardian)", "-m", "/bin/sh", "-c", start])
      #expect(try shell.wait() == .exited(0), "\(shell.errorText)")
      try findPID()
    }
    func entries(of name: String, beside guardian: Int32) throws -> String {
      let reader = try Process([
        "nsenter", "-t", "\(guardian)", "-m", "journalctl", "-q", "-t", name, "-o", "export",
      ])
      _ = try reader.wait()
      return reader.outputText
    }
    deinit { try? kill() }
  }

  @Test func `gets each line with name and stream, and is waited for when it is gone`() throws {
    guard RealJournal.isHere else { return }
    let journal = RealJournal()
    let guardian = try Guardian(
      ["--name", "probe-j", "--stdout", "journal", "--stderr", "journal"], [probe, "log"],
      wrapper: journal.wrapper)
    try journal.findPID()
    let own = guardian.process.pid
    func entry(_ message: String) throws -> [Substring] {
      try eventually("the entry '\(message)'; guardian said: \(guardian.process.errorText)") {
        let entries = try journal.entries(of: "probe-j", beside: own).split(separator: "__CURSOR=")
        return entries.first { $0.contains("MESSAGE=\(message)") }?.split(separator: "\n")
      }
    }
    #expect(try entry("out 0 pid").contains("PRIORITY=6"))
    #expect(try entry("err 0").contains("PRIORITY=6"), "as systemd has it for both streams")
    #expect(guardian.process.errorText == "")

    try journal.kill()
    guardian.process.signal(SIGHUP)
    try eventuallyText(guardian.process.errors, "the journal takes nothing")
    try journal.startAgain(beside: own)
    try eventually("the journal's return") {
      guardian.process.signal(SIGHUP)
      return guardian.process.errorText.contains("the journal is back: ") ? true : nil
    }
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `takes a line's priority from its <N>`() throws {
    guard RealJournal.isHere else { return }
    let journal = RealJournal()
    let guardian = try Guardian(
      ["--name", "probe-p", "--stdout", "journal"],
      ["/bin/sh", "-c", "echo '<3>out of paper'; exec sleep 1000"], wrapper: journal.wrapper)
    try journal.findPID()
    let entry = try eventually("the entry") {
      try journal.entries(of: "probe-p", beside: guardian.process.pid).split(separator: "__CURSOR=")
        .first { $0.contains("\nMESSAGE=out of paper\n") }
    }
    #expect(entry.contains("\nPRIORITY=3\n"))
    #expect(try guardian.stop() == .exited(143))
  }

  /// A service whose output is the journal, as systemd connects it.
  private func service(_ journal: RealJournal, _ name: String) throws -> Guardian {
    let scratch = Scratch()
    return try Guardian(
      ["--name", name, "--verbose", "--restart-delay", "1ms", "--stable-after", "1ms"],
      [
        "/bin/sh", "-c",
        "echo here is life $GUARDIAN_LIFE; echo $$ >>\(scratch.path)/pids; exec sleep 1000",
      ],
      in: scratch, wrapper: journal.inherited)
  }

  private func pid(_ guardian: Guardian, _ life: Int) throws -> Int32 {
    try eventually("life \(life)") {
      let pids = text(guardian.scratch.path + "/pids").split(separator: "\n")
      return pids.count >= life ? Int32(pids[life - 1]) : nil
    }
  }

  private func eventuallySays(
    _ journal: RealJournal, _ guardian: Guardian, _ words: String, as name: String
  ) throws {
    try eventually("'\(words)' in the journal") {
      try journal.entries(of: name, beside: guardian.process.pid).contains(words) ? true : nil
    }
  }

  @Test func `that was started anew gets guardian's words and the next life's`() throws {
    guard RealJournal.isHere, Files.exists("/usr/bin/systemd-cat") else { return }
    let journal = RealJournal()
    let guardian = try service(journal, "probe-i")
    try journal.findPID()
    try eventuallySays(journal, guardian, "here is life 1", as: "service")
    try journal.kill()
    try journal.startAgain(beside: guardian.process.pid)
    kill(try pid(guardian, 1), SIGKILL)
    try eventuallySays(journal, guardian, "here is life 2", as: "probe-i")
    try eventuallySays(journal, guardian, "guardian: probe-i (life 2, pid", as: "probe-i")
    let second = try pid(guardian, 2)
    #expect(
      text("/proc/\(second)/environ").split(separator: "\0").contains {
        $0.hasPrefix("JOURNAL_STREAM=")
      })
    #expect(isAlive(second))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `that is away costs a life its output and nothing else`() throws {
    guard RealJournal.isHere, Files.exists("/usr/bin/systemd-cat") else { return }
    let journal = RealJournal()
    let guardian = try service(journal, "probe-g")
    try journal.findPID()
    try eventuallySays(journal, guardian, "here is life 1", as: "service")
    try journal.kill()
    kill(try pid(guardian, 1), SIGKILL)
    let second = try pid(guardian, 2)
    #expect(try Files.readLink("/proc/\(second)/fd/1") == "/dev/null")
    try journal.startAgain(beside: guardian.process.pid)
    kill(second, SIGKILL)
    try eventuallySays(journal, guardian, "here is life 3", as: "probe-g")
    try eventuallySays(journal, guardian, "guardian: the journal is back: ", as: "probe-g")
    #expect(try guardian.stop() == .exited(143))
  }
}
