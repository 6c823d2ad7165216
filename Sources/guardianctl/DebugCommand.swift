// `debug`: gdb on the minicore, with the executable it is of.
import Glibc
import Kernel
import Reports

enum DebugCommand {
  static func run(_ library: Library, _ arguments: [String]) throws(ControlError) {
    // `debug -- -batch`: no id, all for gdb.
    let word = arguments.first.flatMap { $0.hasPrefix("-") ? nil : $0 }
    let further = Array(arguments.dropFirst(word == nil ? 0 : 1)).filter { $0 != "--" }
    let stored = try library.find(word)
    let report = try stored.report()
    let core = stored.path + "/core"
    var status = stat()
    guard unsafe stat(core, &status) == 0 else {
      let why = report.capture.defects.first.map { " (\($0))" } ?? ""
      throw ControlError("report \(stored.id) has no minicore\(why)", status: 1)
    }
    var words = ["gdb", "-q"]
    if let executable = executable(report) { words.append(executable) }
    // gdb takes the core by its option even where there is no executable.
    words += ["-core", core] + further
    let pointers = unsafe words.map { unsafe strdup($0) } + [nil]
    _ = unsafe execvp("gdb", pointers)
    let cause = errno
    throw ControlError(
      cause == ENOENT
        ? "gdb is not installed; install it, or open '\(core)' with another debugger"
        : "cannot run gdb: \(SystemError.text(cause))",
      status: cause == ENOENT ? 69 : 71)
  }

  /// The program's file, with a word of warning if it is not the one that crashed.
  private static func executable(_ report: Report) -> String? {
    guard let path = report.program.executable else { return nil }
    guard let bytes = (try? KernelStoreCalls().read(path, limit: 1 << 20)) ?? nil else {
      Output.error("'\(path)' is gone: no symbols; name the program's file to gdb with 'file'")
      return nil
    }
    let buildID =
      report.program.buildID ?? report.modules.first { $0.path == path }?.buildID
    if let buildID, !holds(bytes, hex: buildID) {
      Output.error(
        "'\(path)' was replaced since the crash (it was build \(buildID)): what gdb shows of it is wrong; name the old file to gdb with 'file'"
      )
      return nil
    }
    return path
  }

  /// A build id lies in a note near the beginning of a file.
  private static func holds(_ bytes: [UInt8], hex: String) -> Bool {
    var wanted: [UInt8] = []
    var digits = hex.utf8.makeIterator()
    while let high = digits.next(), let low = digits.next() {
      guard let byte = UInt8(String(decoding: [high, low], as: UTF8.self), radix: 16) else {
        return true
      }
      wanted.append(byte)
    }
    guard let first = wanted.first else { return true }
    var at = 0
    while let found = bytes[at...].firstIndex(of: first) {
      if bytes[found...].starts(with: wanted) { return true }
      at = found + 1
    }
    return false
  }
}
