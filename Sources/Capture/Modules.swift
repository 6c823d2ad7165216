// The ELF files the program runs: which mappings are theirs, which of their pages were
// modified, which of them can still be opened by their path, and the dynamic linker's list.
import CLinux
import Glibc
import Kernel

struct LoadedModule {
  /// Indexes of its mappings in the memory map; they are consecutive but for holes.
  var mappings: [Int]
  /// The anonymous mapping that continues its last one: .bss.
  var bss: Int?
  /// What to add to the file's own addresses.
  var bias: UInt64
  var dynamic: AddressRange?
  var notes: [AddressRange]
  var exceptionTable: AddressRange?
  /// Its path, as opened here, is not this file: each deploy does that.
  var replaced = false
  /// An open descriptor of the mapped file, if replaced and it could be had.
  var descriptor: Int32?
}

struct ModuleTable {
  private(set) var modules: [LoadedModule] = []
  private(set) var truncated = false
  /// Module of each mapping, or -1.
  private(set) var moduleOfMapping: [Int]

  init(map: MemoryMap, memory: ProcessMemory) {
    moduleOfMapping = Array(repeating: -1, count: map.mappings.count)
    // First mappings of files: there the ELF header lies.
    var candidates: [Int] = []
    for (index, mapping) in map.mappings.enumerated()
    where mapping.isPrivateFile && mapping.offset == 0 && mapping.readable {
      if candidates.count == CaptureLimits.modules {
        truncated = true
        break
      }
      candidates.append(index)
    }
    memory.prefetch(candidates.map { map.mappings[$0].start })
    for first in candidates where moduleOfMapping[first] == -1 {
      guard let header = memory.bytes(at: map.mappings[first].start, count: Int(pageSize)),
        var module = Self.parse(header, at: map.mappings[first])
      else { continue }
      var last = first
      module.mappings.append(first)
      var index = first + 1
      while index < map.mappings.count {
        let mapping = map.mappings[index]
        if mapping.isPrivateFile, mapping.inode == map.mappings[first].inode,
          mapping.device == map.mappings[first].device, mapping.offset != 0 || !mapping.readable
        {
          module.mappings.append(index)
          last = index
        } else if mapping.start >= map.mappings[last].end, mapping.isAnonymous, !mapping.readable {
          // The loader's hole between two segments.
        } else {
          break
        }
        index += 1
      }
      if last + 1 < map.mappings.count {
        let next = map.mappings[last + 1]
        if next.isAnonymous, next.path.isEmpty || next.path.hasPrefix("[anon"), next.writable,
          next.start == map.mappings[last].end
        {
          module.bss = last + 1
        }
      }
      for index in module.mappings { moduleOfMapping[index] = modules.count }
      if let bss = module.bss { moduleOfMapping[bss] = modules.count }
      modules.append(module)
    }
  }

  /// A module from its file's first page; nil if that is no ELF file of this machine.
  private static func parse(_ page: [UInt8], at mapping: Mapping) -> LoadedModule? {
    guard page.hasPrefix("\u{7F}ELF"), page[4] == 2,
      page.number(at: 18, as: UInt16.self) == Registers.machine,
      let tableOffset = page.number(at: 32, as: UInt64.self),
      let entrySize = page.number(at: 54, as: UInt16.self), entrySize == 56,
      let count = page.number(at: 56, as: UInt16.self), tableOffset < pageSize
    else { return nil }
    var bias: UInt64?
    var headers: [(type: UInt32, address: UInt64, size: UInt64)] = []
    for index in 0..<Int(count) {
      let at = Int(tableOffset) + index * 56
      guard let type = page.number(at: at, as: UInt32.self),
        let address = page.number(at: at + 16, as: UInt64.self),
        let size = page.number(at: at + 32, as: UInt64.self)
      else { break }
      if type == 1, bias == nil { bias = mapping.start &- address.pageFloor }
      headers.append((type, address, size))
    }
    guard let bias else { return nil }
    var module = LoadedModule(mappings: [], bias: bias, notes: [])
    for header in headers {
      let start = header.address &+ bias
      let range = AddressRange(
        start: start, end: start.saturatingAdding(min(header.size, 64 << 10)))
      switch header.type {
      case 2: module.dynamic = range
      case 4: module.notes.append(range)
      case 0x6474_E550: module.exceptionTable = range
      default: break
      }
    }
    return module
  }

  /// Finds out which modules' files are no longer found under their path. `open`: the
  /// descriptors of those are kept, so that their symbols can still be read after the end.
  mutating func findReplaced(pid: Int32, map: MemoryMap, memory: ProcessMemory) {
    var descriptors = 0
    let executable = linkStat("/proc/\(pid)/exe")
    for index in modules.indices {
      guard let first = modules[index].mappings.first else { continue }
      let mapping = map.mappings[first]
      guard Self.isReplaced(mapping, memory: memory) else { continue }
      modules[index].replaced = true
      guard descriptors < CaptureSummaryLimits.descriptors else { continue }
      let range =
        String(mapping.start, radix: 16) + "-" + String(mapping.end, radix: 16)
      // map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE; exe needs only ptrace rights;
      // the program's own root shows files of another mount namespace.
      // Links of the kernel's own: they lead to the file itself.
      var file = Self.openFile(Array("/proc/\(pid)/map_files/\(range)".utf8), follow: true) { _ in
        true
      }
      if file < 0, let executable, executable == FileIdentity(mapping) {
        file = Self.openFile(Array("/proc/\(pid)/exe".utf8), follow: true) { _ in true }
      }
      if file < 0, !mapping.path.hasSuffix(" (deleted)") {
        file = Self.openFile(Array("/proc/\(pid)/root".utf8) + mapping.path) {
          $0 == FileIdentity(mapping)
        }
      }
      if file >= 0 {
        modules[index].descriptor = file
        descriptors += 1
      }
    }
  }

