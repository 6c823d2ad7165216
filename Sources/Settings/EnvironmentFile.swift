// Files of variables for the program: what systemd's EnvironmentFile= and docker's --env-file have
// in common, and no more. What is unclear is an error with its place, never a guess.
//
//   # a comment; so is a line that begins with ;
//   NAME=a value to the end of the line, blanks at both ends aside
//   NAME='taken as it stands, also over lines'
//   NAME="the same, but a backslash makes \" \\ \$ \` plain and joins lines"
//
// A backslash outside of quotes makes the next character plain, and joins lines. Nothing is
// expanded: a $ is a $.

/// A variable from a file. Its value need not be UTF-8.
package struct FileVariable: Hashable, Sendable {
  package let name: String
  package let value: [UInt8]
}

struct EnvironmentFile {
  private let path: String
  private let bytes: [UInt8]
  private var position = 0

  /// - Parameter path: with a `-` before it the file may be missing.
  static func read(_ path: String) throws(SettingsError) -> [FileVariable] {
    let mayBeMissing = path.hasPrefix("-")
    let path = mayBeMissing ? String(path.dropFirst()) : path
    guard
      let bytes = try ConfigurationFile.read(
        path, what: "environment file", mayBeMissing: mayBeMissing)
    else { return [] }
    return try parse(bytes, path)
  }

  /// Of a name that comes twice the last one.
  static func parse(_ bytes: [UInt8], _ path: String) throws(SettingsError) -> [FileVariable] {
    var file = EnvironmentFile(path: path, bytes: bytes)
    var variables: [FileVariable] = []
    while let variable = try file.next() {
      variables.removeAll { $0.name == variable.name }
      variables.append(variable)
    }
    return variables
  }

  private init(path: String, bytes: [UInt8]) {
    self.path = path
    self.bytes = bytes
    // A byte order mark.
    if bytes.starts(with: [0xef, 0xbb, 0xbf]) { position = 3 }
  }

  /// nil: the end.
  private var current: UInt8? { position < bytes.count ? bytes[position] : nil }

  private func failure(at place: Int, _ text: String) -> SettingsError {
    var (line, start) = (1, 0)
    for index in 0..<min(place, bytes.count) where bytes[index] == 10 {
      line += 1
      start = index + 1
    }
    return SettingsError(.file(path, line: line, column: place - start + 1), text)
  }

  private mutating func skipBlanks() {
    while current == 32 || current == 9 { position += 1 }
  }

  /// Past a line end, if there is one here.
  private mutating func skipLineEnd() -> Bool {
    if current == 10 {
      position += 1
      return true
    }
    if current == 13, position + 1 < bytes.count, bytes[position + 1] == 10 {
      position += 2
      return true
    }
    return false
  }

  private var isAtLineEnd: Bool {
    current == nil || current == 10
      || current == 13 && (position + 1 == bytes.count || bytes[position + 1] == 10)
  }

  private mutating func next() throws(SettingsError) -> FileVariable? {
    while true {
      skipBlanks()
      guard let byte = current else { return nil }
      if byte == UInt8(ascii: "#") || byte == UInt8(ascii: ";") {
        while let byte = current, byte != 10 { position += 1 }
      } else if !isAtLineEnd {
        break
      }
      if !skipLineEnd(), current != nil { position += 1 }
    }
    let start = position
    while let byte = current, byte != UInt8(ascii: "="), !isAtLineEnd { position += 1 }
    guard current == UInt8(ascii: "=") else {
      // What stands here may be a secret: it is not shown.
      throw failure(at: start, "this line is not NAME=VALUE: it has no '='")
    }
    let nameBytes = bytes[start..<position]
    if nameBytes.starts(with: "export ".utf8) || nameBytes.starts(with: "export\t".utf8) {
      throw failure(
        at: start, "'export' is a shell's: leave it out, every variable here is the program's")
    }
    for (index, byte) in zip(nameBytes.indices, nameBytes) {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "_"):
        continue
      case UInt8(ascii: "0")...UInt8(ascii: "9") where index > start: continue
      default:
        throw failure(
          at: index,
          "a variable's name has letters, digits and _ only, and no blank before its '='")
      }
    }
    if nameBytes.isEmpty { throw failure(at: start, "there is no name before the '='") }
    let name = String(decoding: nameBytes, as: UTF8.self)
    position += 1
    let value = try value(of: name)
    return FileVariable(name: name, value: value)
  }

  private mutating func value(of name: String) throws(SettingsError) -> [UInt8] {
    skipBlanks()
    let start = position
    let value: [UInt8]
    if current == UInt8(ascii: "'") || current == UInt8(ascii: "\"") {
      let quote = bytes[position]
      position += 1
      guard let text = inQuotes(quote) else {
        throw failure(at: start, "the value of '\(name)' has no closing quote")
      }
      value = text
      skipBlanks()
      if !isAtLineEnd {
        throw failure(at: position, "after the closing quote of '\(name)' nothing may follow")
      }
    } else {
      value = plain()
    }
    if let zero = bytes[start..<position].firstIndex(of: 0) {
      throw failure(at: zero, "the value of '\(name)' holds a NUL byte")
    }
    return value
  }

  private mutating func inQuotes(_ quote: UInt8) -> [UInt8]? {
    var value: [UInt8] = []
    while let byte = current {
      position += 1
      if byte == quote { return value }
      if byte == UInt8(ascii: "\\"), quote == UInt8(ascii: "\""), let next = current {
        if skipLineEnd() { continue }
        if "\"\\$`".utf8.contains(next) {
          value.append(next)
          position += 1
          continue
        }
      }
      value.append(byte)
    }
    return nil
  }

  private mutating func plain() -> [UInt8] {
    var value: [UInt8] = []
    // Blanks that end the line are none of the value, unless they were made plain.
    var solid = 0
    while let byte = current, !isAtLineEnd {
      position += 1
      if byte == UInt8(ascii: "\\") {
        if current == nil || skipLineEnd() { continue }
        value.append(bytes[position])
        position += 1
        solid = value.count
        continue
      }
      value.append(byte)
      if byte != 32 && byte != 9 { solid = value.count }
    }
    return Array(value.prefix(solid))
  }
}
