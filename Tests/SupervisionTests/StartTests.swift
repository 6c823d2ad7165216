import Glibc
import Kernel
import Testing

@Suite struct `A start` {
  @Test(arguments: ["<&-", ">&-", "<&- >&- 2>&-"])
  func `with closed standard descriptors gives the program none of guardian's own`(
    closed: String
  ) throws {
    let scratch = Scratch()
    let file = scratch.path + "/descriptors"
    let guardian = try Guardian(
      [], ["/bin/sh", "-c", "ls -l /proc/$$/fd >'\(file)'"], in: scratch,
      wrapper: "exec \"$@\" \(closed)")
    #expect(try guardian.run() == .exited(0))
    let text = try Files.readText(file, limit: 4096)
    #expect(!text.contains("/lock") && text.contains(" 0 -> /dev/null"), "\(text)")
  }

  @Test(arguments: [48, 60]) func `works within a low limit of descriptors`(limit: Int) throws {
    let guardian = try Guardian(
      ["--max-crashes", "0"], [Root.fixture("dies"), "null-read"],
      // Without those of tests that run at the same time.
      wrapper: "exec bash -c 'for f in /proc/$$/fd/*; do n=${f##*/}; "
        + "if [ $n -gt 2 ]; then eval \"exec $n>&-\"; fi; done; ulimit -n \(limit); exec \"$@\"' "
        + "bash \"$@\"")
    #expect(try guardian.run() == .exited(139), "\(guardian.process.errorText)")
    #expect(guardian.reports.count == 1, "\(guardian.process.errorText)")
  }

  @Test func `with --stderr direct gives the program guardian's own`() throws {
    let guardian = try Guardian(
      ["--stderr", "direct"], ["/bin/sh", "-c", "readlink /proc/$$/fd/2; echo said >&2"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.outputLines.map(String.init) == [guardian.process.errors])
    #expect(guardian.process.errorText.contains("said\n"))
  }

  @Test func `is looked at by --check as far as files tell`() throws {
    let scratch = Scratch()
    let script = scratch.path + "/script"
    for (text, words) in [
      ("#!/usr/bin/nosuch\n", "its interpreter '/usr/bin/nosuch' does not exist"),
      ("hello\n", "it is text with no #! line"),
    ] {
      try Files.replace(script, with: Array(text.utf8), mode: 0o755)
      let check = try Process([Root.guardian, "--check", "--", script])
      #expect(try check.wait() == .exited(78))
      #expect(check.errorText.contains(words), "\(check.errorText)")
    }
    for (path, words) in [
      (scratch.path + "/none/x.log", "is not there"), ("/dev/stdout", "is no plain file"),
    ] {
      let check = try Process([Root.guardian, "--check", "--stdout", "file:" + path, "--", "true"])
      #expect(try check.wait() == .exited(78))
      #expect(check.errorText.contains(words), "\(check.errorText)")
    }
  }

  let probe = Root.fixture("spawn_probe")

  @Test func `that finds no such command leaves with 127 and one report`() throws {
    let guardian = try Guardian(["--max-crashes", "1"], ["/nonexistent/program"])
    #expect(try guardian.run() == .exited(127))
    #expect(guardian.reports.count == 1)
    #expect(try guardian.reportText().contains("\"exec-failed\""))
    #expect(guardian.process.errorText.contains("No such file or directory"))
  }

  @Test func `of a file that may not be executed leaves with 126`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/program"
    try Files.replace(file, with: Array("#!/bin/sh\n".utf8), mode: 0o644)
    let guardian = try Guardian(["--max-crashes", "0"], [file], in: scratch)
    #expect(try guardian.run() == .exited(126))
    #expect(guardian.process.errorText.contains("Permission denied"))
  }

