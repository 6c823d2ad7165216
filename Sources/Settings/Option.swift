// What an option is. The table is in Options.swift; flags, keys, variables, help, manuals and
// completions all come from it.

/// Whether an option does something in this version.
package enum Status: Hashable, Sendable {
  case available
  /// Kept out of everything people see: an unknown option.
  case planned
}

package enum Section: String, CaseIterable, Hashable, Sendable {
  case general = "General"
  case restart = "Restart policy"
  case start = "How the program is started"
  case ready = "Readiness and health"
  case stop = "How the program is stopped"
  case reports = "Reports"
  case places = "Places"
}

/// Where an option may stand.
package struct Sources: OptionSet, Hashable, Sendable {
  package let rawValue: Int
  package init(rawValue: Int) { self.rawValue = rawValue }
  package static let flag = Sources(rawValue: 1)
  package static let file = Sources(rawValue: 2)
  package static let variable = Sources(rawValue: 4)
  package static let all: Sources = [.flag, .file, .variable]
}

/// A bad value, and which of several it was.
struct BadElement: Error {
  let index: Int
  let value: BadValue
}

package struct Option: Sendable {
  /// The flag without its dashes, and the key in a file.
  package let name: String
  package let short: Character?
  package let status: Status
  package let section: Section
  package let sources: Sources
  /// "TIME"
  package let argument: String
  /// How a value is written, for manuals.
  package let notation: String
  /// One sentence without its full stop, for --help.
  package let help: String
  /// Further sentences for the manual.
  package let details: String
  /// What holds when nobody sets it, in words; "" if `help` says so.
  package let defaultText: String
  package let completion: Completion
  /// A flag that stands for "yes" without a value.
  package let isSwitch: Bool
  package let isList: Bool
  /// A table of names and values in a file.
  package let isTable: Bool
  let toml: [TomlType]
  /// For the example file; "": the default.
  let example: String
  /// Puts the values of one source over those of weaker ones.
  let set: @Sendable (inout Configuration, [String]) throws(BadElement) -> Void
  /// The values as texts that `set` reads; empty: unset.
  package let get: @Sendable (Configuration) -> [String]

  /// "GUARDIAN_MAX_CRASHES"
  package var variable: String { Option.variable(name) }

  static func variable(_ name: String) -> String {
    "GUARDIAN_" + String(name.map { $0 == "-" ? "_" : $0 }).uppercased()
  }
}

extension Option {
  private init<Value>(
    _ name: String, _ short: Character?, _ status: Status, _ section: Section, _ sources: Sources,
    _ kind: Kind<Value>, help: String, details: String, defaultText: String?,
    isSwitch: Bool = false, isList: Bool = false, isTable: Bool = false,
    set: @escaping @Sendable (inout Configuration, [String]) throws(BadElement) -> Void,
    get: @escaping @Sendable (Configuration) -> [String]
  ) {
    self.name = name
    self.short = short
    self.status = status
    self.section = section
    self.sources = sources
    self.argument = kind.argument
    self.notation = kind.notation
    self.help = help
    self.details = details
    self.defaultText = defaultText ?? get(Configuration()).joined(separator: " ")
    self.completion = kind.completion
    self.isSwitch = isSwitch
    self.isList = isList
    self.isTable = isTable
    self.toml = kind.toml
    self.example = kind.example
    self.set = set
    self.get = get
  }

  /// An option with one value.
  static func one<Value>(
    _ name: String, short: Character? = nil, status: Status = .available, _ section: Section,
    _ kind: Kind<Value>, _ field: WritableKeyPath<Configuration, Value> & Sendable,
    sources: Sources = .all, defaultText: String? = nil, help: String, details: String = ""
  ) -> Option {
    Option(
      name, short, status, section, sources, kind, help: help, details: details,
      defaultText: defaultText,
      set: { configuration, texts throws(BadElement) in
        configuration[keyPath: field] = try parsed(texts, kind)[0]
      },
      get: {
        let text = kind.format($0[keyPath: field])
        return text.isEmpty ? [] : [text]
      })
  }

  /// A flag that needs no value.
  static func yes(
    _ name: String, short: Character? = nil, status: Status = .available, _ section: Section,
    _ field: WritableKeyPath<Configuration, Bool> & Sendable, sources: Sources = .all,
    help: String, details: String = ""
  ) -> Option {
    let kind = Kind<Bool>.yesNo
    return Option(
      name, short, status, section, sources, kind, help: help, details: details,
      defaultText: nil, isSwitch: true,
      set: { configuration, texts throws(BadElement) in
        configuration[keyPath: field] = try parsed(texts, kind)[0]
      },
      get: { [kind.format($0[keyPath: field])] })
  }

  /// An option that may be given several times. A stronger source replaces the list of a weaker
  /// one, unless it `adds`.
  static func list<Value>(
    _ name: String, short: Character? = nil, status: Status = .available, _ section: Section,
    _ kind: Kind<Value>, _ field: WritableKeyPath<Configuration, [Value]> & Sendable,
    sources: Sources = .all, adds: Bool = false, defaultText: String? = nil, help: String,
    details: String = ""
  ) -> Option {
    Option(
      name, short, status, section, sources, kind, help: help, details: details,
      defaultText: defaultText, isList: true,
      set: { configuration, texts throws(BadElement) in
        let values = try parsed(texts, kind)
        configuration[keyPath: field] = adds ? configuration[keyPath: field] + values : values
      },
      get: { $0[keyPath: field].map(kind.format) })
  }

  /// Variables by name: a stronger source replaces single variables.
  static func variables(
    _ name: String, short: Character? = nil, status: Status = .available, _ section: Section,
    _ field: WritableKeyPath<Configuration, [EnvironmentVariable]> & Sendable,
    help: String, details: String = ""
  ) -> Option {
    let kind = Kind<EnvironmentVariable>.variable
    return Option(
      name, short, status, section, [.flag, .file], kind, help: help, details: details,
      defaultText: nil, isList: true, isTable: true,
      set: { configuration, texts throws(BadElement) in
        for variable in try parsed(texts, kind) {
          configuration[keyPath: field].removeAll { $0.name == variable.name }
          configuration[keyPath: field].append(variable)
        }
      },
      get: { $0[keyPath: field].map(kind.format) })
  }

  private static func parsed<Value>(
    _ texts: [String], _ kind: Kind<Value>
  ) throws(BadElement) -> [Value] {
    var values: [Value] = []
    for (index, text) in texts.enumerated() {
      do throws(BadValue) {
        if text.utf8.contains(0) { throw BadValue("\(quoted(text)) holds a NUL byte") }
        // A byte that is not UTF-8 became this sign when the text was made.
        if text.unicodeScalars.contains("\u{FFFD}") {
          throw BadValue("\(quoted(text)) is not valid UTF-8")
        }
        values.append(try kind.parse(text))
      } catch {
        throw BadElement(index: index, value: error)
      }
    }
    return values
  }
}
