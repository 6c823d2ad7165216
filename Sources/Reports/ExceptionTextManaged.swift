// The last words of Python, Node and Java.

enum PythonText {
  private static let head = "Traceback (most recent call last):"

  static func find(_ lines: [String]) -> ExceptionText.Found? {
    guard let last = lines.lastIndex(of: head) else { return syntaxError(lines) }
    // A thread's, a destructor's: the program lives on after it.
    if last > 0,
      lines[last - 1].hasPrefix("Exception in thread ")
        || lines[last - 1].hasPrefix("Exception ignored in")
    {
      return nil
    }
    guard var found = parse(lines, last) else { return nil }
    // Back along "The above exception was …" to the first of the chain.
    var causes: [ExceptionFacts] = []
    var start = last
    while causes.count < ExceptionText.causeLimit, start >= 3, lines[start - 1].isEmpty,
      lines[start - 2].hasPrefix("The above exception was the direct cause")
        || lines[start - 2].hasPrefix("During handling of the above exception"),
      let earlier = lines[..<(start - 2)].lastIndex(of: head), let cause = parse(lines, earlier)
    {
      causes.append(cause.facts)
      start = earlier
    }
    if !causes.isEmpty { found.facts.causes = causes }
    found.start = start
    return found
  }

  private static func parse(_ lines: [String], _ start: Int) -> ExceptionText.Found? {
    var frames: [Frame] = []
    var at = start + 1
    while at < lines.count, lines[at].hasPrefix(" ") {
      if let frame = frame(lines[at]) { frames.append(frame) }
      at += 1
    }
    guard at < lines.count, let words = ExceptionText.split(lines[at]) else { return nil }
    let more = lines[(at + 1)...].prefix(ExceptionText.messageLines).prefix { !$0.isEmpty }
    var facts = ExceptionFacts(
      type: words.type, reason: SafeText.cut(([words.reason] + more).joined(separator: "\n")),
      source: .stderr)
    facts.language = "python"
    facts.frames = newestFirst(frames)
    return .init(facts: facts, start: start, end: more.endIndex)
  }

  /// `  File "path", line 3, in name`; of a fatal error `  File "path", line 3 in name`.
  private static func frame(_ line: String) -> Frame? {
    let mark = "  File \""
    // Searched behind the opening quote: it may be all that the mark of the end needs.
    guard let path = line.rest(after: mark), let close = path.find("\", line ") else { return nil }
    let file = path[..<close.lowerBound]
    let number = line[close.upperBound...].prefix { $0.isASCII && $0.isNumber }
    guard let value = Int(number) else { return nil }
    var name = line[number.endIndex...]
    for head in [", in ", " in "] where name.hasPrefix(head) {
      name = name.dropFirst(head.utf8.count)
    }
    let isLibrary =
      file.holds("/lib/python") || file.holds("/site-packages/") || file.hasPrefix("<frozen")
    return ExceptionText.frame(
      0, function: name.isEmpty ? nil : name, file: String(file), line: value, inApp: !isLibrary)
  }

  private static func newestFirst(_ frames: [Frame]) -> [Frame]? {
    guard !frames.isEmpty else { return nil }
    return Array(
      frames.reversed().prefix(ExceptionText.frameLimit).enumerated().map {
        var frame = $1
        frame.index = $0
        return frame
      })
  }

  /// A file that does not parse never ran: no traceback.
  private static func syntaxError(_ lines: [String]) -> ExceptionText.Found? {
    guard
      let at = lines.lastIndex(where: {
        $0.hasPrefix("SyntaxError: ") || $0.hasPrefix("IndentationError: ")
          || $0.hasPrefix("TabError: ")
      }), let words = ExceptionText.split(lines[at]),
      let start = lines[..<at].suffix(4).firstIndex(where: { frame($0) != nil })
    else { return nil }
    var facts = ExceptionFacts(
      type: words.type, reason: SafeText.cut(words.reason), source: .stderr)
    facts.language = "python"
    facts.frames = frame(lines[start]).map { [$0] }
    return .init(facts: facts, start: start, end: at + 1)
  }

  /// `Fatal Python error: Segmentation fault` of faulthandler or the interpreter itself.
  static func findFatal(_ lines: [String]) -> ExceptionText.Found? {
    let mark = "Fatal Python error: "
    guard let start = lines.lastIndex(where: { $0.hasPrefix(mark) }) else { return nil }
    var facts = ExceptionFacts(
      type: "Fatal Python error",
      reason: SafeText.cut(String(lines[start].dropFirst(mark.utf8.count))), source: .stderr)
    facts.language = "python"
    var end = start + 1
    if let stack = lines[end...].firstIndex(where: {
      $0.hasPrefix("Current thread ") || $0.hasPrefix("Thread ")
    }) {
      end = stack + 1
      var frames: [Frame] = []
      while end < lines.count, frames.count < ExceptionText.frameLimit,
        let frame = frame(lines[end])
      {
        frames.append(frame)
        frames[frames.count - 1].index = frames.count - 1
        end += 1
      }
      facts.frames = frames.isEmpty ? nil : frames
    }
    return .init(facts: facts, start: start, end: end)
  }
}

