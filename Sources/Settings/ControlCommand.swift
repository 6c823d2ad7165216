// guardianctl's command line: one table of commands and their options. What they do is
// guardianctl's own business.
import CLinux
import Glibc
import Policy

/// What guardianctl can be asked for.
package struct ControlVerb: Hashable, Sendable {
  /// "show"
  package let name: String
  package let status: Status
  /// Its operands for help: "ID|latest".
  package let operands: String
  package let count: ClosedRange<Int>
  /// One sentence without its full stop.
  package let help: String
  /// How a shell completes its operands, one by one.
  package let completions: [Completion]

  init(
    _ name: String, status: Status = .available, _ operands: String = "",
    _ count: ClosedRange<Int> = 0...0, completions: [Completion] = [], help: String
  ) {
    self.name = name
    self.status = status
    self.operands = operands
    self.count = count
    self.help = help
    self.completions = completions
  }

  package static let all: [ControlVerb] = [
    ControlVerb(
      "status", "[NAME]", 0...1, completions: name,
      help: "Show the guarded programs and how they are"),
    ControlVerb(
      "why", "[NAME]", 0...1, completions: name,
      help: "Show the failures that count and what would reset the count"),
    ControlVerb("start", "[NAME]", 0...1, completions: name, help: "Start a stopped program"),
    ControlVerb(
      "stop", "[NAME]", 0...1, completions: name, help: "Stop the program; guardian stays"),
    ControlVerb(
      "restart", "[NAME]", 0...1, completions: name, help: "Stop the program and start it again"),
    ControlVerb(
      "signal", "SIGNAL [NAME]", 1...2, completions: [.words(Kind<Signal>.names)] + name,
      help: "Send a signal to the program"),
    ControlVerb(
      "reload", "[NAME]", 0...1, completions: name,
      help: "Read the options again; says what holds now and what needs a new guardian"),
    ControlVerb(
      "upgrade", "[NAME]", 0...1, completions: name,
      help: "Let guardian's new binary take over; the program is not touched"),
    ControlVerb(
      "logs", "[NAME]", 0...1, completions: name, help: "Show the last lines the program wrote"),
    ControlVerb(
      "watch", "[NAME]", 0...1, completions: name, help: "Show what happens, as it happens"),
    ControlVerb(
      "reports", "[NAME]", 0...1, completions: name, help: "List the reports, the newest first"),
    ControlVerb(
      "show", "[NAME] [ID|latest]", 0...2, completions: nameOrReport,
      help: "Show a report; without ID the latest"),
    ControlVerb(
      "debug", "[NAME] [ID|latest] [-- ARG...]", 0...100, completions: nameOrReport,
      help: "Open a report's minicore in gdb; arguments after -- go to gdb"),
    ControlVerb(
      "export", status: .planned, "ID|latest FILE", 1...2, completions: [.words(["latest"])],
      help: "Write a report with all its files into one archive"),
    ControlVerb(
      "deliver", status: .planned, "[ID...]", 0...1000, help: "Deliver what is not delivered yet"),
    ControlVerb(
      "delete", "[NAME] ID...|--all", 0...1000, completions: name,
      help: "Delete reports; they stay counted"),
    ControlVerb(
      "plan", "[-- OPTION... COMMAND]", 0...1000,
      help: "Show when guardian, with these options, would restart; runs nothing"),
    ControlVerb("doctor", help: "Check what this machine lets guardian do"),
  ]

  private static let name: [Completion] = [.programs([])]
  private static let nameOrReport: [Completion] = [.programs(["latest"]), .words(["latest"])]

  /// For the shells' completions, and for nobody to read about: the names of the programs that are
  /// or were guarded, one a line.
  package static let names = ControlVerb("completion-names", help: "")

  package static let available = all.filter { $0.status == .available }
}