  private static func isReplaced(_ mapping: Mapping, memory: ProcessMemory) -> Bool {
    if mapping.path.hasSuffix(" (deleted)") { return true }
    var isSame = false
    let file = openFile(mapping.path) {
      isSame = $0 == FileIdentity(mapping)
      return !isSame
    }
    if isSame { return false }
    guard file >= 0 else { return true }
    defer { _ = close(file) }
    // overlayfs and btrfs show other device numbers in maps than in stat: the first page
    // (headers and, as linkers lay it out, the build id) then decides.
    guard let inMemory = memory.bytes(at: mapping.start, count: Int(pageSize)) else { return true }
    var inFile = [UInt8](repeating: 0, count: Int(pageSize))
    let count = unsafe inFile.withUnsafeMutableBytes {
      unsafe pread(file, $0.baseAddress, $0.count, 0)
    }
    return count <= 0 || inFile != inMemory
  }

  /// Opens a regular file for reading if `wanted` says so of its identity; else -1. The program
  /// chose the path: what lies there is looked at before it is opened, for opening alone makes a
  /// device act and waits at a FIFO.
  private static func openFile(
    _ path: [UInt8], follow: Bool = false, wanted: (FileIdentity) -> Bool
  ) -> Int32 {
    guard let place = try? Files.look(at: path, follow: follow), let facts = try? place.status(),
      facts.isRegular, wanted(FileIdentity(device: facts.device, inode: facts.inode)),
      let file = try? place.openedForReading()
    else { return -1 }
    return file.release()
  }
}

enum CaptureSummaryLimits { static let descriptors = 16 }

struct FileIdentity: Equatable {
  var device: UInt64
  var inode: UInt64
  init(device: UInt64, inode: UInt64) {
    self.device = device
    self.inode = inode
  }
  init(_ mapping: Mapping) { self.init(device: mapping.device, inode: mapping.inode) }
}

func linkStat(_ path: String) -> FileIdentity? {
  var facts = stat()
  guard unsafe stat(path, &facts) == 0 else { return nil }
  return FileIdentity(device: UInt64(facts.st_dev), inode: UInt64(facts.st_ino))
}

func descriptorIdentity(_ descriptor: Int32) -> FileIdentity? {
  var facts = stat()
  guard unsafe fstat(descriptor, &facts) == 0 else { return nil }
  return FileIdentity(device: UInt64(facts.st_dev), inode: UInt64(facts.st_ino))
}

/// The dynamic linker's own list, which debuggers follow from the executable's DT_DEBUG.
enum LinkMapList {
  /// Memory of r_debug, every link_map and every name. The list may be a circle or point
  /// anywhere: it is followed a bounded number of steps.
  static func ranges(executable dynamic: AddressRange, memory: ProcessMemory) -> [AddressRange] {
    var ranges: [AddressRange] = []
    guard let debug = entry(21, of: dynamic, memory: memory), debug != 0 else { return [] }
    var namespace = debug
    var steps = 0
    for _ in 0..<CaptureLimits.linkNamespaces {
      guard let header = memory.bytes(at: namespace, count: 48) else { break }
      ranges.append(AddressRange(start: namespace, end: namespace.saturatingAdding(48)))
      var map: UInt64 = header.number(at: 8) ?? 0
      while map != 0, steps < CaptureLimits.linkMaps {
        steps += 1
        guard let node = memory.bytes(at: map, count: 40) else { break }
        // The part that debuggers know, and what glibc keeps behind it (thread_db finds the
        // module's thread-local block there).
        ranges.append(AddressRange(start: map, end: map.saturatingAdding(1200)))
        let name: UInt64 = node.number(at: 8) ?? 0
        if let text = memory.text(at: name, limit: 4096) {
          ranges.append(
            AddressRange(start: name, end: name.saturatingAdding(UInt64(text.count) + 1)))
        }
        let dynamic: UInt64 = node.number(at: 16) ?? 0
        if dynamic != 0 {
          ranges.append(AddressRange(start: dynamic, end: dynamic.saturatingAdding(512)))
        }
        map = node.number(at: 24) ?? 0
      }
      // r_version 2 (glibc 2.35): further namespaces, made by dlmopen.
      let version: Int32 = header.number(at: 0) ?? 0
      let next: UInt64 = version >= 2 ? header.number(at: 40) ?? 0 : 0
      if next == 0 || next == debug { break }
      namespace = next
    }
    return ranges
  }

  private static func entry(
    _ tag: UInt64, of dynamic: AddressRange, memory: ProcessMemory
  ) -> UInt64? {
    guard let bytes = memory.bytes(at: dynamic.start, count: Int(min(dynamic.size, 16 << 10)))
    else { return nil }
    var at = 0
    while let found = bytes.number(at: at, as: UInt64.self), found != 0 {
      if found == tag { return bytes.number(at: at + 8) }
      at += 16
    }
    return nil
  }
}
