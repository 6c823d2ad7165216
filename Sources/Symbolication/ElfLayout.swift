// What must be known of an ELF file before a library is let near it: where its segments lie and
// which build it is. Reads a file or a program's memory alike; believes neither.

struct ElfLayout {
  struct Load: Hashable {
    let offset: UInt64
    let address: UInt64
    let fileBytes: UInt64
    let memoryBytes: UInt64
    let flags: UInt64
  }

  /// 2: fixed address (ET_EXEC), 3: position independent (ET_DYN).
  let kind: UInt64
  let loads: [Load]
  let buildID: [UInt8]?
  private let notes: [(offset: UInt64, address: UInt64, size: UInt64)]

  private static let mostHeaders: UInt64 = 256
  /// Real ones have 8 (xxhash), 16 (md5, uuid) or 20 bytes (sha1).
  private static let longestBuildID = 64

  /// Of a file.
  init?(file: FileBytes, machine: Machine) {
    guard let head = ElfLayout.headers({ file.bytes($0, $1) }, machine) else { return nil }
    (kind, loads, notes) = head
    buildID = ElfLayout.identity(notes.map { ($0.offset, $0.size) }, in: file)
  }

  /// Of an image in memory whose first byte is at `base`.
  init?(memory: CoreFile, base: UInt64) {
    let read = { (offset: UInt64, count: Int) -> [UInt8]? in
      let (address, overflow) = base.addingReportingOverflow(offset)
      return overflow ? nil : memory.bytes(address, count)
    }
    guard let head = ElfLayout.headers(read, memory.machine) else { return nil }
    (kind, loads, notes) = head
    guard let bias = ElfLayout.bias(loads, offset: 0, at: base) else { return nil }
    buildID = ElfLayout.identity(notes.map { ($0.address &+ bias, $0.size) }, in: memory)
  }

  private static func headers(
    _ read: (UInt64, Int) -> [UInt8]?, _ machine: Machine
  ) -> (UInt64, [Load], [(offset: UInt64, address: UInt64, size: UInt64)])? {
    guard let header = read(0, 64), header.starts(with: [0x7f, 0x45, 0x4c, 0x46, 2, 1]),
      let kind = header.number(16, 2), kind == 2 || kind == 3,
      header.number(18, 2) == machine.rawValue, header.number(54, 2) == 56,
      let count = header.number(56, 2), count > 0, count <= mostHeaders,
      let table = read(header.number(32, 8)!, Int(count) * 56)
    else { return nil }
    var loads: [Load] = []
    var notes: [(offset: UInt64, address: UInt64, size: UInt64)] = []
    for entry in stride(from: 0, to: table.count, by: 56) {
      let offset = table.number(entry + 8, 8)!
      let address = table.number(entry + 16, 8)!
      let fileBytes = table.number(entry + 32, 8)!
      switch table.number(entry, 4)! {
      case 1:
        loads.append(
          Load(
            offset: offset, address: address, fileBytes: fileBytes,
            memoryBytes: table.number(entry + 40, 8)!, flags: table.number(entry + 4, 4)!))
      case 4:
        notes.append((offset, address, fileBytes))
      default: break
      }
    }
    return loads.isEmpty ? nil : (kind, loads, notes)
  }

  private static func identity(
    _ places: [(start: UInt64, size: UInt64)], in source: some ByteSource
  ) -> [UInt8]? {
    for place in places {
      guard let notes = source.bytes(place.start, Int(min(place.size, 65_536))) else { continue }
      var at = 0
      while let nameSize = notes.number(at, 4), let size = notes.number(at + 4, 4) {
        let start = at + 12 + Int(nameSize + 3) & ~3
        let end = start + Int(size)
        if end > notes.count { break }
        if notes.number(at + 8, 4) == 3, nameSize == 4, notes.number(at + 12, 4) == 0x0055_4e47,
          size > 0, size <= longestBuildID
        {
          return Array(notes[start..<end])
        }
        at = (end + 3) & ~3
      }
    }
    return nil
  }

  /// The distance from the addresses in the file to those in memory, if the page of the file at
  /// `offset` was mapped at `address`.
  func bias(offset: UInt64, at address: UInt64) -> UInt64? {
    ElfLayout.bias(loads, offset: offset, at: address)
  }

  private static func bias(_ loads: [Load], offset: UInt64, at address: UInt64) -> UInt64? {
    let page: UInt64 = 4_095
    for load in loads {
      let begin = load.offset & ~page
      let end = load.offset.addingReportingOverflow(load.fileBytes)
      guard !end.overflow, begin <= offset, offset < max(end.partialValue, 1) else { continue }
      // Both may wrap: the difference is taken modulo 2^64, as the loader does.
      return address &- (offset &- begin) &- (load.address & ~page)
    }
    return nil
  }

  /// From the first to past the last byte in memory, by pages.
  func extent(bias: UInt64) -> (start: UInt64, end: UInt64)? {
    var low = UInt64.max
    var high: UInt64 = 0
    for load in loads {
      let (end, overflow) = load.address.addingReportingOverflow(load.memoryBytes)
      if overflow || end > UInt64.max - 4_096 { return nil }
      low = min(low, load.address & ~4_095)
      high = max(high, (end + 4_095) & ~4_095)
    }
    let start = low &+ bias
    let end = high &+ bias
    return start < end ? (start, end) : nil
  }
}
