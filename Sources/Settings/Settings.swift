// The one entry: arguments and environment in, a configuration or one line of error out. Knows
// where values come from and which source is stronger: flag, variable, file, default.
import CLinux
import Glibc

/// What the command line asks for.
package enum Request: Hashable, Sendable {
  /// Run this (or only check it, if `configuration.check`).
  case run(Configuration)
  /// Print this on standard output and leave with 0.
  case print(String)
}

package enum Settings {
  /// Arguments of this process, options not decoded: see `Configuration.commandStart`.
  /// Prints and leaves for --help and the like, and for whatever is wrong (64 or 78).
  /// - Parameters, both for --check:
  ///   - problem: what else speaks against a start.
  ///   - remarks: what else is to be said about one that would succeed.
  package static func parse(
    arguments: [String], environment: [String: String],
    problem: (Configuration) -> String? = { _ in nil },
    remarks: (Configuration) -> [String] = { _ in [] }
  ) -> Configuration {
    do {
      switch try request(
        arguments: arguments, environment: environment, uid: geteuid(),
        canBeMade: StartCheck.canBeMade)
      {
      case .run(let configuration):
        for note in notes(environment) { write("guardian: " + note + "\n", to: STDERR_FILENO) }
        for warning in configuration.warnings { write(warning + "\n", to: STDERR_FILENO) }
        if configuration.check {
          if let problem = StartCheck.problem(configuration, environment)
            ?? problem(configuration)
          {
            write("guardian: the program would not start: \(problem)\n", to: STDERR_FILENO)
            exit(78)
          }
          for remark in configuration.remarks + remarks(configuration) {
            write("guardian: \(remark)\n", to: STDERR_FILENO)
          }
          write(configuration.summary, to: STDOUT_FILENO)
          exit(0)
        }
        return configuration
      case .print(let text):
        exit(write(text, to: STDOUT_FILENO) ? 0 : 74)
      }
    } catch {
      write(error.description + "\n", to: STDERR_FILENO)
      exit(error.exitStatus)
    }
  }

  /// The same without leaving; reads the configuration file, if one is named.
  /// - Parameter uid: decides where state and runtime folders lie.
  /// - Parameter options: the table; tests also try what is planned.
  /// - Parameter canBeMade: whether a folder is there or can be made.
  package static func request(
    arguments: [String], environment: [String: String], uid: UInt32,
    options: [Option] = Option.available, canBeMade: (String) -> Bool = { _ in true }
  ) throws(SettingsError) -> Request {
    let reader = CommandLineReader.guardian(options)
    let words = try reader.read(arguments)
    var flags: [String: [String]] = [:]
    for word in words.flags {
      let name = reader.flags[word.flag].name
      switch name {
      case "help": return .print(reader.help())
      case "usage": return .print(reader.usage())
      case "version": return .print("guardian \(guardianVersion)\n")
      case "print":
        let what = word.value ?? ""
        guard let generated = Generated(rawValue: what) else {
          throw SettingsError(
            .commandLine,
            "option '--print': \(quoted(what)) is not one of "
              + Generated.allCases.map(\.rawValue).joined(separator: ", "))
        }
        return .print(generated.text)
      case _ where name.hasPrefix("no-") && word.value == nil:
        flags[String(name.dropFirst(3)), default: []].append("no")
      default: flags[name, default: []].append(word.value ?? "yes")
      }
    }
    for option in options where !option.isList && flags[option.name, default: []].count > 1 {
      throw SettingsError(.commandLine, "option '--\(option.name)' is given twice")
    }

    let variables = layer(environment, options)
    var layers: [Layer] = []
    if let path = flags["config"]?.first ?? environment["GUARDIAN_CONFIG"], !path.isEmpty {
      layers = try ConfigurationFile.layers(path, options)
    }
    layers.append(variables)
    layers.append(Layer(entries: flags.mapValues { $0.map { ($0, .commandLine) } }))

    var configuration = Configuration()
    var given: [String: SettingsError.Place] = [:]
    for layer in layers {
      for option in options {
        guard let entries = layer.entries[option.name], !entries.isEmpty else { continue }
        given[option.name] = entries[0].1
        do throws(BadElement) {
          try option.set(&configuration, entries.map(\.0))
        } catch {
          let place = entries[error.index].1
          throw SettingsError(place, place.subject(option) + ": " + error.value.text)
        }
      }
      if let command = layer.command { configuration.command = command }
      if let deliveries = layer.deliveries { configuration.deliveries = deliveries }
      configuration.warnings += layer.warnings.map {
        $0.line(program: "guardian", consequence: nil)
      }
    }
    if !configuration.deliveries.isEmpty {
      configuration.warnings.append(
        "guardian: \(configuration.configurationFile ?? "the configuration"): [[deliver]] is read, "
          + "but this version sends nothing anywhere: reports stay in the state folder")
    }
    try complete(
      &configuration, words, given, environment, uid: uid, canBeMade: canBeMade,
      commandInFile: layers.compactMap(\.commandPlace).last)
    return .run(configuration)
  }

  /// Names of the variables that are guardian's own input and not the program's.
  package static let inputVariables: [String] = Option.all
    .filter { $0.sources.contains(.variable) }.map(\.variable)

  // MARK: -

  private static func layer(_ environment: [String: String], _ options: [Option]) -> Layer {
    var layer = Layer()
    for option in options where option.sources.contains(.variable) {
      // An empty variable counts as unset, as POSIX tools have it.
      guard let value = environment[option.variable], !value.isEmpty else { continue }
      let texts =
        option.isList
        ? value.split { $0 == "," || $0 == " " || $0 == "\n" || $0 == "\t" }.map(String.init)
        : [value]
      layer.entries[option.name] = texts.map { ($0, .variable) }
    }
    return layer
  }

  /// What follows from the sources together.
  private static func complete(
    _ configuration: inout Configuration, _ words: ParsedWords,
    _ given: [String: SettingsError.Place],
    _ environment: [String: String], uid: UInt32, canBeMade: (String) -> Bool,
    commandInFile: SettingsError.Place?
  ) throws(SettingsError) {
    if !words.operands.isEmpty {
      if let file = words.operands.first, file.hasSuffix(".toml"), unsafe access(file, R_OK) == 0,
        unsafe access(file, X_OK) != 0
      {
        throw SettingsError(
          .commandLine, "\(quoted(file)) is not a program; did you mean '--config \(file)'?")
      }
      if let commandInFile, case .file(let path, let line, let column) = commandInFile {
        throw SettingsError(
          .commandLine,
          "the command is given twice: on the command line and in \(path):\(line):\(column)")
      }
      configuration.command = words.operands
      configuration.commandStart = words.operandsStart
    }
    if configuration.command.isEmpty {
      guard let path = configuration.configurationFile else {
        throw SettingsError(
          .commandLine, "there is no command to run: guardian [OPTION...] -- COMMAND [ARG...]")
      }
      throw SettingsError(
        .file(path, line: 0, column: 0), "there is no command to run: add command = [\"PROGRAM\"]")
    }
    if configuration.quiet, configuration.verbose {
      throw SettingsError(
        given["verbose"] ?? .commandLine, "quiet and verbose exclude each other")
    }
    if configuration.restartDelay > configuration.restartDelayMax {
      // A longer delay was asked for; a maximum that nobody asked for must not cut it.
      if given["restart-delay-max"] != nil {
        throw SettingsError(
          given["restart-delay"] ?? .commandLine, "restart-delay is longer than restart-delay-max")
      }
      configuration.restartDelayMax = configuration.restartDelay
    }
    try completeReadiness(&configuration, given)
    configuration.nameIsGiven = given["name"] != nil
    if !configuration.nameIsGiven {
      configuration.name = ProgramName.derived(from: configuration.command)
    }
    configuration.places = Places(uid: uid, environment: environment, canBeMade: canBeMade)
    let wanted = Places(uid: uid, environment: environment).state
    if configuration.givenStateDirectory == nil, configuration.places.state != wanted {
      configuration.warnings.append(
        "guardian: cannot make the folder \(quoted(wanted)): reports and counts go to "
          + quoted(configuration.places.state))
    }
    for field in [
      \Configuration.givenStateDirectory, \.givenRuntimeDirectory, \.workingDirectory,
      \.configurationFile, \.metricsFile,
    ] {
      if let path = configuration[keyPath: field] {
        configuration[keyPath: field] = try absolutePath(path)
      }
    }
    for field in [\Configuration.standardOutput, \.standardError] {
      if case .file(let path) = configuration[keyPath: field] {
        configuration[keyPath: field] = .file(try absolutePath(path))
      }
    }
    try resolve(&configuration, given)
  }

  /// What options only name: files of variables, users, groups.
  private static func resolve(
    _ configuration: inout Configuration, _ given: [String: SettingsError.Place]
  ) throws(SettingsError) {
    var files: [String] = []
    for file in configuration.environmentFiles {
      // Absolute, as they are read again later.
      let isOptional = file.hasPrefix("-")
      let path = try absolutePath(isOptional ? String(file.dropFirst()) : file)
      files.append((isOptional ? "-" : "") + path)
      for variable in try EnvironmentFile.read(files.last ?? path) {
        configuration.fileEnvironment.removeAll { $0.name == variable.name }
        configuration.fileEnvironment.append(variable)
      }
    }
    configuration.environmentFiles = files

    func resolved<Value>(
      _ name: String, _ text: String, _ find: (String) throws(BadValue) -> Value
    ) throws(SettingsError) -> Value {
      do { return try find(text) } catch {
        let place = given[name] ?? .commandLine
        throw SettingsError(place, place.subject(name) + ": " + error.text)
      }
    }
    if let user = configuration.user {
      configuration.account = try resolved("user", user, Accounts.user)
    }
    if let group = configuration.group {
      configuration.account.gid = try resolved("group", group, Accounts.group)
    }
    if configuration.account.uid != nil, configuration.account.gid == nil {
      let place = given["user"] ?? .commandLine
      throw SettingsError(
        place,
        place.subject("user") + ": the number \(configuration.user ?? "") has no account, and so "
          + "no group: give one with group")
    }
    if configuration.kernelCore == .none,
      configuration.limits.contains(where: { $0.name == "core" })
    {
      throw SettingsError(
        given["limit"] ?? .commandLine, "kernel-core none and a limit of core exclude each other")
    }
  }

  private static func completeReadiness(
    _ configuration: inout Configuration, _ given: [String: SettingsError.Place]
  ) throws(SettingsError) {
    if given["start-timeout"] == nil, configuration.ready != .exec {
      configuration.startTimeout = Configuration.startTimeoutOfReadiness
    }
    let probes = ["health-exec", "health-tcp", "health-http"].filter { given[$0] != nil }
    if probes.count > 1 {
      throw SettingsError(
        given[probes[1]] ?? .commandLine, "\(probes[0]) and \(probes[1]) exclude each other")
    }
    for (index, address) in configuration.listen.enumerated() {
      guard case .unix(let path) = address else { continue }
      let absolute = try absolutePath(path)
      if absolute.utf8.count > Kind<ListenAddress>.pathBytes {
        throw SettingsError(
          given["listen"] ?? .commandLine,
          "listen: \(quoted(absolute)) is longer than the \(Kind<ListenAddress>.pathBytes) bytes "
            + "that a socket's address holds")
      }
      configuration.listen[index] = .unix(absolute)
    }
    if configuration.listen.count > Configuration.listenLimit {
      throw SettingsError(
        given["listen"] ?? .commandLine, "listen: at most \(Configuration.listenLimit) sockets")
    }
    if case .descriptor(let number) = configuration.ready, number < 3 + configuration.listen.count {
      throw SettingsError(
        given["ready"] ?? .commandLine,
        "ready: descriptor \(number) is a listening socket's; take one from "
          + "\(3 + configuration.listen.count) on")
    }
  }

  /// Variables that look like misspelled ones of ours. They may belong to the program, so they are
  /// no error.
  package static func notes(_ environment: [String: String]) -> [String] {
    let known = Option.available.filter { $0.sources.contains(.variable) }.map(\.variable)
    let ours: Set = [
      "GUARDIAN_CHANNEL", "GUARDIAN_PROGRAM_NAME", "GUARDIAN_LIFE", "GUARDIAN_CRASHED_LAST_RUN",
      "GUARDIAN_LAST_REPORT",
    ]
    return environment.keys.sorted().compactMap { name in
      guard name.hasPrefix("GUARDIAN_"), !known.contains(name), !ours.contains(name),
        let meant = nearest(to: name, among: known, within: 2)
      else { return nil }
      return "variable \(quoted(name)) is not guardian's; did you mean '\(meant)'? it is ignored"
    }
  }
}

