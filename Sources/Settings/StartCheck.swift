// What of a start can be known beforehand: the folders and files that must be there.
import CLinux
import Glibc

package enum StartCheck {
  /// Why the program would not start, in words; nil: nothing speaks against it.
  /// - Parameter environment: guardian's own; the configuration's [env] goes over it, as for the
  ///   program.
  static func problem(
    _ configuration: Configuration, _ environment: [String: String]
  ) -> String? {
    let folder = configuration.workingDirectory
    if let folder {
      switch look(folder) {
      case .missing(let cause):
        return "the working directory \(quoted(folder)): \(SettingsError.words(cause))"
      case .file, .other: return "the working directory \(quoted(folder)) is no folder"
      case .folder: break
      }
    }
    let command = configuration.command[0]
    if command.contains("/") {
      // The program's folder is entered before it is executed.
      let path =
        command.hasPrefix("/") ? command : folder.map { $0 + "/" + command } ?? command
      return unfit(path).map { "\(quoted(command)) \($0)" }
    }
    let search =
      configuration.environment.last { $0.name == "PATH" }?.value ?? environment["PATH"]
      ?? "/bin:/usr/bin"
    var found: String?
    for entry in search.split(separator: ":", omittingEmptySubsequences: false) {
      let path = (entry.isEmpty ? folder ?? "." : String(entry)) + "/" + command
      guard let fault = unfit(path) else { return nil }
      if found == nil, case .file = look(path) { found = "\(quoted(path)) \(fault)" }
    }
    if let found { return found }
    let here = (folder.map { $0 + "/" } ?? "") + command
    let hint = unfit(here) == nil ? "; there is \(quoted("./" + command))" : ""
    return "\(quoted(command)) is not in PATH" + hint
  }

  /// nil: it can be executed, as far as can be seen.
  private static func unfit(_ path: String) -> String? {
    switch look(path) {
    case .missing(let cause): "cannot be executed: \(SettingsError.words(cause))"
    case .folder: "is a folder"
    case .other: "is no file"
    // Also for root, who may not execute what nobody may.
    case .file: unsafe access(path, X_OK) == 0 ? nil : "is not executable"
    }
  }

  private enum Kind {
    case missing(Int32)
    case folder, file, other
  }

  private static func look(_ path: String) -> Kind {
    var status = stat()
    if unsafe stat(path, &status) != 0 { return .missing(errno) }
    return switch status.st_mode & S_IFMT {
    case S_IFDIR: .folder
    case S_IFREG: .file
    default: .other
    }
  }

  /// Whether a folder is there and may be written to, or the nearest one above it that is there.
  package static func canBeMade(_ path: String) -> Bool {
    var path = path[...]
    while true {
      let shown = path.isEmpty ? "/" : String(path)
      switch look(shown) {
      case .folder: return unsafe access(shown, W_OK | X_OK) == 0
      case .missing(ENOENT):
        guard let slash = path.lastIndex(of: "/") else { return false }
        path = path[..<slash]
      case .missing, .file, .other: return false
      }
    }
  }
}
