// The minicore: an ELF core file (ET_CORE) as gdb, lldb and elfutils read it.
//
// A debugger must never see a value that was not the program's. So a segment without bytes
// stands only for memory that the file of the same mapping still holds unchanged, or for
// memory never touched (zero by definition). All else that was not read has no segment and no
// entry in NT_FILE.
import CLinux
import Glibc

/// What one thread shows.
struct ThreadImage {
  var id: Int32
  var name: [UInt8]
  var registers: Registers
  var floating: [UInt8]?
  var extended: [UInt8]?
  var signal: Int32 = 0
  var siginfo: [UInt8]?
}

struct ProcessFactsForCore {
  var pid: Int32 = 0
  var parent: Int32 = 0
  var group: Int32 = 0
  var session: Int32 = 0
  var uid: UInt32 = 0
  var gid: UInt32 = 0
  var name: [UInt8] = []
  /// The command as it was typed, without its arguments: those may hold secrets.
  var command: [UInt8] = []
}

/// Memory that was read: sorted ranges, their bytes one after another in `bytes`.
struct CapturedMemory {
  var ranges: [AddressRange] = []
  var bytes: [UInt8] = []
  /// Parts that turned out unreadable.
  var unreadable: [AddressRange] = []
}

struct CoreFile {
  static let noteFile: UInt32 = 0x4649_4C45
  static let noteSiginfo: UInt32 = 0x5349_4749
  /// Our own note, owner `guardian`: thread names, which no other note has. Each entry is a
  /// thread id (Int32) and 16 bytes of name, ended by a zero.
  static let noteThreadNames: UInt32 = 1

  private struct Segment {
    var range: AddressRange
    var flags: UInt32
    /// Offset in the captured bytes; nil: no bytes.
    var offset: Int?
  }

  private var segments: [Segment] = []
  private var files: [(range: AddressRange, offset: UInt64, path: [UInt8])] = []
  private(set) var truncated = false

  // MARK: Memory

  /// - Parameter untouchedIsZero: mappings whose never touched pages read as zero.
  mutating func addMemory(
    map: MemoryMap, captured: CapturedMemory, table: ModuleTable, modified: ModifiedPages
  ) {
    let present = subtract(captured.unreadable, from: captured.ranges)
    var offsets: [Int] = []
    var total = 0
    for range in captured.ranges {
      offsets.append(total)
      total += Int(range.size)
    }
    func offset(of address: UInt64) -> Int? {
      var low = 0
      var high = captured.ranges.count
      while low < high {
        let middle = (low + high) / 2
        if captured.ranges[middle].end > address { high = middle } else { low = middle + 1 }
      }
      guard low < captured.ranges.count, captured.ranges[low].contains(address) else { return nil }
      return offsets[low] + Int(address - captured.ranges[low].start)
    }

    var next = 0  // of `present`
    for (index, mapping) in map.mappings.enumerated() {
      let module = table.moduleOfMapping[index]
      let replaced = module >= 0 && table.modules[module].replaced
      let isBSS = module >= 0 && table.modules[module].bss == index
      let inFile = !replaced && isUnchangedFile(mapping, module: module, modified: modified)
      let knownZero = isBSS && modified.isKnown(mapping.range)
      let flags: UInt32 =
        (mapping.readable ? 4 : 0) | (mapping.writable ? 2 : 0) | (mapping.executable ? 1 : 0)
      let changed = inFile || knownZero ? modified.modified(in: mapping.range) : []
      var atChanged = 0
      var cursor = mapping.start
      while next < present.count, present[next].end <= cursor { next += 1 }
      var look = next
      while cursor < mapping.end {
        if look < present.count, present[look].end <= cursor {
          look += 1
          continue
        }
        if look < present.count, present[look].start <= cursor {
          let end = min(present[look].end, mapping.end)
          add(
            Segment(
              range: AddressRange(start: cursor, end: end), flags: flags,
              offset: offset(of: cursor)), mapping: mapping.isPrivateFile ? mapping : nil)
          cursor = end
          continue
        }
        var end = mapping.end
        if look < present.count { end = min(end, present[look].start) }
        // Not read: of the file, of nothing, or unknown.
        while atChanged < changed.count, changed[atChanged].end <= cursor { atChanged += 1 }
        if atChanged < changed.count, changed[atChanged].start <= cursor {
          cursor = min(end, changed[atChanged].end)
          continue
        }
        if atChanged < changed.count { end = min(end, changed[atChanged].start) }
        if inFile || knownZero {
          add(
            Segment(range: AddressRange(start: cursor, end: end), flags: flags, offset: nil),
            mapping: inFile ? mapping : nil)
        }
        cursor = end
      }
    }
  }

