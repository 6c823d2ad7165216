// The core as bytes: segments, threads, mapped files, memory. Copied in bounded pieces and read
// without pointers; nothing in it is believed. Knows nothing of files on disk or of DWARF.
import Glibc
import Kernel

/// A source of bytes with holes: a file by offset, or memory by address.
protocol ByteSource {
  /// All of the range, or nil.
  func bytes(_ start: UInt64, _ count: Int) -> [UInt8]?
}

/// A file behind a descriptor that somebody else closes.
struct FileBytes: ByteSource {
  let descriptor: Int32

  /// In bytes; 0 if the file does not tell.
  var size: UInt64 {
    var status = stat()
    return unsafe fstat(descriptor, &status) == 0 ? UInt64(max(status.st_size, 0)) : 0
  }

  func bytes(_ start: UInt64, _ count: Int) -> [UInt8]? {
    let found = some(start, count)
    return found.count == count ? found : nil
  }

  /// As much of the range as there is.
  func some(_ start: UInt64, _ count: Int) -> [UInt8] {
    guard count > 0, start <= UInt64(Int64.max) - UInt64(count) else { return [] }
    return unsafe [UInt8](unsafeUninitializedCapacity: count) { buffer, filled in
      while filled < count {
        let got = unsafe pread(
          descriptor, buffer.baseAddress! + filled, count - filled, off_t(start) + off_t(filled))
        if got < 0 && errno == EINTR { continue }
        if got <= 0 { break }
        filled += got
      }
    }
  }
}

extension [UInt8] {
  /// A little-endian number; nil past the end.
  func number(_ offset: Int, _ width: Int) -> UInt64? {
    guard offset >= 0, offset <= count - width else { return nil }
    var value: UInt64 = 0
    for index in (0..<width).reversed() { value = value << 8 | UInt64(self[offset + index]) }
    return value
  }
}

/// Processors whose cores are understood.
enum Machine: UInt64 {
  case x86_64 = 62
  case aarch64 = 183

  /// Of `elf_gregset_t` in order of the core; the numbers are DWARF's (-1: none).
  var registers: [(name: String, dwarf: Int)] {
    switch self {
    case .x86_64:
      [
        ("r15", 15), ("r14", 14), ("r13", 13), ("r12", 12), ("rbp", 6), ("rbx", 3), ("r11", 11),
        ("r10", 10), ("r9", 9), ("r8", 8), ("rax", 0), ("rcx", 2), ("rdx", 1), ("rsi", 4),
        ("rdi", 5), ("orig_rax", -1), ("rip", 16), ("cs", -1), ("eflags", -1), ("rsp", 7),
        ("ss", -1), ("fs_base", -1), ("gs_base", -1),
      ]
    case .aarch64:
      (0...30).map { ("x\($0)", $0) } + [("sp", 31), ("pc", -1), ("pstate", -1)]
    }
  }

  /// Numbers of `registers`.
  var pcIndex: Int { self == .x86_64 ? 16 : 32 }
  /// DWARF numbers.
  var stackPointer: Int { self == .x86_64 ? 7 : 31 }
  var framePointer: Int { self == .x86_64 ? 6 : 29 }
  /// How many registers DWARF numbers from 0.
  var dwarfCount: Int { self == .x86_64 ? 17 : 32 }
}

final class CoreFile: ByteSource {
  struct Segment {
    let start: UInt64
    /// Of the mapping; memory past `stored` is not in the core.
    let end: UInt64
    let stored: UInt64
    let offset: UInt64
    let executable: Bool
  }

  struct ThreadState {
    let id: Int32
    /// In the order of `Machine.registers`.
    let values: [UInt64]
  }

  /// A part of a file in memory (NT_FILE).
  struct Mapping {
    let start: UInt64
    let end: UInt64
    let offset: UInt64
    let path: String
  }

  let file: FileBytes
  let machine: Machine
  /// By address, without overlap.
  private(set) var segments: [Segment] = []
  private(set) var threads: [ThreadState] = []
  /// By address, without overlap.
  private(set) var mappings: [Mapping] = []
  private(set) var auxiliary: [UInt64: UInt64] = [:]
  /// Of a minicore; other cores have none.
  private(set) var threadNames: [Int32: String] = [:]
  /// Memory without a segment may yet have been there; the kernel's cores name all.
  private(set) var isPartial = false
  /// Where the first thread's fault was, if it died of one.
  private(set) var faultAddress: UInt64?
  private(set) var defects: [String] = []
  let process: Int32

  private static let mostSegments: UInt64 = 262_144
  /// A thread's notes are up to 16 KiB (AMX state): enough for thousands of threads.
  private static let mostNoteBytes: UInt64 = 128 << 20
  private static let windowBytes: UInt64 = 16_384
  private var window: (offset: UInt64, bytes: [UInt8]) = (UInt64.max, [])
  private var lastSegment = 0

