// Every mistake is one line that says where, what and that nothing was started.
import Settings
import Testing

@Suite struct `what is wrong is said in one line` {
  @Test(arguments: [
    (
      ["--restart", "sometimes"],
      "option '--restart': 'sometimes' is not one of no, on-success, on-failure, on-abnormal, "
        + "on-abort, on-watchdog, always; nothing was started"
    ),
    (
      ["--restart", "on-failur"],
      "option '--restart': 'on-failur' is not one of no, on-success, on-failure, on-abnormal, "
        + "on-abort, on-watchdog, always; did you mean 'on-failure'? nothing was started"
    ),
    (
      ["--max-crshes", "3"],
      "unknown option '--max-crshes'; did you mean '--max-crashes'? nothing was started"
    ),
    (["--zzz"], "unknown option '--zzz'; nothing was started"),
    (["-y"], "unknown option '-y'; nothing was started"),
    (["-qy"], "unknown option '-y'; nothing was started"),
    (["--quiet=yes"], "option '--quiet' takes no value; nothing was started"),
    (["-q", "-v"], "quiet and verbose exclude each other; nothing was started"),
    (
      ["-m", "1", "--max-crashes=2"], "option '--max-crashes' is given twice; nothing was started"
    ),
    (
      ["-m", "-1"],
      "option '--max-crashes': '-1' is out of range: 0 to 10000; nothing was started"
    ),
    (
      ["-m", "many"],
      "option '--max-crashes': 'many' is not a whole number from 0 to 10000; nothing was started"
    ),
    (["--on-give-up="], "option '--on-give-up': the value is empty; nothing was started"),
    (["--env", "A"], "option '--env': 'A' is not NAME=VALUE; nothing was started"),
    (
      ["--env", "=x"],
      "option '--env': there is no name before the '=': it must be NAME=VALUE; nothing was started"
    ),
    (
      ["--crash-window", "5mins"],
      "option '--crash-window': '5mins' is not a time such as 100ms, 10min or 1h 30min: 'mins' is "
        + "none of us, ms, s, min, h, d, w; nothing was started"
    ),
    (
      ["--log-bytes", "5mb"],
      "option '--log-bytes': '5mb' is not a size such as 256MiB: 'mb' is none of B, kB, K, KiB, MB, "
        + "M, MiB, GB, G, GiB, TB, T, TiB; nothing was started"
    ),
    (
      ["--restart-backoff", "nan"],
      "option '--restart-backoff': 'nan' is not a number from 1 to 100; nothing was started"
    ),
    (
      ["--restart-delay=1h", "--restart-delay-max=1min"],
      "restart-delay is longer than restart-delay-max; nothing was started"
    ),
    (
      ["--stop-signal", "TREM"],
      "option '--stop-signal': 'TREM' is not a signal; did you mean 'TERM'? nothing was started"
    ),
    (
      ["--print=x"],
      "option '--print': 'x' is not one of man, man5, manctl, completion-bash, completion-zsh, "
        + "completion-fish, options-markdown, example-toml, handover; nothing was started"
    ),
    (
      ["--name=a\nb\u{1b}[31m"],
      "option '--name': 'a\\nb\\u{1b}[31m' is not a valid name: a name has 1 to 48 letters, digits, "
        + "'.', '_' or '-' and does not start with '.' or '-'; nothing was started"
    ),
  ])
  func `on the command line, status 64`(words: [String], line: String) throws {
    let failed = try #require(failure(words))
    #expect(failed.line == "guardian: " + line)
    #expect(failed.status == 64)
  }

