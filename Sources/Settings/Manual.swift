// Manual pages in man(7), from the tables.

enum Manual {
  // MARK: guardian(1)

  static func guardian() -> String {
    var page = Page("GUARDIAN", 1)
    page.section("NAME")
    page.text("guardian - start a program, keep it running, and say why it died")
    page.section("SYNOPSIS")
    page.synopsis("guardian", "[OPTION...] -- COMMAND [ARG...]")
    page.synopsis("guardian", "[OPTION...] --config FILE")
    page.section("DESCRIPTION")
    page.text(
      """
      guardian starts COMMAND, keeps it running, and when it dies writes a report that says why: \
      the signal or exit code, every thread's stack with function, file and line, the exception or \
      abort message, the last lines on standard error, and the breadcrumbs it left. Then it starts \
      the program again, under a policy that ends at a maximum crash count. The program need not \
      be changed.
      """)
    page.text(
      """
      Reports are listed and shown by guardianctl(1). Each holds a minicore, a small core file of \
      all threads that gdb(1) opens.
      """)
    page.section("OPTIONS")
    page.text(
      """
      Long options may be shortened as long as they stay unambiguous. Everything after -- or after \
      the first word that is no option is the command.
      """)
    for section in Section.allCases {
      let options = Option.available.filter {
        $0.section == section && $0.sources.contains(.flag)
      }
      guard !options.isEmpty else { continue }
      page.subsection(section.rawValue)
      for option in options {
        page.item(flag(option.name, option.short, option.isSwitch ? nil : option.argument))
        page.body(paragraph(option))
        if option.isSwitch {
          page.more("--no-\(option.name) takes it back when a file or a variable set it.")
        }
        if option.sources.contains(.variable) { page.more("Variable: \(option.variable).") }
      }
    }
    page.subsection("Help")
    page.item(flag("help", "h", nil))
    page.body("Print a list of the options and leave.")
    page.item(flag("usage", nil, nil))
    page.body("Print a short usage message and leave.")
    page.item(flag("version", "V", nil))
    page.body("Print the version and leave.")
    timesAndSizes(&page)
    page.section("EXIT STATUS")
    for (status, meaning) in [
      ("n", "The program's own exit code, when guardian leaves because the program did."),
      ("128+n", "The program died of signal n. With --exit-as-signal guardian dies of it itself."),
      ("64", "The command line is wrong; nothing was started."),
      (
        "71",
        "The system refused something at the start, as the runtime folder; nothing was started."
      ),
      ("75", "The name is taken by another guardian; nothing was started."),
      (
        "78",
        "A configuration file or variable is wrong, --check found that the program would not start, "
          + "or the program detached itself."
      ),
      ("126", "The program cannot be executed."),
      ("127", "There is no such program."),
    ] {
      page.item(bold(status))
      page.body(meaning)
    }
    page.section("SIGNALS")
    page.text(
      """
      TERM or INT to guardian stops the program and ends guardian. A second one kills at once. While \
      no program runs guardian leaves with the code of its last life.
      """)
    page.text(
      """
      ^C at a terminal goes to the program; its ending within 2 s is a stop that was asked for. ^C \
      twice within 2 s is an INT to guardian as well.
      """)
    page.section("ENVIRONMENT")
    page.text(
      """
      Most options may be given as a variable: --max-crashes is GUARDIAN_MAX_CRASHES. An empty \
      variable counts as unset. A flag goes over a variable, a variable over a file. Lists are \
      separated by commas or blanks. The program does not see these variables. It sees:
      """)
    for (name, meaning) in [
      ("GUARDIAN_PROGRAM_NAME", "Its name."),
      ("GUARDIAN_LIFE", "The number of its life, from 1."),
      ("GUARDIAN_CRASHED_LAST_RUN", "1 if the life before ended in a failure, else 0."),
      ("GUARDIAN_LAST_REPORT", "The id of the report of the life before, if there is one."),
    ] {
      page.item(bold(name))
      page.body(meaning)
    }
    page.section("FILES")
    for (path, meaning) in [
      ("/etc/guardian/NAME.toml", "Where guardian@NAME.service reads its configuration."),
      (
        "/var/lib/guardian/NAME/reports",
        "The reports; without root below ~/.local/state, with --state-directory below that folder. "
          + "A report is a folder named by its id. It lies in partial/ while it is written and in "
          + "new/ when it is final; pending/ and done/ are reserved for delivery. The file groups "
          + "counts what was deleted."
      ),
    ] {
      page.item(italic(path))
      page.body(meaning)
    }
    page.text("A report's folder holds:")
    for (file, meaning) in [
      ("report.txt", "For people."),
      ("report.json", "For programs, schema guardian.report/1."),
      ("core", "The minicore. It holds memory as it was."),
      ("stderr.log", "The last lines that the program wrote, as it wrote them."),
      ("maps", "Its memory map, as in /proc/PID/maps."),
      (
        "ring",
        "The handler's raw record, with a part of the stack. It is there only until the report is "
          + "final, or where guardian died before it could write one."
      ),
    ] {
      page.item(italic(file))
      page.body(meaning)
    }
    page.text(
      """
      report.txt and report.json are redacted. core, stderr.log and ring are not: leave them out of \
      what you hand on.
      """)
    page.item(italic("share/doc/guardian/examples"))
    page.body("Configurations to copy from, below the folder that guardian was installed to.")
    systemd(&page)
    page.section("EXAMPLES")
    page.text("Keep a server running, at most three restarts in five minutes:")
    page.code(["guardian -m 3 -w 5min -- ./server --port 8080"])
    page.text("Look at the report of its last crash:")
    page.code(["guardianctl show latest"])
    page.text("Check a configuration without a start:")
    page.code(["guardian --check --config /etc/guardian/api.toml"])
    page.section("SEE ALSO")
    page.text("guardianctl(1), guardian.toml(5), gdb(1), systemd.service(5)")
    return page.text
  }

