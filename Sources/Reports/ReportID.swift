import Glibc

/// The name of a report and of its folder: a UUIDv7 (RFC 9562) in lower case, so that names
/// sort by time.
package struct ReportID: Hashable, Comparable, Sendable, CustomStringConvertible {
  package let text: String
  package var description: String { text }

  /// nil: `text` is not a lower-case UUIDv7. Nothing else may name a folder.
  package init?(_ text: some StringProtocol) {
    let bytes = Array(text.utf8)
    guard bytes.count == 36, bytes[14] == UInt8(ascii: "7") else { return nil }
    for (index, byte) in bytes.enumerated() {
      switch index {
      case 8, 13, 18, 23: guard byte == UInt8(ascii: "-") else { return nil }
      default:
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "a")...UInt8(ascii: "f"): break
        default: return nil
        }
      }
    }
    self.text = String(text)
  }

  package init(milliseconds: Int64, random: [UInt8]) {
    var bytes = (0..<6).map { UInt8(truncatingIfNeeded: milliseconds >> (40 - 8 * $0)) }
    bytes += (0..<10).map { $0 < random.count ? random[$0] : 0 }
    bytes[6] = 0x70 | bytes[6] & 0x0f
    bytes[8] = 0x80 | bytes[8] & 0x3f
    let digits = Array("0123456789abcdef".utf8)
    var text: [UInt8] = []
    for (index, byte) in bytes.enumerated() {
      if [4, 6, 8, 10].contains(index) { text.append(UInt8(ascii: "-")) }
      text.append(digits[Int(byte >> 4)])
      text.append(digits[Int(byte & 15)])
    }
    self.text = String(decoding: text, as: UTF8.self)
  }

  /// A new name for this moment. The random part comes from getrandom(2), which needs no
  /// descriptor and so works when all are used up.
  package static func make(at time: WallTime) -> ReportID {
    var generator = SystemRandomNumberGenerator()
    // One system call for each number drawn.
    let (high, low) = (generator.next(), generator.next())
    return ReportID(
      milliseconds: time.milliseconds,
      random: (0..<10).map {
        UInt8(truncatingIfNeeded: $0 < 8 ? high >> (8 * $0) : low >> (8 * ($0 - 8)))
      })
  }

  /// Milliseconds since 1970 that the name carries.
  package var milliseconds: Int64 {
    Int64(
      text.utf8.filter { $0 != UInt8(ascii: "-") }.prefix(12).reduce(0) { sum, digit in
        sum << 4 | UInt64(digit >= UInt8(ascii: "a") ? digit - 87 : digit - 48)
      })
  }

  package var time: WallTime {
    WallTime(seconds: milliseconds / 1000, nanoseconds: Int32(milliseconds % 1000) * 1_000_000)
  }

  package static func < (a: ReportID, b: ReportID) -> Bool { a.text < b.text }
}

extension WallTime {
  /// CLOCK_REALTIME.
  package static func now() -> WallTime {
    var time = timespec()
    _ = unsafe clock_gettime(CLOCK_REALTIME, &time)
    return WallTime(seconds: Int64(time.tv_sec), nanoseconds: Int32(time.tv_nsec))
  }
}
