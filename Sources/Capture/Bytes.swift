// Reading and writing numbers in byte arrays, in the machine's own order, always with bounds.
import Glibc

extension Array where Element == UInt8 {
  /// The number at `offset`, or nil if it does not lie wholly inside.
  func number<T: FixedWidthInteger & BitwiseCopyable>(at offset: Int, as type: T.Type = T.self)
    -> T?
  {
    guard offset >= 0, offset <= count - MemoryLayout<T>.size else { return nil }
    return unsafe withUnsafeBytes { unsafe $0.loadUnaligned(fromByteOffset: offset, as: T.self) }
  }

  /// Overwrites the bytes at `offset`; what does not fit is a programming error.
  mutating func store<T: FixedWidthInteger & BitwiseCopyable>(_ value: T, at offset: Int) {
    precondition(offset >= 0 && offset <= count - MemoryLayout<T>.size)
    unsafe withUnsafeMutableBytes {
      unsafe $0.storeBytes(of: value, toByteOffset: offset, as: T.self)
    }
  }

  mutating func append<T: FixedWidthInteger & BitwiseCopyable>(number value: T) {
    let end = count
    append(contentsOf: repeatElement(0, count: MemoryLayout<T>.size))
    store(value, at: end)
  }

  mutating func pad(to alignment: Int) {
    let rest = count % alignment
    if rest != 0 { append(contentsOf: repeatElement(0, count: alignment - rest)) }
  }

  /// Copies `bytes` to `offset`, as many as fit into `room`.
  mutating func store(_ bytes: some Collection<UInt8>, at offset: Int, room: Int) {
    var at = offset
    for byte in bytes.prefix(room) {
      self[at] = byte
      at += 1
    }
  }

  func hasPrefix(_ prefix: StaticString) -> Bool {
    guard count >= prefix.utf8CodeUnitCount else { return false }
    return unsafe withUnsafeBytes {
      unsafe memcmp($0.baseAddress!, prefix.utf8Start, prefix.utf8CodeUnitCount) == 0
    }
  }

  func hasSuffix(_ suffix: StaticString) -> Bool {
    let start = count - suffix.utf8CodeUnitCount
    guard start >= 0 else { return false }
    return unsafe withUnsafeBytes {
      unsafe memcmp($0.baseAddress! + start, suffix.utf8Start, suffix.utf8CodeUnitCount) == 0
    }
  }
}

/// Addresses [start, end) of the program.
struct AddressRange: Hashable {
  var start: UInt64
  var end: UInt64

  var size: UInt64 { end - start }
  var isEmpty: Bool { end <= start }

  func contains(_ address: UInt64) -> Bool { address >= start && address < end }

  func clipped(to other: AddressRange) -> AddressRange {
    let low = max(start, other.start)
    return AddressRange(start: low, end: max(low, min(end, other.end)))
  }

  /// Widened to whole pages.
  var pages: AddressRange {
    AddressRange(start: start.pageFloor, end: end.pageCeiling)
  }
}

extension UInt64 {
  var pageFloor: UInt64 { self & ~(pageSize - 1) }
  var pageCeiling: UInt64 { saturatingAdding(pageSize - 1).pageFloor }

  /// Addresses come from the program and may lie at either end of the numbers.
  func saturatingAdding(_ other: UInt64) -> UInt64 {
    let (sum, overflow) = addingReportingOverflow(other)
    return overflow ? .max : sum
  }
  func saturatingSubtracting(_ other: UInt64) -> UInt64 { self >= other ? self - other : 0 }
}

/// Sorts and joins ranges that touch.
func merged(_ ranges: [AddressRange]) -> [AddressRange] {
  var result: [AddressRange] = []
  result.reserveCapacity(ranges.count)
  for range in ranges.sorted(by: { $0.start < $1.start }) where !range.isEmpty {
    if let last = result.last, range.start <= last.end {
      result[result.count - 1].end = max(last.end, range.end)
    } else {
      result.append(range)
    }
  }
  return result
}
