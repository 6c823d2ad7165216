// Which memory goes into the minicore: the little that a debugger needs to show every thread
// with its locals, chosen while the program is held.
import CLinux
import Glibc

struct SnapshotPlan {
  private let map: MemoryMap
  private let forbidden: Set<Int>
  private var wanted: [AddressRange] = []
  private(set) var bytes: UInt64 = 0
  private(set) var defects: [String] = []

  /// - Parameter ring: the shared file the handler writes: never shown.
  init(map: MemoryMap, ring: FileIdentity?) {
    self.map = map
    var forbidden: Set<Int> = []
    for (index, mapping) in map.mappings.enumerated() {
      // Reading device memory may block or do something; [vvar] cannot be read at all.
      let device = mapping.path.hasPrefix("/dev/") && !mapping.path.hasPrefix("/dev/zero")
      if FileIdentity(mapping) == ring && mapping.shared || device || mapping.path.hasPrefix("[vv")
        || mapping.path.hasPrefix("[vsyscall")
      {
        forbidden.insert(index)
      }
    }
    self.forbidden = forbidden
  }

  /// Pages to read, sorted and joined.
  func ranges() -> [AddressRange] {
    var left = CaptureLimits.coreBytes
    var result: [AddressRange] = []
    for range in merged(wanted) {
      guard left > 0 else { break }
      let part = AddressRange(start: range.start, end: range.start + min(range.size, left))
      result.append(part)
      left -= part.size
    }
    return result
  }

  /// Adds the readable pages around `range`, whatever mapping they lie in.
  mutating func add(_ range: AddressRange) {
    guard !range.isEmpty else { return }
    var index = map.firstIndex(endingAbove: range.start)
    let pages = range.pages
    while index < map.mappings.count, map.mappings[index].start < pages.end {
      let mapping = map.mappings[index]
      let part = pages.clipped(to: mapping.range)
      if mapping.readable, !forbidden.contains(index), !part.isEmpty {
        wanted.append(part)
        bytes += part.size
      }
      index += 1
    }
  }

  /// Around a pointer, inside its own mapping only.
  mutating func addWindow(around address: UInt64, before: UInt64, after: UInt64) {
    guard let index = map.index(containing: address) else { return }
    let window = AddressRange(
      start: address.saturatingSubtracting(before), end: address.saturatingAdding(after))
    add(window.clipped(to: map.mappings[index].range))
  }

  // MARK: Stacks

  /// The part of a thread's stack that is in use. `end`: where it is known to begin (thread
  /// block or the main thread's arguments).
  func stack(sp: UInt64, end: UInt64?) -> AddressRange? {
    let floor = sp.saturatingSubtracting(CaptureLimits.redZone)
    var index = map.firstIndex(endingAbove: floor)
    while index < map.mappings.count {
      let mapping = map.mappings[index]
      if mapping.start > sp.saturatingAdding(CaptureLimits.stackGuard) { return nil }
      if mapping.writable, mapping.readable {
        let low = max(floor, mapping.start).pageFloor
        var high = mapping.end
        if let end, end > low, end < high { high = end.pageCeiling }
        return AddressRange(start: low, end: min(high, mapping.end))
      }
      index += 1
    }
    return nil
  }

  mutating func addStack(_ stack: AddressRange, near: UInt64, oldest: UInt64) {
    if stack.size <= near + oldest {
      add(stack)
    } else {
      add(AddressRange(start: stack.start, end: stack.start + near))
      add(AddressRange(start: stack.end - oldest, end: stack.end))
    }
  }

  /// Objects on the heap that the crashing thread's top frames point to. Memory of files that
  /// nobody changed is in the files.
  mutating func addTargets(of stackTop: [UInt8], stack: AddressRange?) {
    var pages: Set<UInt64> = []
    var at = 0
    while let value: UInt64 = stackTop.number(at: at), pages.count < CaptureLimits.pointerPages {
      at += 8
      if value < 4096 || pages.contains(value.pageFloor) { continue }
      if let stack, stack.contains(value) { continue }
      guard let mapping = map.mapping(containing: value), mapping.readable, mapping.writable
      else { continue }
      pages.insert(value.pageFloor)
      addWindow(around: value, before: 0, after: CaptureLimits.pointerWindowAfter)
    }
  }

  // MARK: Modules

  /// Headers, dynamic section and notes of every module; the changed variables of each, the
  /// executable's first, then in order; replaced ones whole, as far as the limits go.
  mutating func addModules(
    _ table: ModuleTable, modified: ModifiedPages, executable: Int?
  ) {
    var variables = CaptureLimits.variables
    var whole = CaptureLimits.replacedModules
    var order = Array(table.modules.indices)
    if let executable {
      order.removeAll { $0 == executable }
      order.insert(executable, at: 0)
    }
    var shortened: [String] = []
    for index in order {
      let module = table.modules[index]
      if let first = module.mappings.first {
        let start = map.mappings[first].start
        add(AddressRange(start: start, end: start.saturatingAdding(pageSize)))
      }
      for note in module.notes { add(note) }
      if let dynamic = module.dynamic { add(dynamic) }
      var cap =
        min(
          variables,
          index == executable
            ? CaptureLimits.executableVariables : CaptureLimits.moduleVariables)
      for number in module.mappings + (module.bss.map { [$0] } ?? []) {
        for part in modified.modified(in: map.mappings[number].range) {
          let size = min(part.size, cap)
          if size < part.size {
            let path = shown(map.mappings[module.mappings[0]].path)
            let name = path.split(separator: "/").last.map(String.init) ?? path
            if !shortened.contains(name) { shortened.append(name) }
          }
          if size == 0 { continue }
          add(AddressRange(start: part.start, end: part.start + size))
          cap -= size
          variables -= size
        }
      }
      if module.replaced { whole -= addWhole(module, budget: whole) }
    }
    if !shortened.isEmpty {
      // One line, and its way to guardian is short.
      let named = shortened.prefix(4).map { String($0.prefix(40)) }.joined(separator: ", ")
      let more = shortened.count > 4 ? " and \(shortened.count - 4) more" : ""
      defects.append(
        "the snapshot holds only a part of the changed global variables of \(named)\(more): "
          + "'guardianctl debug' cannot print the others")
    }
  }

  /// The read-only segments of a binary that the disk no longer has under this path; those
  /// that unwinding needs (headers, symbols, exception table) before the code.
  private mutating func addWhole(_ module: LoadedModule, budget: UInt64) -> UInt64 {
    var left = min(budget, CaptureLimits.replacedModule)
    let start = left
    let readOnly = module.mappings.filter {
      map.mappings[$0].readable && !map.mappings[$0].writable
    }
    let order =
      readOnly.filter { !map.mappings[$0].executable }
      + readOnly.filter { map.mappings[$0].executable }
    for index in order {
      let range = map.mappings[index].range
      if range.size > left {
        defects.append("\(shown(map.mappings[index].path)) was replaced and is too big to keep")
        continue
      }
      add(range)
      left -= range.size
    }
    return start - left
  }
}

/// A path of the program's as text.
func shown(_ path: [UInt8]) -> String {
  var plain = path
  if plain.hasSuffix(" (deleted)") { plain.removeLast(10) }
  return String(decoding: plain, as: UTF8.self)
}