  /// The units of both, from what reads them.
  private static func timesAndSizes(_ page: inout Page) {
    page.section("TIMES AND SIZES")
    page.text(
      """
      A TIME is a number with a unit, or several of those, as 1h 30min or 1.5s. A number without a \
      unit is in seconds. The units, as in systemd.time(7):
      """)
    page.code(
      Kind<Duration>.timeUnits.map { $0.names.filter { $0 != "μs" }.joined(separator: ", ") })
    page.text(
      """
      A SIZE is a whole number with a unit. A number without a unit is in bytes. K, M, G and T are \
      multiples of 1024, as are KiB, MiB, GiB and TiB; kB, MB, GB and TB are multiples of 1000. The \
      units: \(Kind<UInt64>.unitNames.joined(separator: ", ")). Upper and lower case are not the \
      same.
      """)
  }

  private static func systemd(_ page: inout Page) {
    page.section("SYSTEMD")
    page.text(
      """
      guardian@NAME.service runs guardian with /etc/guardian/NAME.toml, under the name NAME: a name in \
      the file does not hold there. Each line of the unit says why it is there. What one service needs \
      besides goes into a drop-in (systemctl edit guardian@NAME); \
      guardian@.service.d-strict.conf among guardian's documents is one to choose from.
      """)
    for (what, words) in [
      (
        "A unit of one's own",
        "needs Type=notify with NotifyAccess=main, Restart=on-abnormal, KillMode=mixed, "
          + "StartLimitIntervalSec=0. With Delegate=yes each life is a control group of its own; OOMPolicy=continue lets guardian outlive a program that was killed for lack of memory."
      ),
      (
        "Success and failure",
        "guardian leaves with 0 after every ending that is a success for it (0, success-exit-status, a "
          + "stop that was asked for, also of a program that dies of TERM), else with the program's own "
          + "exit code, which makes the unit failed. It leaves once, when it has "
          + "given up or the program is not to be restarted: OnFailure= is answered then, not at every "
          + "restart."
      ),
      (
        "The failure count",
        "goes on when guardian was killed and systemd starts it again. It begins anew with systemctl "
          + "start or restart, with guardianctl restart, and when the program's file, command or "
          + "configuration changed. systemctl reset-failed does not touch it."
      ),
      (
        "User= and user",
        "User= in a drop-in is whom guardian itself runs as: it needs no rights of root, its reports are "
          + "that user's to read, and it cannot change to another. The option user leaves guardian root "
          + "and is whom the program runs as: reports are root's. With DynamicUser=yes set "
          + "User=guardian-%i too, or all instances share one user."
      ),
      (
        "Reload",
        "systemctl reload has guardian read its configuration again (guardianctl reload) and leaves the "
          + "program alone. HUP to guardian is passed on to the program; a drop-in with a second "
          + "ExecReload=/bin/kill -HUP $MAINPID makes a reload do both. systemctl kill -s HUP signals "
          + "every process of the unit, so that the program gets it twice: add --kill-whom=main."
      ),
      (
        "Sockets",
        "A guardian@NAME.socket starts it with the first connection. Its sockets go to every life, and a "
          + "connection that comes between two waits for the next."
      ),
      (
        "Stored descriptors",
        "What the program stores with FDSTORE=1 goes to every life. The unit has systemd keep it as "
          + "well, so that it outlives a guardian that was killed: in a unit of one's own by "
          + "FileDescriptorStoreMax=, and before systemd 254 Environment=FDSTORE=1. A stop, or giving "
          + "up, lets go of it."
      ),
      (
        "Folders",
        "A StateDirectory= or RuntimeDirectory= of a drop-in is the program's, and is what it finds in "
          + "STATE_DIRECTORY and RUNTIME_DIRECTORY; guardian's own folders are left out of them."
      ),
    ] {
      page.item(bold(what))
      page.body(words)
    }
    page.text("A service that takes HUP and calls for help when it is given up:")
    page.code([
      "[Unit]", "OnFailure=call-for-help@%n.service", "[Service]",
      "ExecReload=/bin/kill -HUP $MAINPID",
    ])
  }

