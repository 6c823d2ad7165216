// How a value is written and read: one `Kind` per type of value, the same for flags, variables and
// files. Knows nothing of options.
import CLinux
import Glibc
import Policy

/// What is wrong with one value, to be put behind the name of the option:
/// "'sometimes' is not one of no, always".
package struct BadValue: Error, Hashable, Sendable {
  package let text: String
  init(_ text: String) { self.text = text }
}

/// The types of TOML values.
package enum TomlType: Hashable, Sendable {
  case string
  case integer
  case float
  case boolean
}

/// How a shell completes a value.
package enum Completion: Hashable, Sendable {
  case none
  case file
  case directory
  case words([String])
  case user
  case group
  case variable
  /// Names of guarded programs, which guardianctl is asked for, and these words.
  case programs([String])
}

struct Kind<Value: Sendable>: Sendable {
  /// The name of the value in help: "TIME".
  let argument: String
  /// How to write one, for manuals; ends without a full stop.
  let notation: String
  /// TOML types that are taken; the first is the usual one.
  let toml: [TomlType]
  var completion = Completion.none
  /// A value for the example file, where there is no default.
  var example = ""
  let parse: @Sendable (String) throws(BadValue) -> Value
  /// The text that `parse` reads as the same value.
  let format: @Sendable (Value) -> String
}

extension Kind {
  /// The same, with a word that stands for nil.
  func or(_ word: String, _ meaning: String) -> Kind<Value?> {
    var words = [word]
    if case .words(let own) = completion { words = own + words }
    return Kind<Value?>(
      argument: argument, notation: notation + ", or \"\(word)\"\(meaning)",
      toml: toml.contains(.string) ? toml : toml + [.string],
      completion: completion == .none ? .words(words) : completion, example: example,
      parse: { text throws(BadValue) in text == word ? nil : try parse(text) },
      format: { $0.map(format) ?? word })
  }

  /// Unset until somebody sets it.
  var optional: Kind<Value?> {
    Kind<Value?>(
      argument: argument, notation: notation, toml: toml, completion: completion, example: example,
      parse: { text throws(BadValue) in try parse(text) }, format: { $0.map(format) ?? "" })
  }

  /// The same, with another value in the example file.
  func example(_ text: String) -> Kind {
    var other = self
    other.example = text
    return other
  }
}

// MARK: Texts and paths

extension Kind<String> {
  static func text(_ argument: String, _ notation: String = "a text") -> Kind {
    Kind(argument: argument, notation: notation, toml: [.string], parse: notEmpty, format: { $0 })
  }

  static let file = Kind(
    argument: "FILE", notation: "a path", toml: [.string], completion: .file,
    example: "/path/to/file", parse: notEmpty, format: { $0 })

  static let directory = Kind(
    argument: "DIR", notation: "a path", toml: [.string], completion: .directory, example: "/",
    parse: notEmpty, format: { $0 })

  static let programName = Kind(
    argument: "NAME", notation: ProgramName.notation, toml: [.string], example: "api",
    parse: { text throws(BadValue) in
      guard ProgramName.isValid(text) else {
        throw BadValue("\(quoted(text)) is not a valid name: \(ProgramName.rule)")
      }
      return text
    }, format: { $0 })

  static let user = Kind(
    argument: "USER", notation: "a user's name or number", toml: [.string, .integer],
    completion: .user, example: "nobody", parse: notEmpty, format: { $0 })

  static let group = Kind(
    argument: "GROUP", notation: "a group's name or number", toml: [.string, .integer],
    completion: .group, example: "daemon", parse: notEmpty, format: { $0 })

  @Sendable private static func notEmpty(_ text: String) throws(BadValue) -> String {
    if text.isEmpty { throw BadValue("the value is empty") }
    return text
  }
}

