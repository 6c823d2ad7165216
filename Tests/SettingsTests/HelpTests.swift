// Help, manuals and completions show every option that there is and none that is planned.
import Glibc
import Policy
import Settings
import Testing

private func printed(_ words: String...) throws -> String {
  let request = try Settings.request(
    arguments: ["guardian"] + words, environment: [:], uid: 1000)
  guard case .print(let text) = request else {
    Issue.record("\(words) prints nothing")
    return ""
  }
  return text
}

private let planned = Option.all.filter { $0.status == .planned }
private let flags = Option.available.filter { $0.sources.contains(.flag) }
private let keys = Option.available.filter { $0.sources.contains(.file) }

@Suite struct `help` {
  @Test func `fits into 80 columns`() throws {
    for text in [try printed("--help"), try printed("--usage")] {
      for line in text.split(separator: "\n") {
        #expect(line.count <= 80, "\(line)")
        #expect(line.contains { $0 != " " }, "a line of blanks")
      }
      #expect(text.hasPrefix("Usage: guardian ") && text.hasSuffix("\n"))
    }
  }

  @Test func `names every option under its heading, with its default`() throws {
    let help = try printed("--help")
    let words = help.split { $0 == " " || $0 == "\n" }.joined(separator: " ")
    for option in flags {
      #expect(help.contains("--" + option.name), "\(option.name)")
      #expect(help.contains(" \(option.section.rawValue):\n"))
      if !option.isSwitch, option.defaultText != "none", option.defaultText != "" {
        #expect(words.contains("(\(option.defaultText))"), "\(option.name)")
      }
    }
    for option in planned {
      #expect(!help.contains("--\(option.name)=") && !help.contains("--\(option.name) "))
    }
    #expect(!help.contains("(null)"))
  }

  @Test func `comes before mistakes that argp need not see, and says the version`() throws {
    #expect(try printed("-V") == "guardian \(guardianVersion)\n")
    #expect(try printed("--restart", "sometimes", "-h") == printed("--help"))
  }

  @Test func `belongs to the command when it stands behind it`() throws {
    #expect(try configuration(command: ["server", "--help"]).command == ["server", "--help"])
  }

  @Test func `a planned option is unknown`() {
    for option in planned {
      #expect(
        failure(["--\(option.name)=1"])?.line.contains("unknown option '--\(option.name)'") == true)
      #expect(failure(environment: [option.variable: "rubbish"]) == nil)
    }
  }
}

@Suite struct `the table of options` {
  @Test func `has no name and no letter twice`() {
    let all = Option.all
    #expect(Set(all.map(\.name)).count == all.count)
    let letters = all.compactMap(\.short) + ["h", "V"]
    #expect(Set(letters).count == letters.count)
    #expect(Set(all.map(\.variable)).count == all.count)
  }

  @Test func `speaks in sentences without their stop, that start with a capital`() {
    for option in Option.all {
      #expect(!option.help.isEmpty && !option.help.hasSuffix("."), "\(option.name)")
      #expect(option.help.first?.isUppercase == true, "\(option.name)")
      #expect(
        option.details.isEmpty || option.details.hasSuffix(".")
          || option.details.hasSuffix("guardianctl"), "\(option.name)")
    }
  }

  @Test func `names no variable that guardian gives to the program`() {
    let given = [
      "GUARDIAN_CHANNEL", "GUARDIAN_PROGRAM_NAME", "GUARDIAN_LIFE", "GUARDIAN_CRASHED_LAST_RUN",
      "GUARDIAN_LAST_REPORT",
    ]
    #expect(Set(Settings.inputVariables).isDisjoint(with: given))
  }
}