  // MARK: guardian.toml(5)

  static func file() -> String {
    var page = Page("GUARDIAN.TOML", 5)
    page.section("NAME")
    page.text("guardian.toml - configuration of a guarded program")
    page.section("SYNOPSIS")
    page.line(italic("/etc/guardian/NAME.toml"))
    page.line(".br")
    page.line(italic("/etc/guardian/NAME.toml.d/*.toml"))
    page.section("DESCRIPTION")
    page.text(
      """
      A TOML file, read by guardian --config FILE. Its keys are the options of guardian(1) without \
      their dashes. The files FILE.d/*.toml are read after it in the order of their names; each \
      goes over those before it. Variables and flags go over all files.
      """)
    page.text(
      """
      A key that is not known, a wrong type, a value out of range or a key that stands twice is an \
      error that names file, line and column; nothing is started then. guardian --check tells \
      without a start. A file has at most \(ConfigurationFile.sizeLimit >> 20) MiB.
      """)
    page.section("KEYS")
    page.item(bold("command") + " = [" + italic("PROGRAM") + ", " + italic("ARG") + ", ...]")
    page.body(
      "An array of strings: what to run. It cannot be given here and on the command line.")
    for section in Section.allCases {
      let options = Option.available.filter {
        $0.section == section && $0.sources.contains(.file)
      }
      guard !options.isEmpty else { continue }
      page.subsection(section.rawValue)
      for option in options {
        page.item(
          option.isTable
            ? "[" + bold(option.name) + "]"
            : bold(option.name) + " = " + italic(argument(option, inFile: true)))
        page.body(paragraph(option, inFile: true))
        page.more("Type: \(type(option)).")
      }
    }
    page.subsection("Delivery")
    page.item("[[" + bold("deliver") + "]]")
    page.body(
      "An array of tables for delivery. This version reads and keeps it, and sends nothing yet.")
    page.section("EXAMPLE")
    page.code([
      "name = \"api\"",
      "command = [\"/usr/bin/server\", \"--port\", \"8080\"]",
      "restart = \"on-failure\"",
      "max-crashes = 10",
      "crash-window = \"10min\"",
      "",
      "[env]",
      "LOG_LEVEL = \"info\"",
    ])
    page.section("SEE ALSO")
    page.text("guardian(1), guardianctl(1)")
    return page.text
  }