/// An option of guardianctl.
package struct ControlOption: Hashable, Sendable {
  package let name: String
  package let short: Character?
  package let status: Status
  /// nil: no value.
  package let argument: String?
  /// The commands that take it; empty: all.
  package let verbs: [String]
  package let help: String
  package let completion: Completion

  init(
    _ name: String, short: Character? = nil, status: Status = .available, argument: String? = nil,
    verbs: [String] = [], completion: Completion = .none, help: String
  ) {
    self.name = name
    self.short = short
    self.status = status
    self.argument = argument
    self.verbs = verbs
    self.help = help
    self.completion = completion
  }

  package static let all: [ControlOption] = [
    ControlOption(
      "name", short: "n", argument: "NAME", completion: .programs([]),
      help: "The guarded program that is meant"),
    ControlOption(
      "state-directory", argument: "DIR", completion: .directory,
      help: "Its state folder"),
    ControlOption(
      "runtime-directory", argument: "DIR", completion: .directory,
      help: "Its runtime folder, if guardian was given one"),
    ControlOption("json", short: "j", help: "Print JSON"),
    ControlOption("all", short: "a", verbs: ["delete"], help: "Every report of the program"),
    ControlOption(
      "follow", short: "f", verbs: ["logs"], help: "Go on as lines come"),
    ControlOption(
      "simulate", argument: "ENDINGS", verbs: ["plan"],
      help: "How the lives end, as in \"segv@2s x10, exit:3, oom@1min\""),
  ]

  package static let available = all.filter { $0.status == .available }
}