  private func isUnchangedFile(
    _ mapping: Mapping, module: Int, modified: ModifiedPages
  ) -> Bool {
    guard mapping.isNamedFile, mapping.readable, !mapping.path.hasSuffix(" (deleted)") else {
      return false
    }
    if mapping.shared { return !mapping.writable }
    if modified.isKnown(mapping.range) { return true }
    // Not looked at: code is taken for unchanged, nothing else.
    return module >= 0 && mapping.executable && !mapping.writable
  }

  private mutating func add(_ segment: Segment, mapping: Mapping?) {
    guard segments.count < CaptureLimits.segments else {
      truncated = true
      return
    }
    segments.append(segment)
    guard let mapping else { return }
    let offset = mapping.offset &+ (segment.range.start - mapping.start)
    if let last = files.last, last.range.end == segment.range.start,
      last.offset &+ last.range.size == offset, last.path == mapping.path,
      // A mapping's border stays one: elfutils looks for a module's exact end.
      segment.range.start != mapping.start
    {
      files[files.count - 1].range.end = segment.range.end
    } else {
      files.append((segment.range, offset, mapping.path))
    }
  }

  private func subtract(
    _ holes: [AddressRange], from ranges: [AddressRange]
  ) -> [AddressRange] {
    if holes.isEmpty { return ranges }
    let holes = merged(holes)
    var result: [AddressRange] = []
    for range in ranges {
      var start = range.start
      for hole in ModifiedPages.parts(of: holes, in: range) {
        if hole.start > start { result.append(AddressRange(start: start, end: hole.start)) }
        start = hole.end
      }
      if start < range.end { result.append(AddressRange(start: start, end: range.end)) }
    }
    return result
  }

  // MARK: Notes

  private static func appendNote(
    _ type: UInt32, owner: StaticString = "CORE", _ content: [UInt8], to notes: inout [UInt8]
  ) {
    notes.append(number: UInt32(owner.utf8CodeUnitCount + 1))
    notes.append(number: UInt32(content.count))
    notes.append(number: type)
    unsafe notes.append(
      contentsOf: UnsafeBufferPointer(start: owner.utf8Start, count: owner.utf8CodeUnitCount))
    notes.append(0)
    notes.pad(to: 4)
    notes += content
    notes.pad(to: 4)
  }

  private func notes(
    threads: [ThreadImage], process: ProcessFactsForCore, auxiliary: [UInt8]
  ) -> [UInt8] {
    var notes: [UInt8] = []
    notes.reserveCapacity(threads.count * 4096 + 16_384)
    for (index, thread) in threads.enumerated() {
      var status = [UInt8](repeating: 0, count: LINUX_PRSTATUS_SIZE)
      status.store(thread.signal, at: 0)
      status.store(Int16(truncatingIfNeeded: thread.signal), at: LINUX_PRSTATUS_SIGNAL)
      status.store(thread.id, at: LINUX_PRSTATUS_PID)
      status.store(process.parent, at: LINUX_PRSTATUS_PID + 4)
      status.store(process.group, at: LINUX_PRSTATUS_PID + 8)
      status.store(process.session, at: LINUX_PRSTATUS_PID + 12)
      for (number, word) in thread.registers.words.enumerated() {
        status.store(word, at: LINUX_PRSTATUS_REGISTERS + number * 8)
      }
      if thread.floating != nil { status.store(Int32(1), at: LINUX_PRSTATUS_FPVALID) }
      Self.appendNote(1, status, to: &notes)
      if index == 0 {
        Self.appendNote(3, processInfo(process), to: &notes)
        if let siginfo = thread.siginfo {
          Self.appendNote(Self.noteSiginfo, siginfo, to: &notes)
        }
        if !auxiliary.isEmpty { Self.appendNote(6, auxiliary, to: &notes) }
        Self.appendNote(Self.noteFile, fileNote(), to: &notes)
      }
      if let floating = thread.floating { Self.appendNote(2, floating, to: &notes) }
      if let extended = thread.extended {
        Self.appendNote(0x202, owner: "LINUX", extended, to: &notes)
      }
    }
    var names: [UInt8] = []
    for thread in threads {
      names.append(number: thread.id)
      names += thread.name.prefix(15)
      names += repeatElement(0, count: 16 - min(15, thread.name.count))
    }
    Self.appendNote(Self.noteThreadNames, owner: "guardian", names, to: &notes)
    return notes
  }

