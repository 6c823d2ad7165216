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
    #expect(ReportText.headline(report).hasPrefix("SIGSEGV at pay.c:7, life 3"))
  }

  @Test(arguments: [
    ("shop::PaymentError", "uncaught shop::PaymentError in billing::charge(int) at invoice.cpp:42"),
    ("int", "uncaught exception of type int in billing::charge(int) at invoice.cpp:42"),
    ("char const*", "uncaught exception of type char const* in billing::charge(int)"),
    ("std::terminate", "SIGSEGV in billing::charge(int)"),
  ])
  func `an uncaught exception is named first`(type: String, line: String) {
    var report = Samples.report()
    report.exception = ExceptionFacts(type: type, reason: "no", source: .stderr)
    report.exception?.language = "c++"
    #expect(ReportText.headline(report).hasPrefix(line))
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
    #expect(
      ReportText.headline(PlainReport.make(from: incident))
        == "panic in panic::main at panic.rs:2, life 3 of api, up 2 h")
  }
}
