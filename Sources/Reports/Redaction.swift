// Which variables and arguments are secrets, by their names. Pure. Masks too much rather than
// too little: a report is sent around.

package struct Redaction: Hashable, Sendable {
  package static let mask = "[redacted]"

  /// Parts of names that make a value a secret wherever they stand in it.
  private static let parts = [
    "PASSWORD", "PASSWD", "PASSPHRASE", "PASSCODE", "SECRET", "TOKEN", "CREDENTIAL", "APIKEY",
    "ACCESSKEY", "PRIVATEKEY", "SIGNINGKEY", "ENCRYPTIONKEY", "MASTERKEY", "SSHKEY", "COOKIE",
    "CONNECTIONSTRING", "SHAREDACCESSSIGNATURE", "SSHPASS", "HMAC", "BASICAUTH", "NETRC",
  ].map { Array($0.utf8) }
  /// Words that do so only as a whole word: AUTHOR, MONKEY and KEYBOARD are harmless.
  private static let words: Set<[UInt8]> = Set(
    [
      "PASS", "PW", "PWD", "KEY", "KEYS", "DSN", "AUTH", "AUTHORIZATION", "JWT", "BEARER", "SALT",
      "SESSION", "SESSIONID", "SID", "OTP", "TOTP", "PIN", "PAT", "SK", "PSK", "CRED", "CREDS",
    ].map { Array($0.utf8) })
  private static let longestWord = words.map(\.count).max() ?? 0

  private let extra: [[UInt8]]

  /// `extra`: further parts of names, in any case.
  package init(extra: [String] = []) {
    self.extra = extra.map { Array($0.uppercased().filter { $0.isLetter || $0.isNumber }.utf8) }
      .filter { !$0.isEmpty }
  }

  /// Is the value of something with this name a secret? `DB_PASSWORD`, `--api-key`, `dbPassword`.
  package func isSecret(name: some StringProtocol) -> Bool {
    // The shell's working directory, set in every environment.
    if name == "PWD" || name == "OLDPWD" { return false }
    // By bytes: a hostile environment has tens of thousands of names.
    var joined: [UInt8] = []
    var word = 0
    var previousWasLower = false
    var isPlain = true
    func isSecretWord() -> Bool {
      let length = joined.count - word
      return length > 0 && length <= Self.longestWord && Self.words.contains(Array(joined[word...]))
    }
    for byte in name.utf8 {
      let isUpper = byte >= UInt8(ascii: "A") && byte <= UInt8(ascii: "Z")
      let isLower = byte >= UInt8(ascii: "a") && byte <= UInt8(ascii: "z")
      let isDigit = byte >= UInt8(ascii: "0") && byte <= UInt8(ascii: "9")
      if byte >= 0x80 { isPlain = false }
      guard isUpper || isLower || isDigit || byte >= 0x80 else {
        if isSecretWord() { return true }
        word = joined.count
        previousWasLower = false
        continue
      }
      if isUpper, previousWasLower {
        if isSecretWord() { return true }
        word = joined.count
      }
      previousWasLower = !isUpper
      joined.append(isLower ? byte - 32 : byte)
    }
    if isSecretWord() { return true }
    if !isPlain, !extra.isEmpty {
      joined = Array(name.uppercased().filter { $0.isLetter || $0.isNumber }.utf8)
    }
    return Self.parts.contains { Self.holds(joined, $0) }
      || extra.contains { Self.holds(joined, $0) }
  }

  private static func holds(_ bytes: [UInt8], _ part: [UInt8]) -> Bool {
    guard bytes.count >= part.count else { return false }
    return (0...(bytes.count - part.count)).contains {
      bytes[$0] == part[0] && bytes[$0..<($0 + part.count)].elementsEqual(part)
    }
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

  /// Masks what is a secret inside of a text: `user:password@` and parameters of URLs, the values
  /// of secret names in JSON, headers, connection strings and `.netrc`, private keys, and tokens
  /// that show by their beginning what they are.
  package func text(_ text: String) -> String {
    var bytes = Array(text.utf8)
    if bytes.contains(where: { $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: "?") }) {
      bytes = urls(bytes)
    }
    return String(decoding: pairs(bytes), as: UTF8.self)
  }

  private func urls(_ bytes: [UInt8]) -> [UInt8] {
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
      let name = bytes[at..<min(bytes.count, at + Self.longestName)]
      guard
        let equals = name.firstIndex(where: { $0 == UInt8(ascii: "=") || Self.endsParameter($0) }),
        bytes[equals] == UInt8(ascii: "="), equals + 1 < bytes.count
      else { continue }
      let isSignature = bytes[at..<equals].elementsEqual("sig".utf8)
      guard isSignature || isSecret(name: String(decoding: bytes[at..<equals], as: UTF8.self))
      else { continue }
      let end = bytes[equals...].firstIndex { Self.endsParameter($0) } ?? bytes.count
      if end == equals + 1 { continue }
      result.append(contentsOf: bytes[at...equals])
      result.append(contentsOf: Self.mask.utf8)
      at = end
    }
    return result
  }

  // MARK: Names and values

  private static let longestName = 128
  private static let keyBegin = Array("-----BEGIN ".utf8)
  /// Beginnings of tokens: GitHub, GitLab, Stripe, Slack, and the head of a JSON web token.
  private static let tokenBegins = [
    "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk_live_", "sk_test_",
    "rk_live_", "rk_test_", "xoxb-", "xoxp-", "xoxa-", "xapp-", "eyJhbGci",
  ].map { Array($0.utf8) }

  private func pairs(_ bytes: [UInt8]) -> [UInt8] {
    var result: [UInt8] = []
    result.reserveCapacity(bytes.count)
    var at = 0
    var lastWord: ArraySlice<UInt8> = []
    while at < bytes.count {
      if let end = Self.privateKeyEnd(bytes, at) {
        result.append(contentsOf: Self.mask.utf8)
        at = end
        continue
      }
      guard Self.isNameByte(bytes[at]) else {
        result.append(bytes[at])
        at += 1
        continue
      }
      let end = bytes[at...].firstIndex { !Self.isNameByte($0) } ?? bytes.count
      let word = bytes[at..<end]
      at = end
      if word.count >= 16, Self.tokenBegins.contains(where: { word.starts(with: $0) }) {
        result.append(contentsOf: Self.mask.utf8)
        continue
      }
      result.append(contentsOf: word)
      defer { lastWord = word }
      guard let secret = value(bytes, of: word, after: lastWord) else { continue }
      result.append(contentsOf: bytes[end..<secret.lowerBound])
      result.append(contentsOf: Self.mask.utf8)
      at = secret.upperBound
    }
    return result
  }

  /// Past a private key that begins here, in PEM: to its end or the text's.
  private static func privateKeyEnd(_ bytes: [UInt8], _ at: Int) -> Int? {
    guard bytes[at] == keyBegin[0], bytes[at...].starts(with: keyBegin),
      String(decoding: bytes[at...].prefix(64), as: UTF8.self).holds("PRIVATE KEY")
    else { return nil }
    let rest = String(decoding: bytes[at...], as: UTF8.self)
    guard let end = rest.find("-----END ") else { return bytes.count }
    let tail = rest[end.upperBound...]
    guard let close = tail.find("-----") else { return bytes.count }
    return at + rest.utf8.distance(from: rest.utf8.startIndex, to: close.upperBound)
  }

  /// Where the secret value of this name lies; nil: there is none.
  private func value(
    _ bytes: [UInt8], of word: ArraySlice<UInt8>, after previous: ArraySlice<UInt8>
  ) -> Range<Int>? {
    func byte(_ at: Int) -> UInt8? { at < bytes.count ? bytes[at] : nil }
    var at = word.endIndex
    let quotes = [UInt8(ascii: "\""), UInt8(ascii: "'")]
    // JSON inside of JSON has its quotes behind backslashes.
    if byte(at) == UInt8(ascii: "\\") { at += 1 }
    let isQuoted = byte(at).map(quotes.contains) ?? false
    if isQuoted {
      guard word.startIndex > 0, bytes[word.startIndex - 1] == bytes[at] else { return nil }
      at += 1
    } else if at != word.endIndex {
      return nil
    }
    let gap = at
    while byte(at) == 0x20 || byte(at) == 0x09 { at += 1 }
    let isSpaced = at > gap
    var isLine = false
    switch byte(at) {
    case UInt8(ascii: "="): at += 1
    case UInt8(ascii: ":"):
      // "/opt/auth:/usr/bin" is no header.
      guard isQuoted || byte(at + 1) == 0x20 else { return nil }
      isLine = !isQuoted
      at += 1
    default:
      guard isSpaced, !isQuoted, Self.takesNextWord(word, after: previous) else { return nil }
      let end = bytes[at...].firstIndex(where: Self.endsValue) ?? bytes.count
      return end - at >= 4 ? at..<end : nil
    }
    guard isSecret(name: String(decoding: word.suffix(Self.longestName), as: UTF8.self)) else {
      return nil
    }
    while byte(at) == 0x20 || byte(at) == 0x09 { at += 1 }
    if byte(at) == UInt8(ascii: "\\"), byte(at + 1) == UInt8(ascii: "\"") { at += 1 }
    if let quote = byte(at), quotes.contains(quote) {
      let start = at + 1
      var end = start
      while let next = byte(end), next != quote {
        if next == UInt8(ascii: "\\"), byte(end + 1) == quote, bytes[at - 1] == next { break }
        end += next == UInt8(ascii: "\\") ? 2 : 1
      }
      end = min(end, bytes.count)
      return end > start ? start..<end : nil
    }
    let end =
      bytes[min(at, bytes.count)...].firstIndex {
        isLine ? $0 < 0x20 || $0 == UInt8(ascii: ",") || quotes.contains($0) : Self.endsValue($0)
      } ?? bytes.count
    return end > at ? at..<end : nil
  }

  /// `Bearer x`, and of .netrc `login u password x`.
  private static func takesNextWord(
    _ word: ArraySlice<UInt8>, after previous: ArraySlice<UInt8>
  ) -> Bool {
    switch word.count {
    case 6: String(decoding: word, as: UTF8.self).lowercased() == "bearer"
    case 8: word.elementsEqual("password".utf8) && !previous.isEmpty
    default: false
    }
  }

  private static func isNameByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
      UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "_"), UInt8(ascii: "-"),
      UInt8(ascii: "."), 0x80...0xff:
      true
    default: false
    }
  }

  private static func endsValue(_ byte: UInt8) -> Bool {
    switch byte {
    case 0...0x20, UInt8(ascii: ";"), UInt8(ascii: ","), UInt8(ascii: "&"), UInt8(ascii: "\""),
      UInt8(ascii: "'"), UInt8(ascii: "}"), UInt8(ascii: ")"):
      true
    default: false
    }
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
