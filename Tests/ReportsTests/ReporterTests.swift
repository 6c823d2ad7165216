import Glibc
import Kernel
import Reports
import Testing

/// guardian-reporter and guardianctl as they are run, on a real core.
@Suite(.serialized) struct ReporterTests {
  private let scratch = Scratch()
  private var state: String { scratch.path + "/api" }
  private var store: ReportStore<KernelStoreCalls> {
    ReportStore(directory: state + "/reports")
  }

  private static var root: String {
    "/" + #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
  }
  private static func tool(_ name: String) -> String { root + "/.build/release/" + name }
  private static var victim: String { root + "/.build/fixtures/report_crash" }

  /// gdb makes the core where the program stands: it dies of nothing.
  private func incident(_ id: ReportID = Samples.id, core: [UInt8]? = nil) throws {
    try KernelStoreCalls().makeFolder(state)
    try store.prepare()
    var incident = Samples.incident()
    incident.id = id
    incident.program.executable = Self.victim
    incident.program.command = [Self.victim, "--password=hunter2"]
    incident.ring = PlainReportTests.ring(PlainReportTests.record(signal: 11, code: 1))
    incident.slot = 0
    incident.stderr = [.init(time: incident.time, bytes: Array("\u{1b}[31mfailed".utf8), life: 3)]
    let folder = try store.begin(id)
    if let core {
      try KernelStoreCalls().write(folder.path + "/core", core, sync: false)
    } else {
      let gdb = try run(
        [
          "gdb", "-nx", "-batch", "-ex", "run", "-ex", "generate-core-file \(folder.path)/core",
          "-ex", "kill", Self.victim,
        ], folder: scratch)
      #expect(gdb.status == 0)
    }
    try folder.writePlain(
      PlainReport.make(from: incident), ring: [1], stderr: Array("failed\n".utf8))
  }

  private func reporter(_ id: ReportID = Samples.id, _ more: [String] = []) throws -> Int32 {
    try run(
      [
        Self.tool("guardian-reporter"), "report", "--folder", store.path(.partial, id), "--store",
        store.directory,
      ] + more, folder: scratch
    ).status
  }

