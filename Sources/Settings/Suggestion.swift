// "did you mean": the nearest of some words.

/// The word of `words` that was probably meant, or nil.
/// - Parameter limit: how many letters may differ; nil: one in three.
func nearest(to word: String, among words: [String], within limit: Int? = nil) -> String? {
  let word = Array(word.utf8.prefix(64))
  let limit = limit ?? max(1, word.count / 3)
  return
    words
    .map { (distance(word, Array($0.utf8)), $0) }
    .filter { $0.0 <= limit }
    .min { $0.0 < $1.0 }?.1
}

/// "; did you mean 'always'?" or nothing.
func suggestion(for word: String, among words: [String]) -> String {
  nearest(to: word, among: words).map { "; did you mean '\($0)'?" } ?? ""
}

/// Damerau-Levenshtein distance (swapped neighbours count once).
private func distance(_ a: [UInt8], _ b: [UInt8]) -> Int {
  var before: [Int] = []
  var above = Array(0...b.count)
  for i in 0..<a.count {
    var row = [i + 1]
    for j in 0..<b.count {
      var best = min(row[j] + 1, above[j + 1] + 1, above[j] + (a[i] == b[j] ? 0 : 1))
      if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] {
        best = min(best, before[j - 1] + 1)
      }
      row.append(best)
    }
    before = above
    above = row
  }
  return above[b.count]
}
