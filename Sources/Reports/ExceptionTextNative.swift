// The last words of C++, Swift, Rust and Go.

enum CxxText {
  private static let thrown = "terminate called after throwing an instance of '"
  private static let llvmThrown = "terminating due to uncaught exception of type "

  static func find(_ lines: [String]) -> ExceptionText.Found? {
    guard
      let start = lines.lastIndex(where: {
        $0.hasPrefix("terminate called") || $0.holds(llvmThrown)
      })
    else { return nil }
    let line = lines[start]
    var facts: ExceptionFacts
    var end = start + 1
    if line.hasPrefix(thrown) {
      var type = line.dropFirst(thrown.utf8.count)
      if type.last == "'" { type = type.dropLast() }
      // libstdc++'s wrapper of std::throw_with_nested.
      let nested = "std::_Nested_exception<"
      if type.hasPrefix(nested), type.last == ">" {
        type = type.dropFirst(nested.utf8.count).dropLast()
      }
      facts = ExceptionFacts(
        type: SafeText.cut(String(type), limit: 1024), reason: "", source: .stderr)
      let what = "  what():  "
      if end < lines.count, lines[end].hasPrefix(what) {
        // The text may have line feeds; nothing of the thread's own can follow it.
        let rest = lines[(end + 1)...].prefix(ExceptionText.messageLines - 1)
        facts.reason = ExceptionText.message(
          [String(lines[end].dropFirst(what.utf8.count))] + rest)
        end += 1 + rest.count
        // what() of std::bad_alloc and its like is their name.
        if facts.reason == facts.type { facts.reason = "" }
      }
    } else if let mark = line.find(llvmThrown) {
      let words = line[mark.upperBound...]
      // "std::runtime_error: text": the first ": " that is not half of "::".
      let colon = words.find(": ")
      facts = ExceptionFacts(
        type: SafeText.cut(String(colon.map { words[..<$0.lowerBound] } ?? words), limit: 1024),
        reason: SafeText.cut(colon.map { String(words[$0.upperBound...]) } ?? ""),
        source: .stderr)
    } else if start > 0, lines[start - 1] == "pure virtual method called" {
      facts = ExceptionFacts(
        type: "pure virtual method call", reason: "pure virtual method called", source: .stderr)
    } else {
      facts = ExceptionFacts(
        type: "std::terminate",
        reason: SafeText.cut(String(line.dropFirst("terminate called ".utf8.count))),
        source: .stderr)
    }
    facts.language = "c++"
    return .init(facts: facts, start: start, end: end)
  }
}

private func + (a: [String], b: ArraySlice<String>) -> ArraySlice<String> { (a + Array(b))[...] }

enum SwiftText {
  private static let heads = ["Fatal error", "Precondition failed", "Assertion failed"]

  static func find(_ lines: [String]) -> ExceptionText.Found? {
    for start in lines.indices.reversed() {
      if let facts = parse(lines[start]) {
        return .init(facts: facts, start: start, end: start + 1)
      }
    }
    return nil
  }

  private static func parse(_ line: String) -> ExceptionFacts? {
    if line.hasPrefix("Could not cast value of type '")
      || line.hasPrefix("Simultaneous accesses to ")
    {
      var facts = ExceptionFacts(
        type: line.hasPrefix("C") ? "failed cast" : "exclusivity violation",
        reason: SafeText.cut(line), source: .stderr)
      facts.language = "swift"
      return facts
    }
    for head in heads {
      guard let mark = line.find(head) else { continue }
      let before = line[..<mark.lowerBound]
      let after = line[mark.upperBound...]
      guard after.hasPrefix(":") || after.isEmpty else { continue }
      var place: (file: String, line: Int, column: Int?)?
      if !before.isEmpty {
        guard before.hasSuffix(": "), let found = ExceptionText.fileLine(before.dropLast(2))
        else { continue }
        place = found
      }
      let reason = String(after.drop { $0 == ":" || $0 == " " })
      var facts = ExceptionFacts(
        type: errorType(reason) ?? head, reason: SafeText.cut(reason), source: .stderr)
      facts.language = "swift"
      if let place {
        facts.frames = [
          ExceptionText.frame(
            0, function: String?.none, file: place.file, line: place.line,
            inApp: !place.file.hasPrefix("Swift/"))
        ]
      }
      return facts
    }
    return nil
  }

  /// "…raised an error: Module.Declined(card: 12)" → the error's type.
  private static func errorType(_ reason: String) -> String? {
    for mark in ["unexpectedly raised an error: ", "Error raised at top level: "] {
      guard let found = reason.find(mark) else { continue }
      let name = reason[found.upperBound...].prefix {
        $0.isLetter || $0.isNumber || $0 == "." || $0 == "_"
      }
      return name.isEmpty ? nil : SafeText.cut(String(name), limit: 256)
    }
    return nil
  }
}