/// What one source says.
struct Layer {
  var entries: [String: [(String, SettingsError.Place)]] = [:]
  var command: [String]?
  var commandPlace: SettingsError.Place?
  var deliveries: [TomlTable]?
  var warnings: [SettingsError] = []
}

extension SettingsError.Place {
  /// The option as the one who wrote it there calls it.
  func subject(_ option: Option) -> String { subject(option.name) }

  func subject(_ name: String) -> String {
    switch self {
    case .commandLine: "option '--\(name)'"
    case .variable: "variable '\(Option.variable(name))'"
    case .file: "key '\(name)'"
    }
  }
}

extension Option {
  /// What it does, what it may be, how often, and its default.
  var lineOfHelp: String {
    var help = self.help
    if case .words(let words) = completion, argument == "WHEN" {
      help += ": " + words.joined(separator: ", ")
    }
    if isList { help += "; may be given several times" }
    if !isSwitch, !defaultText.isEmpty, defaultText != "none" { help += " (\(defaultText))" }
    return help
  }
}

extension CommandLineReader {
  static func guardian(_ options: [Option]) -> CommandLineReader {
    var flags = options.filter { $0.sources.contains(.flag) }.map { option in
      Flag(
        option.name, short: option.short, argument: option.isSwitch ? nil : option.argument,
        help: option.lineOfHelp, section: option.section.rawValue)
    }
    // A flag must be able to take back what a file says.
    flags += options.filter(\.isSwitch).map {
      Flag("no-" + $0.name, help: "", section: $0.section.rawValue, isHidden: true)
    }
    flags.append(
      Flag(
        "print", argument: "WHAT", help: "", section: Section.general.rawValue, isHidden: true))
    flags += [
      Flag("help", short: "h", help: "Print this help", section: ""),
      Flag("usage", help: "Print a short usage message", section: ""),
      Flag("version", short: "V", help: "Print the version", section: ""),
    ]
    return CommandLineReader(
      program: "guardian", flags: flags, operands: "-- COMMAND [ARG...]\n--config FILE",
      introduction: """
        Start a program, keep it running, and when it dies say why: who died of what, every \
        thread's stack with file and line, and the last lines it wrote.
        """,
      conclusion: """
        In parentheses: what holds when an option is not given. Every option is also a key of the \
        configuration file, and a variable: --max-crashes is max-crashes and \
        GUARDIAN_MAX_CRASHES. A flag goes over a variable, a variable over the file. A TIME is \
        100ms, 10min or "1h 30min", a plain number is in seconds; a SIZE is 256MiB or 1GB, a plain \
        number is in bytes.

        guardian leaves with the program's own exit code, with 128+n if it died of signal n, with \
        64 or 78 if the options or the configuration are wrong, and with 126 or 127 if the program \
        cannot be executed.
        """, stopsAtOperand: true)
  }
}
