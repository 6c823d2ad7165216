// /proc/PID/maps as values.
import CLinux
import Glibc

struct Mapping {
  var range: AddressRange
  var readable: Bool
  var writable: Bool
  var executable: Bool
  var shared: Bool
  var offset: UInt64
  var device: UInt64
  var inode: UInt64
  /// As the kernel prints it, " (deleted)" included; empty for anonymous memory.
  var path: [UInt8]

  var start: UInt64 { range.start }
  var end: UInt64 { range.end }

  /// Of a file with a name: not memfd, not shared memory, not a device.
  var isNamedFile: Bool {
    inode != 0 && path.hasPrefix("/") && !path.hasPrefix("/memfd:") && !path.hasPrefix("/SYSV")
      && !path.hasPrefix("/dev/") && !path.hasPrefix("/[")
  }
  var isPrivateFile: Bool { isNamedFile && !shared }
  var isAnonymous: Bool { inode == 0 && !shared && (path.isEmpty || !path.hasPrefix("/")) }
}

struct MemoryMap {
  /// In rising order, never overlapping.
  let mappings: [Mapping]
  /// The list was longer than the limit.
  let truncated: Bool

  init(text: [UInt8], limit: Int = CaptureLimits.mappings) {
    var mappings: [Mapping] = []
    mappings.reserveCapacity(min(limit, text.count / 64))
    var lastEnd: UInt64 = 0
    var truncated = false
    var at = 0
    unsafe text.withUnsafeBufferPointer { text in
      while at < text.count {
        if mappings.count == limit {
          truncated = true
          break
        }
        var line = unsafe LineReader(text: text, at: at)
        if let mapping = unsafe line.mapping(
          previous: mappings.last), mapping.start >= lastEnd
        {
          lastEnd = mapping.end
          mappings.append(mapping)
        }
        at = unsafe line.nextLine()
      }
    }
    self.mappings = mappings
    self.truncated = truncated
  }

  /// Index of the first mapping that ends above `address`.
  func firstIndex(endingAbove address: UInt64) -> Int {
    var low = 0
    var high = mappings.count
    while low < high {
      let middle = (low + high) / 2
      if mappings[middle].end > address { high = middle } else { low = middle + 1 }
    }
    return low
  }

  func index(containing address: UInt64) -> Int? {
    let index = firstIndex(endingAbove: address)
    return index < mappings.count && mappings[index].range.contains(address) ? index : nil
  }

  func mapping(containing address: UInt64) -> Mapping? {
    index(containing: address).map { mappings[$0] }
  }
}

/// One line: `start-end perms offset major:minor inode   path`.
@unsafe private struct LineReader {
  let text: UnsafeBufferPointer<UInt8>
  var at: Int

  private mutating func hex(until end: UInt8) -> UInt64? {
    var value: UInt64 = 0
    var digits = 0
    while unsafe at < text.count {
      let byte = unsafe text[at]
      let digit: UInt8
      switch byte {
      case 0x30...0x39: digit = byte - 0x30
      case 0x61...0x66: digit = byte - 0x61 + 10
      case end:
        unsafe at += 1
        return digits > 0 ? value : nil
      default: return nil
      }
      digits += 1
      if digits > 16 { return nil }
      value = value << 4 | UInt64(digit)
      unsafe at += 1
    }
    return nil
  }

  mutating func mapping(previous: Mapping?) -> Mapping? {
    guard let start = unsafe hex(until: UInt8(ascii: "-")),
      let end = unsafe hex(until: 0x20), start < end,
      unsafe at + 5 <= text.count
    else { return nil }
    let permissions = unsafe (text[at], text[at + 1], text[at + 2], text[at + 3])
    unsafe at += 5
    guard let offset = unsafe hex(until: 0x20), let major = unsafe hex(until: UInt8(ascii: ":")),
      let minor = unsafe hex(until: 0x20)
    else { return nil }
    var inode: UInt64 = 0
    while unsafe at < text.count, unsafe text[at] >= 0x30, unsafe text[at] <= 0x39 {
      inode = unsafe inode &* 10 &+ UInt64(text[at] - 0x30)
      unsafe at += 1
    }
    while unsafe at < text.count, unsafe text[at] == 0x20 { unsafe at += 1 }
    let pathStart = unsafe at
    while unsafe at < text.count, unsafe text[at] != 0x0A { unsafe at += 1 }
    let path = unsafe UnsafeBufferPointer(rebasing: text[pathStart..<at])
    let device = linux_device(UInt32(truncatingIfNeeded: major), UInt32(truncatingIfNeeded: minor))
    return Mapping(
      range: AddressRange(start: start, end: end),
      readable: permissions.0 == UInt8(ascii: "r"),
      writable: permissions.1 == UInt8(ascii: "w"),
      executable: permissions.2 == UInt8(ascii: "x"),
      shared: permissions.3 == UInt8(ascii: "s"), offset: offset,
      device: device, inode: inode,
      path: unsafe pathBytes(path, previous: previous))
  }

  /// Segments of one module follow each other: they share one array.
  private func pathBytes(_ path: UnsafeBufferPointer<UInt8>, previous: Mapping?) -> [UInt8] {
    if path.isEmpty { return [] }
    if let previous, previous.path.count == path.count, unsafe previous.path.elementsEqual(path) {
      return previous.path
    }
    // The kernel writes a newline as \012.
    var bytes = unsafe Array(path)
    if bytes.contains(UInt8(ascii: "\\")) {
      var plain: [UInt8] = []
      var at = 0
      while at < bytes.count {
        if bytes[at] == UInt8(ascii: "\\"), at + 3 < bytes.count,
          bytes[at + 1] == 0x30, bytes[at + 2] == 0x31, bytes[at + 3] == 0x32
        {
          plain.append(0x0A)
          at += 4
        } else {
          plain.append(bytes[at])
          at += 1
        }
      }
      bytes = plain
    }
    return bytes
  }

  mutating func nextLine() -> Int {
    while unsafe at < text.count, unsafe text[at] != 0x0A { unsafe at += 1 }
    return unsafe at + 1
  }
}