  // MARK: guardianctl(1)

  static func guardianctl() -> String {
    var page = Page("GUARDIANCTL", 1)
    page.section("NAME")
    page.text("guardianctl - look at guarded programs and the reports of their crashes")
    page.section("SYNOPSIS")
    page.synopsis("guardianctl", "[OPTION...] COMMAND [ARG...]")
    page.section("DESCRIPTION")
    page.text(
      """
      guardianctl shows what guardian(1) keeps of the programs it guards. Without --name the only \
      guarded program of this user is meant. Reports are looked for in this user's state folder, in \
      the system's, and where a running guardian keeps its own.
      """)
    page.section("COMMANDS")
    for verb in ControlVerb.available {
      page.item(bold(verb.name) + (verb.operands.isEmpty ? "" : " " + italic(verb.operands)))
      page.body(verb.help + ".")
    }
    page.section("OPTIONS")
    for option in ControlOption.available {
      page.item(flag(option.name, option.short, option.argument))
      page.body(option.help + ".")
    }
    page.item(flag("help", "h", nil))
    page.body("Print a list of the commands and options and leave.")
    page.item(flag("usage", nil, nil))
    page.body("Print a short usage message and leave.")
    page.item(flag("version", "V", nil))
    page.body("Print the version and leave.")
    page.section("ENVIRONMENT")
    page.text(
      """
      GUARDIAN_NAME, GUARDIAN_STATE_DIRECTORY and GUARDIAN_RUNTIME_DIRECTORY stand for the options \
      of those names; an option goes over its variable.
      """)
    page.section("EXIT STATUS")
    for (status, meaning) in [
      ("0", "It was done; status: the program runs."),
      ("1", "It could not be done; a line says why. doctor: there is a problem."),
      ("3", "The program does not run, or no guardian does."),
      ("4", "There is no guarded program of that name."),
      ("64", "The command line is wrong, or several guarded programs could be meant."),
      ("65", "A report's file is not a report."),
      ("66", "The state folder that was named, or a report's file, is not there."),
      ("69", "guardian does not answer, or there is no gdb."),
      ("71", "The system refused something, as the start of gdb."),
      ("74", "The output cannot be written, or a report not be deleted."),
      ("76", "guardian answers something that is not understood."),
      ("77", "The guardian, or its reports, are another user's."),
      ("78", "reload: the configuration is wrong; everything stays as it was."),
    ] {
      page.item(bold(status))
      page.body(meaning)
    }
    page.section("SEE ALSO")
    page.text("guardian(1), guardian.toml(5)")
    return page.text
  }

  // MARK: Parts

  /// TOML has words of its own for yes and no.
  private static func argument(_ option: Option, inFile: Bool) -> String {
    inFile && option.toml == [.boolean] ? "true|false" : option.argument
  }

