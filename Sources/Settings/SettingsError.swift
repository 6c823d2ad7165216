// Why the settings are wrong: one line that says where, what, and that nothing was started.
import Glibc

package struct SettingsError: Error, Hashable, Sendable, CustomStringConvertible {
  package enum Place: Hashable, Sendable {
    case commandLine
    case variable
    /// Line and column count from 1; 0: the file as a whole.
    case file(String, line: Int, column: Int)
  }

  package let place: Place
  /// Operation, object and cause.
  package let text: String

  package init(_ place: Place, _ text: String) {
    self.place = place
    self.text = text
  }

  /// The C library's words for an error number.
  static func words(_ errno: Int32) -> String { unsafe String(cString: strerror(errno)) }

  /// EX_USAGE for the command line, EX_CONFIG for what was prepared beforehand (sysexits(3)).
  package var exitStatus: Int32 {
    switch place {
    case .commandLine: 64
    case .variable, .file: 78
    }
  }

  /// The whole line, without its end: "guardian: api.toml:3:1: unknown key …; nothing was started".
  package var description: String { line(program: "guardian", consequence: "nothing was started") }

  /// - Parameter program: who says it; nil: somebody who puts the own name before it.
  package func line(program: String?, consequence: String?) -> String {
    var line = program.map { $0 + ": " } ?? ""
    if case .file(let path, let number, let column) = place {
      // A path with a line break in it must not make two lines of this.
      let shown = String(quoted(path, limit: 4096).dropFirst().dropLast())
      line += number > 0 ? "\(shown):\(number):\(column): " : "\(shown): "
    }
    line += text
    if let consequence { line += (text.hasSuffix("?") ? " " : "; ") + consequence }
    return line
  }
}