  init(descriptor: Int32) throws(SymbolicationError) {
    file = FileBytes(descriptor: descriptor)
    guard let header = file.bytes(0, 64) else {
      throw .notACore("it is shorter than an ELF header")
    }
    guard header.starts(with: [0x7f, 0x45, 0x4c, 0x46, 2, 1]), header.number(16, 2) == 4 else {
      throw .notACore("it is no 64-bit little-endian ELF core")
    }
    guard let machine = Machine(rawValue: header.number(18, 2)!) else {
      throw .notACore("its processor (ELF machine \(header.number(18, 2)!)) is not known")
    }
    self.machine = machine
    let tableOffset = header.number(32, 8)!
    var count = header.number(56, 2)!
    if count == 0xffff, let sections = header.number(40, 8), sections > 0,
      let first = file.bytes(sections, 64)
    {
      // PN_XNUM: the number did not fit and stands in the first section header.
      count = first.number(44, 4)!
    }
    guard header.number(54, 2) == 56, count > 0 else {
      throw .notACore("it has no program headers")
    }
    var found: [String] = []
    if count > CoreFile.mostSegments {
      found.append("the core has \(count) segments; only \(CoreFile.mostSegments) were read")
      count = CoreFile.mostSegments
    }
    let table = file.some(tableOffset, Int(count) * 56)
    if table.count < Int(count) * 56 { found.append("the core's program headers are cut off") }

    var loads: [Segment] = []
    var notes: [(UInt64, UInt64)] = []
    for entry in stride(from: 0, to: table.count - 55, by: 56) {
      let kind = table.number(entry, 4)!
      let offset = table.number(entry + 8, 8)!
      let stored = table.number(entry + 32, 8)!
      if kind == 4 {
        notes.append((offset, stored))
      } else if kind == 1 {
        let start = table.number(entry + 16, 8)!
        let (end, overflow) = start.addingReportingOverflow(table.number(entry + 40, 8)!)
        if overflow || end == start { continue }
        loads.append(
          Segment(
            start: start, end: end, stored: min(stored, end - start), offset: offset,
            executable: table.number(entry + 4, 4)! & 1 != 0))
      }
    }
    let size = file.size
    let incomplete = loads.count { $0.stored > size || $0.offset > size - $0.stored }
    if incomplete > 0 {
      found.append(
        "the core is cut off: \(incomplete) of its \(loads.count) segments are incomplete")
    }
    loads.sort { $0.start < $1.start }
    var last: UInt64 = 0
    for load in loads {
      if load.start < last {
        found.append("segments of the core overlap")
        continue
      }
      last = load.end
      segments.append(load)
    }

    var states: [ThreadState] = []
    var files: [Mapping] = []
    var vector: [UInt64: UInt64] = [:]
    var names: [Int32: String] = [:]
    var partial = false
    var fault: UInt64?
    var pid: Int32 = 0
    var budget = CoreFile.mostNoteBytes
    for (offset, size) in notes {
      let notes = file.some(offset, Int(min(size, budget)))
      if UInt64(notes.count) < size { found.append("the core's notes are cut off") }
      budget -= UInt64(notes.count)
      var at = 0
      while let nameSize = notes.number(at, 4), let size = notes.number(at + 4, 4),
        let kind = notes.number(at + 8, 4)
      {
        let start = at + 12 + Int(nameSize + 3) & ~3
        let end = start + Int(size)
        if end > notes.count { break }
        let owner = notes[(at + 12)..<min(start, at + 12 + Int(nameSize))]
        if kind == 1, owner.elementsEqual("guardian\0".utf8) {
          partial = true
          names = CoreFile.names(notes[start..<end])
        } else if owner.starts(with: "CORE".utf8) {
          let body = Array(notes[start..<end])
          switch kind {
          case 1:
            if let state = CoreFile.thread(body, machine) { states.append(state) }
          case 3:
            pid = Int32(truncatingIfNeeded: body.number(24, 4) ?? 0)
          case 6:
            var entry = 0
            while let key = body.number(entry, 8), let value = body.number(entry + 8, 8), key != 0 {
              vector[key] = value
              entry += 16
            }
          case 0x5349_4749:
            // SIGILL, SIGBUS, SIGFPE, SIGSEGV, raised by the processor: si_addr means something.
            if fault == nil, states.count <= 1, let signal = body.number(0, 4),
              [4, 7, 8, 11].contains(signal), let code = body.number(8, 4), code > 0, code < 0x80
            {
              fault = body.number(16, 8)
            }
          case 0x4649_4c45:
            files = CoreFile.mappedFiles(body, &found)
          default: break
          }
        }
        at = (end + 3) & ~3
      }
    }
    if states.isEmpty { found.append("the core has no threads") }
    threads = states
    mappings = files
    auxiliary = vector
    threadNames = names
    isPartial = partial
    faultAddress = fault
    process = pid
    defects = found
  }

