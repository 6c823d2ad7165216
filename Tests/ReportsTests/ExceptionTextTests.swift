import Kernel
import Policy
import Reports
import Testing

/// The texts in `Corpus` were written by real programs.
@Suite struct ExceptionTextTests {
  struct Case: Sendable, CustomTestStringConvertible {
    var file: String
    var status: Ending.Status
    var type: String
    var reason: String
    var language: String
    /// "function file:line" of the newest frame.
    var place: String?
    var causes: [String] = []
    var testDescription: String { file }
  }

  static func signal(_ number: Int32) -> Ending.Status {
    .signaled(Signal(rawValue: number), coreDumped: false)
  }

  static let cases: [Case] = [
    Case(
      file: "cxx_term", status: signal(6), type: "billing::card_declined",
      reason: "card 12: declined\nby the bank", language: "c++"),
    Case(file: "cxx_termint", status: signal(6), type: "int", reason: "", language: "c++"),
    Case(
      file: "cxx_termnone", status: signal(6), type: "std::terminate",
      reason: "without an active exception", language: "c++"),
    Case(
      file: "cxx_nested", status: signal(6), type: "std::runtime_error", reason: "outer",
      language: "c++"),
    Case(
      file: "cxx_pure", status: signal(6), type: "pure virtual method call",
      reason: "pure virtual method called", language: "c++"),
    Case(
      file: "cxx_glib", status: signal(6), type: "assertion failed", reason: "__n < this->size()",
      language: "c",
      place:
        "std::vector<_Tp, _Alloc>::reference std::vector<_Tp, _Alloc>::operator[](size_type) [with _Tp = int; _Alloc = std::allocator<int>; reference = int&; size_type = long unsigned int] /usr/include/c++/12/bits/stl_vector.h:1123"
    ),
    Case(
      file: "assert", status: signal(6), type: "assertion failed",
      reason: "balance >= 0 && \"account: overdrawn\"", language: "c", place: "check assert.c:2"),
    Case(
      file: "swift_fatal", status: signal(4), type: "Fatal error", reason: "queue 1 is empty",
      language: "swift", place: "? s_fatal/fatal.swift:1"),
    Case(
      file: "swift_fatal_o", status: signal(4), type: "Fatal error", reason: "queue 1 is empty",
      language: "swift", place: "? s_fo/fatal.swift:1"),
    Case(
      file: "swift_forced", status: signal(4), type: "s_forced.Declined",
      reason: "'try!' expression unexpectedly raised an error: s_forced.Declined(card: 12)",
      language: "swift", place: "? s_forced/forced.swift:3"),
    Case(
      file: "swift_toplevel", status: signal(4), type: "s_toplevel.Declined",
      reason: "Error raised at top level: s_toplevel.Declined(card: 12)", language: "swift",
      place: "? Swift/ErrorType.swift:254"),
    Case(
      file: "swift_oob", status: signal(4), type: "Fatal error", reason: "Index out of range",
      language: "swift", place: "? Swift/ContiguousArrayBuffer.swift:692"),
    Case(
      file: "swift_cast", status: signal(6), type: "failed cast",
      reason:
        "Could not cast value of type 'cast.A' (0x5565ee172088) to 'cast.B' (0x5565ee1720e0).",
      language: "swift"),
    Case(
      file: "rust_abort", status: signal(6), type: "panic",
      reason: "index out of bounds: the len is 0 but the index is 1", language: "rust",
      place: "__rustc::rust_begin_unwind /rustc/0/library/std/src/panicking.rs:689"),
    Case(
      file: "rust_panic", status: .exited(101), type: "panic",
      reason: "called `Result::unwrap()` on an `Err` value: Any { .. }", language: "rust",
      place: "__rustc::rust_begin_unwind /rustc/0/library/std/src/panicking.rs:689",
      causes: ["panic: index out of bounds: the len is 0 but the index is 1"]),
    Case(
      file: "rust_old", status: .exited(101), type: "panic",
      reason: "called `Option::unwrap()` on a `None` value", language: "rust",
      place: "? src/main.rs:4"),
    Case(
      file: "rust_nounwind", status: signal(6), type: "panic", reason: "no way out",
      language: "rust", place: "? noun.rs:1"),
    Case(
      file: "go_panic", status: .exited(2), type: "runtime error",
      reason: "invalid memory address or nil pointer dereference", language: "go",
      place: "main.charge /srv/app/main.go:8"),
    Case(
      file: "go_fatal", status: .exited(2), type: "fatal error",
      reason: "all goroutines are asleep - deadlock!", language: "go",
      place: "main.main /srv/app/main.go:5"),
    Case(
      file: "py_chain", status: .exited(1), type: "DeclinedError",
      reason: "card x: declined\nsecond line", language: "python",
      place: "charge /srv/app/tb.py:7",
      causes: [
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
      ]),
    Case(
      file: "py_context", status: .exited(1), type: "ZeroDivisionError",
      reason: "division by zero", language: "python", place: "a /srv/app/tbctx.py:5",
      causes: ["KeyError: 'k'"]),
    Case(
      file: "py_syntax", status: .exited(1), type: "SyntaxError", reason: "invalid syntax",
      language: "python", place: "? /srv/app/syn.py:1"),
    Case(
      file: "py_fatal", status: signal(11), type: "Fatal Python error",
      reason: "Segmentation fault", language: "python",
      place: "string_at /usr/local/lib/python3.11/ctypes/__init__.py:519"),
    Case(
      file: "node_err", status: .exited(1), type: "DeclinedError", reason: "card 12: declined",
      language: "javascript", place: "charge /srv/app/err.js:2",
      causes: ["SyntaxError: Expected property name or '}' in JSON at position 1"]),
    Case(
      file: "node_rej", status: .exited(1), type: "TypeError", reason: "no such card",
      language: "javascript", place: "Object.<anonymous> /srv/app/rej.js:1"),
    Case(
      file: "node_rejv", status: .exited(1), type: "UnhandledPromiseRejection",
      reason:
        "This error originated either by throwing inside of an async function without a catch block, or by rejecting a promise which was not handled with .catch(). The promise rejected with the reason \"42\".",
      language: "javascript",
      place: "throwUnhandledRejectionsMode node:internal/process/promises:389"),
    Case(
      file: "node_thrown", status: .exited(1), type: "uncaught value", reason: "just text",
      language: "javascript", place: "? /srv/app/thrown.js:1"),
    Case(
      file: "node_oom", status: signal(6), type: "FATAL ERROR",
      reason: "Reached heap limit Allocation failed - JavaScript heap out of memory",
      language: "javascript"),
    Case(
      file: "java_chain", status: .exited(1), type: "T$Declined", reason: "card 12: declined",
      language: "java", place: "T.charge T.java:2",
      causes: ["java.lang.NumberFormatException: For input string: \"x\""]),
    Case(
      file: "java_crash", status: signal(6), type: "SIGSEGV",
      reason:
        "SIGSEGV (0xb) at pc=0x00007efc750d2f94, pid=32428, tid=32429 in V  [libjvm.so+0xed2f94]  Unsafe_PutLong+0x124; log /srv/app/hs_err_pid32428.log",
      language: "java"),
  ]