  /// What an expression over the report `r` gives in python.
  private func look(_ expression: String, _ id: ReportID = Samples.id) throws -> String {
    let json = try KernelStoreCalls().read(
      store.path(.new, id) + "/report.json", limit: 64 << 20)
    return try python(
      "import json,sys; r=json.load(sys.stdin); c=[t for t in r['threads'] if t['crashed']][0]; print(\(expression))",
      try #require(json))
  }

  @Test func `a real core becomes a report with function, file and line`() throws {
    try incident()
    #expect(try reporter() == 0)
    #expect(
      try look("[(f['function'], f.get('line')) for f in c['frames'][:3]]")
        == "[('report_victim', 4), ('report_middle', 7), ('main', 12)]\n")
    #expect(try look("c['frames'][0]['file'].endswith('report_crash.c')") == "True\n")
    #expect(try look("r['capture']['defects']") == "[]\n")
    #expect(try look("r['group']['count'], len(r['fingerprint'])") == "1 32\n")
    #expect(
      try look("sorted(a['name'] for a in r['attachments'])") == "['core', 'stderr.log']\n")
    #expect(
      try look("'hunter' in str(r), r['stderrTail'][0]['text']") == "False \u{1b}[31mfailed\n")
    let text = try KernelStoreCalls().read(
      store.path(.new, Samples.id) + "/report.txt", limit: 1 << 20)
    #expect(
      String(decoding: text ?? [], as: UTF8.self).hasPrefix(
        "SIGSEGV in report_victim at report_crash.c:4, life 3 of api, up 2 h\n"))
    #expect(try KernelStoreCalls().list(store.path(.partial)).isEmpty)
  }

  @Test(
    .enabled(if: getuid() == 0, "only root has capabilities to be without"),
    arguments: [
      ["setpriv", "--bounding-set", "-all"], ["unshare", "--user", "--map-root-user"],
    ])
  func `root that may not become another user still gives names`(launcher: [String]) throws {
    if try run(launcher + ["true"], folder: Scratch()).status != 0 { return }
    try incident()
    let result = try run(
      launcher + [
        Self.tool("guardian-reporter"), "report", "--folder", store.path(.partial, Samples.id),
        "--store", store.directory,
      ], folder: scratch)
    #expect(result.status == 0)
    #expect(try look("r['capture']['defects'], c['frames'][0]['function']") == "[] report_victim\n")
    let check = try run(launcher + [Self.tool("guardian-reporter"), "check"], folder: scratch)
    #expect(check.status == 0)
    let said = try KernelStoreCalls().read(scratch.path + "/.errors", limit: 4096) ?? []
    #expect(String(decoding: said, as: UTF8.self).contains("without its capabilities"))
  }

  @Test func `a folder without a report is said so in guardian's own words`() throws {
    try KernelStoreCalls().makeFolder(state)
    try store.prepare()
    let folder = try store.begin(Samples.id)
    for json in [nil, "", "{\"schema\":"] {
      if let json {
        try KernelStoreCalls().write(folder.path + "/report.json", Array(json.utf8), sync: false)
      }
      #expect(try reporter() != 0)
      let said = try KernelStoreCalls().read(scratch.path + "/.errors", limit: 4096) ?? []
      let text = String(decoding: said, as: UTF8.self)
      #expect(text.contains("report.json"))
      #expect(!text.contains("DecodingError") && !text.contains("dataCorrupted"), "\(text)")
    }
  }

  @Test func `the sandbox can be tried, and doctor says what it saw`() throws {
    let doctor = try control(["doctor"])
    let line = doctor.output.split(separator: "\n").first { $0.contains("  sandbox  ") }
    #expect(line?.hasPrefix("ok ") == true, "\(doctor.output)")
    #expect(line?.contains("system calls are filtered; ") == true)
  }

  @Test func `a core of rubbish leaves the plain report and says so`() throws {
    try incident(core: (0..<4096).map { UInt8(truncatingIfNeeded: $0 &* 7) })
    #expect(try reporter() == 0)
    #expect(try look("r['capture']['defects'][-1]").hasPrefix("not symbolicated: "))
    #expect(try look("c['frames'][0]['trust'], r['group']['count']") == "context 1\n")
  }

  @Test(arguments: [
    (SIGKILL, "the worker died of SIGKILL"), (SIGSTOP, "the worker took longer than 1500 ms"),
  ])
  func `the worker has no rights, and killed or hanging it leaves the plain report`(
    signal: Int32, words: String
  ) throws {
    // It may be done before it is seen: then another is looked at.
    for attempt in 0..<20 {
      let id = Samples.id(attempt)
      try incident(id)
      let folder = Scratch()
      let pid = try start(
        [
          Self.tool("guardian-reporter"), "report", "--folder", store.path(.partial, id),
          "--store", store.directory, "--worker-milliseconds", "1500",
        ], folder: folder)
      var sandboxed: String?
      var status: Int32 = 0
      while sandboxed == nil, waitpid(pid, &status, WNOHANG) == 0 {
        let children = ProcessTexts.file("/proc/\(pid)/task/\(pid)/children", limit: 100)
        let words = String(decoding: children, as: UTF8.self).split(separator: " ")
        guard let child = words.first.flatMap({ Int32($0) }) else { continue }
        let text = String(
          decoding: ProcessTexts.file("/proc/\(child)/status", limit: 1 << 14), as: UTF8.self)
        if text.contains("\nSeccomp:\t2") {
          kill(child, signal)
          sandboxed = text
        }
      }
      guard let sandboxed else { continue }
      while waitpid(pid, &status, 0) < 0, errno == EINTR {}
      let defect = try look("(r['capture']['defects'] or [''])[-1]", id)
      // It had just ended by itself.
      if defect == "\n" { continue }
      #expect(defect == "not symbolicated: \(words)\n")
      #expect(status == 0)
      #expect(sandboxed.contains("\nNoNewPrivs:\t1"))
      if getuid() == 0 {
        #expect(sandboxed.contains("\nUid:\t65534\t65534\t65534\t65534"))
        #expect(sandboxed.contains("\nCapEff:\t0000000000000000"))
        #expect(sandboxed.contains("\nGroups:\t \n"))
      }
      return
    }
    Issue.record("no worker was seen at its work")
  }

  @Test func `the worker does not outlive the finisher`() throws {
    for attempt in 0..<20 {
      let id = Samples.id(attempt)
      try incident(id)
      let pid = try start(
        [
          Self.tool("guardian-reporter"), "report", "--folder", store.path(.partial, id),
          "--store", store.directory,
        ], folder: Scratch())
      var status: Int32 = 0
      var stopped: Int32?
      while stopped == nil, waitpid(pid, &status, WNOHANG) == 0 {
        let children = ProcessTexts.file("/proc/\(pid)/task/\(pid)/children", limit: 100)
        let words = String(decoding: children, as: UTF8.self).split(separator: " ")
        guard let child = words.first.flatMap({ Int32($0) }) else { continue }
        let text = String(
          decoding: ProcessTexts.file("/proc/\(child)/status", limit: 1 << 14), as: UTF8.self)
        if text.contains("\nSeccomp:\t2"), kill(child, SIGSTOP) == 0 { stopped = child }
      }
      guard let stopped else { continue }
      // Of the finisher it is a child, and then of whoever reaps orphans: a pidfd names it.
      let worker = try Processes.open(stopped)
      kill(pid, SIGKILL)
      while waitpid(pid, &status, 0) < 0, errno == EINTR {}
      var ended = pollfd(fd: worker.raw, events: Int16(POLLIN), revents: 0)
      #expect(poll(&ended, 1, 60_000) == 1)
      return
    }
    Issue.record("no worker was seen at its work")
  }

  @Test func `two finishers at once count both`() throws {
    try incident(Samples.id(1), core: [])
    try incident(Samples.id(2), core: [])
    let folders = [Scratch(), Scratch()]
    let pids = try (1...2).map { number in
      try start(
        [
          Self.tool("guardian-reporter"), "report", "--folder",
          store.path(.partial, Samples.id(number)), "--store", store.directory,
        ], folder: folders[number - 1])
    }
    for pid in pids {
      var status: Int32 = 0
      while waitpid(pid, &status, 0) < 0, errno == EINTR {}
      #expect(status == 0)
    }
    let counts = try (1...2).map { try look("r['group']['count']", Samples.id($0)) }
    #expect(counts.sorted() == ["1\n", "2\n"])
  }

  // MARK: guardianctl

  private func control(_ words: [String], path: String? = nil) throws -> (
    status: Int32, output: String, errors: String
  ) {
    let result = try run(
      (path.map { ["env", "PATH=\($0)"] } ?? [])
        + [Self.tool("guardianctl"), "--state-directory", state] + words, folder: scratch)
    let errors = try KernelStoreCalls().read(scratch.path + "/.errors", limit: 1 << 16) ?? []
    return (
      result.status >> 8, String(decoding: result.output, as: UTF8.self),
      String(decoding: errors, as: UTF8.self)
    )
  }

  @Test func `guardianctl lists, shows and finds reports by the beginning of their id`() throws {
    for number in 1...3 {
      try incident(Samples.id(number), core: [])
      #expect(try reporter(Samples.id(number)) == 0)
    }
    let list = try control(["reports"])
    #expect(list.status == 0)
    let lines = list.output.split(separator: "\n")
    #expect(lines.count == 4)
    #expect(lines[0].hasPrefix("ID "))
    #expect(lines[1].hasPrefix(Samples.id(3).text.prefix(13)))
    #expect(lines[1].contains(" crash "))
    #expect(lines[1].contains("SIGSEGV"))

    let json = try control(["reports", "--json"])
    #expect(
      try python(
        "import json,sys; print([(r['count'], r['kind']) for r in json.load(sys.stdin)])",
        Array(json.output.utf8)) == "[(3, 'crash'), (3, 'crash'), (3, 'crash')]\n")

    let latest = try control(["show"])
    #expect(latest.output.hasPrefix("SIGSEGV"))
    #expect(latest.output.contains("id            \(Samples.id(3))"))
    #expect(!latest.output.contains("\u{1b}"))
    let second = try control(["show", String(Samples.id(2).text.prefix(13)), "--json"])
    #expect(second.output.contains("\"id\": \"\(Samples.id(2))\""))

    let ambiguous = try control(["show", String(Samples.id(2).text.prefix(5))])
    #expect(ambiguous.status == 64)
    #expect(ambiguous.errors.contains("is the beginning of 3 reports"))
    let missing = try control(["show", "ffff"])
    #expect(missing.status == 1)
    #expect(missing.errors.contains("there is no report 'ffff' in"))
  }

  @Test func `guardianctl deletes reports, which stay counted`() throws {
    for number in 1...3 {
      try incident(Samples.id(number), core: [])
      #expect(try reporter(Samples.id(number)) == 0)
    }
    func counts() throws -> String {
      try python(
        "import json,sys; print([(r['number'], r['count']) for r in json.load(sys.stdin)])",
        Array(try control(["reports", "--json"]).output.utf8))
    }
    #expect(try counts() == "[(3, 3), (2, 3), (1, 3)]\n")
    #expect(try control(["reports"]).output.contains("  3 of 3  "))
    let id = Samples.id(1).text
    let one = try control(["delete", String(id.prefix(13))])
    #expect(one.status == 0 && one.output == "deleted \(id)\n", "\(one)")
    #expect(try counts() == "[(3, 3), (2, 3)]\n")
    #expect(try store.reports().count == 2)

    let nothing = try control(["delete"])
    #expect(nothing.status == 64)
    #expect(try control(["delete", "--all", "latest"]).status == 64)
    #expect(try control(["delete", "ffff"]).status == 1)
    try incident(Samples.id(5), core: [])
    #expect(try control(["delete", Samples.id(5).text]).errors.contains("is not finished"))
    #expect(try control(["delete", "--all"]).status == 0)
    #expect(try store.reports().isEmpty)
    #expect(try reporter(Samples.id(5)) == 0)
    #expect(try counts() == "[(4, 4)]\n")
  }

  @Test func `the latest is waited for while it is written`() throws {
    try incident(Samples.id(1))
    #expect(try reporter(Samples.id(1)) == 0)
    try incident(Samples.id(2))
    let talk = Scratch()
    let pid = try start(
      [Self.tool("guardianctl"), "--state-directory", state, "show", "latest"], folder: talk)
    let errors = {
      String(
        decoding: (try? KernelStoreCalls().read(talk.path + "/.errors", limit: 4096)) ?? [],
        as: UTF8.self)
    }
    while !errors().contains("is being written"), kill(pid, 0) == 0, usleep(2000) == 0 {}
    try KernelStoreCalls().rename(
      store.path(.partial, Samples.id(2)), to: store.path(.new, Samples.id(2)))
    var status: Int32 = 0
    while waitpid(pid, &status, 0) < 0, errno == EINTR {}
    #expect(status == 0)
    #expect(errors().contains("waiting up to 3 s"))
    let output = try KernelStoreCalls().read(talk.path + "/.output", limit: 1 << 20) ?? []
    #expect(String(decoding: output, as: UTF8.self).contains("id            \(Samples.id(2))"))
  }

  @Test func `one that stays unfinished is shown as it is, and found by its id`() throws {
    try incident(Samples.id(1))
    let shown = try control(["show", String(Samples.id(1).text.prefix(16))])
    #expect(shown.status == 0)
    #expect(shown.output.contains("id            \(Samples.id(1))"))
    #expect(shown.errors.contains("is not finished"))
  }

  @Test func `debug opens the minicore in gdb and says when it cannot`() throws {
    try incident()
    #expect(try reporter() == 0)
    let debug = try control(["debug", "latest", "--", "-nx", "-batch", "-ex", "backtrace"])
    #expect(debug.output.contains("report_victim"))
    let none = try control(["debug"], path: "/nonexistent")
    #expect(none.status == 127 || none.errors.contains("gdb is not installed"))
  }

  @Test func `an empty or missing state folder is one clear line`() throws {
    let missing = try control(["reports"])
    #expect(missing.status == 66)
    #expect(missing.errors.contains("there is no state folder"))
    try KernelStoreCalls().makeFolder(state)
    let empty = try control(["show"])
    #expect(empty.status == 1)
    #expect(empty.errors.contains("there are no reports in"))
  }
}
