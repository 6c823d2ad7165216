// How the last guardian of a name left: facts in its state file beside the failure count, for
// guardianctl when nobody answers any more. Written by guardian, read by its own user or root.
import Kernel
import Reports

package struct Farewell: Hashable, Sendable {
  package enum Way: String, Sendable {
    case gaveUp = "gave-up"
    case stopped
    /// It did not say: it was killed.
    case none
  }
  package var way: Way
  /// The program's name, which its folder may not tell.
  package var name: String?
  /// RFC 3339; nil: not told.
  package var time: String?
  /// The last verdict's sentence.
  package var reason: String?
  /// The last life's ending, in words.
  package var ending: String?
  /// What guardian left with.
  package var exit: String?
  /// The last report's id.
  package var report: String?
  /// A command line that starts it again.
  package var startAgain: String?

  package init(_ way: Way) { self.way = way }

  private static var keys: [(String, WritableKeyPath<Farewell, String?>)] {
    [
      ("name", \.name), ("left-at", \.time), ("left-because", \.reason), ("left-after", \.ending),
      ("left-with", \.exit), ("left-report", \.report), ("start-again", \.startAgain),
    ]
  }

  /// What is added to the state file; `way` stands there already.
  package var facts: [(key: String, value: String)] {
    Self.keys.compactMap { key, field in self[keyPath: field].map { (key, $0) } }
  }

  /// nil: there is no state file, or none that may be read.
  package static func read(stateDirectory: String) -> Farewell? {
    guard let bytes = try? Files.read(stateDirectory + "/state", limit: 4 << 20),
      let text = SealedText.open(bytes), text.hasPrefix("guardian.state/")
    else { return nil }
    var farewell = Farewell(.none)
    for line in text.split(separator: "\n") {
      guard let space = line.firstIndex(of: " ") else { continue }
      let value = String(line[line.index(after: space)...])
      if line[..<space] == "departure" { farewell.way = Way(rawValue: value) ?? .none }
      for (key, field) in keys where line[..<space] == key { farewell[keyPath: field] = value }
    }
    return farewell
  }

  /// A command line that starts it once more: from `directory` if a word of it leads somewhere from
  /// there only, and with secrets masked.
  /// - Parameter words: guardian's own command line.
  package static func startAgain(
    _ words: [String], redaction: Redaction, directory: String?
  ) -> String {
    let text = ShellWords.text(redaction.command(words))
    guard let directory else { return text }
    let isRelative = words.enumerated().contains { index, word in
      // Of guardian's own name a word without a slash is found in PATH.
      if index == 0, !word.contains("/") { return false }
      var path = word[...]
      if word.hasPrefix("--"), let equals = word.firstIndex(of: "=") {
        path = word[word.index(after: equals)...]
      }
      return !path.isEmpty && !path.hasPrefix("/") && !path.hasPrefix("-")
        && Files.exists(directory + "/" + path)
    }
    return isRelative ? "cd \(ShellWords.text([directory])) && \(text)" : text
  }

  /// One line for people.
  package func sentence(_ name: String) -> String {
    let at = time.map { " at " + String($0.prefix(19).map { $0 == "T" ? " " : $0 }) + " UTC" } ?? ""
    let why = reason.map { ": " + $0 } ?? ""
    switch way {
    case .gaveUp: return "\(name) gave up\(at)" + (ending.map { ", last \($0)" } ?? "") + why
    case .stopped: return "\(name): no guardian runs; it left\(at)\(why)"
    case .none: return "\(name): no guardian runs; the last one was killed"
    }
  }
}
