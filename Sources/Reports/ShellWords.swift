// A command line as a person may copy it into a shell. Pure.

package enum ShellWords {
  /// Words in the quotes that they need.
  /// - Parameter limit: in bytes; what is longer is cut and ends in "…".
  package static func text(_ words: [String], limit: Int = 1000) -> String {
    let text = words.map(word).joined(separator: " ")
    return SafeText.cut(text, limit: limit)
  }

  private static func word(_ word: String) -> String {
    let isPlain =
      !word.isEmpty
      && word.utf8.allSatisfy {
        (48...57).contains($0) || (65...90).contains($0) || (97...122).contains($0)
          || "-_./:=,@+%".utf8.contains($0)
      }
    if isPlain { return word }
    return "'"
      + word.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "'\\''")
      + "'"
  }
}