  private func processInfo(_ process: ProcessFactsForCore) -> [UInt8] {
    var info = [UInt8](repeating: 0, count: LINUX_PRPSINFO_SIZE)
    info[LINUX_PRPSINFO_STATE_NAME] = UInt8(ascii: "R")
    info.store(process.uid, at: LINUX_PRPSINFO_UID)
    info.store(process.gid, at: LINUX_PRPSINFO_GID)
    info.store(process.pid, at: LINUX_PRPSINFO_PID)
    info.store(process.parent, at: LINUX_PRPSINFO_PID + 4)
    info.store(process.group, at: LINUX_PRPSINFO_PID + 8)
    info.store(process.session, at: LINUX_PRPSINFO_PID + 12)
    info.store(process.name, at: LINUX_PRPSINFO_NAME, room: 15)
    info.store(process.command, at: LINUX_PRPSINFO_ARGUMENTS, room: 79)
    return info
  }

  private func fileNote() -> [UInt8] {
    var note: [UInt8] = []
    note.append(number: UInt64(files.count))
    note.append(number: pageSize)
    for file in files {
      note.append(number: file.range.start)
      note.append(number: file.range.end)
      note.append(number: file.offset / pageSize)
    }
    for file in files {
      note += file.path
      note.append(0)
    }
    return note
  }

  // MARK: Writing

  /// - Returns: the file's size, or nil with errno set.
  func write(
    to descriptor: Int32, threads: [ThreadImage], process: ProcessFactsForCore,
    auxiliary: [UInt8], memory: [UInt8]
  ) -> UInt64? {
    let notes = notes(threads: threads, process: process, auxiliary: auxiliary)
    let headerCount = segments.count + 1
    let notesOffset = 64 + headerCount * 56
    let dataOffset = Int(UInt64(notesOffset + notes.count).pageCeiling)
    var head: [UInt8] = []
    head.reserveCapacity(dataOffset)
    head += [0x7F, 0x45, 0x4C, 0x46, 2, 1, 1, 0] + [UInt8](repeating: 0, count: 8)
    head.append(number: UInt16(4))  // ET_CORE
    head.append(number: Registers.machine)
    head.append(number: UInt32(1))
    head.append(number: UInt64(0))
    head.append(number: UInt64(64))
    head.append(number: UInt64(0))
    head.append(number: UInt32(0))
    for half: UInt16 in [64, 56, UInt16(headerCount), 0, 0, 0] { head.append(number: half) }
    func header(
      _ type: UInt32, _ flags: UInt32, offset: Int, address: UInt64, fileSize: UInt64,
      memorySize: UInt64, alignment: UInt64
    ) {
      head.append(number: type)
      head.append(number: flags)
      for word in [UInt64(offset), address, 0, fileSize, memorySize, alignment] {
        head.append(number: word)
      }
    }
    header(
      4, 0, offset: notesOffset, address: 0, fileSize: UInt64(notes.count), memorySize: 0,
      alignment: 4)
    // elfutils reads on into the next segment while file and memory offsets both go on, and
    // takes the end of an empty one for the end of what it has: so an empty segment lies where
    // the one before it ended.
    var end = 0
    for segment in segments {
      let offset = segment.offset ?? end
      let size = segment.offset == nil ? 0 : segment.range.size
      header(
        1, segment.flags, offset: dataOffset + offset, address: segment.range.start,
        fileSize: size, memorySize: segment.range.size, alignment: pageSize)
      end = offset + Int(size)
    }
    head += notes
    head += repeatElement(0, count: dataOffset - head.count)
    guard Self.writeAll(head, to: descriptor, at: 0),
      Self.writeAll(memory, to: descriptor, at: dataOffset)
    else { return nil }
    return UInt64(dataOffset + memory.count)
  }

  private static func writeAll(_ bytes: [UInt8], to descriptor: Int32, at offset: Int) -> Bool {
    var done = 0
    while done < bytes.count {
      let count = unsafe bytes.withUnsafeBytes {
        unsafe pwrite(
          descriptor, $0.baseAddress! + done, bytes.count - done, off_t(offset + done))
      }
      if count == -1 && errno == EINTR { continue }
      if count <= 0 { return false }
      done += count
    }
    return true
  }
}
