// Which variables and arguments are secrets, by their names. Pure. Masks too much rather than
// too little: a report is sent around.

package struct Redaction: Hashable, Sendable {
  package static let mask = "[redacted]"

  /// Parts of names that make a value a secret wherever they stand in it.
  private static let parts = [
    "PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE", "SECRET", "TOKEN", "CREDENTIAL", "APIKEY",
    "ACCESSKEY", "PRIVATEKEY", "COOKIE", "CONNECTIONSTRING",
  ]
  /// Words that do so only as a whole word: AUTHOR, MONKEY and KEYBOARD are harmless.
  private static let words: Set<String> = [
    "PASS", "PW", "PWD", "KEY", "KEYS", "DSN", "AUTH", "AUTHORIZATION", "JWT", "BEARER", "SALT",
    "SESSION", "SESSIONID", "SID", "OTP", "PIN",
  ]

  private let extra: [String]

  /// `extra`: further parts of names, in any case.
  package init(extra: [String] = []) {
    self.extra = extra.map { $0.uppercased().filter { $0.isLetter || $0.isNumber } }
      .filter { !$0.isEmpty }
  }

  /// Is the value of something with this name a secret? `DB_PASSWORD`, `--api-key`, `dbPassword`.
  package func isSecret(name: some StringProtocol) -> Bool {
    // The shell's working directory, set in every environment.
    if name == "PWD" || name == "OLDPWD" { return false }
    var words: [String] = [""]
    var previousWasLower = false
    for scalar in name.unicodeScalars {
      let isLetter = scalar.properties.isAlphabetic
      let isDigit = scalar.properties.numericType != nil
      if !isLetter && !isDigit {
        words.append("")
        previousWasLower = false
        continue
      }
      if scalar.properties.isUppercase, previousWasLower { words.append("") }
      previousWasLower = !scalar.properties.isUppercase
      words[words.count - 1] += String(scalar).uppercased()
    }
    if words.contains(where: Self.words.contains) { return true }
    let joined = words.joined()
    return Self.parts.contains { joined.holds($0) } || extra.contains { joined.holds($0) }
  }

  package func environment(_ variables: [(name: String, value: String)]) -> [String: String] {
    var result: [String: String] = [:]
    for (name, value) in variables {
      result[name] = isSecret(name: name) && !value.isEmpty ? Self.mask : text(value)
    }
    return result
  }

  /// `--password=x`, `--password x`, `PASSWORD=x`, `Authorization: x` and secrets inside of
  /// URLs. The program's own name, the first argument, is kept.
  package func command(_ arguments: [String]) -> [String] {
    var result: [String] = []
    var nextIsSecret = false
    for (index, argument) in arguments.enumerated() {
      if index == 0 {
        result.append(text(argument))
        continue
      }
      if nextIsSecret {
        nextIsSecret = false
        // `--password --verbose`: the password was left out, or begins with a dash; only the
        // first can be told by its name.
        if !argument.hasPrefix("--") {
          result.append(Self.mask)
          continue
        }
      }
      if let separator = argument.firstIndex(where: { $0 == "=" || $0 == ":" }),
        isPlainName(argument[..<separator]), isSecret(name: argument[..<separator]),
        !argument[separator...].hasPrefix("://")
      {
        let head = argument[...separator]
        let rest = argument[argument.index(after: separator)...]
        result.append(rest.isEmpty ? argument : head + (rest.hasPrefix(" ") ? " " : "") + Self.mask)
        continue
      }
      if argument.hasPrefix("-"), !argument.utf8.contains(UInt8(ascii: "=")),
        isSecret(name: argument)
      {
        nextIsSecret = true
        result.append(argument)
        continue
      }
      result.append(text(argument))
    }
    return result
  }

  private func isPlainName(_ text: some StringProtocol) -> Bool {
    !text.isEmpty && text.utf8.count <= 128
      && text.utf8.allSatisfy { byte in
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "_"),
          UInt8(ascii: "."):
          true
        default: false
        }
      }
  }

  /// Masks `user:password@` and secret query parameters of the URLs in a text.
  package func text(_ text: String) -> String {
    guard text.utf8.contains(UInt8(ascii: ":")) || text.utf8.contains(UInt8(ascii: "?")) else {
      return text
    }
    let bytes = Array(text.utf8)
    var result: [UInt8] = []
    result.reserveCapacity(bytes.count)
    var at = 0
    while at < bytes.count {
      if bytes[at] == UInt8(ascii: ":"), bytes[at...].starts(with: "://".utf8) {
        result.append(contentsOf: "://".utf8)
        at += 3
        let end = bytes[at...].firstIndex { Self.endsAuthority($0) } ?? bytes.count
        if let sign = bytes[at..<end].lastIndex(of: UInt8(ascii: "@")) {
          if let colon = bytes[at..<sign].firstIndex(of: UInt8(ascii: ":")) {
            result.append(contentsOf: bytes[at...colon])
            result.append(contentsOf: Self.mask.utf8)
          } else if sign - at >= Self.longestUserName {
            result.append(contentsOf: Self.mask.utf8)
          } else {
            result.append(contentsOf: bytes[at..<sign])
          }
          at = sign
        }
        continue
      }
      result.append(bytes[at])
      at += 1
      guard result.last == UInt8(ascii: "?") || result.last == UInt8(ascii: "&") else { continue }
      let end = bytes[at...].firstIndex { Self.endsParameter($0) } ?? bytes.count
      guard let equals = bytes[at..<end].firstIndex(of: UInt8(ascii: "=")) else { continue }
      guard isSecret(name: String(decoding: bytes[at..<equals], as: UTF8.self)), equals + 1 < end
      else { continue }
      result.append(contentsOf: bytes[at...equals])
      result.append(contentsOf: Self.mask.utf8)
      at = end
    }
    return String(decoding: result, as: UTF8.self)
  }

  /// A user part of a URL that is longer is a token, not a name.
  private static let longestUserName = 16

  private static func endsAuthority(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "/"), UInt8(ascii: "?"), UInt8(ascii: "#"), UInt8(ascii: "\""),
      UInt8(ascii: "'"), UInt8(ascii: "<"), UInt8(ascii: ">"), 0...0x20:
      true
    default: false
    }
  }
  private static func endsParameter(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "&"), UInt8(ascii: "#"), UInt8(ascii: "\""), UInt8(ascii: "'"), 0...0x20:
      true
    default: false
    }
  }
}
