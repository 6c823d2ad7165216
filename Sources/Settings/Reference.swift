// The table of options for documents and as an example file.

enum Reference {
  /// One Markdown table for each section.
  static func markdown() -> String {
    var text = ""
    for section in Section.allCases {
      let options = Option.available.filter { $0.section == section }
      guard !options.isEmpty else { continue }
      text += "### \(section.rawValue)\n\n| option | default | what it does |\n|---|---|---|\n"
      for option in options {
        let short = option.short.map { "`-\($0)`, " } ?? ""
        let argument = option.isSwitch ? "" : "=\(option.argument)"
        text += "| \(short)`--\(option.name)\(cell(argument))` | \(cell(option.defaultText)) "
        text += "| \(cell(option.help)) |\n"
      }
      text += "\n"
    }
    return text
  }

  private static func cell(_ text: String) -> String {
    var escaped = ""
    for character in text {
      escaped += character == "|" ? "\\|" : String(character)
    }
    return escaped
  }

  /// Every key of a file with what it does; those that have a default are set to it, all of them
  /// commented out.
  static func example() -> String {
    var text = """
      # Configuration of a guarded program: guardian.toml(5). Every line below shows a default or
      # an example; take the # away to change it. Of the three health probes there can be one.
      # Check with: guardian --check --config FILE

      # What to run: program and arguments.
      #command = ["/usr/bin/server", "--port", "8080"]

      """
    for section in Section.allCases {
      let options = Option.available.filter {
        $0.section == section && $0.sources.contains(.file) && !$0.isTable
      }
      guard !options.isEmpty else { continue }
      text += "\n# --- \(section.rawValue)\n"
      for option in options {
        text += "\n" + comment(option.lineOfHelp + ".")
        text += "#\(option.name) = \(value(option))\n"
      }
    }
    // A table takes all keys after it: tables come last.
    for option in Option.available where option.isTable && option.sources.contains(.file) {
      text += "\n" + comment(option.help + ".") + "#[\(option.name)]\n#LOG_LEVEL = \"info\"\n"
    }
    return text
  }

  /// The default as TOML has it, or an example where there is none.
  static func value(_ option: Option) -> String {
    let texts = option.get(Configuration()).filter { !$0.isEmpty }
    if option.isList {
      return texts.isEmpty
        ? "[]" : "[" + texts.map { scalar($0, option) }.joined(separator: ", ") + "]"
    }
    return scalar(texts.first ?? option.example, option)
  }

  private static func scalar(_ text: String, _ option: Option) -> String {
    if option.toml.first == .boolean { return text == "yes" ? "true" : "false" }
    let digits = text.allSatisfy { $0.isASCII && ($0.isNumber || $0 == "." || $0 == "-") }
    if digits, option.toml.contains(.integer) || option.toml.contains(.float) { return text }
    return "\"\(text)\""
  }

  private static func comment(_ text: String) -> String {
    var lines = ""
    var line = "#"
    for word in text.split(separator: " ") {
      if line.count + word.count + 1 > 98 {
        lines += line + "\n"
        line = "#"
      }
      line += " " + word
    }
    return lines + line + "\n"
  }
}