  /// Help, details, notation and default as sentences.
  private static func paragraph(_ option: Option, inFile: Bool = false) -> String {
    var sentences = [option.help + "."]
    if !option.details.isEmpty { sentences.append(option.details) }
    let choices = "one of " + option.argument.split(separator: "|").joined(separator: ", ")
    if option.toml == [.boolean] {
      // The words stand in the line above.
    } else if option.notation.hasPrefix(option.argument) {
      sentences.append(option.notation + ".")
    } else if !option.isSwitch, option.notation != choices {
      sentences.append("\(option.argument) is \(option.notation).")
    }
    if option.isList { sentences.append("May be given several times.") }
    if inFile, option.toml == [.boolean] {
      sentences.append("Default: \(Reference.value(option)).")
    } else if !option.defaultText.isEmpty {
      sentences.append("Default: \(option.defaultText).")
    }
    return sentences.joined(separator: " ")
  }

  static func type(_ option: Option) -> String {
    if option.isTable { return "a table of strings" }
    let scalar = option.toml.map { $0.name }.joined(separator: " or ")
    return option.isList ? "an array, each \(scalar)" : scalar
  }

  private static func flag(_ name: String, _ short: Character?, _ argument: String?) -> String {
    let long = bold("--" + name) + (argument.map { "=" + italic($0) } ?? "")
    return short.map { bold("-" + String($0)) + ", " + long } ?? long
  }

  private static func bold(_ text: String) -> String {
    "\\fB" + Page.escaped(text, literal: true) + "\\fR"
  }
  private static func italic(_ text: String) -> String {
    "\\fI" + Page.escaped(text, literal: true) + "\\fR"
  }
}

extension TomlType {
  package var name: String {
    switch self {
    case .string: "a string"
    case .integer: "an integer"
    case .float: "a float"
    case .boolean: "a boolean"
    }
  }
}

/// A page as it grows.
private struct Page {
  private(set) var text: String

  init(_ title: String, _ section: Int) {
    text = """
      .\\" Made by guardian --print from its table of options.
      .TH \(title) \(section) "" "guardian \(guardianVersion)" ""
      .nh
      .ad l

      """
  }

  mutating func line(_ line: String) { text += line + "\n" }
  mutating func section(_ title: String) { line(".SH \(title)") }
  mutating func subsection(_ title: String) { line(".SS \(title)") }
  mutating func text(_ paragraph: String) {
    line(".PP")
    line(Self.prose(paragraph))
  }
  mutating func item(_ tag: String) {
    line(".TP")
    line(tag)
  }
  mutating func body(_ paragraph: String) { line(Self.prose(paragraph)) }
  mutating func more(_ sentence: String) { line(Self.prose(sentence)) }
  mutating func synopsis(_ program: String, _ rest: String) {
    line(".PP")
    line("\\fB\(program)\\fR " + Self.escaped(rest, literal: true))
  }
  mutating func code(_ lines: [String]) {
    line(".PP")
    line(".RS 4")
    line(".nf")
    for code in lines { line(Self.guarded(Self.escaped(code, literal: true))) }
    line(".fi")
    line(".RE")
  }

  /// A sentence for each line, as man-pages(7) has it; options literal, names of pages bold.
  private static func prose(_ paragraph: String) -> String {
    guarded(
      paragraph.split(separator: " ").map { word in
        let literal =
          word.hasPrefix("-") || word.hasPrefix("GUARDIAN_") || word.hasPrefix("/")
          || word.hasPrefix("~")
        return escaped(String(word), literal: literal)
      }.joined(separator: " "))
  }

  static func escaped(_ text: String, literal: Bool) -> String {
    var escaped = ""
    for character in text {
      switch character {
      case "\\": escaped += "\\e"
      case "-": escaped += literal ? "\\-" : "-"
      case "'" where literal: escaped += "\\(aq"
      case "~" where literal: escaped += "\\(ti"
      case "^": escaped += "\\(ha"
      default: escaped.append(character)
      }
    }
    return escaped
  }

  /// A line must not begin like a request.
  private static func guarded(_ line: String) -> String {
    line.hasPrefix(".") || line.hasPrefix("'") ? "\\&" + line : line
  }
}
