// guardianctl's command line.
import Settings
import Testing

private func parsed(
  _ words: [String], environment: [String: String] = [:]
) throws(SettingsError) -> ControlCommand {
  let request = try ControlCommand.request(
    arguments: ["guardianctl"] + words, environment: environment, verbs: ControlVerb.all,
    options: ControlOption.all)
  guard case .run(let command) = request else {
    throw SettingsError(.commandLine, "this does not run")
  }
  return command
}

@Suite struct `guardianctl's command line` {
  @Test func `options may stand before and behind the command`() throws {
    for words in [
      ["--json", "-n", "api", "show", "latest"], ["show", "latest", "--name=api", "-j"],
      ["show", "--json", "latest", "--name", "api"],
    ] {
      let command = try parsed(words)
      #expect(command.verb == "show")
      #expect(command.arguments == ["latest"])
      #expect(command.json)
      #expect(command.name == "api")
    }
  }

  @Test func `help is also a command`() throws {
    let print = { (word: String) in
      try ControlCommand.request(arguments: ["guardianctl", word], environment: [:])
    }
    #expect(try print("help") == print("--help"))
  }

  @Test func `words after two dashes are operands`() throws {
    #expect(
      try parsed(["debug", "latest", "--", "-ex", "bt"]).arguments == ["latest", "-ex", "bt"])
  }

  @Test func `a word that may be an id is a name where a program has it`() throws {
    for (word, isProgram, name) in [
      ("cafe", true, "cafe" as String?), ("cafe", false, nil), ("api", false, "api"),
      ("latest", true, nil), ("01a2-", false, nil),
    ] {
      let command = try parsed(["show", word]).takingName { $0 == word && isProgram }
      #expect(command.name == name, "\(word)")
      #expect(command.arguments == (name == nil ? [word] : []))
    }
  }

  @Test func `folders are made absolute and may come from variables`() throws {
    let command = try parsed(
      ["show", "--state-directory", "s"],
      environment: ["GUARDIAN_STATE_DIRECTORY": "/x", "GUARDIAN_RUNTIME_DIRECTORY": "/r"])
    #expect(command.stateDirectory?.hasSuffix("/s") == true)
    #expect(command.stateDirectory?.hasPrefix("/") == true)
    #expect(command.runtimeDirectory == "/r")
  }

  @Test(arguments: [
    ([], "there is no command; guardianctl --help lists them"),
    (["shwo"], "unknown command 'shwo'; did you mean 'show'?"),
    (["xyzzy"], "unknown command 'xyzzy'"),
    (["reports", "x", "y"], "'reports' takes fewer arguments: guardianctl reports [NAME]"),
    (["signal"], "'signal' needs more arguments: guardianctl signal SIGNAL [NAME]"),
    (["show", "--jsn"], "unknown option '--jsn'; did you mean '--json'?"),
    (["show", "--name"], "option '--name' needs a value: --name=NAME"),
    (["show", "--follow"], "option '--follow' is not for 'show'"),
    (["show", "--json=x"], "option '--json' takes no value"),
    (["show", "--state-directory="], "option '--state-directory': the value is empty"),
  ])
  func `what is wrong is said in one line, status 64`(words: [String], line: String) {
    do throws(SettingsError) {
      _ = try parsed(words)
      Issue.record("this is right")
    } catch {
      #expect(error.line(program: "guardianctl", consequence: nil) == "guardianctl: " + line)
      #expect(error.exitStatus == 64)
    }
  }

  @Test func `help lists every command and option that there is, and none that is planned`() throws
  {
    guard
      case .print(let help) = try ControlCommand.request(
        arguments: ["guardianctl", "--help"], environment: [:])
    else {
      Issue.record("no help")
      return
    }
    for verb in ControlVerb.all {
      #expect(help.contains("\n  \(verb.name) ") == (verb.status == .available), "\(verb.name)")
    }
    for option in ControlOption.all {
      #expect(help.contains("--\(option.name)") == (option.status == .available))
    }
    for line in help.split(separator: "\n") { #expect(line.count <= 80, "\(line)") }
    #expect(
      try ControlCommand.request(arguments: ["guardianctl", "-V"], environment: [:])
        == .print("guardianctl \(guardianVersion)\n"))
  }
}