  @Test func `an abbreviation is ambiguous`() throws {
    let failed = try #require(failure(["--reports", "3"]))
    #expect(
      failed.line == "guardian: option '--reports' is ambiguous: it could be "
        + "--reports-keep, --reports-bytes; nothing was started")
  }

  @Test func `a value is missing`() throws {
    let failed = try #require(failure(["--max-crashes"], command: []))
    #expect(
      failed.line
        == "guardian: option '--max-crashes' needs a value: --max-crashes=N; nothing was started")
    #expect(
      failure(["-q", "-m"], command: [])?.line
        == "guardian: option '-m' needs a value: -m N; nothing was started")
  }

  @Test func `the command is missing`() throws {
    #expect(
      failure(command: [])?.line
        == "guardian: there is no command to run: guardian [OPTION...] -- COMMAND [ARG...]; "
        + "nothing was started")
    #expect(failure(command: ["--"])?.status == 64)
    let folder = Folder()
    let file = folder.file("c.toml", "")
    let failed = try #require(failure(["-c", file], command: []))
    #expect(
      failed.line == "guardian: \(file): there is no command to run: "
        + "add command = [\"PROGRAM\"]; nothing was started")
    #expect(failed.status == 78)
  }

  @Test func `the command is given twice`() throws {
    let folder = Folder()
    let file = folder.file("c.toml", "\ncommand = ['a']\n")
    let failed = try #require(failure(["-c", file]))
    #expect(
      failed.line == "guardian: the command is given twice: on the command line and in "
        + "\(file):2:1; nothing was started")
    #expect(failed.status == 64)
  }

  @Test func `a configuration file in the place of the command`() throws {
    let folder = Folder()
    let file = folder.file("api.toml", "")
    let failed = try #require(failure([], command: [file]))
    #expect(
      failed.line
        == "guardian: '\(file)' is not a program; did you mean '--config \(file)'? "
        + "nothing was started")
    #expect(failed.status == 64)
  }

  @Test func `in a variable, status 78`() throws {
    let failed = try #require(failure(environment: ["GUARDIAN_MAX_CRASHES": "x"]))
    #expect(
      failed.line == "guardian: variable 'GUARDIAN_MAX_CRASHES': 'x' is not a whole number "
        + "from 0 to 10000; nothing was started")
    #expect(failed.status == 78)
  }

  @Test(arguments: [
    ("max-crash = 3", "1:1: unknown key 'max-crash'; did you mean 'max-crashes'?"),
    ("\n[envs]\nA='b'", "2:2: unknown table 'envs'; did you mean 'env'?"),
    ("check = true", "1:1: key 'check' cannot stand in a file"),
    ("config = 'x'", "1:1: key 'config' cannot stand in a file"),
    (
      "name='a'\nrestart = 'sometimes'",
      "2:11: key 'restart': 'sometimes' is not one of no, on-success, on-failure, on-abnormal, "
        + "on-abort, on-watchdog, always"
    ),
    (
      "max-crashes = '3x'",
      "1:15: key 'max-crashes': '3x' is not a whole number from 0 to 10000"
    ),
    (
      "max-crashes = 3.5", "1:15: key 'max-crashes': it must be an integer or a string, not a float"
    ),
    (
      "max-crashes = 1979-05-27",
      "1:15: key 'max-crashes': it must be an integer or a string, not a date or time"
    ),
    (
      "handler = 'yes'", "1:11: key 'handler': it must be a boolean, not a string: handler = true"
    ),
    ("handler = 'x'", "1:11: key 'handler': it must be a boolean, not a string"),
    ("quiet = 0", "1:9: key 'quiet': it must be a boolean, not an integer: quiet = false"),
    ("restart = true", "1:11: key 'restart': it must be a string, not a boolean"),
    ("restart = ['no']", "1:11: key 'restart': it must be a string, not an array"),
    ("[restart]\na = 1", "1:1: key 'restart': it must be a string, not a table"),
    ("env = ['A=b']", "1:7: key 'env': it must be a table of strings, not an array"),
    ("[env]\nA = 1", "2:5: key 'env.A': it must be a string, not an integer"),
    ("[env]\n'A=B' = 'c'", "2:1: key 'env': 'A=B' is not a variable's name"),
    ("[env]\nA = \"a\\u0000b\"", "2:1: key 'env': 'A=a\\u{0}b' holds a NUL byte"),
    ("redact = 'x'", "1:10: key 'redact': it must be an array, not a string"),
    (
      "success-exit-status = [0,\n 300]",
      "2:2: key 'success-exit-status': '300' is out of range: 0 to 255"
    ),
    ("command = 'server -x'", "1:11: key 'command': it must be an array of strings, not a string"),
    ("command = []", "1:11: key 'command': the array is empty"),
    (
      "command = ['a', 1]",
      "1:17: key 'command': it must be an array of strings, and this is an integer"
    ),
    ("deliver = 'x'", "1:11: key 'deliver': it must be an array of tables: [[deliver]]"),
    ("a = [1,2", "1:9: it is not valid TOML: "),
    ("max-crashes = 1\nmax-crashes = 2", "2:15: it is not valid TOML: "),
    ("= 3", "1:1: it is not valid TOML: "),
    (
      "[env]\nmax-crashes = 3",
      "2:15: key 'env.max-crashes': it must be a string, not an integer; "
        + "options stand above the first [table]"
    ),
    (
      "stop-timeout = '1 fortnight'",
      "1:16: key 'stop-timeout': '1 fortnight' is not a time such as 100ms, 10min or 1h 30min: "
        + "'fortnight' is none of us, ms, s, min, h, d, w"
    ),
    ("'ä' = 1", "1:1: unknown key 'ä'"),
    ("a = [1,,2]", "1:8: it is not valid TOML: "),
    ("name = 'ä'\nb = [[[", "2:8: it is not valid TOML: "),
    ("listen = ['x']", "1:11: key 'listen': 'x' is neither tcp:ADDR:PORT nor unix:PATH"),
    ("user = 'no-such-user'", "1:8: key 'user': there is no user 'no-such-user'"),
    ("umask = '8'", "1:9: key 'umask': '8' is not an octal number from 000 to 777"),
    (
      "user = 3000000000",
      "1:8: key 'user': the number 3000000000 has no account, and so no group: give one with group"
    ),
  ])
  func `in a file with line and column, status 78`(text: String, line: String) throws {
    let folder = Folder()
    let file = folder.file("c.toml", text)
    // The first mistakes that are not of one file come from a table without planned options.
    let failed = try #require(failure(["--config", file]))
    let start = "guardian: \(file):\(line)"
    let end = line.hasSuffix("?") ? " nothing was started" : "; nothing was started"
    if line.hasSuffix(": ") {
      #expect(failed.line.hasPrefix(start) && failed.line.hasSuffix(end), "\(failed.line)")
    } else {
      #expect(failed.line == start + end)
    }
    #expect(failed.status == 78)
    #expect(!failed.line.contains("\n"))
  }

  @Test(arguments: [
    ("restart = always", "restart = \"always\""),
    ("a = 1\ncrash-window = 10min # m", "crash-window = \"10min\""),
    ("state-directory=/srv/x", "state-directory = \"/srv/x\""),
  ])
  func `a text without quotes is told what it needs`(text: String, right: String) throws {
    let folder = Folder()
    let file = folder.file("c.toml", text)
    let failed = try #require(failure(["--config", file]))
    #expect(
      failed.line.contains("it is not valid TOML: text needs quotes: \(right);"), "\(failed.line)")
    #expect(failed.line.contains(text.contains("\n") ? ":2:" : ":1:"))
  }

  @Test(arguments: [
    ("quiet = yes", "quiet = true"), ("handler = off # x", "handler = false"),
  ])
  func `yes and no are told what they are in TOML`(text: String, right: String) throws {
    let folder = Folder()
    let failed = try #require(failure(["--config", folder.file("c.toml", text)]))
    #expect(
      failed.line.contains("it is not valid TOML: a boolean is true or false: \(right);"),
      "\(failed.line)")
  }

  @Test func `the first mistake of a file is told first`() throws {
    let folder = Folder()
    let file = folder.file("c.toml", "zebra = 1\napple = 2\n")
    #expect(failure(["--config", file])?.line.contains(":1:1: unknown key 'zebra'") == true)
  }

  @Test func `in a drop-in`() throws {
    let folder = Folder()
    let file = folder.file("c.toml", "")
    _ = folder.folder("c.toml.d")
    let dropIn = folder.file("c.toml.d/1.toml", "x = 1")
    #expect(
      failure(["--config", file])?.line
        == "guardian: \(dropIn):1:1: unknown key 'x'; nothing was started")
  }

  @Test func `a file that cannot be read`() throws {
    let folder = Folder()
    let start = "cannot read the configuration file: "
    func line(_ path: String) -> String? { failure(["--config", path])?.line }
    #expect(
      line("/nowhere/c.toml")
        == "guardian: /nowhere/c.toml: \(start)No such file or directory; nothing was started")
    #expect(
      line(folder.path) == "guardian: \(folder.path): \(start)Is a directory; nothing was started")
    let large = folder.file("large.toml", Array(repeating: UInt8(ascii: "#"), count: 10 << 20))
    #expect(
      line(large) == "guardian: \(large): \(start)it is larger than 1 MiB; nothing was started")
    let bytes = folder.file("bytes.toml", [0x6e, 0x3d, 0x22, 0xff, 0xfe, 0x22, 0x0a])
    let invalid = try #require(line(bytes))
    #expect(invalid.hasPrefix("guardian: \(bytes):1:") && invalid.contains("not valid TOML"))
    let twoLines = folder.file("a\nb.toml", "x")
    #expect(line(twoLines)?.contains("\n") == false)
  }

  /// Named, so that a failure does not print a hundred thousand brackets.
  enum Nest: String, CaseIterable {
    case tables, arrays, inlineTables, dottedKey, dottedTable, quotedKeys, justTooDeep

    var text: String {
      func many(_ text: String, _ count: Int = 100_000) -> String {
        String(repeating: text, count: count)
      }
      return switch self {
      case .tables: many("[")
      case .arrays: "a = " + many("[") + many("]")
      case .inlineTables: "a = " + many("{a=") + "1" + many("}")
      case .dottedKey: many("a.") + "a = 1"
      case .dottedTable: "[" + many("'a' . ") + "a]"
      case .quotedKeys: "a = {" + many("\"x\\\"y\".") + "a = 1}"
      case .justTooDeep: "a = " + many("[", 100) + many("]", 100)
      }
    }
  }

  @Test(arguments: Nest.allCases)
  func `deep nesting`(nest: Nest) throws {
    let folder = Folder()
    let file = folder.file("c.toml", nest.text)
    let failed = try #require(failure(["--config", file]))
    #expect(failed.line.hasPrefix("guardian: \(file):1:"), "\(failed.line)")
    #expect(failed.line.contains("it is not valid TOML"))
    #expect(failed.line.utf8.count < 500)
  }

  @Test func `dots in texts are no nesting`() throws {
    let folder = Folder()
    let path = String(repeating: "a.jar:b.jar:", count: 500)
    let file = folder.file(
      "c.toml", "[env]\nCP = '\(path)'\nDOTS = '''\n\(String(repeating: ".", count: 60))'''\n")
    #expect(try configuration(["--config", file]).environment.count == 2)
  }

  @Test func `bytes that are not UTF-8 in an option`() {
    #expect(
      failure(["--on-give-up=a\u{FFFD}"])?.line
        == "guardian: option '--on-give-up': 'a\u{FFFD}' is not valid UTF-8; nothing was started")
  }
}

