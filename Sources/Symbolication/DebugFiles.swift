// What libdw may be let near besides a core: no file whose opening waits, and no more memory than
// a file's compressed sections ask for within reason. The program chose the files and their names.
import Glibc

enum CompressedSections {
  private static let mostSections: UInt64 = 65_536

  /// What the sections of an ELF file take when libdw has unpacked them, as their headers claim;
  /// nil: this cannot be told.
  static func unpackedBytes(_ source: some ByteSource) -> UInt64? {
    guard let header = source.bytes(0, 64), header.starts(with: [0x7f, 0x45, 0x4c, 0x46, 2, 1]),
      let start = header.number(40, 8), var count = header.number(60, 2)
    else { return nil }
    if start == 0 { return 0 }
    guard header.number(58, 2) == 64 else { return nil }
    // So many that the first section's size is their number.
    if count == 0 { count = source.bytes(start, 64)?.number(32, 8) ?? 0 }
    guard count <= mostSections else { return nil }
    // A table that is not whole is of no use to libelf either.
    guard count > 0, let table = source.bytes(start, Int(count) * 64) else { return 0 }
    var sum: UInt64 = 0
    for entry in stride(from: 0, to: table.count, by: 64) {
      let type = table.number(entry + 4, 4)!
      let isCompressed = table.number(entry + 8, 8)! & 0x800 != 0  // SHF_COMPRESSED
      // SHT_NOBITS has no bytes; only SHT_PROGBITS may be compressed in GNU's older way.
      guard type != 8, isCompressed || type == 1,
        let head = source.bytes(table.number(entry + 24, 8)!, 24)
      else { continue }
      var size: UInt64 = 0
      if isCompressed {
        size = head.number(8, 8)!
      } else if head.starts(with: "ZLIB".utf8) {
        for byte in head[4..<12] { size = size << 8 | UInt64(byte) }
      }
      let (total, overflow) = sum.addingReportingOverflow(size)
      if overflow { return nil }
      sum = total
    }
    return sum
  }
}

/// Bytes in memory.
struct ImageBytes: ByteSource {
  let image: [UInt8]

  func bytes(_ start: UInt64, _ count: Int) -> [UInt8]? {
    guard count >= 0, start <= UInt64(image.count), count <= image.count - Int(start) else {
      return nil
    }
    return Array(image[Int(start)..<(Int(start) + count)])
  }
}

enum DebugLink {
  private static let global = "/usr/lib/debug"

  /// False if something that is no regular file lies where libdw would look for a file's separate
  /// debug information: to open a FIFO is to wait for ever.
  static func isSafe(file: String?, link: String?) -> Bool {
    var folder = "/"
    var names: [String] = []
    if let file, let slash = file.utf8.lastIndex(of: UInt8(ascii: "/")) {
      folder = String(file[..<slash])
      names.append(String(file[file.utf8.index(after: slash)...]) + ".debug")
    }
    if let link {
      if link.utf8.first == UInt8(ascii: "/") { return isRegularOrMissing(link) }
      names.append(link)
    }
    var places = [folder, folder + "/.debug", global]
    // The same path below the system's folder, and its ends.
    var rest = Substring(folder)
    while let slash = rest.utf8.firstIndex(of: UInt8(ascii: "/")), places.count < 64 {
      rest = rest[rest.utf8.index(after: slash)...]
      places.append(global + "/" + rest)
    }
    return places.allSatisfy { place in
      names.allSatisfy { isRegularOrMissing(place + "/" + $0) }
    }
  }

  private static func isRegularOrMissing(_ path: String) -> Bool {
    var status = stat()
    return unsafe stat(path, &status) != 0 || status.st_mode & S_IFMT == S_IFREG
  }
}
