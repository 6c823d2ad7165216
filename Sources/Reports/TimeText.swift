// Times and durations as text, without Foundation. Pure.
import Policy

/// A reading of the wall clock. Only for show: no decision rests on it.
package struct WallTime: Hashable, Comparable, Sendable {
  /// Since 1970-01-01 00:00:00 UTC.
  package let seconds: Int64
  /// 0 ..< 1 000 000 000
  package let nanoseconds: Int32

  package init(seconds: Int64, nanoseconds: Int32) {
    self.seconds = seconds
    self.nanoseconds = min(max(nanoseconds, 0), 999_999_999)
  }
  /// Of a count of nanoseconds since 1970, as the ring carries it.
  package init(nanosecondsSince1970 count: UInt64) {
    self.init(
      seconds: Int64(count / 1_000_000_000), nanoseconds: Int32(count % 1_000_000_000))
  }

  package static func < (a: WallTime, b: WallTime) -> Bool {
    (a.seconds, a.nanoseconds) < (b.seconds, b.nanoseconds)
  }

  package var milliseconds: Int64 { seconds * 1000 + Int64(nanoseconds / 1_000_000) }
}

package enum TimeText {
  /// "2026-11-30T06:50:04.000123Z": RFC 3339 in UTC with microseconds. Years beyond 0…9999,
  /// which RFC 3339 cannot write, are set to its first or last second.
  package static func rfc3339(_ time: WallTime) -> String {
    let first: Int64 = -62_167_219_200  // 0000-01-01T00:00:00Z
    let last: Int64 = 253_402_300_799  // 9999-12-31T23:59:59Z
    let seconds = min(max(time.seconds, first), last)
    let days = (seconds - (seconds % 86400 + 86400) % 86400) / 86400
    let second = Int(seconds - days * 86400)
    let date = civil(daysSince1970: days)
    return padded(date.year, 4) + "-" + padded(date.month, 2) + "-" + padded(date.day, 2) + "T"
      + padded(second / 3600, 2) + ":" + padded(second / 60 % 60, 2) + ":" + padded(second % 60, 2)
      + "." + padded(Int(time.nanoseconds) / 1000, 6) + "Z"
  }

  /// The Gregorian date of a day, by counting eras of 400 years from 1 March of year 0, so
  /// that the leap day is the last of its year.
  private static func civil(daysSince1970 days: Int64) -> (year: Int, month: Int, day: Int) {
    let shifted = days + 719_468
    let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
    let dayOfEra = shifted - era * 146_097
    let yearOfEra =
      (dayOfEra - dayOfEra / 1460 + dayOfEra / 36524 - dayOfEra / 146_096) / 365
    let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
    let marchMonth = (5 * dayOfYear + 2) / 153
    let day = dayOfYear - (153 * marchMonth + 2) / 5 + 1
    let month = marchMonth < 10 ? marchMonth + 3 : marchMonth - 9
    let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
    return (Int(year), Int(month), Int(day))
  }

  private static func padded(_ number: Int, _ width: Int) -> String {
    let text = String(number)
    return String(repeating: "0", count: max(0, width - text.utf8.count)) + text
  }

  /// As `Duration.words`; "?" for what is no time.
  package static func duration(seconds: Double) -> String {
    guard seconds.isFinite, seconds >= 0, seconds < 1e9 else { return "?" }
    return Duration.seconds(seconds).words
  }

  package static func bytes(_ count: UInt64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"]
    var value = Double(count)
    var unit = 0
    while value >= 1024, unit < units.count - 1 {
      value /= 1024
      unit += 1
    }
    if unit == 0 || value >= 100 { return "\(Int(value.rounded())) \(units[unit])" }
    let tenths = Int((value * 10).rounded())
    return "\(tenths / 10).\(tenths % 10) \(units[unit])"
  }
}
