import Reports
import Symbolication
import Testing

/// Optimised programs with debug information that crash in their second thread, ten alive.
@Suite struct `The crashing thread of a C program` {
  static let chain = [
    Expected("price_of", "symbols_c.c", "price", inlined: true),
    Expected("total", "symbols_c.c", "total", inlined: true),
    Expected("charge", "symbols_c.c", "charge"),
    Expected("work", "symbols_c.c", "work"),
  ]

  @Test(
    arguments: ["symbols_c", "symbols_dwarf4", "symbols_nopie", "symbols_staticpie"],
    CoreKind.allCases)
  func `has exact frames, inline ones included, however it is linked`(
    fixture: String, kind: CoreKind
  ) throws {
    // The handler cannot be preloaded into a static program.
    if fixture == "symbols_staticpie", kind == .minicore { return }
    guard let snapshot = try Core.snapshot(fixture: fixture, "null", kind) else { return }
    #expect(snapshot.threads.count == 11)
    #expect(snapshot.threads.filter(\.crashed).count == 1)
    let crashing = try #require(snapshot.threads.first)
    #expect(crashing.crashed)
    expect(crashing.frames, Self.chain)
    #expect(crashing.name == (kind == .minicore ? fixture : nil))
    #expect(crashing.frames[0].trust == .context)
    #expect(crashing.frames[3].trust == .cfi)
    #expect(crashing.frames[0].address == crashing.frames[2].address)
    #expect(crashing.frames.map(\.index) == Array(crashing.frames.indices))
    #expect(crashing.frames[2].offset.map { $0 > 0 && $0 < 200 } == true)
    #expect(crashing.frames[2].module == fixture)
    #expect(crashing.frames[2].inApp)
    #expect(crashing.frames.contains { $0.function == "start_thread" })
    #expect(crashing.registers?["rip"] == crashing.frames[0].address)
    #expect(snapshot.modules.contains { $0.path.hasSuffix(fixture) && $0.buildID != nil })
  }

  @Test(arguments: CoreKind.allCases)
  func `shows main in the main thread`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_c", "null", kind) else { return }
    let main = snapshot.threads.first { $0.frames.contains { $0.function == "main" } }
    #expect(main != nil)
    #expect(main?.frames.last?.function == "_start")
  }

  @Test(arguments: ["null-call", "data-call"], CoreKind.allCases)
  func `names the caller of an address that is no code`(how: String, kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_c", how, kind) else { return }
    let frames = try #require(snapshot.threads.first).frames
    #expect(frames[0].function == nil)
    if how == "null-call" { #expect(frames[0].address == "0x0") }
    expect(frames.dropFirst(), [Expected("call_it", "symbols_c.c", "call")])
    #expect(frames.contains { $0.function == "work" })
    #expect(frames.contains { $0.function == "start_thread" })
  }

  @Test(arguments: CoreKind.allCases)
  func `keeps both ends of an endless recursion`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_c", "recursion", kind) else { return }
    let frames = try #require(snapshot.threads.first).frames
    #expect(frames[0].function == "recurse")
    expect(frames.dropFirst(), [Expected("recurse", "symbols_c.c", "recurse")])
    #expect(frames.contains { $0.function == "start_thread" })
    let last = try #require(frames.last)
    switch kind {
    case .kernel:
      #expect(frames.count(where: { !$0.inlined }) == SymbolicationLimits().framesPerThread)
      #expect(last.index > 10_000)
      #expect(snapshot.defects.contains { $0.contains("in the middle, were left out") })
    case .minicore:
      // The middle of the stack is not in it; behind the gap lies the thread's begin.
      #expect(snapshot.defects.contains { $0.contains("is not in the core") })
    }
  }

  @Test(arguments: CoreKind.allCases)
  func `steps over code that was made at run time`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_c", "generated", kind) else { return }
    let frames = try #require(snapshot.threads.first).frames
    expect(frames, [Expected("called_by_generated_code", "symbols_c.c", "generated")])
    #expect(frames[1].module == nil)
    #expect(frames[1].function == nil)
    expect(frames.dropFirst(2), [Expected("run_generated_code", "symbols_c.c", "run")])
    #expect(frames.prefix(3).map(\.trust) == [.context, .cfi, .framePointer])
    #expect(frames.contains { $0.function == "start_thread" })
  }

  @Test(arguments: CoreKind.allCases)
  func `leads from abort to who called it`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_c", "abort", kind) else { return }
    let frames = try #require(snapshot.threads.first).frames
    #expect(frames[0].inApp == false)
    let own = try #require(frames.first { $0.inApp })
    expect([own], [Expected("work", "symbols_c.c", "abort", inlined: own.inlined)])
  }
}

