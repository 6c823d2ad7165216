// Flags, variables and files mean the same, and a flag is stronger than a variable, a variable
// stronger than a file.
import Policy
import Settings
import Testing

@Suite struct `where values come from` {
  /// A value that is not the default, as its flag says it and as a file does.
  static let samples: [String: (text: String, toml: String)] = [
    "name": ("api", #""api""#), "quiet": ("yes", "true"), "verbose": ("yes", "true"),
    "restart": ("always", #""always""#), "max-crashes": ("3", "3"),
    "crash-window": ("1h 30min", #""1h 30min""#), "restart-delay": ("250ms", "0.25"),
    "restart-backoff": ("1.5", "1.5"), "restart-delay-max": ("1min", "60"),
    "stable-after": ("5s", "5"), "max-identical": ("4", "4"),
    "success-exit-status": ("3", "[3]"), "exit-as-signal": ("yes", "true"),
    "on-give-up": ("mail root", #""mail root""#), "working-directory": ("/srv", #""/srv""#),
    "env": ("A=b=c", #"{ A = "b=c" }"#), "env-file": ("/dev/null", #"["/dev/null"]"#),
    "user": ("33", "33"), "group": ("www-data", #""www-data""#), "umask": ("027", #""027""#),
    "nice": ("-5", "-5"), "oom-score-adjust": ("-500", "-500"),
    "limit": ("nofile=1024:4096", #"["nofile=1024:4096"]"#), "stdin": ("null", #""null""#),
    "stdout": ("file:/tmp/o", #""file:/tmp/o""#), "stderr": ("journal", #""journal""#),
    "log-bytes": ("1MiB", #""1MiB""#), "log-keep": ("7", "7"),
    "kernel-core": ("none", #""none""#), "listen": ("tcp:127.0.0.1:80", #"["tcp:127.0.0.1:80"]"#),
    "ready": ("notify", #""notify""#),
    "start-timeout": ("90s", "90"), "watchdog": ("30s", #""30s""#),
    "health-exec": ("curl -f localhost", #""curl -f localhost""#),
    "health-tcp": ("[::1]:80", #""[::1]:80""#),
    "health-http": ("http://127.0.0.1:80/live?x=1", #""http://127.0.0.1:80/live?x=1""#),
    "health-interval": ("10s", "10"), "health-timeout": ("1s", "1"), "health-retries": ("5", "5"),
    "health-start-period": ("1min", "60"),
    "stop-signal": ("QUIT", #""SIGQUIT""#), "stop-timeout": ("infinity", #""infinity""#),
    "kill-mode": ("process", #""process""#), "forward-to": ("group", #""group""#),
    "rewrite-signal": ("HUP:USR1", #"["HUP:USR1"]"#), "on-guardian-death": ("keep", #""keep""#),
    "capture-timeout": ("500ms", #""500ms""#), "report-timeout": ("1min", #""1min""#),
    "handler": ("no", "false"), "reports-keep": ("infinity", #""infinity""#),
    "reports-bytes": ("1GiB", #""1GiB""#), "redact": ("PIN", #"["PIN"]"#),
    "state-directory": ("/s", #""/s""#), "runtime-directory": ("/r", #""/r""#),
    "metrics-file": ("/m.prom", #""/m.prom""#),
  ]

  static let inFiles = Option.all.filter { $0.sources.contains(.file) }

  @Test func `every option of a file has a sample here, and nothing else has`() {
    #expect(Set(Self.samples.keys) == Set(Self.inFiles.map(\.name)))
  }

  @Test(arguments: inFiles.map(\.name))
  func `an option means the same as a flag, in a file and as a variable`(name: String) throws {
    let option = try #require(Option.all.first { $0.name == name })
    let sample = try #require(Self.samples[name])
    let folder = Folder()
    let file = folder.file("c.toml", "\(name) = \(sample.toml)\n")

    let flag = option.isSwitch ? ["--\(name)"] : ["--\(name)", sample.text]
    var byFlag = try configuration(flag, options: Option.all)
    var byFile = try configuration(["--config", file], options: Option.all)
    #expect(byFlag != (try configuration(options: Option.all)), "the sample is the default")
    byFlag.configurationFile = nil
    byFile.configurationFile = nil
    byFlag.commandStart = nil
    byFile.commandStart = nil
    #expect(byFlag == byFile)
    if option.sources.contains(.variable) {
      var byVariable = try configuration(
        environment: ["HOME": "/home/u", option.variable: sample.text], options: Option.all)
      byVariable.commandStart = nil
      #expect(byVariable == byFlag)
    }
    if let short = option.short {
      let words = option.isSwitch ? ["-\(short)"] : ["-\(short)", sample.text]
      var byShort = try configuration(words, options: Option.all)
      byShort.commandStart = nil
      #expect(byShort == byFlag)
    }
  }

  @Test func `every default reads back as itself`() throws {
    for option in Option.all where option.sources.contains(.flag) && !option.isSwitch {
      let texts = option.get(Configuration())
      guard !texts.isEmpty, texts != [""] else { continue }
      let words = texts.flatMap { ["--" + option.name, $0] }
      #expect(option.get(try configuration(words, options: Option.all)) == texts, "\(option.name)")
    }
  }

  @Test func `the defaults are those of the policy`() {
    let (settings, policy) = (Configuration(), RestartPolicy())
    #expect(settings.restart == policy.restart)
    #expect(settings.maxCrashes == policy.maxCrashes)
    #expect(settings.crashWindow == policy.crashWindow)
    #expect(settings.restartDelay == policy.restartDelay)
    #expect(settings.restartBackoff == policy.restartBackoff)
    #expect(settings.restartDelayMax == policy.restartDelayMax)
    #expect(settings.stableAfter == policy.stableAfter)
    #expect(settings.maxIdentical == policy.maxIdentical)
    #expect(settings.exitAsSignal == policy.exitAsSignal)
    #expect(settings.stopSignal == policy.stopSignal)
    #expect(settings.stopTimeout == policy.stopTimeout)
    #expect(settings.captureTimeout == policy.captureTimeout)
    #expect(settings.reportTimeout == policy.reportTimeout)
    #expect(settings.watchdog == policy.watchdog)
  }

  @Test func `a flag goes over a variable, a variable over a drop-in, a drop-in over the file`()
    throws
  {
    let folder = Folder()
    let file = folder.file("c.toml", "max-crashes = 1\nstop-signal = 'INT'\nrestart = 'no'\n")
    _ = folder.folder("c.toml.d")
    _ = folder.file("c.toml.d/10.toml", "max-crashes = 2\nstop-signal = 'HUP'\n")
    _ = folder.file("c.toml.d/20.toml", "max-crashes = 3\n")
    _ = folder.file("c.toml.d/notes.txt", "this is no TOML")
    _ = folder.file("c.toml.d/.30.toml.swp", "nor is this")
    let plain = ["--config", file]
    let dropped = try configuration(plain)
    #expect(dropped.maxCrashes == 3)
    #expect(dropped.stopSignal == Signal(rawValue: 1))
    #expect(dropped.restart == .no)
    let variable = ["GUARDIAN_MAX_CRASHES": "4"]
    #expect(try configuration(plain, environment: variable).maxCrashes == 4)
    #expect(try configuration(plain + ["-m5"], environment: variable).maxCrashes == 5)
  }

  @Test func `a flag takes back what a file switched on`() throws {
    let file = Folder()
    let path = file.file("c.toml", "exit-as-signal = true\n")
    #expect(try configuration(["--config", path]).exitAsSignal)
    #expect(try !configuration(["--config", path, "--no-exit-as-signal"]).exitAsSignal)
  }

  @Test func `variables of the program merge by name, secret names add up, other lists replace`()
    throws
  {
    let folder = Folder()
    let file = folder.file(
      "c.toml",
      "redact = ['A']\nsuccess-exit-status = [1, 'USR1']\n[env]\nX = '1'\nY = '2'\n")
    let merged = try configuration([
      "--config", file, "--env", "Y=3", "--env=Z=", "--redact", "B", "--success-exit-status", "2",
    ])
    #expect(merged.environment.map { $0.name + "=" + $0.value } == ["X=1", "Y=3", "Z="])
    #expect(merged.redact == ["A", "B"])
    #expect(merged.successExitStatus == [.code(2)])
  }

  @Test func `an empty variable counts as unset`() throws {
    #expect(try configuration(environment: ["GUARDIAN_RESTART": ""]).restart == .onFailure)
  }

  @Test func `the configuration file may be named by a variable`() throws {
    let folder = Folder()
    let file = folder.file("c.toml", "command = ['/bin/true']\nname = 'tru'\n")
    let named = try configuration(command: [], environment: ["GUARDIAN_CONFIG": file])
    #expect(named.name == "tru")
    #expect(named.nameIsGiven)
    #expect(named.command == ["/bin/true"])
    #expect(named.commandStart == nil)
    #expect(named.configurationFile == file)
  }

  @Test func `deliveries are kept as they stand in the file`() throws {
    let folder = Folder()
    let file = folder.file("c.toml", "[[deliver]]\nto = 'sentry:x'\n[[deliver]]\nto = 'mail:y'\n")
    let deliveries = try configuration(["--config", file]).deliveries
    #expect(
      deliveries.map { $0["to"]?.value } == [.string("sentry:x"), .string("mail:y")])
    // Nothing is delivered yet, and that is said.
    let warnings = try configuration(["--config", file]).warnings
    #expect(warnings.count == 1)
    #expect(warnings.first?.hasPrefix("guardian: \(file): [[deliver]] is read, but") == true)
    #expect(try configuration().warnings.isEmpty)
  }

  @Test func `everything after two dashes or the first other word is the command`() throws {
    let dashes = try configuration(["-m", "3"], command: ["--", "--odd", "-m", "4"])
    #expect(dashes.command == ["--odd", "-m", "4"])
    #expect(dashes.commandStart == 4)
    #expect(dashes.maxCrashes == 3)
    let word = try configuration(["-m3"], command: ["server", "-m", "4", "--", "x"])
    #expect(word.command == ["server", "-m", "4", "--", "x"])
    #expect(word.commandStart == 2)
  }

  @Test func `relative folders are meant from where guardian was started`() throws {
    let placed = try configuration(["--state-directory", "s", "-C", "w"])
    #expect(placed.stateDirectory.hasPrefix("/") && placed.stateDirectory.hasSuffix("/s"))
    #expect(placed.workingDirectory?.hasPrefix("/") == true)
  }

  @Test func `a delay above the default maximum raises it`() throws {
    #expect(try configuration(["--restart-delay", "2min"]).restartDelayMax == .seconds(120))
  }

  @Test func `a misspelled variable is told, one of somebody else is not`() {
    #expect(
      Settings.notes([
        "GUARDIAN_MAX": "3", "GUARDIAN_API_KEY": "x", "GUARDIAN_LIFE": "2",
        "GUARDIAN_RESTART": "no",
      ]).isEmpty)
    #expect(
      Settings.notes(["GUARDIAN_MAX_CRASHS": "3"]) == [
        "variable 'GUARDIAN_MAX_CRASHS' is not guardian's; "
          + "did you mean 'GUARDIAN_MAX_CRASHES'? it is ignored"
      ])
  }
}