  @Test func `of a file in no known format leaves with 126`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/program"
    try Files.replace(file, with: Array("neither ELF nor script\n".utf8), mode: 0o755)
    let guardian = try Guardian(["--max-crashes", "0"], [file], in: scratch)
    #expect(try guardian.run() == .exited(126))
    #expect(guardian.process.errorText.contains("Exec format error"))
  }

  @Test func `of a folder leaves with 126`() throws {
    let guardian = try Guardian(["--max-crashes", "0"], ["/usr"])
    #expect(try guardian.run() == .exited(126))
  }

  @Test(arguments: [
    (
      "#!/usr/bin/nosuch -x\n", 0o755, Int32(127),
      "its interpreter '/usr/bin/nosuch' does not exist"
    ),
    (
      "#!/bin/sh\r\necho\r\n", 0o755, 127,
      "its interpreter '/bin/sh\\r' does not exist: the line ends in CR LF"
    ),
    ("echo no line\n", 0o755, 126, "it is text with no #! line"),
    ("#!/bin/sh\n", 0o644, 126, "it is not executable"),
  ])
  func `that cannot be executed is given up at once and says which file it is about`(
    text: String, mode: Int, code: Int32, words: String
  ) throws {
    let scratch = Scratch()
    let file = scratch.path + "/program"
    try Files.replace(file, with: Array(text.utf8), mode: UInt32(mode))
    let guardian = try Guardian([], [file], in: scratch)
    #expect(try guardian.run() == .exited(code))
    #expect(guardian.process.errorText.contains(words), "\(guardian.process.errorText)")
    #expect(guardian.process.errorText.contains("giving up"))
    let report = try guardian.reportText(0, "report.txt")
    #expect(report.hasPrefix("exec failed: cannot execute '"), "\(report)")
    #expect(report.prefix { $0 != "\n" }.contains(words), "\(report)")
  }

  @Test func `of a command that is not in PATH but in this folder says so`() throws {
    let scratch = Scratch()
    try Files.replace(scratch.path + "/crash", with: Array("#!/bin/sh\n".utf8), mode: 0o755)
    let guardian = try Guardian(
      ["--max-crashes", "0"], ["crash"], in: scratch, wrapper: "cd '\(scratch.path)'; exec \"$@\"")
    #expect(try guardian.run() == .exited(127))
    #expect(guardian.process.errorText.contains("it is not in PATH; there is './crash'"))
  }

  @Test func `in a working directory that is not there is given up at once`() throws {
    let guardian = try Guardian(["--working-directory", "/nonexistent/folder"], ["/bin/true"])
    #expect(try guardian.run() == .exited(127))
    #expect(guardian.process.errorText.contains("'/nonexistent/folder'"))
    #expect(guardian.process.errorText.contains("giving up"))
  }

  @Test(arguments: [Int32(126), 127])
  func `of a program that itself exits with 126 or 127 is no failed start`(code: Int32) throws {
    let guardian = try Guardian(["--max-crashes", "0"], ["/bin/sh", "-c", "exit \(code)"])
    #expect(try guardian.run() == .exited(code))
    #expect(try guardian.reportText().contains("\"exitStatus\": \(code)"))
    #expect(guardian.process.errorText.contains("exited with \(code)"))
  }

  @Test func `restores masks and ignored signals exactly as guardian got them`() throws {
    let setups = [
      "exec \"$@\"",
      "trap '' PIPE XFSZ; exec \"$@\"",
      "trap '' CHLD TTOU USR1 INT; exec \"$@\"",
      "exec python3 -c \"import os,signal,sys; signal.pthread_sigmask(signal.SIG_BLOCK, "
        + "[signal.SIGTERM, signal.SIGCHLD, 40]); signal.signal(signal.SIGPIPE, signal.SIG_DFL); "
        + "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])\" \"$@\"",
    ]
    for setup in setups {
      let bare = try Process([probe, "state"], wrapper: setup)
      #expect(try bare.wait() == .exited(0))
      let guardian = try Guardian([], [probe, "state"], wrapper: setup)
      #expect(try guardian.run() == .exited(0))
      let signals = { (lines: [Substring]) in lines.filter { $0.hasPrefix("Sig") } }
      #expect(signals(bare.outputLines).count == 2)
      #expect(signals(guardian.process.outputLines) == signals(bare.outputLines))
    }
  }

  @Test func `leaves only standard descriptors and the bell open`() throws {
    // What guardian's own parent left open must not reach the program either.
    let guardian = try Guardian(
      [], [probe, "state"], wrapper: "exec 5</dev/null 9</dev/null; exec \"$@\"")
    #expect(try guardian.run() == .exited(0))
    let numbers = guardian.process.outputLines.filter { $0.hasPrefix("descriptor ") }
      .compactMap { Int($0.dropFirst(11)) }
    #expect(numbers.filter { $0 <= 200 } == [0, 1, 2])
    #expect(numbers.filter { $0 > 200 }.count <= 1)
  }

  @Test func `makes the program the leader of a group and ties it to guardian's life`() throws {
    let guardian = try Guardian([], [probe, "state"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.outputText.contains("leader 1\n"))
    #expect(guardian.process.outputText.contains("death signal 9\n"))
    #expect(guardian.process.outputText.contains("stderr tty 0\n"))
  }

  @Test func `gives the program its own variables and none of guardian's`() throws {
    let guardian = try Guardian(
      ["--name", "probe"],
      [
        probe, "env", "GUARDIAN_PROGRAM_NAME", "GUARDIAN_LIFE", "GUARDIAN_CRASHED_LAST_RUN",
        "GUARDIAN_MAX_CRASHES", "NOTIFY_SOCKET", "WATCHDOG_USEC", "SWIFT_BACKTRACE", "LD_PRELOAD",
        "GUARDIAN_OTHER",
      ],
      environment: [
        "GUARDIAN_MAX_CRASHES=7", "NOTIFY_SOCKET=/nonexistent/socket", "WATCHDOG_USEC=1000000000",
        "LD_PRELOAD=/somewhere/libguardian-handler.so", "GUARDIAN_OTHER=the program's",
      ])
    #expect(try guardian.run() == .exited(0))
    let lines = guardian.process.outputLines
    #expect(lines.contains("GUARDIAN_PROGRAM_NAME=probe"))
    #expect(lines.contains("GUARDIAN_LIFE=1"))
    #expect(lines.contains("GUARDIAN_CRASHED_LAST_RUN=0"))
    #expect(lines.contains("GUARDIAN_MAX_CRASHES unset"))
    #expect(lines.contains("NOTIFY_SOCKET unset"))
    #expect(lines.contains("WATCHDOG_USEC unset"))
    #expect(lines.contains("SWIFT_BACKTRACE=enable=no"))
    #expect(lines.contains("GUARDIAN_OTHER=the program's"))
    #expect(!guardian.process.outputText.contains("/somewhere/"))
  }

  @Test func `rewrites LISTEN_PID for the program and hands the sockets on`() throws {
    let guardian = try Guardian(
      [], [probe, "env", "LISTEN_PID", "LISTEN_FDS"],
      wrapper: "exec 3</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$@\"")
    #expect(try guardian.run() == .exited(0))
    let pid = try guardian.programPID()
    #expect(guardian.process.outputLines.contains("LISTEN_PID=\(pid)"))
    #expect(guardian.process.outputLines.contains("LISTEN_FDS=1"))
  }

  @Test func `finds its arguments though a preloaded library has moved the environment`() throws {
    let scratch = Scratch()
    let source = scratch.path + "/moves.c"
    try Files.replace(
      source,
      with: Array(
        """
        #include <stdlib.h>
        __attribute__((constructor)) static void move(void) {
          char name[32] = "MOVED_A";
          for (; name[6] <= 'Z'; name[6]++) setenv(name, "1", 1);
        }
        """.utf8))
    let library = scratch.path + "/moves.so"
    let build = try Process(["gcc", "-shared", "-fPIC", "-o", library, source])
    #expect(try build.wait() == .exited(0), "\(build.errorText)")
    let guardian = try Guardian(
      [], [probe, "env", "MOVED_Z", ""], environment: ["LD_PRELOAD=" + library])
    #expect(try guardian.run() == .exited(0), "\(guardian.process.errorText)")
    #expect(guardian.process.outputLines.contains("MOVED_Z=1"))
  }

  @Test func `keeps a user's own preload before the handler`() throws {
    let guardian = try Guardian(
      [], [probe, "env", "LD_PRELOAD"], environment: ["LD_PRELOAD=libm.so.6"])
    #expect(try guardian.run() == .exited(0))
    let line = guardian.process.outputLines.first { $0.hasPrefix("LD_PRELOAD=") } ?? ""
    #expect(line.hasPrefix("LD_PRELOAD=libm.so.6"))
  }
}

