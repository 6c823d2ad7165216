// What the error number of a failed exec leaves unsaid: which of the files it is about. Reads the
// first bytes of a file, which are not trusted.
import Glibc
import Kernel

enum ExecFailure {
  /// As much as the kernel itself looks at (BINPRM_BUF_SIZE).
  private static let headBytes = 256

  /// "its interpreter '/usr/bin/nosuch' does not exist"; nil: the error says it all.
  /// - Parameter directory: the working directory, where a relative path begins.
  static func hint(_ path: [UInt8], errno: Int32, directory: String?) -> String? {
    var name = String(decoding: path, as: UTF8.self)
    if !name.hasPrefix("/"), let directory { name = directory + "/" + name }
    guard let file = try? FileDescriptor.open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC),
      let status = try? file.status()
    else { return nil }
    if status.isDirectory { return "it is a folder" }
    // Counted when the user is changed, refused by exec (execve(2)).
    if errno == EAGAIN { return "the user has as many processes as its limit nproc allows" }
    if errno == EACCES, status.isRegular, !Files.isExecutable(name) {
      return "it is not executable (chmod +x)"
    }
    guard status.isRegular, let head = try? file.read(count: headBytes, at: 0) else { return nil }
    if errno == EACCES, !Files.isExecutable(name) { return "it is not executable (chmod +x)" }
    let isELF = head.starts(with: [0x7f, 0x45, 0x4c, 0x46])
    if head.starts(with: "#!".utf8) {
      guard let words = interpreter(head) else { return "its #! line names no interpreter" }
      let shown = "its interpreter '\(words.shown)'"
      let ends = words.hasReturn ? ": the line ends in CR LF, as Windows writes it" : ""
      switch errno {
      case ENOENT: return "\(shown) does not exist\(ends)"
      case EACCES: return "\(shown) is not executable"
      case ENOEXEC, ENOTDIR, ELOOP: return "\(shown) cannot be executed\(ends)"
      default: return nil
      }
    }
    switch errno {
    case ENOENT where isELF: return "its loader (ld.so) does not exist"
    case ENOENT: return "the file is there: its interpreter or loader is not"
    case ENOEXEC:
      if head.isEmpty { return "it is empty" }
      return isELF ? "it is built for another processor, or damaged" : "it is text with no #! line"
    default: return nil
    }
  }

  /// The same before it is executed, as far as can be seen; nil: nothing speaks against it.
  static func foreseen(_ path: [UInt8], directory: String?) -> String? {
    func absolute(_ name: String) -> String {
      directory.map { name.hasPrefix("/") ? name : $0 + "/" + name } ?? name
    }
    guard
      let file = try? FileDescriptor.open(
        absolute(String(decoding: path, as: UTF8.self)), O_RDONLY | O_NONBLOCK),
      let status = try? file.status(), status.isRegular,
      let head = try? file.read(count: headBytes, at: 0)
    else { return nil }
    if head.starts(with: "#!".utf8) {
      guard let words = interpreter(head) else {
        return hint(path, errno: ENOEXEC, directory: directory)
      }
      let name = absolute(words.shown)
      if Files.isExecutable(name) && !words.hasReturn { return nil }
      return hint(path, errno: Files.exists(name) ? EACCES : ENOENT, directory: directory)
    }
    if head.starts(with: [0x7f, 0x45, 0x4c, 0x46]) { return nil }
    // The kernel may have been told of other formats.
    let formats = (try? Files.list("/proc/sys/fs/binfmt_misc", limit: 1024)) ?? []
    return formats.contains { !["register", "status"].contains($0) }
      ? nil : hint(path, errno: ENOEXEC, directory: directory)
  }

  private static func interpreter(_ head: [UInt8]) -> (shown: String, hasReturn: Bool)? {
    let line = head.dropFirst(2).prefix { $0 != 10 }
    guard let word = line.split(whereSeparator: { $0 == 32 || $0 == 9 }).first else { return nil }
    let hasReturn = word.last == 13
    return (
      Printable.text(hasReturn ? word.dropLast() : word) + (hasReturn ? "\\r" : ""), hasReturn
    )
  }

  /// Of a command without a slash: where it was looked for, and what lies near.
  static func notFound(_ command: [UInt8], directory: String?) -> String? {
    let name = String(decoding: command, as: UTF8.self)
    if name.isEmpty || name.contains("/") { return nil }
    let near = (directory.map { $0 + "/" } ?? "./") + name
    return "it is not in PATH"
      + (Files.isExecutable(near) ? "; there is './\(Printable.text(command))'" : "")
  }
}
