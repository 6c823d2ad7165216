// Flags to words, by glibc's argp: abbreviations, clusters, --help in the form GNU tools have.
// Knows no option's meaning.
import CLinux
import Glibc

/// One flag as argp is told of it.
struct Flag {
  let name: String
  let short: Character?
  /// nil: the flag takes no value.
  let argument: String?
  let help: String
  /// The heading it stands under.
  let section: String
  let isHidden: Bool
  /// No flag: a line of help that looks like one.
  let isDocumentation: Bool

  init(
    _ name: String, short: Character? = nil, argument: String? = nil,
    help: String, section: String, isHidden: Bool = false,
    isDocumentation: Bool = false
  ) {
    self.name = name
    self.short = short
    self.argument = argument
    self.help = help
    self.section = section
    self.isHidden = isHidden
    self.isDocumentation = isDocumentation
  }
}

/// What was given, in order.
struct ParsedWords: Equatable {
  struct Occurrence: Equatable {
    /// The flag's place in `CommandLineReader.flags`.
    let flag: Int
    let value: String?
  }
  var flags: [Occurrence] = []
  /// Words that are no flags.
  var operands: [String] = []
  /// Where in the argument vector the operands start, if they are its end.
  var operandsStart: Int?
}

struct CommandLineReader {
  let program: String
  let flags: [Flag]
  /// "-- COMMAND [ARG...]"
  let operands: String
  let introduction: String
  let conclusion: String
  /// The first operand ends the flags (a command with flags of its own follows).
  let stopsAtOperand: Bool

  /// Above every character, so that argp takes it for a flag without a short form.
  private static let firstKey: Int32 = 0x1000

  /// - Parameter arguments: with the program's own name first.
  func read(_ arguments: [String]) throws(SettingsError) -> ParsedWords {
    let collector = unsafe Collector(keys: keys)
    // One flag can hide in every second byte of a word; nobody types this many words.
    guard arguments.count <= 100_000 else {
      throw SettingsError(.commandLine, "there are \(arguments.count) arguments")
    }
    // Without a name argp makes up its own.
    let words = arguments.isEmpty ? [program] : arguments
    let failure: Int32? = unsafe withArgp { argp in
      var vector: [UnsafeMutablePointer<CChar>?] = unsafe words.map { unsafe strdup($0) } + [nil]
      defer { unsafe vector.forEach { unsafe free($0) } }
      let flags =
        UInt32(ARGP_NO_ERRS | ARGP_NO_HELP | ARGP_NO_EXIT)
        | UInt32(stopsAtOperand ? ARGP_IN_ORDER : 0)
      let error = unsafe argp_parse(
        argp, Int32(words.count), &vector, flags, nil,
        Unmanaged.passUnretained(collector).toOpaque())
      return error == 0 ? nil : error
    }
    if failure != nil {
      throw SettingsError(.commandLine, diagnosis(words, at: collector.failedAt))
    }
    return collector.words
  }

  /// What `--help` prints.
  func help() -> String {
    text(
      UInt32(ARGP_HELP_SHORT_USAGE | ARGP_HELP_PRE_DOC | ARGP_HELP_LONG | ARGP_HELP_POST_DOC))
  }

  /// What `--usage` prints.
  func usage() -> String { text(UInt32(ARGP_HELP_USAGE)) }

  private func text(_ parts: UInt32) -> String {
    unsafe withArgp { argp in
      var buffer: UnsafeMutablePointer<CChar>?
      var size = 0
      guard let stream = unsafe open_memstream(&buffer, &size) else { return "" }
      // Only inside of a parse does argp ask the filter of `withArgp`.
      let collector = unsafe Collector(keys: [:], help: (stream, parts))
      let name = unsafe strdup(program)
      var vector = unsafe [name, nil]
      unsafe argp_parse(
        argp, 1, &vector, UInt32(ARGP_NO_HELP | ARGP_NO_EXIT), nil,
        Unmanaged.passUnretained(collector).toOpaque())
      unsafe free(name)
      unsafe fclose(stream)
      defer { unsafe free(buffer) }
      let text = unsafe buffer.map { unsafe String(cString: $0) } ?? ""
      // A line that is exactly full leaves one behind it that holds blanks alone.
      return text.split(separator: "\n", omittingEmptySubsequences: false)
        .filter { $0.isEmpty || !$0.allSatisfy { $0 == " " } }.joined(separator: "\n")
    }
  }

  // MARK: argp

  private var keys: [Int32: Int] {
    var keys: [Int32: Int] = [:]
    for index in flags.indices { keys[key(index)] = index }
    return keys
  }

  private func key(_ index: Int) -> Int32 {
    flags[index].short?.asciiValue.map(Int32.init) ?? Self.firstKey + Int32(index)
  }

