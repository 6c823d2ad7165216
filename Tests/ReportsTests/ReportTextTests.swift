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
