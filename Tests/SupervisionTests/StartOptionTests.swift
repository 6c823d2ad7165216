// The options that say how the program is started, each against a real process.
import Glibc
import Kernel
import Supervision
import Testing

private let probe = Root.fixture("spawn_probe")
private let isRoot = geteuid() == 0

/// Lines "name value" of the probe.
private func facts(_ guardian: Guardian) -> [Substring: Substring] {
  var result: [Substring: Substring] = [:]
  for line in guardian.process.outputLines {
    let words = line.split(separator: " ", maxSplits: 1)
    result[words[0]] = words.count > 1 ? words[1] : ""
  }
  return result
}

@Suite struct `A limit of open files that is too low` {
  @Test(arguments: [16, 24])
  func `is named`(limit: Int) throws {
    let guardian = try Guardian(
      ["--max-crashes", "0"], ["/bin/true"], wrapper: "ulimit -n \(limit); exec \"$@\"")
    // How far it comes depends on what else is open.
    #expect(try guardian.run() != .exited(0))
    let said = guardian.process.errorText
    #expect(said.contains("the limit nofile, LimitNOFILE= of a unit, is \(limit)"), "\(said)")
    #expect(!said.contains("errno") && !said.contains("Invalid argument"), "\(said)")
  }
}

@Suite struct `user` {
  @Test(.enabled(if: isRoot), arguments: ["nobody", "65534"])
  func `changes user, group and groups, and leaves no capability`(user: String) throws {
    let guardian = try Guardian(["--user", user], [probe, "ids"])
    #expect(try guardian.run() == .exited(0))
    let facts = facts(guardian)
    #expect(facts["users"] == "65534 65534 65534")
    #expect(facts["group"] == "65534 65534 65534")
    #expect(facts["groups"] == "65534")
    #expect(facts["death"] == "signal 9", "cleared by the change of user")
    #expect(facts["dumpable"] == "1")
    for set in ["CapPrm:\t", "CapEff:\t", "CapAmb:\t"] {
      #expect(guardian.process.outputText.contains(set + "0000000000000000"))
    }
  }

  @Test(.enabled(if: isRoot))
  func `gives the program all groups of the account`() throws {
    // A user database of its own, in a namespace of its own.
    let scratch = Scratch()
    let groups = try Files.readText("/etc/group", limit: 1 << 20)
    try Files.replace(
      scratch.path + "/group", with: Array((groups + "gs1:x:54321:nobody\n").utf8), mode: 0o644)
    let guardian = try Guardian(
      ["--user", "nobody"], [probe, "ids"], in: scratch,
      wrapper: "exec unshare -m sh -c 'mount --bind \(scratch.path)/group /etc/group && "
        + "exec \"$@\"' sh \"$@\"")
    #expect(try guardian.run() == .exited(0), "\(guardian.process.errorText)")
    #expect(facts(guardian)["groups"]?.split(separator: " ").sorted() == ["54321", "65534"])
  }

  @Test(.enabled(if: isRoot))
  func `sets HOME, USER and LOGNAME, and takes away a SHELL that is none`() throws {
    let guardian = try Guardian(
      ["--user", "nobody", "--env", "LOGNAME=mine"],
      [probe, "env", "HOME", "USER", "LOGNAME", "SHELL"],
      environment: ["HOME=/root", "USER=root", "LOGNAME=root", "SHELL=/bin/bash"])
    #expect(try guardian.run() == .exited(0))
    let lines = guardian.process.outputLines
    #expect(lines.contains("HOME=/nonexistent"))
    #expect(lines.contains("USER=nobody"))
    #expect(lines.contains("LOGNAME=mine"), "env goes over what the account says")
    #expect(lines.contains("SHELL unset"))
  }

