// Bytes of a stranger, fit for a message on a terminal.

extension Unicode.Scalar {
  /// What could move a cursor, start an escape sequence, hide text or turn its direction.
  package var isUnsafeToShow: Bool {
    switch value {
    case 0..<0x20, 0x7f..<0xa0: true
    case 0x200b, 0x200e, 0x200f, 0x2028...0x202e, 0x2060...0x2069, 0xfeff, 0xfff9...0xfffb: true
    case 0xe0000...0xe007f: true
    default: false
    }
  }
}

package enum Printable {
  /// At most `limit` bytes; what is unsafe to show is a question mark.
  package static func text(_ bytes: some Sequence<UInt8>, limit: Int = 200) -> String {
    let text = String(decoding: Array(bytes.prefix(limit)), as: UTF8.self)
    return String(
      String.UnicodeScalarView(text.unicodeScalars.map { $0.isUnsafeToShow ? "?" : $0 }))
  }
}
