/// Durations for people.
extension Duration {
  /// Whole nanoseconds; what does not fit in 64 bits is clamped.
  package var nanoseconds: Int64 {
    let (seconds, attoseconds) = components
    let (product, overflow) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
    if overflow { return seconds < 0 ? .min : .max }
    let (sum, overflowed) = product.addingReportingOverflow(attoseconds / 1_000_000_000)
    return overflowed ? (seconds < 0 ? .min : .max) : sum
  }

  /// The two greatest units that matter, as systemd writes them: "100ms", "1.6s",
  /// "2min 3s", "5h 10min", "3d 4h".
  package var words: String {
    let total = nanoseconds
    if total < 0 {
      return total == .min ? "for ever ago" : "-" + Duration.nanoseconds(-total).words
    }
    let milliseconds = total / 1_000_000 + (total % 1_000_000 >= 500_000 ? 1 : 0)
    if milliseconds < 1000 { return "\(milliseconds)ms" }
    if milliseconds < 60_000 {
      let tenths = (milliseconds + 50) / 100
      return tenths % 10 == 0 ? "\(tenths / 10)s" : "\(tenths / 10).\(tenths % 10)s"
    }
    let seconds = (milliseconds + 500) / 1000
    func two(_ a: Int64, _ unit: String, _ b: Int64, _ smaller: String) -> String {
      b == 0 ? "\(a)\(unit)" : "\(a)\(unit) \(b)\(smaller)"
    }
    if seconds < 3600 { return two(seconds / 60, "min", seconds % 60, "s") }
    if seconds < 86_400 { return two(seconds / 3600, "h", seconds % 3600 / 60, "min") }
    return two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h")
  }
}