/// A value as errors show it: on one line, and never longer than people read.
func quoted(_ text: String, limit: Int = 60) -> String {
  var shown = ""
  for scalar in text.unicodeScalars.prefix(limit) {
    switch scalar.value {
    case 0x0a: shown += "\\n"
    case 0x09: shown += "\\t"
    case 0..<0x20, 0x7f..<0xa0, 0x2028, 0x2029, 0x202a...0x202e, 0x2066...0x2069:
      shown += "\\u{" + String(scalar.value, radix: 16) + "}"
    default: shown.unicodeScalars.append(scalar)
    }
  }
  return "'" + shown + (text.unicodeScalars.count > limit ? "…" : "") + "'"
}

// MARK: Choices

extension Kind where Value: RawRepresentable<String> & CaseIterable & Sendable {
  static var choice: Kind {
    let words = Value.allCases.map(\.rawValue)
    return Kind(
      argument: words.count <= 3 ? words.joined(separator: "|") : "WHEN",
      notation: "one of " + words.joined(separator: ", "), toml: [.string],
      completion: .words(words),
      parse: { text throws(BadValue) in
        guard let value = Value(rawValue: text) else {
          throw BadValue(
            "\(quoted(text)) is not one of " + words.joined(separator: ", ")
              + suggestion(for: text, among: words))
        }
        return value
      }, format: \.rawValue)
  }
}

extension Kind<Bool> {
  static let yesNo = Kind(
    argument: "yes|no", notation: "yes or no", toml: [.boolean],
    completion: .words(["yes", "no"]),
    parse: { text throws(BadValue) in
      switch text {
      case "yes", "true", "1", "on": return true
      case "no", "false", "0", "off": return false
      default: throw BadValue("\(quoted(text)) is neither yes nor no")
      }
    }, format: { $0 ? "yes" : "no" })
}

// MARK: Numbers

/// Decimal digits only; nil if it is no number or does not fit.
private func number(_ text: Substring) -> UInt64? {
  guard !text.isEmpty, text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }) else { return nil }
  return UInt64(text)
}

extension Kind<Int> {
  static func integer(
    _ range: ClosedRange<Int>, argument: String = "N"
  ) -> Kind {
    let rule = "a whole number from \(range.lowerBound) to \(range.upperBound)"
    return Kind(
      argument: argument, notation: rule, toml: [.integer],
      parse: { text throws(BadValue) in
        let digits = text.hasPrefix("-") ? text.dropFirst() : text[...]
        guard !digits.isEmpty, digits.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 }) else {
          throw BadValue("\(quoted(text)) is not \(rule)")
        }
        guard let value = Int(text), range.contains(value) else {
          throw BadValue(
            "\(quoted(text)) is out of range: \(range.lowerBound) to \(range.upperBound)")
        }
        return value
      }, format: { String($0) })
  }
}

extension Kind<Double> {
  static func factor(_ range: ClosedRange<Double>) -> Kind {
    let rule = "a number from \(plain(range.lowerBound)) to \(plain(range.upperBound))"
    return Kind(
      argument: "FACTOR", notation: rule, toml: [.float, .integer],
      parse: { text throws(BadValue) in
        // The library's own reader also takes "nan" and "0x1p3".
        guard let first = text.utf8.first, first != UInt8(ascii: "."),
          text.utf8.allSatisfy({ $0 >= 0x30 && $0 <= 0x39 || $0 == UInt8(ascii: ".") }),
          let value = Double(text)
        else { throw BadValue("\(quoted(text)) is not \(rule)") }
        guard range.contains(value) else {
          throw BadValue(
            "\(quoted(text)) is out of range: \(plain(range.lowerBound)) "
              + "to \(plain(range.upperBound))")
        }
        return value
      }, format: plain)
  }

  @Sendable private static func plain(_ value: Double) -> String {
    let text = value.description
    return text.hasSuffix(".0") ? String(text.dropLast(2)) : text
  }
}