  /// argp's own description of the flags; it is gone when `body` returns.
  private func withArgp<Result>(_ body: (UnsafePointer<argp>) -> Result) -> Result {
    var texts: [UnsafeMutablePointer<CChar>] = unsafe []
    defer { unsafe texts.forEach { unsafe free($0) } }
    func hold(_ text: String) -> UnsafePointer<CChar> {
      let copy = unsafe strdup(text)!
      unsafe texts.append(copy)
      return unsafe UnsafePointer(copy)
    }
    var options: [argp_option] = unsafe []
    var sections: [String] = []
    for (index, flag) in flags.enumerated() {
      var group: Int32
      if let known = sections.firstIndex(of: flag.section) {
        group = Int32(known + 1)
      } else {
        sections.append(flag.section)
        group = Int32(sections.count)
        let heading = flag.section.isEmpty ? nil : unsafe hold(flag.section + ":")
        if let heading = unsafe heading {
          unsafe options.append(
            argp_option(name: nil, key: 0, arg: nil, flags: 0, doc: heading, group: group))
        }
      }
      if flag.section.isEmpty { group = -1 }
      let settings =
        (flag.isHidden ? OPTION_HIDDEN : 0)
        | (flag.isDocumentation ? OPTION_DOC | OPTION_NO_USAGE : 0)
      unsafe options.append(
        argp_option(
          name: hold(flag.name), key: key(index), arg: flag.argument.map { unsafe hold($0) },
          flags: settings, doc: hold(flag.help), group: group))
    }
    unsafe options.append(argp_option())
    return unsafe options.withUnsafeBufferPointer { options in
      var description = unsafe argp(
        options: options.baseAddress, parser: Collector.take, args_doc: hold(operands),
        doc: hold(introduction + "\u{0b}" + conclusion), children: nil,
        help_filter: { key, text, _ in
          // No note on arguments of short options: GNU tools know it by now.
          key == ARGP_KEY_HELP_DUP_ARGS_NOTE ? nil : unsafe UnsafeMutablePointer(mutating: text)
        },
        argp_domain: nil)
      return unsafe body(&description)
    }
  }

  /// What argp reports to.
  @safe private final class Collector {
    var words = ParsedWords()
    /// argp's next argument when it failed.
    var failedAt = 1
    private let keys: [Int32: Int]
    private let help: (stream: UnsafeMutablePointer<FILE>, parts: UInt32)?

    init(keys: [Int32: Int], help: (UnsafeMutablePointer<FILE>, UInt32)? = nil) {
      self.keys = keys
      unsafe self.help = help
    }

    static let take: argp_parser_t = { key, argument, state in
      guard let state = unsafe state, let input = unsafe state.pointee.input else { return EINVAL }
      let collector = unsafe Unmanaged<Collector>.fromOpaque(input).takeUnretainedValue()
      let next = unsafe Int(state.pointee.next)
      switch key {
      case ARGP_KEY_ARG:
        if unsafe state.pointee.flags & UInt32(ARGP_IN_ORDER) != 0 {
          // "I take all the rest": argp comes again with ARGP_KEY_ARGS.
          return E2BIG
        }
        collector.words.operands.append(unsafe text(argument))
      case ARGP_KEY_ARGS:
        let count = unsafe Int(state.pointee.argc)
        collector.words.operandsStart = next
        for index in next..<count {
          collector.words.operands.append(unsafe text(state.pointee.argv[index]))
        }
      case ARGP_KEY_END:
        if let (stream, parts) = unsafe collector.help {
          unsafe argp_state_help(state, stream, parts)
        }
      case ARGP_KEY_ERROR: collector.failedAt = next
      default:
        guard let flag = collector.keys[key] else { return E2BIG }
        collector.words.flags.append(
          ParsedWords.Occurrence(flag: flag, value: unsafe argument.map { unsafe text($0) }))
      }
      return 0
    }

    private static func text(_ word: UnsafePointer<CChar>?) -> String {
      unsafe word.map { unsafe String(cString: $0) } ?? ""
    }
  }

  // MARK: What was wrong

  /// argp says only that something is wrong and where it stood; find out what.
  private func diagnosis(_ words: [String], at next: Int) -> String {
    for index in [next - 1, next] where words.indices.contains(index) && index > 0 {
      let isLast = index == words.count - 1
      if let text = diagnosis(of: words[index], isLast: isLast) { return text }
    }
    return "the options cannot be read"
  }

  private func diagnosis(of word: String, isLast: Bool) -> String? {
    if word.hasPrefix("--"), word != "--" {
      let parts = word.dropFirst(2).split(
        separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      let name = String(parts[0])
      let shown = quoted("--" + name)
      let matching = flags.filter { $0.name.hasPrefix(name) && !$0.isDocumentation }
      if let flag = matching.first(where: { $0.name == name })
        ?? (matching.count == 1 ? matching[0] : nil)
      {
        if parts.count == 2, flag.argument == nil {
          return "option '--\(flag.name)' takes no value"
        }
        if parts.count == 1, isLast, let argument = flag.argument {
          return "option '--\(flag.name)' needs a value: --\(flag.name)=\(argument)"
        }
        return nil
      }
      let visible = matching.filter { !$0.isHidden }.map { "--" + $0.name }
      if visible.count > 1 {
        return "option \(shown) is ambiguous: it could be " + visible.joined(separator: ", ")
      }
      let names = flags.filter { !$0.isHidden && !$0.isDocumentation }.map { "--" + $0.name }
      return "unknown option \(shown)" + suggestion(for: "--" + name, among: names)
    }
    guard word.hasPrefix("-"), word != "-" else { return nil }
    var rest = word.dropFirst()
    while let letter = rest.popFirst() {
      guard let flag = flags.first(where: { $0.short == letter }) else {
        return "unknown option \(quoted("-" + String(letter)))"
      }
      if let argument = flag.argument {
        return rest.isEmpty && isLast
          ? "option '-\(letter)' needs a value: -\(letter) \(argument)" : nil
      }
    }
    return nil
  }
}