/// A small generator with a seed, so that a failure can be had again.
private struct SplitMix: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }
}

@Suite struct `hostile files` {
  static let seeds = [
    """
    name = "api"
    command = ["/usr/bin/server", "--port", "8080"]
    restart = "on-failure"
    max-crashes = 10
    crash-window = "10min"
    restart-backoff = 1.5e0
    success-exit-status = [ 1, 0x10, 'USR1' ]
    handler = true
    [env]
    LOG_LEVEL = "in\\u00e9fo"
    "quoted key" = '''
    text'''
    [[deliver]]
    to = "sentry:https://key@sentry.example/7"
    at = 1979-05-27T07:32:00Z
    """,
    "a.b.c = {d = [[1, 2], [inf, nan, -0.0]], e = 07:32:00.5}\n\"\\U0001F600\" = 1",
  ]

  @Test func `some thousand mutated files end in a configuration or in one line`() throws {
    var random = SplitMix(state: 20_250_101)
    let folder = Folder()
    let pieces = [
      "[", "]", "{", "}", "=", ".", "\"", "'", "\"\"\"", "\n", "#", ",", "\\", "\u{0}", "é",
    ]
    for round in 0..<4000 {
      var bytes = Array(Self.seeds[round % Self.seeds.count].utf8)
      for _ in 0...Int.random(in: 0..<6, using: &random) {
        let at = Int.random(in: 0..<max(1, bytes.count), using: &random)
        switch Int.random(in: 0..<5, using: &random) {
        case 0: bytes[at] = UInt8.random(in: 0...255, using: &random)
        case 1: bytes.insert(contentsOf: pieces.randomElement(using: &random)!.utf8, at: at)
        case 2: bytes.removeSubrange(at..<min(bytes.count, at + 5))
        case 3:
          let end = min(bytes.count, at + Int.random(in: 1..<40, using: &random))
          bytes.insert(contentsOf: bytes[at..<end], at: at)
        default: bytes.removeLast(bytes.count - at)
        }
        if bytes.isEmpty { bytes = [0x61] }
      }
      let file = folder.file("c.toml", bytes)
      do throws(SettingsError) {
        _ = try configuration(["-c", file], command: [])
      } catch {
        #expect(error.exitStatus == 78, "round \(round)")
        #expect(!error.description.contains("\n"), "round \(round): \(error)")
        #expect(error.description.utf8.count < 2000, "round \(round)")
      }
    }
  }
}
