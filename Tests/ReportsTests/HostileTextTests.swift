import Glibc
import Kernel
import Policy
import Reports
import Ring
import Testing

/// All of these run in guardian itself: a trap would end the supervision.
@Suite struct HostileTextTests {
  static let endings: [Ending.Status] =
    [4, 5, 6, 7, 8, 11].map(ExceptionTextTests.signal)
    + [.exited(1), .exited(2), .exited(101), .exited(134), .unknown]

  static func lines(_ bytes: [UInt8]) -> [String] {
    bytes.split(separator: 10, omittingEmptySubsequences: false).map { SafeText.decode($0) }
  }

  static func read(_ text: String) {
    for ending in endings { _ = ExceptionText.stderr(lines(Array(text.utf8)), fitting: ending) }
  }

  static func corpus() throws -> [[UInt8]] {
    let folder = #filePath.split(separator: "/").dropLast().joined(separator: "/")
    let calls = KernelStoreCalls()
    return try calls.list("/\(folder)/Corpus").compactMap {
      try calls.read("/\(folder)/Corpus/\($0)", limit: 1 << 20)
    }
  }

  @Test func `a quote that opens a path does not close it`() {
    Self.read("Traceback (most recent call last):\n  File \", line 3, in x\nValueError: boom\n")
    Self.read("  File \", line 3\nSyntaxError: x")
    Self.read("Fatal Python error: x\nThread 1:\n  File \", line 3 in x\n")
  }

  @Test func `a quote that opens a message does not close it`() throws {
    let line = "thread 'main' panicked at ', src/main.rs:1:2"
    Self.read(line)
    let facts = ExceptionText.stderr([line], fitting: .exited(101))
    #expect(facts?.type == "panic")
  }

  @Test func `lines of maps that overlap and come in any order`() {
    var texts = ProcessTexts()
    texts.maps = Array(
      """
      1000-9000 r-xp 00000000 08:01 5 /x
      2000-3000 r-xp 00001000 08:01 5 /x
      8000-8000 r-xp 00001000 08:01 5 /x
      1000-ffffffffffffffff r-xp 0 ffffffffffffffff:ffffffffffffffff 18446744073709551615 /x
      0-1 r-xp ffffffffffffffff 08:01 5 /y
      fffffffffffff000-ffffffffffffffff r-xp 1000 08:01 5 /y
      """.utf8)
    #expect(texts.modules.contains { $0.path == "/x" })
  }

  @Test func `counts as large as they can be`() {
    let fingerprint = String(repeating: "a", count: 32)
    let time = "2026-11-30T06:50:04.000123Z"
    var index = GroupIndex(
      text: Array("removed \(fingerprint) \(Int.max) \(time) \(time)\n".utf8))
    index.add(Samples.id(1), .init(fingerprint: fingerprint, time: time))
    #expect(index.group(fingerprint)?.count == .max)
    index.remove(Samples.id(1))
    #expect(index.group(fingerprint)?.count == .max)
  }

  @Test func `mutants of last words`() throws {
    var mutator = Mutator()
    let samples =
      try Self.corpus() + ["12:00 started", "note: ", "goroutine 1:"].map { Array($0.utf8) }
    for _ in 0..<mutator.rounds {
      let lines = Self.lines(mutator.mutant(of: samples))
      for ending in Self.endings { _ = ExceptionText.stderr(lines, fitting: ending) }
      _ = lines.first.map(ExceptionText.abortMessage)
    }
  }

  @Test func `mutants of what proc says`() {
    var mutator = Mutator()
    let own = ProcessTexts.read(pid: getpid())
    let redaction = Redaction(extra: ["licence"])
    let maps = Array(own.maps.prefix(2048))
    let environ = Array(
      "PATH=/bin\0A_TOKEN=x\0URL=postgres://a:b@c/d?key=v&w=\0J={\"password\": \"p\"}\0".utf8)
    for _ in 0..<mutator.rounds / 4 {
      var texts = ProcessTexts()
      texts.maps = mutator.mutant(of: [maps])
      texts.status = mutator.mutant(of: [own.status])
      texts.limits = mutator.mutant(of: [own.limits])
      texts.cgroup = mutator.mutant(of: [own.cgroup, Array("0::/a\n".utf8)])
      texts.environ = mutator.mutant(of: [environ])
      texts.pressure = ["memory": mutator.mutant(of: [maps])]
      _ = texts.mappedModules
      _ = (texts.uid, texts.gid, texts.facts(redaction: redaction))
      _ = Host.prettyName(texts.environ)
    }
  }

