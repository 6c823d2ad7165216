// Which pages of private mappings the program changed, from /proc/PID/pagemap (readable by
// who may trace; without privileges only the frame numbers are hidden, not the flags).
import CLinux
import Glibc
import Kernel

final class ModifiedPages {
  /// Looked at, and of those the changed ones. In rising order after `finish()`.
  private(set) var known: [AddressRange] = []
  private(set) var modified: [AddressRange] = []
  private var left = CaptureLimits.pagemapPages
  private let file: FileDescriptor
  private var entries: [UInt64] = []

  private static let present: UInt64 = 1 << 63
  private static let swapped: UInt64 = 1 << 62
  /// A page of the file itself, or shared; a private page that was written to is neither.
  private static let ofFile: UInt64 = 1 << 61

  init(pid: Int32) {
    file = FileDescriptor(owning: unsafe open("/proc/\(pid)/pagemap", O_RDONLY | O_CLOEXEC))
  }

  /// Looks at `range`, if the budget allows; false: nothing is known of (some of) it.
  func scan(_ range: AddressRange) -> Bool {
    guard file.raw >= 0 else { return false }
    var at = range.start
    while at < range.end {
      let count = Int(min((range.end - at) / pageSize, 16_384))
      guard count > 0, count <= left else { return false }
      left -= count
      if entries.count < count { entries = Array(repeating: 0, count: max(count, 1024)) }
      let offset = off_t(at / pageSize * 8)
      let got = unsafe entries.withUnsafeMutableBytes {
        unsafe pread(file.raw, $0.baseAddress, count * 8, offset)
      }
      guard got == count * 8 else { return false }
      for index in 0..<count {
        let entry = entries[index]
        guard entry & (Self.present | Self.swapped) != 0, entry & Self.ofFile == 0 else { continue }
        let page = at + UInt64(index) * pageSize
        if let last = modified.last, last.end == page {
          modified[modified.count - 1].end += pageSize
        } else {
          modified.append(AddressRange(start: page, end: page + pageSize))
        }
      }
      let end = at + UInt64(count) * pageSize
      known.append(AddressRange(start: at, end: end))
      at = end
    }
    return true
  }

  func finish() {
    known = merged(known)
    modified = merged(modified)
  }

  /// The changed parts of `range`.
  func modified(in range: AddressRange) -> [AddressRange] {
    Self.parts(of: modified, in: range)
  }

  func isKnown(_ range: AddressRange) -> Bool {
    Self.parts(of: known, in: range) == [range]
  }

  static func parts(of sorted: [AddressRange], in range: AddressRange) -> [AddressRange] {
    var low = 0
    var high = sorted.count
    while low < high {
      let middle = (low + high) / 2
      if sorted[middle].end > range.start { high = middle } else { low = middle + 1 }
    }
    var result: [AddressRange] = []
    while low < sorted.count, sorted[low].start < range.end {
      let part = sorted[low].clipped(to: range)
      if !part.isEmpty { result.append(part) }
      low += 1
    }
    return result
  }
}
