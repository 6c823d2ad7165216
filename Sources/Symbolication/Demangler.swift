// Names as people wrote them. Remembers what it has seen: stacks repeat themselves.
import CDemangle

package struct Demangler {
  private var known: [String: String] = [:]
  private static let mostBytes = 8_192

  package init() {}

  /// The readable form, or the name itself; never longer than 4 KiB.
  package mutating func readable(_ name: String) -> String {
    if let seen = known[name] { return seen }
    let text = HostileText.shown(Demangler.demangled(name) ?? name)
    known[name] = text
    return text
  }

  private static func demangled(_ name: String) -> String? {
    // What linkers and optimisers append: versions, clones.
    let plain = name.prefix { $0 != "@" }
    if plain.hasPrefix("$s") || plain.hasPrefix("$S") || plain.hasPrefix("_T0")
      || plain.hasPrefix("$e")
    {
      return run(CDEMANGLE_SWIFT, String(plain)).map(simplified)
    }
    if plain.hasPrefix("_R") { return run(CDEMANGLE_RUST, String(plain)) }
    guard plain.hasPrefix("_Z") || plain.hasPrefix("__Z") || plain.hasPrefix("_GLOBAL_") else {
      return nil
    }
    // Rust's older names are C++ names that end in a hash.
    return run(CDEMANGLE_RUST, String(plain)) ?? run(CDEMANGLE_CXX, String(plain))
  }

  private static func run(_ language: cdemangle_language, _ name: String) -> String? {
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: mostBytes) { buffer, filled in
      filled = unsafe name.withCString { name in
        unsafe buffer.withMemoryRebound(to: CChar.self) { buffer in
          unsafe cdemangle(language, name, buffer.baseAddress!, mostBytes)
        }
      }
    }
    return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
  }

  /// Swift's full form without what only its compiler cares for: which specialisation it is, and
  /// the standard library's module name before each of its types.
  private static func simplified(_ name: String) -> String {
    var text = name[...]
    for noise in [
      "generic specialization <", "generic not re-abstracted specialization <",
      "function signature specialization <", "generic pre-specialization <",
      "partial specialization <",
    ] {
      while text.hasPrefix(noise), let end = closing(text.dropFirst(noise.count)),
        text[end...].hasPrefix("> of ")
      {
        text = text[text.index(end, offsetBy: 5)...]
      }
    }
    for noise in ["merged "] where text.hasPrefix(noise) { text = text.dropFirst(noise.count) }
    var result = ""
    var rest = text
    while let found = rest.firstIndex(of: "S") {
      let before = rest[..<found]
      result += before
      rest = rest[found...]
      let last = result.last
      let boundary =
        last == nil || !(last!.isLetter || last!.isNumber || last == "_" || last == ".")
      if boundary, rest.hasPrefix("Swift."), rest.dropFirst(6).first?.isLetter == true {
        rest = rest.dropFirst(6)
      } else {
        result.append(rest.removeFirst())
      }
    }
    return result + rest
  }

  /// Where the angle bracket that was opened before `text` closes.
  private static func closing(_ text: Substring) -> Substring.Index? {
    var depth = 1
    var previous: Character = " "
    for index in text.indices {
      let character = text[index]
      if character == "<" { depth += 1 }
      if character == ">", previous != "-" {
        depth -= 1
        if depth == 0 { return index }
      }
      previous = character
    }
    return nil
  }
}