extension Kind<UInt32> {
  static let umask = Kind(
    argument: "MASK", notation: "an octal number from 000 to 777", toml: [.string],
    example: "027",
    parse: { text throws(BadValue) in
      guard text.utf8.count <= 4, let value = UInt32(text, radix: 8), value <= 0o777,
        !text.hasPrefix("+")
      else { throw BadValue("\(quoted(text)) is not an octal number from 000 to 777") }
      return value
    },
    format: {
      let digits = String($0, radix: 8)
      return String(repeating: "0", count: max(0, 3 - digits.count)) + digits
    })
}

// MARK: Sizes

extension Kind<UInt64> {
  /// Multiples of 1024, and the decimal ones that say so.
  private static let units: [(String, UInt64)] = [
    ("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10),
    ("T", 1 << 40), ("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10),
    ("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000), ("B", 1),
    ("", 1),
  ]

  /// As they are written, the greatest last.
  static let unitNames = units.map(\.0).filter { !$0.isEmpty }.sorted { a, b in
    let (first, second) = (factor(a), factor(b))
    return first == second ? a.count < b.count : first < second
  }
  private static func factor(_ unit: String) -> UInt64 {
    units.first { $0.0 == unit }?.1 ?? 1
  }

  static let size = Kind(
    argument: "SIZE", notation: "a size such as \"256MiB\" or \"1GB\"; a plain number is in bytes",
    toml: [.string, .integer],
    parse: { text throws(BadValue) in
      let digits = text.prefix { $0.isASCII && $0.isNumber }
      let unit = text[digits.endIndex...].drop { $0 == " " }
      guard !digits.isEmpty else {
        throw BadValue("\(quoted(text)) is not a size such as 256MiB")
      }
      guard let factor = units.first(where: { $0.0 == unit })?.1 else {
        throw BadValue(
          "\(quoted(text)) is not a size such as 256MiB: \(quoted(String(unit))) is none of "
            + unitNames.joined(separator: ", "))
      }
      // Above this it is a typing error, and sums of sizes would not fit a signed number.
      let limit: UInt64 = 1 << 60
      let (value, overflow) = (number(digits) ?? .max).multipliedReportingOverflow(by: factor)
      guard !overflow, value <= limit else {
        throw BadValue("\(quoted(text)) is out of range: at most 1048576TiB")
      }
      return value
    },
    format: { value in
      for (unit, factor) in units.prefix(4) where value >= factor && value % factor == 0 {
        return "\(value / factor)\(unit)"
      }
      return String(value)
    })
}

// MARK: Times

extension Kind<Duration> {
  private static let second: Int64 = 1_000_000_000
  /// Longer is a typing error; "infinity" says what was meant.
  static let longest = Duration.seconds(3650 * 86400)

  /// Every spelling of a unit, the shortest first, and its nanoseconds: those of systemd.time(7) up
  /// to weeks.
  static let timeUnits: [(names: [String], scale: Int64)] = [
    (["us", "µs", "μs", "usec"], 1_000),
    (["ms", "msec"], 1_000_000),
    (["s", "sec", "second", "seconds"], second),
    (["m", "min", "minute", "minutes"], 60 * second),
    (["h", "hr", "hour", "hours"], 3600 * second),
    (["d", "day", "days"], 86400 * second),
    (["w", "week", "weeks"], 604_800 * second),
  ]

  private static func unit(_ name: Substring) -> Int64? {
    name.isEmpty ? second : timeUnits.first { $0.names.contains(String(name)) }?.scale
  }

  static let time = time(.zero, longest)

  /// - Parameters: the shortest and the longest that is taken.
  static func time(_ shortest: Duration, _ longest: Duration) -> Kind {
    Kind(
      argument: "TIME",
      notation: "a time such as \"100ms\", \"10min\" or \"1h 30min\"; a plain number is in seconds",
      toml: [.string, .integer, .float],
      parse: { text throws(BadValue) in
        let value = try read(text)
        guard value >= shortest, value <= longest else {
          throw BadValue("\(quoted(text)) is out of range: \(write(shortest)) to \(write(longest))")
        }
        return value
      }, format: write)
  }

  private static func read(_ text: String) throws(BadValue) -> Duration {
    let wrong = BadValue("\(quoted(text)) is not a time such as 100ms, 10min or 1h 30min")
    var total: Int64 = 0
    var rest = text[...]
    var parts = 0
    while true {
      rest = rest.drop { $0 == " " }
      if rest.isEmpty { break }
      let whole = rest.prefix { $0.isASCII && $0.isNumber }
      guard !whole.isEmpty else { throw wrong }
      rest = rest[whole.endIndex...]
      var fraction = rest[rest.startIndex..<rest.startIndex]
      if rest.first == "." {
        fraction = rest.dropFirst().prefix { $0.isASCII && $0.isNumber }
        guard !fraction.isEmpty, fraction.count <= 9 else { throw wrong }
        rest = rest[fraction.endIndex...]
      }
      rest = rest.drop { $0 == " " }
      let name = rest.prefix { $0.isLetter }
      rest = rest[name.endIndex...]
      guard let scale = unit(name) else {
        throw BadValue(
          wrong.text + ": \(quoted(String(name))) is none of us, ms, s, min, h, d, w")
      }
      // "1 30" has no meaning: only a number that stands alone is in seconds.
      guard !name.isEmpty || parts == 0 && rest.isEmpty else { throw wrong }
      let tooLong = BadValue("\(quoted(text)) is out of range: at most \(write(longest))")
      guard let number = number(whole), let signed = Int64(exactly: number) else { throw tooLong }
      let (product, tooBig) = signed.multipliedReportingOverflow(by: scale)
      var scaled: Int64 = 0
      if let digits = Int64(fraction) {
        var divisor: Int64 = 1
        for _ in 0..<fraction.count { divisor *= 10 }
        // Weeks in nanoseconds times nine digits would not fit; whole and rest apart do.
        scaled = scale / divisor * digits + scale % divisor * digits / divisor
      }
      let (sum, tooBigSum) = total.addingReportingOverflow(product)
      let (grand, tooBigGrand) = sum.addingReportingOverflow(scaled)
      if tooBig || tooBigSum || tooBigGrand { throw tooLong }
      total = grand
      parts += 1
    }
    if parts == 0 { throw wrong }
    return .nanoseconds(total)
  }

  @Sendable static func write(_ value: Duration) -> String {
    let (seconds, attoseconds) = value.components
    var rest = seconds * second + attoseconds / 1_000_000_000
    if rest == 0 { return "0" }
    var parts: [String] = []
    for (name, scale) in [
      ("d", 86400 * second), ("h", 3600 * second), ("min", 60 * second), ("s", second),
      ("ms", 1_000_000), ("us", 1_000),
    ] where rest >= scale {
      parts.append("\(rest / scale)\(name)")
      rest %= scale
    }
    return parts.joined(separator: " ")
  }
}

// MARK: Signals

/// "TERM" for 15, as `kill -l` says it; real-time signals count from RTMIN.
package func signalName(_ signal: Signal) -> String {
  let first = guardian_sigrtmin()
  if signal.rawValue >= first, signal.rawValue <= 64 {
    return signal.rawValue == first ? "RTMIN" : "RTMIN+\(signal.rawValue - first)"
  }
  guard let name = unsafe guardian_signal_abbreviation(signal.rawValue) else {
    return String(signal.rawValue)
  }
  return unsafe String(cString: name)
}

extension Kind<Signal> {
  static let names: [String] = (1...31).map { signalName(Signal(rawValue: $0)) }

  static let signal = Kind(
    argument: "SIGNAL", notation: "a signal such as TERM, SIGTERM or 15",
    toml: [.string, .integer], completion: .words(names),
    parse: { text throws(BadValue) in
      if let value = Int32(text), !text.hasPrefix("+") {
        guard (1...64).contains(value) else {
          throw BadValue("\(quoted(text)) is out of range: 1 to 64")
        }
        return Signal(rawValue: value)
      }
      var name = text.uppercased()
      if name.hasPrefix("SIG") { name.removeFirst(3) }
      for number: Int32 in 1...64 where signalName(Signal(rawValue: number)) == name {
        return Signal(rawValue: number)
      }
      if name == "IOT" { return Signal(rawValue: SIGABRT) }
      if name == "CLD" { return Signal(rawValue: SIGCHLD) }
      throw BadValue(
        "\(quoted(text)) is not a signal" + suggestion(for: name, among: names))
    }, format: signalName)
}

extension Kind<SignalRewrite> {
  /// Those that guardian never gets to see, or that are not for the program.
  private static let notOurs: Set<Int32> = [SIGKILL, SIGSTOP, SIGCHLD, 32, 33]
  private static let faults: Set<Int32> = [
    SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS,
  ]

  static let rewrite = Kind(
    argument: "FROM:TO", notation: "two signals, or a signal and 0: HUP:USR1, 1:10, PIPE:0",
    toml: [.string],
    parse: { text throws(BadValue) in
      let parts = text.split(separator: ":", omittingEmptySubsequences: false).map(String.init)
      guard parts.count == 2 else { throw BadValue("\(quoted(text)) is not FROM:TO") }
      let from = try Kind<Signal>.signal.parse(parts[0])
      if notOurs.contains(from.rawValue) || faults.contains(from.rawValue) {
        throw BadValue("\(quoted(text)): guardian does not pass \(signalName(from)) on")
      }
      if parts[1] == "0" { return SignalRewrite(from: from, to: nil) }
      let to = try Kind<Signal>.signal.parse(parts[1])
      if to.rawValue == 32 || to.rawValue == 33 {
        throw BadValue("\(quoted(text)): the C library keeps \(to.rawValue) for itself")
      }
      return SignalRewrite(from: from, to: to)
    }, format: { signalName($0.from) + ":" + ($0.to.map(signalName) ?? "0") })
}

extension Kind<SuccessStatus> {
  static let status = Kind(
    argument: "STATUS", notation: "an exit code from 0 to 255 or a signal's name",
    toml: [.integer, .string],
    parse: { text throws(BadValue) in
      if let code = Int32(text), !text.hasPrefix("+") {
        guard (0...255).contains(code) else {
          throw BadValue("\(quoted(text)) is out of range: 0 to 255")
        }
        return .code(code)
      }
      do {
        return .signal(try Kind<Signal>.signal.parse(text))
      } catch {
        throw BadValue("\(quoted(text)) is neither an exit code nor the name of a signal")
      }
    },
    format: {
      switch $0 {
      case .code(let code): String(code)
      case .signal(let signal): signalName(signal)
      }
    })
}

// MARK: Guardian's own

extension Kind<Readiness> {
  /// The numbers that a spawn can place (`CSpawn`).
  static let descriptors: ClosedRange<Int32> = 3...59

  static let readiness: Kind = {
    let words = ["exec", "notify", "fd:N"]
    return Kind(
      argument: words.joined(separator: "|"), notation: "one of " + words.joined(separator: ", "),
      toml: [.string], completion: .words(["exec", "notify", "fd:"]),
      parse: { text throws(BadValue) in
        switch text {
        case "exec": return .exec
        case "notify": return .notify
        default:
          if text.hasPrefix("fd:"), text.dropFirst(3).utf8.allSatisfy({ (48...57).contains($0) }),
            let value = Int32(text.dropFirst(3))
          {
            guard descriptors.contains(value) else {
              throw BadValue(
                "\(quoted(text)): the descriptor is a number from \(descriptors.lowerBound) to "
                  + "\(descriptors.upperBound)")
            }
            return .descriptor(value)
          }
          throw BadValue("\(quoted(text)) is not one of " + words.joined(separator: ", "))
        }
      },
      format: {
        switch $0 {
        case .exec: "exec"
        case .notify: "notify"
        case .descriptor(let number): "fd:\(number)"
        }
      })
  }()
}

extension Kind<OutputTarget> {
  static let output = Kind(
    argument: "TARGET", notation: "one of inherit, direct, null, journal, file:PATH",
    toml: [.string],
    completion: .words(["inherit", "direct", "null", "journal", "file:"]),
    parse: { text throws(BadValue) in
      switch text {
      case "inherit": return .inherit
      case "direct": return .direct
      case "null": return .null
      case "journal": return .journal
      default:
        guard text.hasPrefix("file:"), text.utf8.count > 5 else {
          throw BadValue("\(quoted(text)) is not one of inherit, direct, null, journal, file:PATH")
        }
        return .file(String(text.dropFirst(5)))
      }
    },
    format: {
      switch $0 {
      case .inherit: "inherit"
      case .direct: "direct"
      case .null: "null"
      case .journal: "journal"
      case .file(let path): "file:" + path
      }
    })
}

extension Kind<ResourceLimit> {
  /// prlimit(1)'s names; setrlimit(2) says what they limit.
  static let limitNames = [
    "as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc",
    "rss", "rtprio", "rttime", "sigpending", "stack",
  ]

  static let limit = Kind(
    argument: "NAME=SOFT[:HARD]",
    notation: "NAME=SOFT[:HARD] with a name of prlimit(1) and numbers or \"infinity\"",
    toml: [.string], completion: .words(limitNames.map { $0 + "=" }),
    parse: { text throws(BadValue) in
      let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      guard parts.count == 2 else { throw BadValue("\(quoted(text)) is not NAME=SOFT[:HARD]") }
      let name = String(parts[0])
      guard limitNames.contains(name) else {
        throw BadValue(
          "\(quoted(name)) is not one of " + limitNames.joined(separator: ", "))
      }
      let values = parts[1].split(separator: ":", omittingEmptySubsequences: false)
      guard values.count <= 2 else { throw BadValue("\(quoted(text)) is not NAME=SOFT[:HARD]") }
      var limits: [UInt64?] = []
      for value in values {
        if value == "infinity" {
          limits.append(nil)
        } else if let value = number(value) {
          limits.append(value)
        } else {
          throw BadValue("\(quoted(String(value))) is neither a number nor \"infinity\"")
        }
      }
      let (soft, hard) = (limits[0], limits[limits.count - 1])
      if (soft ?? .max) > (hard ?? .max) {
        throw BadValue("\(quoted(text)): the soft limit is above the hard one")
      }
      return ResourceLimit(name: name, soft: soft, hard: hard)
    },
    format: { limit in
      let soft = limit.soft.map { String($0) } ?? "infinity"
      let hard = limit.hard.map { String($0) } ?? "infinity"
      return "\(limit.name)=\(soft)" + (soft == hard ? "" : ":\(hard)")
    })
}

extension Kind<EnvironmentVariable> {
  static let variable = Kind(
    argument: "NAME=VALUE", notation: "NAME=VALUE; the value may be empty", toml: [.string],
    completion: .variable,
    parse: { text throws(BadValue) in
      let parts = text.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      if parts.count == 2, parts[0].isEmpty {
        throw BadValue("there is no name before the '=': it must be NAME=VALUE")
      }
      guard parts.count == 2 else {
        // The value may be a secret: only the name's part is shown.
        throw BadValue("\(quoted(String(parts[0]))) is not NAME=VALUE")
      }
      if parts[0].contains("\0") || parts[1].contains("\0") {
        throw BadValue("\(quoted(String(parts[0]))): a variable cannot hold a NUL byte")
      }
      return EnvironmentVariable(name: String(parts[0]), value: String(parts[1]))
    }, format: { $0.name + "=" + $0.value })
}
