// The last lines a program wrote, with the time each arrived. Bytes, not text: they are hostile.
// A flood costs one copy of its end: lines are told apart only when somebody asks.

package struct OutputTail {
  package struct Line {
    /// When the piece with its first byte came, wall clock, nanoseconds since the epoch.
    package let time: Int64
    /// Without the line end; cut at `Limit.lineBytes`.
    package let bytes: [UInt8]
  }

  package init() {}

  private struct Piece {
    let time: Int64
    var bytes: [UInt8]
  }
  /// Oldest first. Every piece but the last ends a line or is large, so their number is bounded.
  private var pieces: [Piece] = []
  private var bytes = 0
  /// What lies before the first piece was dropped in the middle of a line.
  private var beginsInLine = false

  private static let pieceBytes = 4096
  private static let pieceLimit = 2 * Limit.tailLines

  package mutating func append(_ chunk: ArraySlice<UInt8>, at time: Int64) {
    if chunk.isEmpty { return }
    if chunk.count >= Limit.tailBytes {
      pieces = [Piece(time: time, bytes: Array(chunk.suffix(Limit.tailBytes)))]
      bytes = Limit.tailBytes
      beginsInLine = true
      return
    }
    bytes += chunk.count
    if let last = pieces.last, last.bytes.last != UInt8(ascii: "\n"),
      last.bytes.count < Self.pieceBytes
    {
      pieces[pieces.count - 1].bytes.append(contentsOf: chunk)
    } else {
      pieces.append(Piece(time: time, bytes: Array(chunk)))
    }
    while let first = pieces.first,
      bytes - first.bytes.count >= Limit.tailBytes || pieces.count > Self.pieceLimit
    {
      bytes -= first.bytes.count
      beginsInLine = first.bytes.last != UInt8(ascii: "\n")
      pieces.removeFirst()
    }
  }

  /// What follows does not come right after what was appended so far.
  package mutating func skip() {
    pieces = []
    bytes = 0
    beginsInLine = true
  }

  /// Oldest first; a last line without an end counts.
  package var all: [Line] {
    var lines: [Line] = []
    var open: [UInt8] = []
    var openTime: Int64?
    var isCut = false
    func cut(_ line: [UInt8]) -> [UInt8] {
      var line = line
      if line.last == UInt8(ascii: "\r") { line.removeLast() }
      return isCut ? line + Array(" […]".utf8) : line
    }
    for piece in pieces {
      var rest = piece.bytes[...]
      while !rest.isEmpty {
        let end = rest.firstIndex(of: UInt8(ascii: "\n"))
        let part = rest[..<(end ?? rest.endIndex)]
        if openTime == nil { openTime = piece.time }
        let room = Limit.lineBytes - open.count
        isCut = isCut || part.count > room
        open.append(contentsOf: part.prefix(room))
        guard let end else { break }
        lines.append(Line(time: openTime ?? piece.time, bytes: cut(open)))
        open = []
        openTime = nil
        isCut = false
        rest = rest[(end + 1)...]
      }
    }
    if let openTime { lines.append(Line(time: openTime, bytes: cut(open))) }
    if beginsInLine && lines.count > 1 { lines.removeFirst() }
    lines = lines.suffix(Limit.tailLines)
    var total = lines.reduce(0) { $0 + $1.bytes.count }
    while total > Limit.tailBytes { total -= lines.removeFirst().bytes.count }
    return lines
  }
}