enum NodeText {
  /// `path:line`, the source line, a line of carets, then the error and its stack.
  static func find(_ lines: [String]) -> ExceptionText.Found? {
    for caret in lines.indices.reversed() where caret >= 2 && isCaret(lines[caret]) {
      guard let place = ExceptionText.fileLine(lines[caret - 2]), place.column == nil,
        let head = lines[(caret + 1)...].firstIndex(where: { !$0.isEmpty })
      else { continue }
      var end = head + 1
      while end < lines.count, end - head < ExceptionText.messageLines, !lines[end].isEmpty,
        !lines[end].hasPrefix("    at "), !lines[end].hasPrefix("(Use `node")
      {
        end += 1
      }
      var facts = error(lines[head..<end])
      // "[cause]: " hangs behind the stack, one step further in with each.
      var causes: [ExceptionFacts] = []
      facts.frames = stack(lines, &end)
      while end < lines.count, !lines[end].hasPrefix("Node.js v") {
        if let mark = lines[end].find("[cause]: "), causes.count < ExceptionText.causeLimit {
          var cause = error([String(lines[end][mark.upperBound...])])
          end += 1
          cause.frames = stack(lines, &end)
          causes.append(cause)
        } else {
          end += 1
        }
      }
      if !causes.isEmpty { facts.causes = causes }
      if facts.frames == nil {
        facts.frames = [
          ExceptionText.frame(0, function: String?.none, file: place.file, line: place.line)
        ]
      }
      return .init(facts: facts, start: caret - 2, end: min(end + 1, lines.count))
    }
    return nil
  }

  private static func isCaret(_ line: String) -> Bool {
    line.utf8.contains(UInt8(ascii: "^"))
      && line.utf8.allSatisfy {
        $0 == UInt8(ascii: "^") || $0 == UInt8(ascii: " ") || $0 == UInt8(ascii: "\t")
      }
  }

  private static func error(_ lines: ArraySlice<String>) -> ExceptionFacts {
    var first = lines.first ?? ""
    if first.hasPrefix("Uncaught ") { first = String(first.dropFirst("Uncaught ".utf8.count)) }
    var facts: ExceptionFacts
    // `throw 'text'` has no type: a single word is not one.
    if first.holds(": ") || first.hasSuffix("Error"), let words = ExceptionText.split(first) {
      facts = ExceptionFacts(
        type: words.type,
        reason: ExceptionText.message(([words.reason] + lines.dropFirst())[...]), source: .stderr)
    } else {
      facts = ExceptionFacts(
        type: "uncaught value", reason: ExceptionText.message(lines), source: .stderr)
    }
    facts.language = "javascript"
    return facts
  }

  /// `    at name (file:line:column)` or `    at file:line:column`.
  private static func stack(_ lines: [String], _ end: inout Int) -> [Frame]? {
    var frames: [Frame] = []
    while end < lines.count, frames.count < ExceptionText.frameLimit {
      let text = lines[end].drop { $0 == " " }
      if text.hasPrefix("... ") {
        end += 1
        continue
      }
      guard text.hasPrefix("at ") else { break }
      var place = text.dropFirst(3)
      if place.hasSuffix(" {") { place = place.dropLast(2) }
      var name: Substring?
      if place.hasSuffix(")"), let open = place.findLast(" (") {
        name = place[..<open.lowerBound]
        place = place[open.upperBound...].dropLast()
      }
      let found = ExceptionText.fileLine(place)
      let file = found?.file ?? String(place)
      frames.append(
        ExceptionText.frame(
          frames.count, function: name, file: file, line: found?.line, column: found?.column,
          inApp: !file.hasPrefix("node:") && !file.holds("/node_modules/")
            && file != "<anonymous>"))
      end += 1
      // The brace opens the error's own properties: the stack is over.
      if lines[end - 1].hasSuffix(" {") { break }
    }
    return frames.isEmpty ? nil : frames
  }