  private static func thread(_ status: [UInt8], _ machine: Machine) -> ThreadState? {
    guard let id = status.number(32, 4) else { return nil }
    var values: [UInt64] = []
    for index in machine.registers.indices {
      guard let value = status.number(112 + index * 8, 8) else { return nil }
      values.append(value)
    }
    return ThreadState(id: Int32(truncatingIfNeeded: id), values: values)
  }

  /// guardian's own note: a thread id and 16 bytes of name, again and again.
  private static func names(_ note: ArraySlice<UInt8>) -> [Int32: String] {
    let bytes = Array(note)
    var found: [Int32: String] = [:]
    for entry in stride(from: 0, through: bytes.count - 20, by: 20) {
      let id = Int32(truncatingIfNeeded: bytes.number(entry, 4)!)
      let name = String(
        decoding: bytes[(entry + 4)..<(entry + 20)].prefix { $0 != 0 }, as: UTF8.self)
      if !name.isEmpty { found[id] = HostileText.shown(name) }
    }
    return found
  }

  private static func mappedFiles(_ note: [UInt8], _ defects: inout [String]) -> [Mapping] {
    guard let count = note.number(0, 8), let page = note.number(8, 8),
      count <= UInt64(note.count / 24)
    else { return [] }
    var name = 16 + Int(count) * 24
    var found: [Mapping] = []
    for index in 0..<Int(count) {
      guard name < note.count, let end = note[name...].firstIndex(of: 0) else {
        defects.append("the core's list of mapped files is cut off")
        break
      }
      let path = String(decoding: note[name..<end], as: UTF8.self)
      name = end + 1
      let entry = 16 + index * 24
      let start = note.number(entry, 8)!
      let stop = note.number(entry + 8, 8)!
      let (offset, overflow) = note.number(entry + 16, 8)!.multipliedReportingOverflow(by: page)
      if overflow || stop <= start { continue }
      found.append(Mapping(start: start, end: stop, offset: offset, path: path))
    }
    found.sort { $0.start < $1.start }
    var last: UInt64 = 0
    return found.filter { mapping in
      if mapping.start < last {
        defects.append("mapped files of the core overlap")
        return false
      }
      last = mapping.end
      return true
    }
  }

  // MARK: Memory

  /// The segment that holds an address.
  func segment(_ address: UInt64) -> Segment? {
    if lastSegment < segments.count, segments[lastSegment].start <= address,
      address < segments[lastSegment].end
    {
      return segments[lastSegment]
    }
    let index = segments.firstSorted { $0.start > address } - 1
    guard index >= 0, address < segments[index].end else { return nil }
    lastSegment = index
    return segments[index]
  }

  func isExecutable(_ address: UInt64) -> Bool { segment(address)?.executable ?? false }

  /// May a return address be this? A minicore says nothing of code that was made at run time and
  /// did not lie near a register.
  func mayBeCode(_ address: UInt64) -> Bool {
    if let segment = segment(address) { return segment.executable }
    return isPartial && address >= 65_536 && address < 1 << 56
  }

  /// Memory of the program: nil unless all of it is in the core.
  func bytes(_ address: UInt64, _ count: Int) -> [UInt8]? {
    var result: [UInt8] = []
    var at = address
    while result.count < count {
      guard let segment = segment(at), at - segment.start < segment.stored else { return nil }
      let within = at - segment.start
      let piece = Int(min(segment.stored - within, UInt64(count - result.count)))
      guard let part = file.bytes(segment.offset &+ within, piece) else { return nil }
      if part.count == count { return part }
      result += part
      let (next, overflow) = at.addingReportingOverflow(UInt64(piece))
      if overflow { return nil }
      at = next
    }
    return result
  }

  /// Eight bytes of the program's memory; stacks are read word by word, upwards.
  func word(_ address: UInt64) -> UInt64? {
    guard let segment = segment(address) else { return nil }
    let within = address - segment.start
    guard within < segment.stored, segment.stored - within >= 8 else {
      return bytes(address, 8)?.number(0, 8)
    }
    let (offset, overflow) = segment.offset.addingReportingOverflow(within)
    if overflow { return nil }
    if offset < window.offset || offset - window.offset > CoreFile.windowBytes - 8 {
      window = (offset, file.some(offset, Int(CoreFile.windowBytes)))
    }
    return window.bytes.number(Int(offset - window.offset), 8)
  }

  /// The first address at or above `address` whose memory is in the core.
  func nextStored(_ address: UInt64) -> Segment? {
    let index = segments.firstSorted { $0.end > address }
    return segments[index...].first { $0.stored > 0 }
  }
}

extension Array {
  /// Index of the first element for which `belongs` holds, when it holds for all after it too.
  func firstSorted(_ belongs: (Element) -> Bool) -> Int {
    var low = 0
    var high = count
    while low < high {
      let middle = (low + high) / 2
      if belongs(self[middle]) { high = middle } else { low = middle + 1 }
    }
    return low
  }
}
