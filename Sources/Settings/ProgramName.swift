// The name of a guarded program: its rules, and how one is found when none is given.

package enum ProgramName {
  /// A name is a folder's name and part of socket paths, which hold 107 bytes in all (unix(7)).
  package static let lengthLimit = 48

  /// Letters, digits, '.', '_' and '-', not starting with '.' or '-'.
  package static func isValid(_ name: String) -> Bool {
    guard let first = name.utf8.first, name.utf8.count <= lengthLimit else { return false }
    return first != UInt8(ascii: ".") && first != UInt8(ascii: "-")
      && name.utf8.allSatisfy(isAllowed)
  }

  package static let rule = "a name has \(extent) and does not start with '.' or '-'"
  /// For manuals: what it is.
  static let notation = "a text of \(extent) that does not start with '.' or '-'"
  private static let extent = "1 to \(lengthLimit) letters, digits, '.', '_' or '-'"

  private static func isAllowed(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
      UInt8(ascii: "-"):
      true
    default: false
    }
  }

  /// "api", 2 → "api-2", within the length limit.
  static func numbered(_ name: String, _ number: Int) -> String {
    let suffix = "-\(number)"
    return String(name.prefix(lengthLimit - suffix.utf8.count)) + suffix
  }

  /// The program's base name; for an interpreter the base name of what it runs, without the
  /// extension: `python3 /srv/app.py` → "app".
  package static func derived(from command: [String]) -> String {
    var words = command[...]
    // `env [NAME=VALUE]… COMMAND` stands for the command.
    while let first = words.first, base(first) == "env" {
      let rest = words.dropFirst().drop { $0.contains("=") && !$0.hasPrefix("-") }
      guard let next = rest.first, !next.hasPrefix("-") else { break }
      words = rest
    }
    guard let program = words.first else { return "program" }
    let name = base(program)
    if let interpreter = Interpreter.known(name),
      let script = interpreter.script(in: words.dropFirst())
    {
      return made(valid: stem(base(script)))
    }
    return made(valid: name)
  }

  static func base(_ path: String) -> String {
    path.split(separator: "/").last.map(String.init) ?? ""
  }

  /// Without the extension that only says which interpreter it is for.
  private static func stem(_ file: String) -> String {
    for suffix in [
      ".py", ".pyc", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".sh", ".php", ".lua", ".jar",
    ]
    where file.hasSuffix(suffix) && file.utf8.count > suffix.utf8.count {
      return String(file.dropLast(suffix.count))
    }
    return file
  }

  private static func made(valid name: String) -> String {
    var bytes = name.utf8.prefix(lengthLimit).map { isAllowed($0) ? $0 : UInt8(ascii: "_") }
    if bytes.first == UInt8(ascii: ".") || bytes.first == UInt8(ascii: "-") {
      bytes[0] = UInt8(ascii: "_")
    }
    return bytes.isEmpty ? "program" : String(decoding: bytes, as: UTF8.self)
  }
}

/// What has to be known of an interpreter's command line to find the script in it.
private struct Interpreter {
  /// Options whose value is the next word.
  var valued: Set<String> = []
  /// Options whose value names what is run.
  var naming: Set<String> = []
  /// Options after which there is code, not a file.
  var inline: Set<String> = []
  /// Words before the script that are no options (`deno run`).
  var verbs: Set<String> = []
  /// What is run is a class or module: its last dotted part names it.
  var dotted = false

  static func known(_ name: String) -> Interpreter? {
    // "python3.11" is python, "ruby2.7" is ruby.
    let plain = String(name.prefix { !$0.isNumber })
    return switch plain {
    case "python", "pypy":
      Interpreter(valued: ["-W", "-X", "--check-hash-based-pycs"], naming: ["-m"], inline: ["-c"])
    case "node", "nodejs":
      Interpreter(
        valued: ["-r", "--require", "--import", "--loader", "--env-file", "-C", "--conditions"],
        inline: ["-e", "--eval", "-p", "--print"])
    case "deno", "bun": Interpreter(verbs: ["run", "serve"])
    case "perl": Interpreter(valued: ["-I"], inline: ["-e", "-E"])
    case "ruby": Interpreter(valued: ["-I", "-r", "-C"], inline: ["-e"])
    case "php": Interpreter(valued: ["-c", "-d", "-S", "-t"], naming: ["-f"], inline: ["-r"])
    case "lua", "luajit": Interpreter(valued: ["-l"], inline: ["-e"])
    case "sh", "bash", "dash", "zsh", "ksh", "ash", "fish":
      Interpreter(valued: ["-o", "+o", "-O", "+O", "--rcfile", "--init-file"], inline: ["-c"])
    case "java":
      Interpreter(
        valued: [
          "-cp", "-classpath", "--class-path", "-p", "--module-path", "--add-modules",
          "--add-opens",
          "--add-exports", "--add-reads", "--upgrade-module-path",
        ], naming: ["-jar", "-m", "--module"], dotted: true)
    default: nil
    }
  }

  func script(in words: ArraySlice<String>) -> String? {
    var words = words
    while let word = words.popFirst() {
      if word == "--" { return words.first.map(named) }
      if naming.contains(word) { return words.first.map(named) }
      if inline.contains(word) { return nil }
      if valued.contains(word) {
        _ = words.popFirst()
      } else if verbs.contains(word) {
        continue
      } else if !word.hasPrefix("-") && !word.hasPrefix("+") {
        return named(word)
      } else if word == "-" {
        return nil
      } else if !inline.isDisjoint(with: [String(word.suffix(1)), "-" + word.suffix(1)]),
        !word.hasPrefix("--"), word.utf8.count > 2, word.dropFirst().allSatisfy(\.isLetter)
      {
        // A cluster that ends in the letter of inline code: `sh -ec '…'`.
        return nil
      }
    }
    return nil
  }

  /// Java: `module/com.example.Main` and `com.example.Main` are "Main"; a jar is a file.
  private func named(_ word: String) -> String {
    guard dotted, !word.hasSuffix(".jar"), !word.hasSuffix(".java") else { return word }
    let last = ProgramName.base(word)
    return last.split(separator: ".").last.map(String.init) ?? last
  }
}
