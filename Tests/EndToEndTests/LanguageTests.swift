// Optimised programs with debug information in the languages people run: ten threads alive, a real
// crash in the second one, two inlined calls deep. Nothing less than exact will do.
import Foundation
import Testing

struct Language: CustomTestStringConvertible, Sendable {
  let fixture: String
  let source: String
  let top: String
  let caller: String
  let function: String
  var testDescription: String { source }

  static let all = [
    Language(
      fixture: "e2e_c", source: "e2e_c.c", top: "store_price", caller: "fill_shelf",
      function: "restock"),
    Language(
      fixture: "e2e_cxx", source: "e2e_cxx.cpp", top: "warehouse::Shelf<int>::store_price",
      caller: "warehouse::Shelf<int>::fill_shelf", function: "warehouse::restock"),
    Language(
      fixture: "e2e_rust", source: "e2e_rust.rs", top: "e2e_rust::store_price",
      caller: "e2e_rust::fill_shelf", function: "e2e_rust::restock"),
    Language(
      fixture: "e2e_swift", source: "e2e_swift.swift", top: "e2e_swift.storePrice",
      caller: "e2e_swift.fillShelf", function: "e2e_swift.restock"),
  ]

  /// The line of the source that ends in this comment.
  func line(marked mark: String) -> Int? {
    text(Place.source(ofFixture: source)).split(separator: "\n", omittingEmptySubsequences: false)
      .firstIndex { $0.hasSuffix("// " + mark) }.map { $0 + 1 }
  }
}

/// The report, its folder and the threads that the kernel showed before the crash, of one language;
/// made once, judged by several tests.
private actor Crashes {
  static let shared = Crashes()
  struct Crash: Sendable {
    let report: Report
    /// Where the minicore lies; the folder lives as long as this process.
    let folder: String
    let status: Int32
  }
  private var made: [String: Result<Crash, any Error>] = [:]
  private var kept: [Supervised] = []

  func crash(of language: Language) throws -> Crash {
    if let known = made[language.fixture] { return try known.get() }
    let result = Result {
      let guardian = try Supervised(
        name: language.fixture, options: ["--max-crashes", "0"],
        command: [Place.fixture(language.fixture)])
      kept.append(guardian)
      let status = try guardian.end()
      let found = try guardian.report("the report of \(language.fixture)", seconds: 5)
      return Crash(report: found.report, folder: found.folder, status: status)
    }
    made[language.fixture] = result
    return try result.get()
  }
}

@Suite("A crash in the second of ten threads, optimised")
struct LanguageTests {
  @Test(arguments: Language.all)
  func `the crashing thread, its function, file, line and inline frames are exact`(
    _ language: Language
  ) async throws {
    let crash = try await Crashes.shared.crash(of: language)
    let report = crash.report
    #expect(report.kind == .crash)
    #expect(report.ending.signal?.name == "SIGSEGV")
    #expect(report.ending.signal?.codeName == "SEGV_MAPERR")
    #expect(report.ending.signal?.address.flatMap { UInt64($0.dropFirst(2), radix: 16) } == 0x10)
    let crashed = report.threads.filter(\.crashed)
    try #require(crashed.count == 1)
    #expect(report.threads.first?.crashed == true, "the crashing thread comes first")
    #expect(crashed[0].name == "worker-2")
    let frames = crashed[0].frames
    try #require(frames.count > 3)
    for (frame, (name, mark, inlined)) in zip(
      frames,
      [
        (language.top, "top frame", true), (language.caller, "inlined caller", true),
        (language.function, "function", false),
      ])
    {
      #expect(frame.function?.hasPrefix(name) == true, "\(frame)")
      #expect(frame.file?.hasSuffix("/" + language.source) == true, "\(frame)")
      #expect(frame.line != nil && frame.line == language.line(marked: mark), "\(frame)")
      #expect(frame.inlined == inlined, "\(frame)")
    }
    #expect(frames[0].trust == .context)
    #expect(crash.status == 128 + SIGSEGV)
  }

  @Test(arguments: Language.all)
  func `all ten threads are there, each with a stack down to its start`(_ language: Language)
    async throws
  {
    let report = try await Crashes.shared.crash(of: language).report
    #expect(report.capture.threads == .all, "\(report.capture)")
    #expect(report.capture.defects.isEmpty, "\(report.capture)")
    #expect(report.threads.count == 10)
    let names = Set(report.threads.compactMap(\.name))
    #expect(Set((2...10).map { "worker-\($0)" }).isSubset(of: names), "\(names)")
    for thread in report.threads {
      let functions = thread.frames.compactMap(\.function)
      #expect(
        functions.contains { $0.contains("start_thread") || $0.contains("main") },
        "thread \(thread.id) \(thread.name ?? ""): \(functions)")
    }
  }

  @Test(arguments: Language.all)
  func `report.txt says it all in its first line`(_ language: Language) async throws {
    let crash = try await Crashes.shared.crash(of: language)
    let first = text(crash.folder + "/report.txt").split(separator: "\n").first ?? ""
    #expect(first.contains("SIGSEGV"), "\(first)")
    #expect(first.contains(language.top), "\(first)")
    #expect(first.contains("\(language.source):"), "\(first)")
  }

  @Test(arguments: Language.all)
  func `gdb and eu-stack open the minicore and show every thread`(_ language: Language) async throws
  {
    let crash = try await Crashes.shared.crash(of: language)
    let core = crash.folder + "/core"
    let program = Place.fixture(language.fixture)
    let gdb = try run([
      "gdb", "-batch", "-nx", "-ex", "info threads", "-ex", "bt", program, core,
    ])
    let listed = gdb.out.split(separator: "\n").filter {
      $0.contains("LWP") && $0.contains("Thread")
    }
    // The list, without the announcements of threads that come before it.
    let threads = Set(
      listed.compactMap { line in
        line.split(separator: "LWP ").last.flatMap { Int32($0.prefix { $0.isNumber }) }
      })
    #expect(threads == Set(crash.report.threads.map(\.id)), "\(gdb.out)\(gdb.err)")
    #expect(gdb.out.contains("#0 "), "\(gdb.out)")
    let stack = try run(["eu-stack", "--core=\(core)", "--executable=\(program)"])
    let count = stack.out.split(separator: "\n").filter { $0.hasPrefix("TID ") }.count
    #expect(count == 10, "\(stack.out)\(stack.err)")
    let size = try FileManager.default.attributesOfItem(atPath: core)[.size] as? UInt64
    #expect(size ?? .max < 2_000_000)
  }
}