  @Test(.enabled(if: isRoot))
  func `of a number without account needs a group, and has no home`() throws {
    let bare = try Guardian(["--user", "54321"], ["/bin/true"])
    #expect(try bare.run() == .exited(64))
    #expect(bare.process.errorText.contains("no account"))
    let guardian = try Guardian(
      ["--user", "54321", "--group", "54322"], [probe, "env", "HOME", "USER"],
      environment: ["HOME=/root", "USER=root"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.outputLines.contains("HOME unset"))
    #expect(guardian.process.outputLines.contains("USER unset"))
    let ids = try Guardian(["--user", "54321", "--group", "54322"], [probe, "ids"])
    #expect(try ids.run() == .exited(0))
    #expect(facts(ids)["users"] == "54321 54321 54321")
    #expect(facts(ids)["group"] == "54322 54322 54322")
    #expect(facts(ids)["groups"] == "")
  }

  @Test func `that does not exist is one line, and nothing is started`() throws {
    let scratch = Scratch()
    let flag = try Guardian(["--user", "no-such-user"], ["/bin/true"], in: scratch)
    #expect(try flag.run() == .exited(64))
    #expect(
      flag.process.errorText
        == "guardian: option '--user': there is no user 'no-such-user'; nothing was started\n")
    let file = scratch.path + "/c.toml"
    try Files.replace(file, with: Array("\nuser = 4294967295\n".utf8))
    let number = try Guardian(["--config", file], ["/bin/true"], in: scratch)
    #expect(try number.run() == .exited(78))
    #expect(
      number.process.errorText.contains("c.toml:2:8: key 'user': '4294967295' is out of range"))
    let group = try Guardian(["--group", "no-such-group"], ["/bin/true"], in: scratch)
    #expect(try group.run() == .exited(64))
    #expect(group.process.errorText.contains("there is no group 'no-such-group'"))
    #expect(!Files.exists(scratch.path + "/run"))
  }

  @Test(.enabled(if: isRoot))
  func `without the right to change it is a start that failed, with the step named`() throws {
    let scratch = Scratch()
    try Files.setPermissions(scratch.path, 0o1777)
    let guardian = try Guardian(
      ["--user", "daemon", "--max-crashes", "0"], [probe, "ids"], in: scratch,
      wrapper: "exec setpriv --reuid nobody --regid nogroup --clear-groups \"$@\"")
    #expect(try guardian.run() == .exited(126))
    #expect(
      guardian.process.errorText.contains(
        "cannot start '\(probe)': setgroups 1: Operation not permitted"))
    #expect(try guardian.reportText().contains("\"exec-failed\""))
    // Its own user it need not change.
    let own = try Guardian(
      ["--user", "nobody"], [probe, "ids"],
      in: { () -> Scratch in
        let other = Scratch()
        _ = try? Files.setPermissions(other.path, 0o1777)
        return other
      }(), wrapper: "exec setpriv --reuid nobody --regid nogroup --clear-groups \"$@\"")
    #expect(try own.run() == .exited(0), "\(own.process.errorText)")
  }

  @Test(.enabled(if: isRoot))
  func `leaves no ambient capability of a guardian that is not root`() throws {
    let scratch = Scratch()
    try Files.setPermissions(scratch.path, 0o1777)
    let guardian = try Guardian(
      ["--user", "nobody"], [probe, "ids"], in: scratch,
      wrapper: "exec setpriv --reuid daemon --regid daemon --clear-groups "
        + "--inh-caps +setuid,+setgid --ambient-caps +setuid,+setgid \"$@\"")
    #expect(try guardian.run() == .exited(0), "\(guardian.process.errorText)")
    #expect(facts(guardian)["users"] == "65534 65534 65534")
    for set in ["CapPrm:\t", "CapEff:\t", "CapAmb:\t"] {
      #expect(guardian.process.outputText.contains(set + "0000000000000000"))
    }
  }

  @Test(.enabled(if: isRoot))
  func `may open its own standard error by name`() throws {
    let scratch = Scratch()
    let guardian = try Guardian(
      ["--user", "nobody", "--stdout", "file:\(scratch.path)/out"], [probe, "reopen"],
      in: scratch)
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.process.errorText.contains("to stderr\n"))
    #expect(try Files.readText(scratch.path + "/out", limit: 4096) == "to stdout\n")
  }

  @Test(.enabled(if: isRoot))
  func `has its crash reported with every thread by the preloaded handler`() throws {
    let guardian = try Guardian(
      ["--user", "nobody", "--max-crashes", "0"],
      [Root.fixture("dies"), "--threads", "3", "null-read"])
    #expect(try guardian.run() == .exited(139))
    let report = try guardian.reportText()
    #expect(report.contains("\"handler\": \"preloaded\""))
    #expect(report.contains("\"threads\": \"all\""))
    #expect(report.contains("\"SIGSEGV\""))
    #expect(report.contains("\"uid\": 65534"))
    #expect(guardian.reports[0].contains("/new/"))
    let text = try guardian.reportText(0, "report.txt")
    #expect(text.contains("SIGSEGV in "))
    // Its threads, each with a stack: the crashed one and three that wait.
    let threads = report.split(separator: "\n").filter { $0.contains("\"crashed\":") }
    #expect(threads.count >= 4)
  }
}

