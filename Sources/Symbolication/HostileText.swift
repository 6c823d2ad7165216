// Text out of hostile files: bounded, valid, and on one line.
import Glibc

enum HostileText {
  /// Demanglers refuse longer names; reports need no longer paths.
  static let mostBytes = 16_384

  /// A zero-terminated string, cut at `mostBytes`.
  static func copy(_ text: UnsafePointer<CChar>?) -> String? {
    guard let text = unsafe text else { return nil }
    let length = unsafe strnlen(text, mostBytes)
    return unsafe String(
      decoding: UnsafeRawBufferPointer(start: text, count: length), as: UTF8.self)
  }

  /// Without control characters, which could forge lines of a report, and not too long to show.
  static func shown(_ text: String, most: Int = 4_096) -> String {
    let plain = text.utf8.count <= most && text.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
    if plain { return text }
    var result = ""
    for scalar in text.unicodeScalars {
      if result.utf8.count >= most {
        result += "…"
        break
      }
      let control = scalar.value < 0x20 || (0x7f...0x9f).contains(scalar.value)
      result.unicodeScalars.append(control ? "\u{fffd}" : scalar)
    }
    return result
  }
}