  static func corpus(_ name: String) throws -> [String] {
    let folder = #filePath.split(separator: "/").dropLast().joined(separator: "/")
    let bytes = try #require(
      try KernelStoreCalls().read("/\(folder)/Corpus/\(name).txt", limit: 1 << 20))
    var lines = String(decoding: bytes, as: UTF8.self)
      .split(separator: "\n", omittingEmptySubsequences: false).map(String.init)
    if lines.last == "" { lines.removeLast() }
    return lines
  }

  @Test func `what() that is but the name is not said twice`() throws {
    let lines = [
      "terminate called after throwing an instance of 'std::bad_alloc'",
      "  what():  std::bad_alloc",
    ]
    let found = ExceptionText.stderr(
      lines, fitting: .signaled(Signal(rawValue: 6), coreDumped: false))
    #expect(found?.type == "std::bad_alloc")
    #expect(found?.reason == "")
  }

  @Test(arguments: cases)
  func `the last words of a runtime are understood`(one: Case) throws {
    let before = ["12:00 started", "warning: Fatal error: not ours", ""]
    let facts = try #require(
      ExceptionText.stderr(before + (try Self.corpus(one.file)), fitting: one.status))
    #expect(facts.type == one.type)
    #expect(facts.reason == one.reason)
    #expect(facts.language == one.language)
    #expect(facts.source == .stderr)
    if let place = one.place {
      let frame = try #require(facts.frames?.first)
      #expect("\(frame.function ?? "?") \(frame.file ?? "?"):\(frame.line ?? 0)" == place)
    }
    #expect((facts.causes ?? []).map { "\($0.type): \($0.reason)" } == one.causes)
  }

  @Test(arguments: cases)
  func `words that do not fit the ending explain nothing`(one: Case) throws {
    let lines = try Self.corpus(one.file)
    #expect(ExceptionText.stderr(lines, fitting: .exited(0)) == nil)
    #expect(ExceptionText.stderr(lines, fitting: Self.signal(9)) == nil)
    #expect(ExceptionText.stderr(lines, fitting: Self.signal(15)) == nil)
  }

  @Test func `a traceback that was logged long before an exit explains nothing`() throws {
    let lines =
      try Self.corpus("py_chain") + [""]
      + (1...20).map { "12:0\($0) request served" }
    #expect(ExceptionText.stderr(lines, fitting: .exited(1)) == nil)
  }

  @Test(arguments: [
    ("double_free", "heap corruption", "free(): double free detected in tcache 2"),
    ("invalid_pointer", "heap corruption", "free(): invalid pointer"),
    ("smash", "stack smashing", "*** stack smashing detected ***: terminated"),
    ("fortify", "fortify failure", "*** buffer overflow detected ***: terminated"),
  ])
  func `glibc's reasons are named`(file: String, type: String, reason: String) throws {
    let lines = try Self.corpus(file)
    let message = try #require(ExceptionText.abortMessage(lines.joined(separator: "\n") + "\n"))
    #expect(message.type == type)
    #expect(message.reason == reason)
    #expect(message.source == .abortMessage)
    #expect(ExceptionText.stderr(lines, fitting: Self.signal(6))?.type == type)
  }

  @Test func `an assertion in C++ keeps its function whole`() throws {
    let facts = try #require(
      ExceptionText.abortMessage(
        "api: /src/a.cpp:12: int billing::charge(const std::string&): Assertion `amount > 0' failed.\n"
      ))
    #expect(facts.reason == "amount > 0")
    #expect(facts.frames?.first?.file == "/src/a.cpp")
    #expect(facts.frames?.first?.line == 12)
    #expect(facts.frames?.first?.function == "int billing::charge(const std::string&)")
  }

  @Test func `the reason of an optimised Swift trap is the name of an inline frame`() {
    var frame = Frame(index: 0, address: "0x1", trust: .context)
    frame.function = "Swift runtime failure: arithmetic overflow"
    frame.inlined = true
    let facts = ExceptionText.swiftRuntimeFailure([frame])
    #expect(facts?.type == "Swift runtime failure")
    #expect(facts?.reason == "arithmetic overflow")
  }

  @Test func `pieces of real texts in any order never fail`() throws {
    let lines = try Self.cases.flatMap { try Self.corpus($0.file) }
    var state: UInt64 = 11
    func next(_ limit: Int) -> Int {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int(state >> 33) % limit
    }
    let endings: [Ending.Status] = [
      Self.signal(6), Self.signal(4), Self.signal(11), .exited(1), .exited(2), .exited(101),
      .unknown,
    ]
    for _ in 0..<400 {
      let text = (0..<next(40)).map { _ -> String in
        let line = lines[next(lines.count)]
        return next(3) == 0 ? String(line.prefix(next(line.count + 1))) : line
      }
      for ending in endings {
        let facts = ExceptionText.stderr(text, fitting: ending)
        #expect((facts?.reason.utf8.count ?? 0) <= ReportLimits.textBytes + 3)
      }
      _ = ExceptionText.abortMessage(text.joined(separator: "\n"))
    }
  }
}