  @Test func `mutants of files of guardian's own`() throws {
    var mutator = Mutator()
    var index = GroupIndex()
    for number in 0..<4 {
      let report = Samples.report(id: Samples.id(number), function: "f\(number & 1)")
      index.add(
        Samples.id(number),
        .init(fingerprint: report.fingerprint, time: "2026-11-30T06:50:0\(number).000123Z"))
    }
    index.remove(Samples.id(0))
    var report = Samples.report()
    report.group = Group(
      count: 3, firstSeen: "2026-11-30T06:50:04.000123Z", lastSeen: "2026-11-30T06:50:04.000123Z")
    let json = try JSONText.encode(report)
    var summary = CaptureSummary()
    summary.threadsSeen = 4
    summary.replacedModules = ["/a b", "/%"]
    summary.defects = ["x y", "ü"]
    for _ in 0..<mutator.rounds / 4 {
      let mutant = GroupIndex(text: mutator.mutant(of: [index.text]))
      for entry in mutant.entries.values { _ = mutant.group(entry.fingerprint) }
      for fingerprint in mutant.removed.keys { _ = mutant.group(fingerprint) }
      _ = (mutant.protected, mutant.text)
      let sketch = ReportSketch(json: mutator.mutant(of: [json]))
      if let group = sketch.group {
        var known = mutant
        known.recall(report.fingerprint, group)
        known.recall(report.fingerprint, group)
        _ = known.group(report.fingerprint)
      }
      _ = CaptureSummary(decoding: mutator.mutant(of: [summary.encoded()])).encoded()
    }
  }

  @Test func `a whole report of hostile pieces`() throws {
    var mutator = Mutator()
    let samples = try Self.corpus()
    let maps = Array(ProcessTexts.read(pid: getpid()).maps.prefix(1024))
    for round in 0..<mutator.rounds / 20 {
      var incident = Samples.incident(Self.endings[round % Self.endings.count])
      incident.stderr = mutator.mutant(of: samples).split(separator: 10).map {
        .init(time: WallTime(nanosecondsSince1970: .max), bytes: Array($0), life: 3)
      }
      incident.process.maps = mutator.mutant(of: [maps])
      incident.process.environ = mutator.mutant(of: samples)
      incident.senderName = String(decoding: mutator.mutant(of: samples), as: UTF8.self)
      var ring = RingContents()
      var record = RingContents.CrashRecord(slot: 0, complete: false)
      record.parts = .max
      record.architecture = round.isMultiple(of: 2) ? 62 : 183
      record.signal = round % 3 == 0 ? Int32.min : 11
      record.code = Int32.max
      record.pid = Int32.min
      record.senderPID = Int32.max
      for word in [\RingContents.CrashRecord.pc, \.sp, \.address, \.realtimeNanoseconds] {
        record[keyPath: word] = Bool.random(using: &mutator.random) ? mutator.random.next() : .max
      }
      record.registers = (0..<round % 40).map { _ in mutator.random.next() }
      record.siginfo = Array(repeating: 0xff, count: round % 128)
      record.abortMessage = round % 4 == 0 ? "*** " : ""
      record.exceptionLanguage = UInt32(round % 5)
      record.exceptionType = String(decoding: mutator.mutant(of: samples), as: UTF8.self)
      record.exceptionFrames = [0, .max]
      ring.crashes = [record]
      var crumb = RingContents.Crumb(index: .max)
      crumb.realtimeNanoseconds = .max
      crumb.level = .max
      ring.crumbs = [crumb]
      incident.ring = ring
      incident.slot = 0
      var summary = CaptureSummary()
      summary.threadsSeen = .max
      summary.heldMicroseconds = .max
      incident.capture = summary
      var report = PlainReport.make(from: incident)
      _ = try report.boundedJSON(limit: round % 8 == 0 ? 2000 : 1 << 20)
      _ = ReportText.render(report)
    }
  }
}
