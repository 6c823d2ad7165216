import Reports
import Testing

@Suite struct ReportTextTests {
  private func frame(_ index: Int, _ function: String, line: Int = 1) -> Frame {
    var frame = Frame(index: index, address: "0x1", trust: .cfi)
    frame.function = function
    frame.file = "/src/a.cpp"
    frame.line = line
    frame.module = "api"
    return frame
  }

  @Test func `the first line says it all`() {
    let text = ReportText.render(Samples.report())
    #expect(
      text.hasPrefix(
        "SIGSEGV in billing::charge(int) at invoice.cpp:42, life 3 of api, up 2 h\n"))
  }

  @Test func `runtime frames do not hide the program's own`() {
    var report = Samples.report()
    var abort = frame(0, "abort")
    abort.inApp = false
    report.threads[0].frames.insert(abort, at: 0)
    #expect(ReportText.headline(report).hasPrefix("SIGSEGV in billing::charge(int)"))
  }

  /// As of a stripped program: raise and abort of the C library have names, its own have none.
  private func stripped() -> Report {
    var report = Samples.report()
    func frame(_ function: String?, _ module: String, inApp: Bool) -> Frame {
      var frame = Frame(index: 0, address: "0x1", trust: .cfi)
      frame.function = function
      frame.modulePath = "/usr/bin/" + module
      frame.module = module
      frame.moduleOffset = "0x1574"
      frame.inApp = inApp
      return frame
    }
    report.threads[0].frames = [
      frame("raise", "libc.so.6", inApp: false), frame("abort", "libc.so.6", inApp: false),
      frame(nil, "api", inApp: true), frame("__libc_start_call_main", "libc.so.6", inApp: false),
    ]
    return report
  }

  @Test func `without symbols the program's own first frame is named by its module`() {
    #expect(ReportText.headline(stripped()).hasPrefix("SIGSEGV in api+0x1574, life 3"))
  }

  @Test func `a place that the runtime named is better than none`() {
    var report = stripped()
    var place = Frame(index: 0, address: nil, trust: nil)
    place.file = "/src/pay.c"
    place.line = 7
    place.inApp = true
    report.exception = ExceptionFacts(
      type: "assertion failed", reason: "x", source: .abortMessage)
    report.exception?.frames = [place]
    #expect(ReportText.headline(report).hasPrefix("assertion failed: x, at pay.c:7, life 3"))
  }

  @Test(arguments: [
    (
      "shop::PaymentError",
      "uncaught shop::PaymentError: no, in billing::charge(int) at invoice.cpp:42"
    ),
    ("int", "uncaught exception of type int: no, in billing::charge(int) at invoice.cpp:42"),
    ("char const*", "uncaught exception of type char const*: no, in billing::charge(int)"),
    ("std::terminate", "std::terminate: no, in billing::charge(int)"),
  ])
  func `an uncaught exception is named first`(type: String, line: String) {
    var report = Samples.report()
    report.exception = ExceptionFacts(type: type, reason: "no", source: .stderr)
    report.exception?.language = "c++"
    #expect(ReportText.headline(report).hasPrefix(line))
  }

  @Test(arguments: [
    ("Fatal error", "no stock", ExceptionFacts.Source.stderr, "Fatal error: no stock, in "),
    (
      "heap corruption", "double free or corruption (out)", .abortMessage,
      "heap corruption: double free or corruption (out), in "
    ),
    ("panic", "", .stderr, "SIGSEGV in "), ("SIGSEGV", "null pointer", .signal, "SIGSEGV in "),
    ("E", "E happened", .stderr, "SIGSEGV in "),
    ("E", "first\nsecond", .stderr, "E: first, in "),
    ("E", "token=hunter2 \u{1b}[31m", .api, "E: token=[redacted] \\x1b[31m, in "),
  ])
  func `what the program or its runtime said stands in the first line`(
    type: String, reason: String, source: ExceptionFacts.Source, line: String
  ) {
    var report = Samples.report()
    let fingerprint = report.fingerprint
    report.exception = ExceptionFacts(type: type, reason: reason, source: source)
    #expect(
      ReportText.headline(report)
        == line + "billing::charge(int) at invoice.cpp:42, life 3 of api, up 2 h")
    report.exception = nil
    #expect(Fingerprint.of(report) == fingerprint)
  }

  @Test func `the first line has a length that no message exceeds, and numbers make no new group`()
  {
    func report(_ reason: String) -> Report {
      var report = Samples.report()
      report.exception = ExceptionFacts(type: "E", reason: reason, source: .stderr)
      return report
    }
    #expect(
      ReportText.headline(report(String(repeating: "x", count: 5000))).count < 250)
    #expect(Fingerprint.of(report("index 17")) == Fingerprint.of(report("index 4 of 3")))
  }

  @Test func `a hang is told by its reason, and by its place where that has a name`() {
    var report = Samples.report(kind: .hang)
    report.exception = ExceptionFacts(
      type: "watchdog timeout", reason: "no heartbeat for 500 ms", source: .signal)
    #expect(
      ReportText.headline(report).hasPrefix(
        "hang: no heartbeat for 500 ms, in billing::charge(int) at invoice.cpp:42, life 3"))
    report.threads = stripped().threads
    #expect(ReportText.headline(report).hasPrefix("hang: no heartbeat for 500 ms, life 3 of api"))
  }

  @Test func `functions by which the C library aborts are not where it happened`() {
    var report = Samples.report()
    report.threads[0].frames = [
      "__pthread_kill_implementation", "__GI_raise", "__GI_abort", "__assert_fail_base",
      "os_abort", "PyEval",
    ].map {
      var frame = Frame(index: 0, address: "0x1", trust: .cfi)
      frame.function = $0
      frame.module = "libpython3.11.so.1.0"
      frame.inApp = false
      return frame
    }
    #expect(ReportText.headline(report).hasPrefix("SIGSEGV in os_abort, life 3"))
    report.threads[0].frames.removeLast(2)
    #expect(ReportText.headline(report).hasPrefix("SIGSEGV in __pthread_kill_implementation, life"))
  }

  @Test func `breadcrumbs stand in columns, tabs are blanks, a command is quoted`() {
    var report = Samples.report()
    report.program.command = ["/usr/bin/api", "two words", "it's"]
    report.breadcrumbs = [("info", "db"), ("warning", "orders")].map {
      Breadcrumb(
        time: "2026-11-30T09:15:29.804464Z", level: $0, category: $1, message: "m", pid: 1,
        thread: 1)
    }
    report.stderrTail = [
      Reports.StderrLine(time: "2026-11-30T09:15:29.804464Z", text: "\tat a.b(C.java:3)\tx")
    ]
    let text = ReportText.render(report)
    #expect(text.holds("  info     db      m\n"))
    #expect(text.holds("  warning  orders  m\n"))
    #expect(text.holds("          at a.b(C.java:3)        x\n"), "\(text)")
    #expect(text.holds("/usr/bin/api 'two words' 'it'\\''s'\n"))
  }

  @Test(arguments: [
    (CaptureFacts.Threads.all, "all threads"), (.crashing, "the crashing thread alone"),
    (.none, "no threads"),
  ])
  func `what was captured is said in words`(threads: CaptureFacts.Threads, words: String) {
    var report = Samples.report()
    report.capture.threads = threads
    #expect(ReportText.render(report).holds("capture       \(words), handler preloaded\n"))
  }

  @Test func `the reason of a failed start stands in the first line`() {
    var report = Samples.report(kind: .execFailed)
    report.threads = []
    report.ending = EndingFacts()
    report.ending.startFailure = "cannot execute '/x': No such file or directory"
    #expect(
      ReportText.headline(report).hasPrefix(
        "exec failed: cannot execute '/x': No such file or directory, life 3 of api"))
  }

  @Test func `the crashing thread comes first and alike threads once`() throws {
    var report = Samples.report()
    var waiting = (1...3).map {
      ThreadFacts(id: Int32($0), crashed: false, frames: [frame(0, "wait"), frame(1, "loop")])
    }
    waiting[1].name = "pool"
    report.threads = waiting + report.threads
    let text = ReportText.render(report)
    let crashed = try #require(text.find("Thread 4242 crashed:"))
    let others = try #require(text.find("3 threads alike: 1, 2 \"pool\", 3:"))
    #expect(crashed.lowerBound < others.lowerBound)
    #expect(text.findLast("#1   loop")?.lowerBound == text.find("#1   loop")?.lowerBound)
  }

  @Test func `recursion is folded, also of two functions that call each other`() {
    var report = Samples.report()
    let frames = (0..<200).map { frame($0, $0.isMultiple(of: 2) ? "even" : "odd") }
    report.threads[0].frames = frames + [frame(200, "main")]
    let text = ReportText.render(report)
    #expect(text.holds("… 198 frames: the 2 above, 99 times more"))
    #expect(text.holds("#200 main"))
    #expect(!text.holds("#7"))
  }

  @Test func `causes follow their exception`() {
    var report = Samples.report()
    var facts = ExceptionFacts(type: "Outer", reason: "o", source: .stderr)
    facts.causes = [ExceptionFacts(type: "Inner", reason: "i", source: .stderr)]
    report.exception = facts
    #expect(ReportText.render(report).holds("Outer: o\ncaused by Inner: i\n"))
  }

  @Test func `of a runtime's own text the program's own frame is named first`() throws {
    var incident = Samples.incident(.exited(101))
    incident.stderr = try ExceptionTextTests.corpus("rust_panic").map {
      .init(time: incident.time, bytes: Array($0.utf8), life: 3)
    }
    let report = PlainReport.make(from: incident)
    let reason = try #require(report.exception?.reason)
    #expect(!reason.isEmpty)
    #expect(
      ReportText.headline(report)
        == "panic: \(reason), in panic::main at panic.rs:2, life 3 of api, up 2 h")
  }
}