enum RustText {
  static func find(_ lines: [String]) -> ExceptionText.Found? {
    var panics: [ExceptionText.Found] = []
    for start in lines.indices {
      if let panic = parse(lines, start) {
        panics.append(panic)
        if panics.count > ExceptionText.causeLimit { panics.removeFirst() }
      }
    }
    guard var last = panics.popLast() else { return nil }
    // Not a panic of its own: what a panic turns into where it may not unwind.
    while last.facts.reason.hasPrefix("panic in a function that cannot unwind")
      || last.facts.reason.hasPrefix("panic in a destructor during cleanup"),
      let earlier = panics.popLast()
    {
      last.facts = earlier.facts
      last.start = earlier.start
    }
    // `join().unwrap()`: the thread's own panic is the cause.
    if last.facts.reason.holds("Any { .. }"), let cause = panics.last {
      last.facts.causes = [cause.facts]
    }
    return last
  }

  private static func parse(_ lines: [String], _ start: Int) -> ExceptionText.Found? {
    let line = lines[start]
    guard line.hasPrefix("thread '"),
      let mark = line.find("' panicked at ") ?? line.find(") panicked at ")
    else { return nil }
    var facts = ExceptionFacts(type: "panic", reason: "", source: .stderr)
    facts.language = "rust"
    var place = line[mark.upperBound...]
    var end = start + 1
    if let quoted = place.rest(after: "'"), let close = quoted.findLast("', ") {
      // Before Rust 1.73: 'message', file:line:column
      facts.reason = SafeText.cut(String(quoted[..<close.lowerBound]))
      place = quoted[close.upperBound...]
    } else {
      if place.hasSuffix(":") { place = place.dropLast() }
      let text = lines[end...].prefix(ExceptionText.messageLines).prefix {
        !$0.isEmpty && $0 != "stack backtrace:" && !$0.hasPrefix("note: ")
      }
      facts.reason = ExceptionText.message(text)
      end = text.endIndex
    }
    guard let found = ExceptionText.fileLine(place) else { return nil }
    var frames = backtrace(lines, &end)
    if frames.isEmpty {
      frames = [
        ExceptionText.frame(
          0, function: String?.none, file: found.file, line: found.line, column: found.column)
      ]
    }
    facts.frames = frames
    return .init(facts: facts, start: start, end: end)
  }

  /// `   0: name` and under it `             at file:line:column`.
  private static func backtrace(_ lines: [String], _ end: inout Int) -> [Frame] {
    guard end < lines.count, lines[end] == "stack backtrace:" else { return [] }
    var frames: [Frame] = []
    end += 1
    while end < lines.count, frames.count < ExceptionText.frameLimit {
      let text = lines[end].drop { $0 == " " }
      if text.hasPrefix("at "), let place = ExceptionText.fileLine(text.dropFirst(3)),
        !frames.isEmpty
      {
        let last = frames.count - 1
        frames[last].file = SafeText.cut(place.file, limit: 1024)
        frames[last].line = place.line
        frames[last].column = place.column
        frames[last].inApp = InApp.isInApp(
          modulePath: nil, function: frames[last].function, file: place.file)
      } else if let colon = text.find(": "), Int(text[..<colon.lowerBound]) != nil {
        let name = text[colon.upperBound...]
        frames.append(
          ExceptionText.frame(
            frames.count, function: name, file: nil, line: nil,
            inApp: InApp.isInApp(modulePath: nil, function: String(name))))
      } else {
        break
      }
      end += 1
    }
    return frames
  }
}

enum GoText {
  static func find(_ lines: [String]) -> ExceptionText.Found? {
    for start in lines.indices.reversed() {
      let line = lines[start]
      guard let head = ["panic: ", "fatal error: "].first(where: line.hasPrefix) else { continue }
      // Without its goroutines it is somebody else's word.
      guard
        let routine = lines[start...].prefix(ExceptionText.messageLines)
          .firstIndex(where: { $0.hasPrefix("goroutine ") })
      else { continue }
      let reason = line.dropFirst(head.utf8.count)
      var facts = ExceptionFacts(
        type: head == "panic: "
          ? (reason.hasPrefix("runtime error: ") ? "runtime error" : "panic") : "fatal error",
        reason: SafeText.cut(
          String(
            reason.hasPrefix("runtime error: ")
              ? reason.dropFirst("runtime error: ".utf8.count) : reason)),
        source: .stderr)
      facts.language = "go"
      var end = routine + 1
      var frames: [Frame] = []
      while end < lines.count, !lines[end].isEmpty, frames.count < ExceptionText.frameLimit {
        if lines[end].hasPrefix("\t"), !frames.isEmpty {
          let place = lines[end].dropFirst().prefix { $0 != " " }
          if let found = ExceptionText.fileLine(place) {
            frames[frames.count - 1].file = SafeText.cut(found.file, limit: 1024)
            frames[frames.count - 1].line = found.line
          }
        } else {
          let call = lines[end]
          let name = call.findLast("(").map { call[..<$0.lowerBound] } ?? call[...]
          frames.append(
            ExceptionText.frame(
              frames.count, function: name, file: nil, line: nil,
              inApp: !name.hasPrefix("runtime.") && name != "panic"))
        }
        end += 1
      }
      facts.frames = frames.isEmpty ? nil : frames
      return .init(facts: facts, start: start, end: lines.count)
    }
    return nil
  }
}