@Suite struct `group` {
  @Test(.enabled(if: isRoot)) func `alone changes only the group`() throws {
    let guardian = try Guardian(["--group", "nogroup"], [probe, "ids"])
    #expect(try guardian.run() == .exited(0))
    #expect(facts(guardian)["users"] == "0 0 0")
    #expect(facts(guardian)["group"] == "65534 65534 65534")
    #expect(facts(guardian)["death"] == "signal 9")
  }

  @Test(.enabled(if: isRoot)) func `goes over the user's own`() throws {
    let guardian = try Guardian(["--user", "nobody", "--group", "daemon"], [probe, "ids"])
    #expect(try guardian.run() == .exited(0))
    #expect(facts(guardian)["group"] == "1 1 1")
  }
}

@Suite struct `umask, nice and oom-score-adjust` {
  @Test func `hold for the program`() throws {
    let state = try Guardian(["--umask", "027"], [probe, "state"])
    #expect(try state.run() == .exited(0))
    #expect(state.process.outputText.contains("umask 027\n"))
    let guardian = try Guardian(["--nice", "7", "--oom-score-adjust", "500"], [probe, "ids"])
    #expect(try guardian.run() == .exited(0))
    #expect(facts(guardian)["nice"] == "7")
    #expect(facts(guardian)["oom"] == "500")
  }

  @Test func `leave guardian itself alone`() throws {
    let guardian = try Guardian(
      ["--nice", "7", "--oom-score-adjust", "500", "--limit", "nofile=77"], [probe, "wait"])
    let pid = try guardian.programPID()
    func score(_ pid: Int32) throws -> String {
      try Files.readText("/proc/\(pid)/oom_score_adj", limit: 16)
    }
    #expect(try score(pid) == "500\n")
    #expect(try score(guardian.process.pid) == score(getpid()))
    #expect(getpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(pid)) == 7)
    #expect(
      getpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(guardian.process.pid)) <= 0)
    #expect(
      !(try Files.readText("/proc/\(guardian.process.pid)/limits", limit: 8192)).contains(
        "Max open files            77"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test(.enabled(if: isRoot))
  func `that are not allowed are a start that failed, with the step named`() throws {
    for (options, step) in [
      (["--nice", "-5"], "setpriority nice=-5: Permission denied"),
      (["--oom-score-adjust", "-500"], "oom_score_adj=-500: Permission denied"),
      (["--limit", "nofile=10:99999999"], "setrlimit nofile=10:99999999: Operation not permitted"),
    ] {
      let scratch = Scratch()
      try Files.setPermissions(scratch.path, 0o1777)
      let guardian = try Guardian(
        ["--max-crashes", "1", "--restart-delay", "1ms"] + options, [probe, "ids"], in: scratch,
        wrapper: "exec setpriv --reuid nobody --regid nogroup --clear-groups \"$@\"")
      #expect(try guardian.run() == .exited(126))
      #expect(guardian.process.errorText.contains("cannot start '\(probe)': \(step)"))
      // What is not allowed at the first start will not be at the second.
      #expect(guardian.process.errorText.contains("giving up"))
    }
  }
}

@Suite struct `limit` {
  @Test func `sets soft and hard, the last of a name holds`() throws {
    let guardian = try Guardian(
      ["--limit", "nofile=50", "--limit", "nofile=99:512", "--limit", "core=0:infinity"],
      [probe, "limits"])
    #expect(try guardian.run() == .exited(0))
    #expect(facts(guardian)["nofile"] == "99 512")
    #expect(facts(guardian)["core"] == "0 18446744073709551615")
  }

  @Test func `that the kernel refuses names the limit and the errno`() throws {
    // Above fs.nr_open nobody may go, root neither.
    let guardian = try Guardian(
      ["--limit", "nofile=1000000000000", "--max-crashes", "0"], [probe, "limits"])
    #expect(try guardian.run() == .exited(126))
    #expect(
      guardian.process.errorText.contains(
        "cannot start '\(probe)': setrlimit nofile=1000000000000: Operation not permitted"))
    #expect(
      try guardian.reportText().contains("setrlimit nofile=1000000000000: Operation not permitted"))
  }

  @Test func `of few descriptors leaves the crash handler its bell`() throws {
    let guardian = try Guardian(
      ["--limit", "nofile=16", "--max-crashes", "0"], [Root.fixture("dies"), "null-read"])
    #expect(try guardian.run() == .exited(139))
    #expect(try guardian.reportText().contains("\"threads\": \"all\""))
  }
}

