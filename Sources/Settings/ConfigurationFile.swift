// The configuration file and its drop-ins as layers of option values.
import CLinux
import Glibc

enum ConfigurationFile {
  /// A configuration is written by people; more is the wrong file.
  static let sizeLimit = 1 << 20
  /// A folder with more drop-ins is the wrong folder.
  static let dropInLimit = 1000

  /// FILE, then FILE.d/*.toml in the order of their names.
  static func layers(_ path: String, _ options: [Option]) throws(SettingsError) -> [Layer] {
    var layers = [try layer(path, options)]
    for file in try dropIns(path + ".d") { layers.append(try layer(file, options)) }
    return layers
  }

  // MARK: Reading

  private static func layer(_ path: String, _ options: [Option]) throws(SettingsError) -> Layer {
    let table: TomlTable
    let bytes = try read(path, what: "configuration file") ?? []
    do throws(TomlError) {
      table = try TomlTable(text: bytes)
    } catch {
      let text =
        error.position.flatMap { unquoted(bytes, line: $0.line, options) } ?? oneLine(error.text)
      throw SettingsError(
        .file(path, line: error.position?.line ?? 0, column: error.position?.column ?? 0),
        "it is not valid TOML: " + text)
    }
    return try layer(table, path, options)
  }

  /// - Parameter mayBeMissing: nil is returned then.
  static func read(
    _ path: String, what: String, mayBeMissing: Bool = false
  ) throws(SettingsError) -> [UInt8]? {
    func failure(_ cause: String) -> SettingsError {
      SettingsError(.file(path, line: 0, column: 0), "cannot read the \(what): " + cause)
    }
    func failure(_ number: Int32) -> SettingsError {
      failure(unsafe String(cString: strerror(number)))
    }
    let descriptor = unsafe guardian_open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY)
    guard descriptor >= 0 else {
      if mayBeMissing, errno == ENOENT { return nil }
      throw failure(errno)
    }
    defer { close(descriptor) }
    var bytes: [UInt8] = []
    while true {
      // One byte more than allowed tells a file of the limit from a longer one.
      let room = min(sizeLimit + 1 - bytes.count, 65536)
      var count = 0
      let chunk = unsafe [UInt8](unsafeUninitializedCapacity: room) { buffer, filled in
        count = unsafe CLinux.read(descriptor, buffer.baseAddress, room)
        filled = max(count, 0)
      }
      if count < 0 {
        if errno == EINTR { continue }
        throw failure(errno)
      }
      if count == 0 { break }
      bytes += chunk
      if bytes.count > sizeLimit { throw failure("it is larger than \(sizeLimit >> 20) MiB") }
    }
    return bytes
  }

  private static func dropIns(_ folder: String) throws(SettingsError) -> [String] {
    func failure(_ cause: String) -> SettingsError {
      SettingsError(.file(folder, line: 0, column: 0), "cannot read the folder: " + cause)
    }
    guard let stream = unsafe opendir(folder) else {
      if errno == ENOENT { return [] }
      throw failure(unsafe String(cString: strerror(errno)))
    }
    defer { unsafe closedir(stream) }
    var names: [String] = []
    while let entry = unsafe readdir(stream) {
      let name = unsafe withUnsafeBytes(of: &entry.pointee.d_name) { bytes in
        unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      // Hidden files are what editors leave behind.
      guard name.hasSuffix(".toml"), !name.hasPrefix(".") else { continue }
      names.append(name)
      guard names.count <= dropInLimit else { throw failure("it holds over \(dropInLimit) files") }
    }
    return names.sorted { Array($0.utf8).lexicographicallyPrecedes(Array($1.utf8)) }
      .map { folder + "/" + $0 }
  }

  /// Of a line such as `restart = always  # so` or `quiet = yes` how it is right; nil: it is wrong
  /// otherwise.
  private static func unquoted(_ bytes: [UInt8], line: Int, _ options: [Option]) -> String? {
    let lines = bytes.split(separator: 10, maxSplits: line, omittingEmptySubsequences: false)
    guard line >= 1, line <= lines.count else { return nil }
    let parts = lines[line - 1].split(separator: UInt8(ascii: "="), maxSplits: 1)
    guard parts.count == 2 else { return nil }
    func word(_ bytes: some Sequence<UInt8>) -> String? {
      let text = String(decoding: Array(bytes), as: UTF8.self)
        .split { $0 == " " || $0 == "\t" || $0 == "\r" }
      // A key or value is one word of what stands in names, times, sizes and paths.
      guard text.count == 1, text[0].utf8.count <= 100,
        text[0].utf8.allSatisfy({ byte in
          switch byte {
          case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"),
            UInt8(ascii: "."), UInt8(ascii: "/"), UInt8(ascii: ":"), UInt8(ascii: "@"),
            UInt8(ascii: "+"):
            true
          default: false
          }
        })
      else { return nil }
      return String(text[0])
    }
    guard let key = word(parts[0]),
      let value = word(parts[1].prefix { $0 != UInt8(ascii: "#") }),
      value.contains(where: { $0.isLetter || $0 == "/" }),
      !["true", "false", "inf", "nan"].contains(value)
    else { return nil }
    if let option = options.first(where: { $0.name == key }), option.toml == [.boolean] {
      return "a boolean is true or false" + assignment(key, value)
    }
    return "text needs quotes: \(key) = \"\(value)\""
  }

  /// ": quiet = true" for what stands for true elsewhere, or nothing.
  private static func assignment(_ key: String, _ value: String) -> String {
    (try? Kind<Bool>.yesNo.parse(value.lowercased())).map { ": \(key) = \($0)" } ?? ""
  }

  private static func oneLine(_ text: String) -> String {
    String(quoted(text, limit: 256).dropFirst().dropLast())
  }

  // MARK: Keys

  static func layer(
    _ table: TomlTable, _ path: String, _ options: [Option]
  ) throws(SettingsError) -> Layer {
    var layer = Layer()
    func place(_ position: TomlPosition) -> SettingsError.Place {
      .file(path, line: position.line, column: position.column)
    }
    for entry in table.entries {
      if entry.key == "command" {
        layer.command = try command(entry, place)
        layer.commandPlace = place(entry.keyPosition)
        continue
      }
      if entry.key == "deliver" {
        layer.deliveries = try deliveries(entry, place)
        continue
      }
      guard
        let option = options.first(where: {
          $0.name == entry.key && $0.sources.contains(.file)
        })
      else { throw SettingsError(place(entry.keyPosition), unknown(entry, options)) }
      layer.entries[option.name] = try texts(option, entry, options, place)
      if option.isTable, case .table(let table) = entry.element.value {
        layer.warnings += table.entries.filter { isKey($0.key, options) }.map {
          SettingsError(
            place($0.keyPosition),
            "key '\($0.key)' stands below [\(option.name)]: it is a variable of the program, and no "
              + "option of guardian; \(aboveTables)")
        }
      }
    }
    return layer
  }

  private static let aboveTables = "options stand above the first [table]"

  private static func isKey(_ name: String, _ options: [Option]) -> Bool {
    name == "command" || options.contains { $0.name == name && $0.sources.contains(.file) }
  }

  private static func unknown(_ entry: TomlTable.Entry, _ options: [Option]) -> String {
    if options.contains(where: { $0.name == entry.key }) {
      return "key \(quoted(entry.key)) cannot stand in a file"
    }
    let keys = options.filter { $0.sources.contains(.file) }.map(\.name) + ["command", "deliver"]
    let kind: String
    if case .table = entry.element.value { kind = "table" } else { kind = "key" }
    return "unknown \(kind) \(quoted(entry.key))" + suggestion(for: entry.key, among: keys)
  }

  private static func command(
    _ entry: TomlTable.Entry, _ place: (TomlPosition) -> SettingsError.Place
  ) throws(SettingsError) -> [String] {
    guard case .array(let elements) = entry.element.value else {
      throw SettingsError(
        place(entry.element.position),
        "key 'command': it must be an array of strings, not \(entry.element.value.name)")
    }
    guard !elements.isEmpty else {
      throw SettingsError(place(entry.element.position), "key 'command': the array is empty")
    }
    var words: [String] = []
    for element in elements {
      guard case .string(let word) = element.value else {
        throw SettingsError(
          place(element.position),
          "key 'command': it must be an array of strings, and this is \(element.value.name)")
      }
      guard !word.utf8.contains(0) else {
        throw SettingsError(place(element.position), "key 'command': the word holds a NUL byte")
      }
      words.append(word)
    }
    return words
  }

  /// Kept as they are: who delivers reads them.
  private static func deliveries(
    _ entry: TomlTable.Entry, _ place: (TomlPosition) -> SettingsError.Place
  ) throws(SettingsError) -> [TomlTable] {
    let wrong = "key 'deliver': it must be an array of tables: [[deliver]]"
    guard case .array(let elements) = entry.element.value else {
      throw SettingsError(place(entry.element.position), wrong)
    }
    var tables: [TomlTable] = []
    for element in elements {
      guard case .table(let table) = element.value else {
        throw SettingsError(place(element.position), wrong)
      }
      tables.append(table)
    }
    return tables
  }

  private static func texts(
    _ option: Option, _ entry: TomlTable.Entry, _ options: [Option],
    _ place: (TomlPosition) -> SettingsError.Place
  ) throws(SettingsError) -> [(String, SettingsError.Place)] {
    func text(
      _ element: TomlElement, in name: String, hint: String = ""
    ) throws(SettingsError) -> String {
      guard let type = element.value.type, option.toml.contains(type) else {
        throw SettingsError(
          place(element.position),
          "key '\(name)': it must be \(option.expected), not \(element.value.name)"
            + (option.toml == [.boolean] ? assignment(name, element.value.text) : hint))
      }
      return element.value.text
    }
    switch entry.element.value {
    case .table(let table) where option.isTable:
      var texts: [(String, SettingsError.Place)] = []
      for variable in table.entries {
        let value = try text(
          variable.element, in: option.name + "." + variable.key,
          hint: isKey(variable.key, options) ? "; \(aboveTables)" : "")
        guard !variable.key.isEmpty, !variable.key.contains("=") else {
          throw SettingsError(
            place(variable.keyPosition),
            "key '\(option.name)': \(quoted(variable.key)) is not a variable's name")
        }
        texts.append((variable.key + "=" + value, place(variable.keyPosition)))
      }
      return texts
    case .array(let elements) where option.isList && !option.isTable:
      var texts: [(String, SettingsError.Place)] = []
      for element in elements {
        texts.append((try text(element, in: option.name), place(element.position)))
      }
      return texts
    default:
      if option.isTable || option.isList {
        let shape = option.isTable ? "a table of strings" : "an array"
        throw SettingsError(
          place(entry.element.position),
          "key '\(option.name)': it must be \(shape), not \(entry.element.value.name)")
      }
      return [(try text(entry.element, in: option.name), place(entry.element.position))]
    }
  }
}

extension Option {
  /// "a string or an integer"
  fileprivate var expected: String {
    toml.map(\.name).joined(separator: " or ")
  }
}

extension TomlValue {
  fileprivate var type: TomlType? {
    switch self {
    case .string: .string
    case .integer: .integer
    case .float: .float
    case .boolean: .boolean
    case .time, .array, .table: nil
    }
  }

  /// As a flag would say it.
  fileprivate var text: String {
    switch self {
    case .string(let text), .time(let text): text
    case .integer(let number): String(number)
    case .float(let number): number.description
    case .boolean(let value): value ? "yes" : "no"
    case .array, .table: ""
    }
  }
}
