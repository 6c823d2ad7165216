// Hostile bytes → text, and text → something that a terminal may be shown. Pure; knows
// nothing of reports.
import Kernel

package enum SafeText {
  /// Invalid UTF-8 becomes U+FFFD; the text is cut at `limit` bytes, on a character's border,
  /// and then ends in "…". Bytes behind a NUL are kept: it is shown as an escape later.
  package static func decode(
    _ bytes: some Sequence<UInt8>, limit: Int = ReportLimits.textBytes
  ) -> String {
    let taken = Array(bytes.prefix(limit + 1))
    if taken.count <= limit { return String(decoding: taken, as: UTF8.self) }
    var end = limit
    while end > 0, taken[end] & 0xc0 == 0x80 { end -= 1 }
    return String(decoding: taken[..<end], as: UTF8.self) + "…"
  }

  package static func cut(_ text: String, limit: Int = ReportLimits.textBytes) -> String {
    text.utf8.count <= limit ? text : decode(text.utf8, limit: limit)
  }

  /// One line that a terminal may be shown: control characters become `\n`, `\t`, `\x1b`,
  /// `\u{202e}`. A backslash stays as it is: the result is for reading, not for parsing back.
  package static func oneLine(_ text: String) -> String {
    if text.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7f }) { return text }
    var result = ""
    result.reserveCapacity(text.utf8.count + 8)
    for scalar in text.unicodeScalars {
      guard scalar.isUnsafeToShow else {
        result.unicodeScalars.append(scalar)
        continue
      }
      switch scalar {
      case "\n": result += "\\n"
      case "\r": result += "\\r"
      case "\t": result += "\\t"
      default:
        let hex = String(scalar.value, radix: 16)
        result +=
          scalar.value < 0x100
          ? "\\x" + (hex.count < 2 ? "0" + hex : hex) : "\\u{" + hex + "}"
      }
    }
    return result
  }

  /// Tabs as the blanks that a terminal would show, with a stop at every eighth column.
  package static func expandingTabs(_ text: String) -> String {
    guard text.utf8.contains(UInt8(ascii: "\t")) else { return text }
    var result = ""
    var column = 0
    for scalar in text.unicodeScalars {
      if scalar == "\t" {
        let blanks = 8 - column % 8
        result += String(repeating: " ", count: blanks)
        column += blanks
      } else {
        result.unicodeScalars.append(scalar)
        column += 1
      }
    }
    return result
  }

  package static func hex(_ value: UInt64) -> String { "0x" + String(value, radix: 16) }

  /// The number of an address text ("0x10"), as reports carry it.
  package static func number(hex text: String?) -> UInt64? {
    guard let text, text.hasPrefix("0x") else { return nil }
    return UInt64(text.dropFirst(2), radix: 16)
  }

  package static func lastComponent(_ path: String) -> String {
    guard let slash = path.utf8.lastIndex(of: UInt8(ascii: "/")) else { return path }
    let name = path[path.utf8.index(after: slash)...]
    return name.isEmpty ? path : String(name)
  }
}

// Plain search over UTF-8. The standard library's own comes with its whole engine for regular
// expressions, which guardian need not carry.
extension StringProtocol {
  package func find(_ part: String) -> Range<Index>? {
    let pattern = Array(part.utf8)
    guard let first = pattern.first else { return startIndex..<startIndex }
    var at = utf8.startIndex
    while let start = utf8[at...].firstIndex(of: first) {
      if utf8[start...].starts(with: pattern) {
        return start..<utf8.index(start, offsetBy: pattern.count)
      }
      at = utf8.index(after: start)
    }
    return nil
  }

  package func findLast(_ part: String) -> Range<Index>? {
    var last: Range<Index>?
    var rest = self[...]
    while let found = rest.find(part) {
      last = found.lowerBound..<found.upperBound
      rest = rest[rest.utf8.index(after: found.lowerBound)...]
    }
    return last
  }

  /// What stands behind `head` if the text begins with it, byte for byte.
  package func rest(after head: String) -> SubSequence? {
    guard utf8.starts(with: head.utf8) else { return nil }
    return self[utf8.index(utf8.startIndex, offsetBy: head.utf8.count)...]
  }

  package func holds(_ part: String) -> Bool { find(part) != nil }
}