@Suite struct `working-directory` {
  @Test func `that is not there is a start that failed`() throws {
    let guardian = try Guardian(["-C", "/nonexistent/x", "--max-crashes", "0"], ["/bin/true"])
    _ = try guardian.run()
    #expect(
      guardian.process.errorText.contains(
        "cannot start '/bin/true': chdir '/nonexistent/x': No such file or directory"))
  }

  @Test(.enabled(if: isRoot)) func `is entered with the rights of the new user`() throws {
    let scratch = Scratch()
    let closed = scratch.path + "/closed"
    try Files.makeDirectory(closed, mode: 0o700)
    let guardian = try Guardian(
      ["-C", closed, "--user", "nobody", "--max-crashes", "0"], ["/bin/true"], in: scratch)
    #expect(try guardian.run() == .exited(126))
    #expect(guardian.process.errorText.contains("chdir '\(closed)': Permission denied"))
  }
}

@Suite struct `An exec that fails` {
  @Test func `for a missing interpreter says so`() throws {
    let scratch = Scratch()
    let script = scratch.path + "/script"
    try Files.replace(script, with: Array("#!/nonexistent/sh\n".utf8), mode: 0o755)
    let guardian = try Guardian(["--max-crashes", "0"], [script], in: scratch)
    #expect(try guardian.run() == .exited(127))
    #expect(guardian.process.errorText.contains("its interpreter '/nonexistent/sh' does not exist"))
  }

  @Test(arguments: [false, true])
  func `at any step tells it, whichever way the child was made`(plain: Bool) throws {
    var launch = Launch()
    launch.path = Array("/bin/true".utf8)
    launch.arguments = [launch.path]
    launch.plainFork = plain
    launch.limits = [
      Launch.Limit(resource: 7, soft: 64, hard: 64),
      Launch.Limit(resource: 7, soft: 1 << 40, hard: 1 << 40),
    ]
    let limit = #expect(throws: LaunchFailure.self) { _ = try launch.start() }
    #expect(
      limit?.words(launch)
        == "cannot start '/bin/true': setrlimit nofile=1099511627776: Operation not permitted")
    launch.limits = []
    launch.descriptors = [(0, 0), (999, 5)]
    let descriptor = #expect(throws: LaunchFailure.self) { _ = try launch.start() }
    #expect(
      descriptor?.words(launch)
        == "cannot start '/bin/true': descriptor 5: Bad file descriptor")
    launch.descriptors = []
    launch.directory = "/nonexistent"
    let directory = #expect(throws: LaunchFailure.self) { _ = try launch.start() }
    #expect(
      directory?.words(launch)
        == "cannot start '/bin/true': chdir '/nonexistent': No such file or directory")
  }
}

@Suite struct `env-file` {
  @Test func `gives the program its variables; later files and env go over it`() throws {
    let scratch = Scratch()
    let (one, two) = (scratch.path + "/one", scratch.path + "/two")
    try Files.replace(
      one,
      with: Array(
        """
        # a comment
        ; another
        A=plain value\u{20}\u{20}
        B='single $HOME "quoted"'
        C="double \\"quoted\\" \\$x"
        D=first
        E=
        F=one
        """.utf8))
    try Files.replace(two, with: Array("D=second\r\nG='over\nlines'\n".utf8))
    let guardian = try Guardian(
      ["--env-file", one, "--env-file", two, "--env-file", "-/nonexistent/file", "--env", "F=env"],
      [probe, "env", "A", "B", "C", "D", "E", "F", "G"], in: scratch)
    #expect(try guardian.run() == .exited(0), "\(guardian.process.errorText)")
    #expect(
      guardian.process.outputText.hasPrefix(
        """
        A=plain value
        B=single $HOME "quoted"
        C=double "quoted" $x
        D=second
        E=
        F=env
        G=over
        lines

        """))
  }

  @Test func `with a bad line is one error with its place, and nothing is started`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/bad"
    try Files.replace(file, with: Array("A=1\n  SECRET 2\n".utf8))
    let guardian = try Guardian(["--env-file", file], ["/bin/true"], in: scratch)
    #expect(try guardian.run() == .exited(78))
    #expect(
      guardian.process.errorText
        == "guardian: \(file):2:3: this line is not NAME=VALUE: it has no '='; "
        + "nothing was started\n")
    #expect(!Files.exists(scratch.path + "/run"))
    let missing = try Guardian(["--env-file", "/nonexistent/file"], ["/bin/true"], in: scratch)
    #expect(try missing.run() == .exited(78))
    #expect(
      missing.process.errorText.contains(
        "/nonexistent/file: cannot read the environment file: No such file or directory"))
  }

  @Test func `is read again at a reload, for the next life`() throws {
    let scratch = Scratch()
    let file = scratch.path + "/variables"
    try Files.replace(file, with: Array("WORD=one\n".utf8))
    let guardian = try Guardian(
      ["--env-file", file], ["/bin/sh", "-c", "echo $WORD pid; echo pid $$; exec sleep 1000"],
      in: scratch)
    _ = try guardian.programPID()
    func reload() throws -> Process {
      try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", guardian.runtime,
        "reload",
      ])
    }
    try Files.replace(file, with: Array("WORD\n".utf8))
    let wrong = try reload()
    #expect(try wrong.wait() == .exited(78))
    #expect(wrong.errorText.contains("\(file):1:1: "))
    try Files.replace(file, with: Array("WORD=two\n".utf8))
    let right = try reload()
    #expect(try right.wait() == .exited(0), "\(right.errorText)")
    #expect(right.outputText.contains("env-file: holds now"))
    kill(try guardian.programPID(), SIGKILL)
    _ = try guardian.programPID(2)
    #expect(guardian.process.outputLines.contains("two pid"))
    #expect(try guardian.stop() == .exited(143))
  }
}

