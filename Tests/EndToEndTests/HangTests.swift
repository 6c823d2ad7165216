// Programs that hang: the report must show where, in the main thread, though nothing crashed.
import Foundation
import Testing

@Suite("A hang")
struct HangTests {
  /// The line of the fixture in which it hangs.
  static let line = text(Place.source(ofFixture: "lively.c"))
    .split(separator: "\n", omittingEmptySubsequences: false)
    .firstIndex { $0.hasSuffix("// it hangs here") }.map { $0 + 1 }

  private func judge(_ found: (report: Report, folder: String), signal: String, words: String)
    throws
  {
    let report = found.report
    #expect(report.kind == .hang)
    #expect(report.ending.signal?.name == signal)
    #expect(report.capture.threads == .all)
    let main = try #require(report.threads.first { $0.id == report.program.pid })
    // Whatever instruction of the loop it was at.
    let frame = try #require(main.frames.first)
    #expect(frame.function == "count_for_ever")
    #expect(frame.file?.hasSuffix("lively.c") == true)
    let line = try #require(Self.line)
    #expect(abs((frame.line ?? 0) - line) <= 1, "line \(frame.line ?? 0), not \(line)")
    #expect(main.frames.contains { $0.function == "main" })
    #expect(report.threads.allSatisfy { !$0.crashed })
    let headline = text(found.folder + "/report.txt").split(separator: "\n")[0]
    #expect(
      headline.hasPrefix("hang: \(words), in count_for_ever at lively.c:"),
      "\(headline)")
  }

  @Test func `a missed watchdog: the report names function and line of the main thread`() throws {
    let guardian = try Supervised(
      name: "hang", options: ["--watchdog", "1s", "--max-crashes", "0"],
      command: [Place.fixture("lively"), "spin"])
    #expect(try guardian.end() == 134)
    let found = try guardian.report("the report of the hang", seconds: 5)
    try judge(found, signal: "SIGABRT", words: "no heartbeat for 1 s")
    #expect(text(found.folder + "/report.txt").contains("watchdog timeout: no heartbeat for 1 s"))
  }

  @Test func `a stop that takes too long: the same, and then KILL`() throws {
    let guardian = try Supervised(
      name: "deaf", options: ["--stop-timeout", "500ms"],
      command: [Place.fixture("lively"), "deaf"])
    try wait(for: "its start") { guardian.log.contains("pid ") }
    #expect(try guardian.stop() == 137)
    try judge(
      try guardian.report("the report of the hang", seconds: 5), signal: "SIGKILL",
      words: "it was still there 500 ms after SIGTERM")
  }
}
