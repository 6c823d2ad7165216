// What runtimes write when a program dies → type, reason, place, causes. Pure. The text is
// hostile: the program may write anything, so every search is bounded and nothing here fails.
import Policy

package enum ExceptionText {
  static let causeLimit = ReportLimits.causes
  static let frameLimit = 256
  /// Lines that one message may have.
  static let messageLines = 16

  /// What was found, and where: the exception that was written last explains the ending.
  struct Found {
    var facts: ExceptionFacts
    /// Lines in the text: the first of it and the first behind it.
    var start: Int
    var end: Int
  }

  /// The runtime's last words, if they fit how the program ended: a handled error that was
  /// logged an hour ago explains nothing. `lines`: of the last life only.
  package static func stderr(
    _ lines: [String], fitting status: Ending.Status
  ) -> ExceptionFacts? {
    let lines = Array(lines.suffix(ReportLimits.parsedStderrLines))
    var found: [Found?] = []
    switch status {
    case .signaled(let signal, _): found = bySignal(lines, signal.rawValue)
    case .exited(let status) where status > 128 && status < 128 + 65:
      found = bySignal(lines, status - 128) + byExit(lines, status)
    case .exited(0), .execFailed: return nil
    case .exited(let status): found = byExit(lines, status)
    case .unknown: found = bySignal(lines, 6) + byExit(lines, 1)
    }
    return found.compactMap { $0 }.max { $0.start < $1.start }?.facts
  }

  private static func bySignal(_ lines: [String], _ signal: Int32) -> [Found?] {
    switch signal {
    case 6:
      [
        CxxText.find(lines), SwiftText.find(lines), RustText.find(lines), GoText.find(lines),
        PythonText.findFatal(lines), NodeText.findFatal(lines), JavaText.findFatal(lines),
        abortText(lines),
      ]
    case 4, 5:
      [SwiftText.find(lines), RustText.find(lines), NodeText.findFatal(lines)]
    case 7, 8, 11: [PythonText.findFatal(lines), GoText.find(lines)]
    default: []
    }
  }

  private static func byExit(_ lines: [String], _ status: Int32) -> [Found?] {
    var found = [NodeText.find(lines), PythonText.find(lines), JavaText.find(lines)]
    if status == 101 { found.append(RustText.find(lines)) }
    if status == 2 { found.append(GoText.find(lines)) }
    // What explains an exit stands at the end; a few lines of farewell may follow.
    return found.map { candidate in
      candidate.flatMap { found in
        lines[min(found.end, lines.count)...].count { !$0.isEmpty } <= 6 ? found : nil
      }
    }
  }

  // MARK: glibc

  /// glibc's `__abort_msg`, or the same words on stderr.
  package static func abortMessage(_ text: String) -> ExceptionFacts? {
    var text = Substring(text)
    while let last = text.last, last.isNewline || last == " " { text.removeLast() }
    guard !text.isEmpty else { return nil }
    if let facts = assertion(String(text)) { return facts }
    let type: String
    if text.hasPrefix("*** stack smashing detected") {
      type = "stack smashing"
    } else if text.hasPrefix("*** ") {
      type = "fortify failure"
    } else if heapWords.contains(where: { text.hasPrefix($0) }) {
      type = "heap corruption"
    } else {
      type = "abort"
    }
    return ExceptionFacts(type: type, reason: SafeText.cut(String(text)), source: .abortMessage)
  }

  private static let heapWords = [
    "free(): ", "malloc(): ", "realloc(): ", "calloc(): ", "munmap_chunk(): ", "mremap_chunk(): ",
    "malloc_consolidate(): ", "_int_memalign(): ", "corrupted ", "double free or corruption",
    "tcache_", "chunk_", "break adjusted to free malloc space", "invalid chunk",
  ]

  /// `prog: file:line: function: Assertion `expression' failed.` of glibc, and libstdc++'s
  /// `file:line: function: Assertion 'expression' failed.`
  private static func assertion(_ text: String) -> ExceptionFacts? {
    guard text.hasSuffix(" failed."),
      let mark = text.find("Assertion `") ?? text.find("Assertion '")
    else { return nil }
    let expression = text[mark.upperBound...].dropLast(" failed.".utf8.count + 1)
    let head = text[..<mark.lowerBound]
    guard let place = place(head) else { return nil }
    var facts = ExceptionFacts(
      type: "assertion failed", reason: SafeText.cut(String(expression)), source: .abortMessage)
    facts.language = "c"
    var frame = Frame(index: 0, address: nil, trust: nil)
    frame.file = SafeText.cut(place.file)
    frame.line = place.line
    frame.function = place.rest.isEmpty ? nil : SafeText.cut(place.rest)
    facts.frames = [frame]
    return facts
  }

  /// `[prog: ]file:line: rest` where rest loses its own colon at the end.
  private static func place(_ head: Substring) -> (file: String, line: Int, rest: String)? {
    var from = head.startIndex
    while let colon = head[from...].find(":") {
      let digits = head[colon.upperBound...].prefix { $0.isASCII && $0.isNumber }
      let behind = head[digits.endIndex...]
      if !digits.isEmpty, behind.hasPrefix(":"), let line = Int(digits) {
        var file = head[..<colon.lowerBound]
        if let program = file.find(": ") { file = file[program.upperBound...] }
        var rest = behind.dropFirst()
        while let last = rest.last, last == " " || last == ":" { rest.removeLast() }
        while rest.first == " " { rest.removeFirst() }
        return (String(file), line, String(rest))
      }
      from = colon.upperBound
    }
    return nil
  }

  /// glibc wrote it to stderr too; without a handler that is all there is.
  private static func abortText(_ lines: [String]) -> Found? {
    // It is the last thing a program says; others' lines may come in between.
    for index in lines.indices.reversed().prefix(8) {
      guard var facts = abortMessage(lines[index]), facts.type != "abort" else { continue }
      facts.source = .stderr
      return Found(facts: facts, start: index, end: index + 1)
    }
    return nil
  }

  // MARK: Swift's own trap

  /// An optimised trap of Swift says its reason nowhere but in the name of an inline frame.
  package static func swiftRuntimeFailure(_ frames: [Frame]) -> ExceptionFacts? {
    let mark = "Swift runtime failure: "
    for frame in frames.prefix(4) {
      guard let name = frame.function ?? frame.rawFunction, name.hasPrefix(mark) else { continue }
      var facts = ExceptionFacts(
        type: "Swift runtime failure",
        reason: SafeText.cut(String(name.dropFirst(mark.utf8.count))), source: .signal)
      facts.language = "swift"
      return facts
    }
    return nil
  }

  // MARK: Shared

  /// "pkg.Type: message" → both; the type is one word.
  static func split(_ line: some StringProtocol) -> (type: String, reason: String)? {
    let line = String(line)
    let colon = line.find(": ")
    var type = colon.map { line[..<$0.lowerBound] } ?? line[...]
    // "Error [ERR_X]: message", "KeyboardInterrupt", "Type:" with an empty message.
    if colon == nil, type.hasSuffix(":") { type = type.dropLast() }
    let word = type.prefix { $0 != " " }
    let isTagged = word.endIndex != type.endIndex && type[word.endIndex...].hasPrefix(" [")
    guard !word.isEmpty, word.count <= 256, word.endIndex == type.endIndex || isTagged,
      word.first.map({ $0.isLetter || $0 == "_" }) == true,
      word.utf8.allSatisfy({ byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "."),
          UInt8(ascii: "$"), UInt8(ascii: ":"), 0x80...0xff:
          true
        default: false
        }
      })
    else { return nil }
    return (String(word), colon.map { String(line[$0.upperBound...]) } ?? "")
  }

  static func message(_ lines: ArraySlice<String>) -> String {
    SafeText.cut(lines.joined(separator: "\n"))
  }

  /// "file:line" or "file:line:column" from the end of a text.
  static func fileLine(
    _ text: some StringProtocol
  ) -> (file: String, line: Int, column: Int?)? {
    var parts = String(text).split(separator: ":", omittingEmptySubsequences: false)
    guard parts.count >= 2, let last = Int(parts[parts.count - 1]), last >= 0 else { return nil }
    parts.removeLast()
    if parts.count >= 2, let line = Int(parts[parts.count - 1]), line >= 0 {
      return (parts.dropLast().joined(separator: ":"), line, last)
    }
    return (parts.joined(separator: ":"), last, nil)
  }

  static func frame(
    _ index: Int, function: (some StringProtocol)?, file: String?, line: Int?, column: Int? = nil,
    inApp: Bool = true
  ) -> Frame {
    var frame = Frame(index: index, address: nil, trust: nil)
    frame.function = function.map { SafeText.cut(String($0), limit: 1024) }
    frame.file = file.map { SafeText.cut($0, limit: 1024) }
    frame.line = line
    frame.column = column
    frame.inApp = inApp
    return frame
  }
}
