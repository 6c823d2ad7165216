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

  /// For people, everywhere: at most two units: "100 ms", "1.6 s", "2 min 3 s", "5 h 10 min",
  /// "3 d 4 h". Rounded, never cut off.
  package var words: String {
    let total = nanoseconds
    if total < 0 {
      return total == .min ? "for ever ago" : "-" + Duration.nanoseconds(-total).words
    }
    let milliseconds = total / 1_000_000 + (total % 1_000_000 >= 500_000 ? 1 : 0)
    if milliseconds < 1000 { return "\(milliseconds) ms" }
    let tenths = (milliseconds + 50) / 100
    if tenths < 600 {
      return tenths % 10 == 0 ? "\(tenths / 10) s" : "\(tenths / 10).\(tenths % 10) s"
    }
    let seconds = (milliseconds + 500) / 1000
    func two(_ a: Int64, _ unit: String, _ b: Int64, _ smaller: String) -> String {
      b == 0 ? "\(a) \(unit)" : "\(a) \(unit) \(b) \(smaller)"
    }
    if seconds < 3600 { return two(seconds / 60, "min", seconds % 60, "s") }
    if seconds < 86_400 { return two(seconds / 3600, "h", seconds % 3600 / 60, "min") }
    return two(seconds / 86_400, "d", seconds % 86_400 / 3600, "h")
  }
}

/// Counts of failures for people.
package enum FailureCount {
  /// Beside the cap: "2 of 10", and past it "11, more than 10".
  /// - Parameter cap: nil: there is none.
  package static func words(_ count: Int, of cap: Int?) -> String {
    guard let cap else { return "\(count)" }
    return count > cap ? "\(count), more than \(cap)" : "\(count) of \(cap)"
  }

  /// What failed, oldest first; equal endings in a row are told once:
  /// "exit status 3 (life 1, 5 s ago), SIGSEGV ×10 (lives 2–11 in 2 min 3 s)".
  /// - Parameter now: on CLOCK_BOOTTIME.
  package static func list(_ failures: [CrashHistory.Failure], at now: Duration) -> String {
    var runs: [ArraySlice<CrashHistory.Failure>] = []
    for index in failures.indices {
      if let last = runs.last?.last, last.words == failures[index].words {
        runs[runs.count - 1] = failures[runs[runs.count - 1].startIndex...index]
      } else {
        runs.append(failures[index...index])
      }
    }
    // Enough to see the pattern; the reports have the rest.
    let named = 6
    let earlier = runs.dropLast(named).reduce(0) { $0 + $1.count }
    var texts = earlier > 0 ? ["\(earlier) earlier"] : []
    for run in runs.suffix(named) {
      guard let first = run.first, let last = run.last else { continue }
      if run.count > 1 {
        texts.append(
          "\(last.words) ×\(run.count) (lives \(first.life.rawValue)–\(last.life.rawValue) in "
            + "\((last.at - first.at).words))")
      } else {
        let age = now - last.at
        texts.append(
          "\(last.words) (life \(last.life.rawValue)"
            + (age <= .zero ? ")" : ", \(age.words) ago)"))
      }
    }
    return texts.joined(separator: ", ")
  }
}
