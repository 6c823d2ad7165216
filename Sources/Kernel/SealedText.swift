// A text file that is normally replaced in one step, and written over in its place when the disk is
// full: a checksum tells a text that was torn by that from a whole one.

package enum SealedText {
  private static let end = "end\n"

  /// `lines`, each with its line end, then a checksum of them and an end mark.
  package static func seal(_ lines: String) -> [UInt8] {
    let bytes = Array(lines.utf8)
    return bytes + Array("sum \(sum(bytes[...]))\n\(end)".utf8)
  }

  /// The lines; nil: they are not what was sealed. Line ends behind the end mark are room kept for
  /// later and nothing else.
  package static func open(_ bytes: [UInt8]) -> String? {
    guard let last = bytes.lastIndex(where: { $0 != 10 }), last + 1 < bytes.count else {
      return nil
    }
    let whole = bytes[...(last + 1)]
    guard whole.suffix(end.utf8.count).elementsEqual(end.utf8) else { return nil }
    let sealed = whole.dropLast(end.utf8.count)
    // Back to the line end before the checksum's line.
    guard let before = sealed.dropLast().lastIndex(of: 10) else { return nil }
    let lines = sealed[...before]
    guard sealed[(before + 1)...].elementsEqual("sum \(sum(lines))\n".utf8) else { return nil }
    return String(validating: lines, as: UTF8.self)
  }

  /// FNV-1a: against accidents, not against an enemy.
  private static func sum(_ bytes: ArraySlice<UInt8>) -> String {
    var value: UInt64 = 0xcbf2_9ce4_8422_2325
    for byte in bytes { value = (value ^ UInt64(byte)) &* 0x100_0000_01b3 }
    return String(value, radix: 16)
  }
}
