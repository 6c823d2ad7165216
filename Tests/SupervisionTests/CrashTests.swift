import Glibc
import Kernel
import Testing

@Suite struct `A crash` {
  @Test func `of a descendant just before the program ends is reported before guardian leaves`()
    throws
  {
    let guardian = try Guardian(
      [], ["/bin/sh", "-c", "'\(Root.fixture("dies"))' null-read; exit 0"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.reports.count == 1, "\(guardian.process.errorText)")
    let text = try guardian.reportText()
    #expect(text.contains("\"role\": \"descendant\"") && text.contains("\"threads\": \"all\""))
  }

  let dies = Root.fixture("dies")

  @Test func `is reported with its thread while the program runs again`() throws {
    let scratch = Scratch()
    let guardian = try Guardian(
      ["--max-crashes", "3"],
      [
        dies, "--threads", "3", "--say", "about to die", "--life-file", scratch.path + "/n",
        "null-read",
      ],
      in: scratch)
    let text = try guardian.reportText()
    #expect(text.contains("\"SIGSEGV\""))
    #expect(text.contains("about to die"))
    #expect(text.contains("\"handler\": \"preloaded\""))
    try eventually("the report is final") {
      guardian.reports.first { $0.contains("/new/") }.map { _ in true }
    }
    #expect(guardian.process.errorText.contains("died of SIGSEGV"))
    #expect(guardian.process.errorText.contains("restarting at once"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `leaves guardian with the same code as without it`() throws {
    let guardian = try Guardian(["--max-crashes", "0"], [dies, "abort"])
    #expect(try guardian.run() == .exited(134))
    #expect(guardian.reports.count == 1)
  }

  @Test func `ends guardian by the same signal if it was asked for`() throws {
    let guardian = try Guardian(["--max-crashes", "0", "--exit-as-signal"], [dies, "abort"])
    #expect(try guardian.run() == .signaled(SIGABRT))
  }

  @Test func `is released when there is nobody to take the snapshot`() throws {
    // A copy of guardian without its helpers beside it.
    let scratch = Scratch()
    for name in ["guardian", "libguardian-handler.so"] {
      let bytes = try Files.read(Root.path + "/.build/release/" + name, limit: 256 << 20)
      try Files.replace(scratch.path + "/" + name, with: bytes, mode: 0o755)
    }
    let process = try Process([
      scratch.path + "/guardian", "--state-directory", scratch.path + "/state",
      "--runtime-directory", scratch.path + "/run", "--max-crashes", "0", "--", dies, "null-read",
    ])
    #expect(try process.wait() == .exited(139))
    let folder = scratch.path + "/state/reports/new"
    let report = try Files.list(folder)[0]
    let text = try Files.readText(folder + "/" + report + "/report.json", limit: 1 << 20)
    #expect(text.contains("guardian-capture was not found"))
    #expect(text.contains("\"crashing\""))
  }

  @Test func `is kept plain when its reporter does not come to an end`() throws {
    let scratch = Scratch()
    for name in ["guardian", "guardian-capture", "libguardian-handler.so"] {
      let bytes = try Files.read(Root.path + "/.build/release/" + name, limit: 256 << 20)
      try Files.replace(scratch.path + "/" + name, with: bytes, mode: 0o755)
    }
    let script = "#!/bin/sh\nsleep 1000 &\necho $! >\(scratch.path)/worker\nwait\n"
    try Files.replace(
      scratch.path + "/guardian-reporter", with: Array(script.utf8), mode: 0o755)
    let process = try Process([
      scratch.path + "/guardian", "--state-directory", scratch.path + "/state",
      "--runtime-directory", scratch.path + "/run", "--max-crashes", "0", "--report-timeout", "2s",
      "--", dies, "null-read",
    ])
    #expect(try process.wait() == .exited(139))
    let reports = scratch.path + "/state/reports/"
    #expect(try Files.list(reports + "new").count == 1)
    #expect(try Files.list(reports + "partial").isEmpty)
    let worker = try Files.readText(scratch.path + "/worker", limit: 16)
    let pid = try #require(Int32(worker.prefix { $0.isNumber }))
    try eventually("the end of what the reporter started") { isAlive(pid) ? nil : true }
  }

  @Test func `in a state folder that others may write to leaves no report`() throws {
    let scratch = Scratch()
    try Files.makeDirectory(scratch.path + "/state")
    try Files.setPermissions(scratch.path + "/state", 0o777)
    let guardian = try Guardian(["--max-crashes", "0"], [dies, "null-read"], in: scratch)
    #expect(try guardian.run() == .exited(139))
    let line =
      "cannot trust the folder that others may write to '\(scratch.path)/state': "
      + "Operation not permitted: there will be no reports, and counts end with guardian"
    #expect(guardian.process.errorText.contains(line))
    #expect(try Files.list(scratch.path + "/state").isEmpty)
  }

  @Test func `of a descendant is reported, and the program lives on`() throws {
    let guardian = try Guardian(
      [], ["/bin/sh", "-c", "\"$0\" null-read; echo pid $$; exec sleep 1000", dies])
    let text = try guardian.reportText()
    _ = try guardian.programPID()
    #expect(text.contains("\"descendant\""))
    #expect(text.contains("\"SIGSEGV\""))
    #expect(!guardian.process.errorText.contains("restarting"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `of a descendant by a broken pipe is none`() throws {
    let guardian = try Guardian(["--max-crashes", "0"], ["/bin/sh", "-c", "yes | head -1"])
    #expect(try guardian.run() == .exited(0))
    #expect(guardian.reports.isEmpty)
  }

  @Test func `that are not finished in time are kept as they are, and counted truly`() throws {
    let guardian = try Guardian(
      [
        "--max-crashes", "3", "--restart-delay", "1ms", "--restart-delay-max", "1ms",
        "--report-timeout", "1ms",
      ], ["/bin/sh", "-c", "kill -SEGV $$"])
    #expect(try guardian.run() == .exited(139))
    #expect(try Files.list(guardian.state + "/reports/partial").isEmpty)
    let kept = try Files.list(guardian.state + "/reports/new")
    #expect(kept.count == 4)
    let words = guardian.process.errorText
    if let mark = words.split(separator: "\n").first(where: { $0.contains("is up: ") }) {
      let count = mark.split(separator: " ").compactMap { Int($0) }.first
      let plain = try kept.count {
        // A finished report knows its group.
        let json = try Files.readText(
          guardian.state + "/reports/new/" + $0 + "/report.json", limit: 4 << 20)
        return !json.contains("\"group\"")
      }
      // One may have been ended between its last word and its move.
      #expect(count == plain || count == plain + 1, "\(mark)")
    }
  }
}