@Suite struct `The death of guardian` {
  @Test func `by KILL takes the program along`() throws {
    let guardian = try Guardian([], [Root.fixture("spawn_probe"), "wait"])
    let pid = try guardian.programPID()
    guardian.process.signal(SIGKILL)
    #expect(try guardian.run() == .signaled(SIGKILL))
    try eventually("the end of the program") { isAlive(pid) ? nil : true }
  }

  @Test func `by KILL leaves folders that the next one clears away`() throws {
    let scratch = Scratch()
    let first = try Guardian([], [Root.fixture("spawn_probe"), "wait"], in: scratch)
    _ = try first.programPID()
    first.process.signal(SIGKILL)
    _ = try first.run()
    #expect(try Files.list(first.runtime).contains { $0.utf8.count == 32 })
    let second = try Guardian([], ["/bin/true"], in: scratch)
    #expect(try second.run() == .exited(0))
    #expect(try Files.list(second.runtime) == ["lock"])
  }
}

@Suite struct `The runtime folder` {
  private let lives = ["/bin/sh", "-c", "echo pid $$; exec sleep 1000"]

  @Test func `that somebody removes is made again, and guardianctl reaches guardian again`() throws
  {
    let guardian = try Guardian(["--name", "api", "--stable-after", "1ms"], lives)
    var pid = try guardian.programPID()
    for count in 2...3 {
      Scratch.remove(guardian.runtime)
      kill(pid, SIGKILL)
      pid = try guardian.programPID(count)
    }
    let status = try eventually("an answer") {
      let asked = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", guardian.runtime,
        "status",
      ])
      return try asked.wait() == .exited(0) ? asked.outputText : nil
    }
    #expect(status.hasPrefix("api life 3, pid \(pid) is running"))
    #expect(!guardian.process.errorText.contains("without the crash handler"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `that cannot be made again leaves the program without a handler, said once`() throws {
    let guardian = try Guardian(["--stable-after", "1ms"], lives)
    var pid = try guardian.programPID()
    // guardian may be making the next life's channel just then.
    try eventually("a file in its place") {
      Scratch.remove(guardian.runtime)
      return (try? Files.replace(guardian.runtime, with: [])).map { true }
    }
    for count in 2...4 {
      kill(pid, SIGKILL)
      pid = try guardian.programPID(count)
    }
    let said = guardian.process.errorText
    #expect(said.split(separator: "\n").count { $0.contains("without the crash handler") } == 1)
    #expect(try guardian.stop() == .exited(143))
    #expect(try guardian.reportText(1).contains("\"handler\": \"none: "))
  }

  @Test func `may be a link of ours to a folder of ours, as DynamicUser= has it`() throws {
    let scratch = Scratch()
    try Files.makeDirectory(scratch.path + "/private", mode: 0o700)
    #expect(symlink(scratch.path + "/private", scratch.path + "/run") == 0)
    #expect(try Guardian([], ["/bin/true"], in: scratch).run() == .exited(0))
    #expect(try Files.list(scratch.path + "/private") == ["lock"])
    guard geteuid() == 0 else { return }
    // Anybody else's link is refused.
    #expect(lchown(scratch.path + "/run", 65534, 65534) == 0)
    let refused = try Guardian([], ["/bin/true"], in: scratch)
    #expect(try refused.run() == .exited(71))
    #expect(refused.process.errorText.contains("give --runtime-directory a writable folder"))
  }

  @Test(.enabled(if: geteuid() == 0)) func `lies in memory where /run cannot be written to`() throws
  {
    let scratch = Scratch()
    let inside = [
      "unshare", "--mount", "sh", "-c", "mount -t tmpfs -o ro none /run && exec \"$@\"", "sh",
    ]
    if try Process(inside + ["true"]).wait() != .exited(0) { return }
    let name = "test-ro-" + Randomness.hex(bytes: 6)
    let guardian = try Process(
      inside + [
        Root.guardian, "--name", name, "--state-directory", scratch.path + "/state", "--",
      ] + lives)
    defer { Scratch.remove("/dev/shm/guardian-0/" + name) }
    try eventually("the program: \(guardian.errorText)") {
      guardian.outputText.contains("pid ") ? true : nil
    }
    let status = try Process([Root.path + "/.build/release/guardianctl", "status", name])
    #expect(try status.wait() == .exited(0))
    guardian.signal(SIGTERM)
    #expect(try guardian.wait() == .exited(143))
  }
}

