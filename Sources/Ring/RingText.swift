/// Bytes that a hostile program wrote as text: made valid UTF-8, and everything that could
/// move a terminal's cursor, forge a line or turn the reading direction made visible.
enum RingText {
  /// At most `count` bytes from `start`; what lies outside of `bytes` is left out.
  static func text(_ bytes: Span<UInt8>, at start: Int, count: Int) -> String {
    let end = min(start + count, bytes.count)
    guard start < end else { return "" }
    var raw: [UInt8] = []
    raw.reserveCapacity(end - start)
    var plain = true
    for index in start..<end {
      let byte = bytes[index]
      if byte < 0x20 || byte > 0x7e { plain = false }
      raw.append(byte)
    }
    let decoded = String(decoding: raw, as: UTF8.self)
    return plain ? decoded : visible(decoded)
  }

  /// Like `text`, and ends before the first NUL.
  static func terminated(_ bytes: Span<UInt8>, at start: Int, count: Int) -> String {
    let end = min(start + count, bytes.count)
    var length = 0
    while start + length < end, bytes[start + length] != 0 { length += 1 }
    return text(bytes, at: start, count: length)
  }

  static func visible(_ text: String) -> String {
    var out = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\n": out += "\\n"
      case "\r": out += "\\r"
      case "\t": out += "\\t"
      default:
        if hides(scalar) {
          out += "\\u{" + String(scalar.value, radix: 16) + "}"
        } else {
          out.unicodeScalars.append(scalar)
        }
      }
    }
    return out
  }

  /// Controls, and what Unicode formats with: line separators, direction marks, zero widths,
  /// tags. (Variation selectors and joiners of emoji and Indic scripts stay.)
  private static func hides(_ scalar: Unicode.Scalar) -> Bool {
    if scalar == "\u{200d}" || scalar == "\u{200c}" { return false }
    return switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator, .privateUse, .unassigned,
      .surrogate:
      true
    default: false
    }
  }
}