@Suite struct `The crashing thread of a C++ program` {
  @Test(arguments: CoreKind.allCases)
  func `has templates, lambdas and inline frames with readable names`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_cxx", "null", kind) else { return }
    #expect(snapshot.threads.count == 11)
    let frames = try #require(snapshot.threads.first { $0.crashed }).frames
    // The compiler folds the inlined read into its caller: the line is the call's.
    let charge = "billing::Ledger<billing::Account>::charge(int) const"
    let top = try #require(frames.first { $0.function == charge })
    #expect(top.line == Place.line("symbols_cxx.cpp", "charge"))
    #expect(top.rawFunction?.hasPrefix("_ZNK7billing6Ledger") == true)
    let lambda = try #require(frames.first { $0.line == Place.line("symbols_cxx.cpp", "lambda") })
    #expect(lambda.function?.hasPrefix("crash") == true)
    #expect(lambda.function?.contains("lambda") == true)
    #expect(lambda.function?.contains("operator()") == true)
    let with = frames.filter {
      $0.function == "billing::with(std::function<int (int)> const&)"
    }
    expect(
      with,
      [
        Expected("billing::with(std::function<int (int)> const&)", "symbols_cxx.cpp", "with")
      ])
  }

  @Test(arguments: CoreKind.allCases)
  func `names the function that threw`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_cxx", "throw", kind) else { return }
    let frames = try #require(snapshot.threads.first).frames
    #expect(frames.contains { $0.function == "std::terminate()" })
    let own = try #require(frames.first { $0.inApp })
    #expect(own.function?.hasPrefix("billing::(anonymous namespace)::refuse(") == true)
    #expect(own.line == Place.line("symbols_cxx.cpp", "throw"))
  }
}

@Suite struct `The crashing thread of a Rust program` {
  @Test(arguments: CoreKind.allCases)
  func `has generics and inline frames with readable names`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_rust", "null", kind) else { return }
    #expect(snapshot.threads.count == 11)
    let frames = try #require(snapshot.threads.first { $0.crashed }).frames
    let total = try #require(frames.first { !$0.inlined })
    #expect(total.function?.contains("billing::Invoice<") == true)
    #expect(total.function?.contains("::total") == true)
    #expect(total.line == Place.line("symbols_rust.rs", "total"))
    let crash = try #require(frames.first { $0.function == "symbols_rust::crash" })
    #expect(crash.line == Place.line("symbols_rust.rs", "crash"))
    #expect(frames.contains { $0.function?.contains("main::{{closure}}") == true })
  }

  @Test(arguments: CoreKind.allCases)
  func `leads from a panic to the line that caused it`(kind: CoreKind) throws {
    guard let snapshot = try Core.snapshot(fixture: "symbols_rust", "index", kind) else { return }
    let frames = try #require(snapshot.threads.first).frames
    let pick = try #require(frames.first { $0.function == "symbols_rust::billing::pick" })
    #expect(pick.line == Place.line("symbols_rust.rs", "index"))
    #expect(frames.contains { $0.function?.hasPrefix("core::panicking::") == true })
  }
}

@Suite struct `The crashing thread of a Swift program` {
  static func frames(_ how: String, _ kind: CoreKind) throws -> [Frame]? {
    guard let snapshot = try Core.snapshot(fixture: "symbols_swift", how, kind) else { return nil }
    #expect(snapshot.threads.count == 11)
    return try #require(snapshot.threads.first { $0.crashed }).frames
  }

  @Test(arguments: CoreKind.allCases)
  func `gives the reason of an overflow and its line`(kind: CoreKind) throws {
    guard let frames = try Self.frames("overflow", kind) else { return }
    expect(
      frames,
      [
        Expected(
          "Swift runtime failure: arithmetic overflow", "symbols_swift.swift", nil, inlined: true),
        Expected(
          "symbols_swift.Invoice.total(price: Int) -> Int", "symbols_swift.swift", "total"),
      ])
    #expect(frames[1].rawFunction?.hasPrefix("$s13symbols_swift7InvoiceV5total") == true)
  }

  @Test(arguments: CoreKind.allCases)
  func `gives the reason of an index out of range and its line`(kind: CoreKind) throws {
    guard let frames = try Self.frames("index", kind) else { return }
    #expect(frames[0].function == "Swift runtime failure: Index out of range")
    let own = try #require(frames.first { !$0.inlined })
    expect(
      [own],
      [Expected("symbols_swift.Ledger.value(at: Int) -> A", "symbols_swift.swift", "index")])
  }

  @Test(arguments: CoreKind.allCases)
  func `gives the reason of a nil and the chain of inlined calls`(kind: CoreKind) throws {
    guard let frames = try Self.frames("nil", kind) else { return }
    #expect(
      frames[0].function
        == "Swift runtime failure: Unexpectedly found nil while unwrapping an Optional value")
    let own = frames.filter { $0.function?.contains("Invoice") == true }
    expect(
      own,
      [
        Expected(
          "symbols_swift.Invoice.checked(Dictionary<String, Int>, String) -> Int",
          "symbols_swift.swift", "unwrap", inlined: true),
        Expected(
          "symbols_swift.Invoice.unwrapped(Dictionary<String, Int>, String) -> Int",
          "symbols_swift.swift", "unwrapped"),
      ])
  }

  @Test(arguments: CoreKind.allCases)
  func `leads from a fatal error to its line`(kind: CoreKind) throws {
    guard let frames = try Self.frames("fatal", kind) else { return }
    #expect(frames[0].function?.contains("_assertionFailure") == true)
    let own = try #require(frames.first { $0.inApp })
    expect(
      [own],
      [
        Expected(
          "static symbols_swift.Invoice.refuse(String) -> Never", "symbols_swift.swift", "fatal")
      ])
  }
}