@Suite struct `A name` {
  @Test func `that is taken is refused with its holder's pid`() throws {
    let scratch = Scratch()
    let first = try Guardian(
      ["--name", "api"], [Root.fixture("spawn_probe"), "wait"], in: scratch)
    _ = try first.programPID()
    let second = try Guardian(["--name", "api"], ["/bin/true"], in: scratch)
    #expect(try second.run() == .exited(75))
    #expect(second.process.errorText.contains("pid \(first.process.pid)"))
    #expect(try first.stop() == .exited(143))
  }

  @Test func `that was not given gets a number`() throws {
    let scratch = Scratch()
    let places = ["XDG_RUNTIME_DIR=\(scratch.path)", "XDG_STATE_HOME=\(scratch.path)"]
    let probe = Root.fixture("spawn_probe")
    // Root's places do not depend on the environment.
    if geteuid() == 0 { return }
    let first = try Process([Root.guardian, "--", probe, "wait"], environment: places)
    try eventually("the first") { first.outputText.contains("pid ") ? true : nil }
    let second = try Process([Root.guardian, "--", probe, "env"], environment: places)
    #expect(try second.wait() == .exited(0))
    #expect(second.errorText.contains("'spawn_probe-2'"))
    first.signal(SIGTERM)
    #expect(try first.wait() == .exited(143))
  }
}
