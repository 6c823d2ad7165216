// Which reports are of the same fault. Pure. Stable where nothing has changed that a person
// would call the cause: address layout, line numbers, the life, the thread.

package enum Fingerprint {
  /// Frames of the program's own that count.
  private static let frames = 5

  /// 32 hex digits.
  package static func of(_ report: Report) -> String {
    var parts = [report.kind.rawValue]
    if let signal = report.ending.signal { parts.append(signal.name) }
    if let status = report.ending.exitStatus { parts.append("exit \(status)") }
    if let exception = report.exception, exception.source != .signal {
      parts.append("type " + exception.type)
    }
    let names = frameNames(report)
    parts += names
    if names.isEmpty {
      // Nothing but words to go by, without what differs from one time to the next.
      parts.append(report.program.executable ?? report.program.name)
      if let failure = report.ending.startFailure { parts.append(withoutNumbers(failure)) }
      if let exception = report.exception { parts.append(withoutNumbers(exception.reason)) }
    }
    return hash(parts)
  }

  package static func isValid(_ text: some StringProtocol) -> Bool {
    text.utf8.count == 32
      && text.utf8.allSatisfy {
        $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9")
          || $0 >= UInt8(ascii: "a") && $0 <= UInt8(ascii: "f")
      }
  }

  /// The top frames of the program's own, of the exception's throw site if it is known, else
  /// of the crashing thread; a program without any of its own (all in libraries) counts them.
  private static func frameNames(_ report: Report) -> [String] {
    let crashed = report.telling?.frames ?? []
    let thrown = report.exception?.frames ?? []
    for candidates in [thrown, crashed] where !candidates.isEmpty {
      let own = candidates.filter(\.inApp)
      var names: [String] = []
      for frame in own.isEmpty ? candidates : own {
        let name = name(of: frame, modules: report.modules)
        // Recursion of any depth is one fault: also of functions that call each other.
        if names.contains(name) { continue }
        names.append(name)
        if names.count == frames { break }
      }
      if !names.isEmpty { return names }
    }
    return []
  }

  private static func name(of frame: Frame, modules: [Module]) -> String {
    let module = frame.module ?? ""
    if let function = frame.function ?? frame.rawFunction {
      return withoutClones(function) + " in " + module
    }
    guard let path = frame.modulePath, let offset = frame.moduleOffset else {
      // Neither symbol nor module: the file that a traceback names, or code made at run time.
      return frame.file.map(SafeText.lastComponent) ?? "?"
    }
    let build = modules.first { $0.path == path }?.buildID ?? ""
    return "\(module) \(build) \(offset)"
  }

  /// The optimiser's copies of one function: "f [clone .isra.0]", "f.cold", ".llvm.123".
  private static func withoutClones(_ function: String) -> String {
    var name = Substring(function)
    if let clone = name.find(" [clone") { name = name[..<clone.lowerBound] }
    for mark in [".isra.", ".part.", ".constprop.", ".cold", ".lto_priv.", ".llvm."] {
      if let found = name.find(mark) { name = name[..<found.lowerBound] }
    }
    return String(name)
  }

  /// "index 17 of 3" and "0x7f…" differ every time; their kind does not.
  private static func withoutNumbers(_ text: String) -> String {
    var result = ""
    var inNumber = false
    for scalar in text.unicodeScalars {
      let isDigit = scalar.properties.numericType != nil
      let isHex = inNumber && (scalar.properties.isASCIIHexDigit || scalar == "x")
      if isDigit || isHex {
        if !inNumber { result += "#" }
        inNumber = true
      } else {
        inNumber = false
        result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  /// FNV-1a of 128 bits: short, the same everywhere, and nothing secret depends on it.
  private static func hash(_ parts: [String]) -> String {
    let prime: UInt128 = 0x0000_0000_0100_0000_0000_0000_0000_013b
    var sum: UInt128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d
    for part in parts {
      for byte in part.utf8 { sum = (sum ^ UInt128(byte)) &* prime }
      // A border between parts: "ab"+"c" is not "a"+"bc".
      sum = (sum ^ 0x1f) &* prime
    }
    let text = String(sum, radix: 16)
    return String(repeating: "0", count: 32 - text.utf8.count) + text
  }
}