@Suite struct `what is made from the table` {
  @Test func `holds every option and no planned one`() throws {
    let man = try printed("--print=man")
    let file = try printed("--print=man5")
    let example = try printed("--print=example-toml")
    let markdown = try printed("--print=options-markdown")
    let bash = try printed("--print=completion-bash")
    let zsh = try printed("--print=completion-zsh")
    let fish = try printed("--print=completion-fish")
    func roff(_ name: String) -> String {
      name.split(separator: "-").joined(separator: "\\-")
    }
    for option in flags {
      #expect(man.contains("\\fB\\-\\-\(roff(option.name))\\fR"), "\(option.name)")
      #expect(markdown.contains("`--\(option.name)"))
      #expect(bash.contains("--\(option.name)"))
      #expect(zsh.contains("--\(option.name)"))
      #expect(fish.contains("-l \(option.name) "))
    }
    for option in keys {
      #expect(file.contains("\\fB\(roff(option.name))\\fR"), "\(option.name)")
      #expect(
        example.contains(option.isTable ? "\n#[\(option.name)]\n" : "\n#\(option.name) = "),
        "\(option.name)")
    }
    for option in planned {
      #expect(!man.contains("\\-\\-\(roff(option.name))\\fR"))
      #expect(!file.contains("\\fB\(roff(option.name))\\fR"))
      #expect(!example.contains("\n#\(option.name) ="))
      #expect(!fish.contains("-l \(option.name) "))
    }
  }

  @Test func `the example is right as it is and with every line that shows a default`() throws {
    let folder = Folder()
    let example = try printed("--print=example-toml")
    #expect(try configuration(["-c", folder.file("a.toml", example)]).maxCrashes == 10)
    // Take the sign away from lines that are keys; drop what excludes each other or has no default.
    let lines = example.split(separator: "\n").map { line -> String in
      let key =
        line.hasPrefix("#") && !line.hasPrefix("# ") && !line.hasPrefix("#health-exec")
        && !line.hasPrefix("#health-tcp")
      return key ? String(line.dropFirst()) : String(line)
    }
    let all = try configuration(
      ["-c", folder.file("b.toml", lines.joined(separator: "\n"))], command: [])
    #expect(all.command == ["/usr/bin/server", "--port", "8080"])
    #expect(all.environment.map(\.name) == ["LOG_LEVEL"])
    let defaults = try configuration(command: ["x"])
    #expect(all.stopTimeout == defaults.stopTimeout)
    #expect(all.reportsBytes == defaults.reportsBytes)
    #expect(all.restartBackoff == defaults.restartBackoff)
  }

  @Test func `a file says true and false, and the manual every unit and exit code`() throws {
    let file = try printed("--print=man5")
    #expect(!file.contains("yes|no") && !file.contains("Default: no."))
    #expect(file.contains("\\fBquiet\\fR = \\fItrue|false\\fR"))
    #expect(file.contains("Default: false."))
    let man = try printed("--print=man")
    for text in [
      "m, min, minute, minutes\n", "B, kB, K, KiB, MB", "\\fImaps\\fR", "reserved for delivery",
    ] {
      #expect(man.contains(text), "\(text)")
    }
    let read = contents(root + "/README.md")
    let control = try printed("--print=manctl")
    for code in ["64", "71", "75", "78", "126", "127"] {
      #expect(man.contains("\\fB\(code)\\fR") && read.contains(code), "\(code)")
    }
    for code in ["65", "66", "69", "71", "74", "76", "77", "78"] {
      #expect(control.contains("\\fB\(code)\\fR") && read.contains(code), "\(code)")
    }
  }

  @Test func `each line of the example is right when its sign is taken away`() throws {
    let folder = Folder()
    let example = try printed("--print=example-toml")
    let lines = example.split(separator: "\n").filter { $0.hasPrefix("#") && !$0.hasPrefix("# ") }
    #expect(lines.count > 40)
    for line in lines where !line.hasPrefix("#[") && !line.hasPrefix("#LOG_LEVEL") {
      let path = folder.file("line.toml", line.dropFirst() + "\n")
      let command = line.hasPrefix("#command") ? [] : ["--", "server"]
      #expect(failure(["-c", path], command: command) == nil, "\(line)")
    }
  }

  static let manDB = access("/usr/bin/man", X_OK) == 0

  @Test(.enabled(if: manDB, "man-db is not installed"), arguments: ["man", "man5", "manctl"])
  func `man finds nothing to warn of`(what: String) throws {
    let folder = Folder()
    let page = folder.file("page.1", try printed("--print=\(what)"))
    let shown = run(
      ["/usr/bin/man", "--warnings", "-E", "UTF-8", "-l", page],
      environment: [
        "PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "MANWIDTH=80", "MANROFFSEQ=", "PAGER=cat",
      ])
    #expect(shown.status == 0)
    #expect(shown.error == "")
    #expect(shown.output.contains("SYNOPSIS"))
    for line in shown.output.split(separator: "\n") { #expect(line.count <= 80, "\(line)") }
    // An escape that was not understood shows as itself.
    #expect(!shown.output.contains("\\"))
  }

  @Test func `bash completes names, values, and the command behind them`() throws {
    let folder = Folder()
    let file = folder.file("completion", try printed("--print=completion-bash"))
    func complete(_ program: String, _ words: [String]) -> [String] {
      let quoted = ([program] + words).map { "'\($0)'" }.joined(separator: " ")
      let script =
        "set -e; . '\(file)'; guardianctl() { [ $1 = completion-names ] && printf 'web\\nworker\\n'; }; "
        + "COMP_WORDS=(\(quoted)); COMP_CWORD=\(words.count); "
        + "_\(program) || true; printf '%s\\n' \"${COMPREPLY[@]}\""
      let ran = run(["/bin/bash", "-c", script])
      #expect(ran.error == "")
      return ran.output.split(separator: "\n").map(String.init)
    }
    #expect(complete("guardian", ["--max-c"]) == ["--max-crashes"])
    #expect(complete("guardian", ["--restart", "on-f"]) == ["on-failure"])
    #expect(complete("guardian", ["--restart", "=", "alw"]) == ["always"])
    #expect(complete("guardian", ["--restart=on-f"]) == ["--restart=on-failure"])
    #expect(complete("guardian", ["--max-crashes=inf"]) == ["--max-crashes=infinity"])
    #expect(complete("guardian", ["--nice="]).isEmpty)
    #expect(complete("guardian", ["--restart=no", "--max-c"]) == ["--max-crashes"])
    #expect(complete("guardian", ["-r", ""]).count == 7)
    #expect(complete("guardian", ["-m", "3", "--", "mkfif"]).contains("mkfifo"))
    #expect(complete("guardian", ["-m", "3", "mkfif"]).contains("mkfifo"))
    #expect(complete("guardian", ["--", "ls", "/usr/bi"]) == ["/usr/bin"])
    #expect(complete("guardian", ["ls", "--max-c"]).isEmpty)
    #expect(complete("guardianctl", ["sh"]) == ["show"])
    #expect(complete("guardianctl", ["status", ""]) == ["web", "worker"])
    #expect(complete("guardianctl", ["-j", "stop", "wo"]) == ["worker"])
    #expect(complete("guardianctl", ["-n", "we"]) == ["web"])
    #expect(complete("guardianctl", ["--name=we"]) == ["--name=web"])
    #expect(complete("guardianctl", ["status", "-n", ""]) == ["web", "worker"])
    #expect(complete("guardianctl", ["stop", "web", ""]).isEmpty)
    #expect(complete("guardianctl", ["signal", "HU"]) == ["HUP"])
    #expect(complete("guardianctl", ["signal", "HUP", ""]) == ["web", "worker"])
    #expect(complete("guardianctl", ["show", ""]) == ["web", "worker", "latest"])
    #expect(complete("guardianctl", ["show", "web", ""]) == ["latest"])
    #expect(complete("guardianctl", ["--js"]) == ["--json"])
  }

  static let zsh = access("/usr/bin/zsh", X_OK) == 0
  static let fish = access("/usr/bin/fish", X_OK) == 0

  @Test(.enabled(if: zsh, "zsh is not installed"))
  func `zsh reads its completion`() throws {
    let folder = Folder()
    let file = folder.file("_guardian", try printed("--print=completion-zsh"))
    let ran = run(["/usr/bin/zsh", "-f", "-n", file])
    #expect(ran.error == "" && ran.status == 0)
  }

  @Test(.enabled(if: fish, "fish is not installed"))
  func `fish completes names and values`() throws {
    let folder = Folder()
    let file = folder.file("guardian.fish", try printed("--print=completion-fish"))
    func complete(_ line: String) -> [String] {
      let names = "function guardianctl; printf 'web\\nworker\\n'; end"
      let ran = run(
        ["/usr/bin/fish", "--no-config", "-c", "\(names); source \(file); complete -C '\(line)'"],
        environment: ["PATH=/usr/bin:/bin", "HOME=\(folder.path)"])
      #expect(ran.error == "")
      return ran.output.split(separator: "\n").map { String($0.prefix { $0 != "\t" }) }
    }
    #expect(
      complete("guardian --max-c") == ["--max-crashes="]
        || complete("guardian --max-c") == ["--max-crashes"])
    #expect(complete("guardian --restart on-f") == ["on-failure"])
    #expect(complete("guardianctl sho") == ["show"])
    #expect(complete("guardianctl show la") == ["latest"])
    #expect(complete("guardianctl status w") == ["web", "worker"])
    #expect(complete("guardianctl -n web stop wo") == ["worker"])
    #expect(complete("guardianctl -n we") == ["web"])
    #expect(complete("guardianctl signal HU") == ["HUP"])
    #expect(complete("guardianctl signal HUP wo") == ["worker"])
    #expect(complete("guardian --restart=on-f") == ["--restart=on-failure"])
  }

  @Test func `the version is the one the build names`() throws {
    let source = contents(root + "/Sources/Settings/Version.swift")
    #expect(source.contains("\"\(guardianVersion)\""))
    let made = run(["/usr/bin/make", "-s", "-C", root, "version"])
    #expect(made.output == guardianVersion + "\n")
  }
}
