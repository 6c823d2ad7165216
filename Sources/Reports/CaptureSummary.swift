/// What `guardian-capture` tells guardian over its result socket: one SEQPACKET message of
/// `key=value` words, with the descriptors of replaced binaries beside it. guardian's own
/// helper wrote it, yet it is read as bounded text: an unknown word is ignored, a missing
/// one has its default. Paths and defects come from the supervised program and may hold any
/// byte, so spaces, controls and `%` travel as `%XX`.
package struct CaptureSummary: Hashable, Sendable {
  package static let maximumBytes = 16_384
  /// As many descriptors as travel with the message.
  package static let maximumReplacedModules = 16
  /// Longer paths do not travel: sixteen of them, escaped, must leave room for defects.
  package static let maximumPathBytes = 640
  package static let maximumDefects = 64
  package static let maximumDefectBytes = 400

  /// Threads seen in /proc and threads whose registers and stack are in the minicore.
  package var threadsSeen = 0
  package var threadsCaptured = 0
  /// From the first stop to the release, microseconds.
  package var heldMicroseconds: UInt64 = 0
  package var coreBytes: UInt64 = 0
  /// Thread id of the crashing thread in guardian's pid namespace; 0: not found.
  package var crashingThread: Int32 = 0
  /// Of the faulting code: hash of module path and offset; 0: unknown.
  package var signature: UInt64 = 0
  /// Paths of replaced binaries, in the order of the descriptors that came along.
  package var replacedModules: [String] = []
  package var defects: [String] = []
  package init() {}

  /// True if the path can travel: a replaced module whose path cannot must not send its
  /// descriptor either, or the two lists would no longer match.
  package static func canCarry(path: String) -> Bool {
    escaped(path).utf8.count <= maximumPathBytes
  }

  /// Never longer than `maximumBytes`: defects that do not fit are counted, not sent.
  package func encoded() -> [UInt8] {
    var text =
      "threads-seen=\(threadsSeen) threads-captured=\(threadsCaptured)"
      + " held-us=\(heldMicroseconds) core-bytes=\(coreBytes)"
      + " crashing-thread=\(crashingThread) signature=\(signature)"
    for path in replacedModules.prefix(Self.maximumReplacedModules) {
      text += " replaced=" + Self.escaped(path)
    }
    var left = defects.count
    for defect in defects.prefix(Self.maximumDefects) {
      let word = " defect=" + Self.escaped(defect, limit: Self.maximumDefectBytes)
      // The last line's own room is kept.
      if text.utf8.count + word.utf8.count > Self.maximumBytes - 64 { break }
      text += word
      left -= 1
    }
    if left > 0 { text += " defect=\(left)%20more%20defects" }
    return Array(text.utf8.prefix(Self.maximumBytes))
  }

  /// Reads what `encoded()` wrote; whatever does not parse keeps its default.
  package init(decoding bytes: [UInt8]) {
    for word in bytes.prefix(Self.maximumBytes).split(separator: UInt8(ascii: " ")) {
      guard let equals = word.firstIndex(of: UInt8(ascii: "=")) else { continue }
      let value = Self.unescaped(word[word.index(after: equals)...])
      switch String(decoding: word[..<equals], as: UTF8.self) {
      case "threads-seen": threadsSeen = Int(value).map { max(0, $0) } ?? threadsSeen
      case "threads-captured": threadsCaptured = Int(value).map { max(0, $0) } ?? threadsCaptured
      case "held-us": heldMicroseconds = UInt64(value) ?? heldMicroseconds
      case "core-bytes": coreBytes = UInt64(value) ?? coreBytes
      case "crashing-thread": crashingThread = Int32(value) ?? crashingThread
      case "signature": signature = UInt64(value) ?? signature
      case "replaced":
        if replacedModules.count < Self.maximumReplacedModules { replacedModules.append(value) }
      case "defect":
        if defects.count <= Self.maximumDefects { defects.append(value) }
      default: break
      }
    }
  }

  private static func escaped(_ text: String, limit: Int = .max) -> String {
    var bytes: [UInt8] = []
    for byte in text.utf8 {
      if bytes.count + 3 > limit { break }
      if byte <= 0x20 || byte == 0x7F || byte == UInt8(ascii: "%") {
        bytes += [UInt8(ascii: "%"), hexDigit(byte >> 4), hexDigit(byte & 15)]
      } else {
        bytes.append(byte)
      }
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  private static func unescaped(_ bytes: ArraySlice<UInt8>) -> String {
    var result: [UInt8] = []
    result.reserveCapacity(bytes.count)
    var at = bytes.startIndex
    while at < bytes.endIndex {
      if bytes[at] == UInt8(ascii: "%"), at + 2 < bytes.endIndex,
        let high = hexValue(bytes[at + 1]), let low = hexValue(bytes[at + 2])
      {
        result.append(high << 4 | low)
        at += 3
      } else {
        result.append(bytes[at])
        at += 1
      }
    }
    return String(decoding: result, as: UTF8.self)
  }

  private static func hexDigit(_ value: UInt8) -> UInt8 {
    value < 10 ? UInt8(ascii: "0") + value : UInt8(ascii: "A") + value - 10
  }

  private static func hexValue(_ digit: UInt8) -> UInt8? {
    switch digit {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): digit - UInt8(ascii: "0")
    case UInt8(ascii: "A")...UInt8(ascii: "F"): digit - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}
