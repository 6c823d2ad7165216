// The last lines a program wrote, with the time each arrived. Bytes, not text: they are hostile.
import Policy

struct OutputTail {
  struct Line {
    /// When its first byte came, wall clock, nanoseconds since the epoch.
    let time: Int64
    /// Without the line end; cut at `Limit.lineBytes`.
    let bytes: [UInt8]
  }

  private var lines: [Line?] = []
  private var first = 0
  private var bytes = 0
  private var open: [UInt8] = []
  private var openTime: Int64 = 0
  /// Bytes of the line that is being written that were cut off.
  private var openCut = false

  mutating func append(_ chunk: ArraySlice<UInt8>, at time: Int64) {
    var rest = chunk
    if rest.count > Limit.tailBytes {
      // Of a flood only the end can matter: the first line of it is cut anyway.
      rest = rest.suffix(Limit.tailBytes)
      open = []
      openCut = false
    }
    while !rest.isEmpty {
      if open.isEmpty { openTime = time }
      guard let end = rest.firstIndex(of: UInt8(ascii: "\n")) else {
        extend(rest)
        return
      }
      extend(rest[..<end])
      close()
      rest = rest[(end + 1)...]
    }
  }

  private mutating func extend(_ part: ArraySlice<UInt8>) {
    let room = Limit.lineBytes - open.count
    if part.count > room { openCut = true }
    open.append(contentsOf: part.prefix(room))
  }

  private mutating func close() {
    if open.last == UInt8(ascii: "\r") { open.removeLast() }
    if openCut { open.append(contentsOf: " […]".utf8) }
    bytes += open.count
    lines.append(Line(time: openTime, bytes: open))
    open = []
    openCut = false
    while lines.count - first > Limit.tailLines || bytes > Limit.tailBytes {
      bytes -= lines[first]!.bytes.count
      lines[first] = nil
      first += 1
    }
    if first > Limit.tailLines {
      lines.removeFirst(first)
      first = 0
    }
  }

  /// Oldest first; a last line without an end counts.
  var all: [Line] {
    var result = lines[first...].compactMap { $0 }
    if !open.isEmpty { result.append(Line(time: openTime, bytes: open)) }
    return result
  }
}