/// One parsed command line of guardianctl.
package struct ControlCommand: Hashable, Sendable {
  package enum Request: Hashable, Sendable {
    case run(ControlCommand)
    /// Print this on standard output and leave with 0.
    case print(String)
  }

  /// --name; nil: not given.
  package var name: String?
  /// Absolute; nil: not given.
  package var stateDirectory: String?
  /// Absolute; nil: not given.
  package var runtimeDirectory: String?
  package var json = false
  package var follow = false
  package var all = false
  /// --simulate, unread; nil: not given.
  package var simulate: String?
  /// The name of a verb in `ControlVerb.available`.
  package var verb = ""
  /// Its operands, as many as it takes.
  package var arguments: [String] = []

  /// Prints and leaves for --help and the like, and for whatever is wrong (64).
  package static func parse(arguments: [String], environment: [String: String]) -> ControlCommand {
    do {
      switch try request(arguments: arguments, environment: environment) {
      case .run(let command): return command
      case .print(let text):
        exit(write(text, to: STDOUT_FILENO) ? 0 : 74)
      }
    } catch {
      write(error.line(program: "guardianctl", consequence: nil) + "\n", to: STDERR_FILENO)
      exit(error.exitStatus)
    }
  }

  /// The same without leaving. The variables are guardian's own: GUARDIAN_NAME,
  /// GUARDIAN_STATE_DIRECTORY and GUARDIAN_RUNTIME_DIRECTORY; a flag goes over them.
  package static func request(
    arguments: [String], environment: [String: String],
    verbs: [ControlVerb] = ControlVerb.available,
    options: [ControlOption] = ControlOption.available
  ) throws(SettingsError) -> Request {
    let reader = CommandLineReader.guardianctl(verbs, options)
    let words = try reader.read(arguments)
    var command = ControlCommand()
    command.name = environment["GUARDIAN_NAME"]
    command.stateDirectory = environment["GUARDIAN_STATE_DIRECTORY"]
    command.runtimeDirectory = environment["GUARDIAN_RUNTIME_DIRECTORY"]
    guard let verbName = words.operands.first else {
      for word in words.flags {
        switch reader.flags[word.flag].name {
        case "help": return .print(reader.help())
        case "usage": return .print(reader.usage())
        case "version": return .print("guardianctl \(guardianVersion)\n")
        default: continue
        }
      }
      throw wrong("there is no command; guardianctl --help lists them")
    }
    if verbName == "help" { return .print(reader.help()) }
    guard let verb = (verbs + [.names]).first(where: { $0.name == verbName }) else {
      throw wrong(
        "unknown command \(quoted(verbName))"
          + suggestion(for: verbName, among: verbs.map(\.name)))
    }
    command.verb = verb.name
    command.arguments = Array(words.operands.dropFirst())
    for word in words.flags {
      let name = reader.flags[word.flag].name
      switch name {
      case "help": return .print(reader.help())
      case "usage": return .print(reader.usage())
      case "version": return .print("guardianctl \(guardianVersion)\n")
      default: break
      }
      let value = word.value ?? ""
      if word.value != nil, value.isEmpty { throw wrong("option '--\(name)': the value is empty") }
      if let option = options.first(where: { $0.name == name }), !option.verbs.isEmpty,
        !option.verbs.contains(verb.name)
      {
        throw wrong("option '--\(name)' is not for '\(verb.name)'")
      }
      switch name {
      case "name": command.name = value
      case "state-directory": command.stateDirectory = value
      case "runtime-directory": command.runtimeDirectory = value
      case "json": command.json = true
      case "follow": command.follow = true
      case "all": command.all = true
      case "simulate": command.simulate = value
      default: preconditionFailure("option '\(name)' is in the table and has no field")
      }
    }
    if let name = command.name, !ProgramName.isValid(name) {
      throw wrong("option '--name': \(quoted(name)) is not a valid name: \(ProgramName.rule)")
    }
    guard verb.count.contains(command.arguments.count) else {
      let usage = "guardianctl \(verb.name)" + (verb.operands.isEmpty ? "" : " " + verb.operands)
      throw wrong(
        command.arguments.count < verb.count.lowerBound
          ? "'\(verb.name)' needs more arguments: \(usage)"
          : "'\(verb.name)' takes fewer arguments: \(usage)")
    }
    command.stateDirectory = try command.stateDirectory.map(absolutePath)
    command.runtimeDirectory = try command.runtimeDirectory.map(absolutePath)
    return .run(command)
  }

  /// For commands on reports: the first operand is a name where a program has it, or where it
  /// cannot be the beginning of an id.
  /// - Parameter isProgram: whether there is or was a guarded program of that name.
  package func takingName(isProgram: (String) -> Bool) -> ControlCommand {
    guard let word = arguments.first, word != "latest", ProgramName.isValid(word),
      stateDirectory == nil,
      verb == "reports" || !word.allSatisfy({ $0.isHexDigit || $0 == "-" }) || isProgram(word)
    else { return self }
    var command = self
    command.name = word
    command.arguments.removeFirst()
    return command
  }

  private static func wrong(_ text: String) -> SettingsError {
    SettingsError(.commandLine, text)
  }
}

extension CommandLineReader {
  static func guardianctl(_ verbs: [ControlVerb], _ options: [ControlOption]) -> CommandLineReader {
    var flags = options.map { option in
      Flag(
        option.name, short: option.short, argument: option.argument, help: option.help,
        section: "Options")
    }
    flags += verbs.map { verb in
      Flag(
        verb.name + (verb.operands.isEmpty ? "" : " " + verb.operands), help: verb.help,
        section: "Commands", isDocumentation: true)
    }
    flags += [
      Flag("help", short: "h", help: "Print this help", section: ""),
      Flag("usage", help: "Print a short usage message", section: ""),
      Flag("version", short: "V", help: "Print the version", section: ""),
    ]
    return CommandLineReader(
      program: "guardianctl", flags: flags, operands: "COMMAND [ARG...]",
      introduction: "Look at guarded programs and at the reports of their crashes.",
      conclusion: """
        Without --name the only guarded program of this user is meant. \
        GUARDIAN_NAME, GUARDIAN_STATE_DIRECTORY and GUARDIAN_RUNTIME_DIRECTORY stand for the \
        options of those names.
        """, stopsAtOperand: false)
  }
}