@Suite struct `stdin` {
  @Test func `null ends at once, inherit is guardian's own`() throws {
    let scratch = Scratch()
    let input = scratch.path + "/input"
    try Files.replace(input, with: Array("from a file\n".utf8))
    for (value, text) in [("null", ""), ("inherit", "from a file\n")] {
      let process = try Process(
        [
          Root.guardian, "--state-directory", scratch.path + "/state", "--runtime-directory",
          scratch.path + "/run", "--stdin", value, "--", "/bin/cat",
        ], input: input)
      #expect(try process.wait() == .exited(0))
      #expect(process.outputText == text)
    }
  }
}

@Suite struct `kernel-core` {
  @Test func `none is a soft core limit of one byte, keep changes nothing`() throws {
    let none = try Guardian(
      ["--kernel-core", "none"], [probe, "limits"], wrapper: "ulimit -Sc unlimited; exec \"$@\"")
    #expect(try none.run() == .exited(0))
    #expect(facts(none)["core"] == "1 18446744073709551615")
    let keep = try Guardian(
      [], [probe, "limits"], wrapper: "ulimit -Sc 512; exec \"$@\"")
    #expect(try keep.run() == .exited(0))
    #expect(facts(keep)["core"]?.hasPrefix("1 ") == false)
  }

  @Test func `none leaves no core, and the snapshot is whole`() throws {
    for (value, dumped) in [("none", false), ("keep", true)] {
      let scratch = Scratch()
      let guardian = try Guardian(
        ["--kernel-core", value, "--max-crashes", "0", "-C", scratch.path],
        [Root.fixture("dies"), "abort"], in: scratch,
        wrapper: "ulimit -Sc unlimited; exec \"$@\"")
      #expect(try guardian.run() == .exited(134))
      let report = try guardian.reportText()
      #expect(report.contains("\"threads\": \"all\""))
      // Where the kernel's pattern is a pipe or a path elsewhere, there is no file here.
      let pattern = try Files.readText("/proc/sys/kernel/core_pattern", limit: 256)
      #expect(
        guardian.process.errorText.contains("(core dumped)")
          == (dumped && (pattern.hasPrefix("core") || pattern.hasPrefix("|"))))
      if !dumped {
        #expect(try Files.list(scratch.path).allSatisfy { !$0.hasPrefix("core") })
      }
    }
  }

  @Test func `none with a hard limit of 0 has no memory in what a pipe would get`() throws {
    let guardian = try Guardian(
      ["--kernel-core", "none"], [probe, "wait"], wrapper: "ulimit -Hc 0; exec \"$@\"")
    let pid = try guardian.programPID()
    #expect(
      try Files.readText("/proc/\(pid)/coredump_filter", limit: 64).hasPrefix("00000000"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `none and a limit of core exclude each other`() throws {
    let guardian = try Guardian(
      ["--kernel-core", "none", "--limit", "core=0"], ["/bin/true"])
    #expect(try guardian.run() == .exited(64))
  }
}