  /// `FATAL ERROR: …` of node, `# Fatal error in file, line 3` and `# reason` of V8.
  static func findFatal(_ lines: [String]) -> ExceptionText.Found? {
    let mark = "FATAL ERROR: "
    let inside = "# Fatal error in "
    guard
      let start = lines.lastIndex(where: { $0.hasPrefix(mark) || $0.hasPrefix(inside) })
    else { return nil }
    let line = lines[start]
    var facts = ExceptionFacts(type: "FATAL ERROR", reason: "", source: .stderr)
    facts.language = "javascript"
    if line.hasPrefix(mark) {
      facts.reason = SafeText.cut(String(line.dropFirst(mark.utf8.count)))
    } else {
      let next = lines[(start + 1)...].first { $0.hasPrefix("# ") && $0 != "# " }
      facts.type = "V8 fatal error"
      facts.reason = SafeText.cut(String((next ?? line).dropFirst(2)))
    }
    return .init(facts: facts, start: start, end: lines.count)
  }
}

enum JavaText {
  /// `Exception in thread "main" pkg.Type: message`, the stack, `Caused by: …`.
  static func find(_ lines: [String]) -> ExceptionText.Found? {
    let mark = "Exception in thread \""
    guard let start = lines.lastIndex(where: { $0.hasPrefix(mark) }),
      let close = lines[start].dropFirst(mark.utf8.count).find("\" ")
    else { return nil }
    var end = start
    guard var facts = parse(lines, String(lines[start][close.upperBound...]), &end) else {
      return nil
    }
    var causes: [ExceptionFacts] = []
    while end < lines.count, lines[end].hasPrefix("Caused by: "),
      causes.count < ExceptionText.causeLimit,
      let cause = parse(lines, String(lines[end].dropFirst("Caused by: ".utf8.count)), &end)
    {
      causes.append(cause)
    }
    if !causes.isEmpty { facts.causes = causes }
    return .init(facts: facts, start: start, end: end)
  }

  private static func parse(
    _ lines: [String], _ head: String, _ at: inout Int
  ) -> ExceptionFacts? {
    guard let words = ExceptionText.split(head) else { return nil }
    at += 1
    let more = lines[at...].prefix(ExceptionText.messageLines).prefix {
      !$0.hasPrefix("\tat ") && !$0.hasPrefix("Caused by: ") && !$0.isEmpty
    }
    at = more.endIndex
    var facts = ExceptionFacts(
      type: words.type, reason: ExceptionText.message(([words.reason] + more)[...]),
      source: .stderr)
    facts.language = "java"
    var frames: [Frame] = []
    while at < lines.count {
      if lines[at].hasPrefix("\tat "), frames.count < ExceptionText.frameLimit {
        // java.base/java.lang.Integer.parseInt(Integer.java:668)
        let call = lines[at].dropFirst(4)
        let open = call.findLast("(")
        let name = open.map { call[..<$0.lowerBound] } ?? call
        let place = open.flatMap { ExceptionText.fileLine(call[$0.upperBound...].dropLast()) }
        frames.append(
          ExceptionText.frame(
            frames.count, function: name, file: place?.file, line: place?.line,
            inApp: !["java.", "jdk.", "sun."].contains(where: name.hasPrefix)))
      } else if !lines[at].hasPrefix("\t... "), !lines[at].hasPrefix("\tat ") {
        break
      }
      at += 1
    }
    facts.frames = frames.isEmpty ? nil : frames
    return facts
  }

  /// The JVM's own abort, after its hs_err log.
  static func findFatal(_ lines: [String]) -> ExceptionText.Found? {
    guard
      let start = lines.lastIndex(where: {
        $0.hasPrefix("# A fatal error has been detected by the Java Runtime Environment")
          || $0.hasPrefix("# There is insufficient memory for the Java Runtime Environment")
      })
    else { return nil }
    let block = lines[start...].prefix(40).prefix { $0.hasPrefix("#") }
    let what = block.dropFirst().first { $0.hasPrefix("#  ") }
      .map { String($0.drop { $0 == "#" || $0 == " " }) }
    var facts = ExceptionFacts(
      type: what.map { String($0.prefix { $0 != " " && $0 != "(" }) } ?? "JVM fatal error",
      reason: what ?? String(lines[start].dropFirst(2)), source: .stderr)
    facts.language = "java"
    if let mark = block.firstIndex(of: "# Problematic frame:"), block.indices.contains(mark + 1) {
      let text = String(block[mark + 1].drop { $0 == "#" || $0 == " " })
      facts.reason += " in " + text
    }
    if let mark = block.firstIndex(where: { $0.hasPrefix("# An error report file with more") }),
      block.indices.contains(mark + 1)
    {
      facts.reason += "; log " + block[mark + 1].drop { $0 == "#" || $0 == " " }
    }
    facts.reason = SafeText.cut(facts.reason)
    return .init(facts: facts, start: start, end: block.endIndex)
  }
}
