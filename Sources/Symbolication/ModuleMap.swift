// Which file lay where: groups the core's mapped files into modules and finds, for each, bytes
// that are surely those the program ran: the file at its path, the descriptor of one that was
// replaced, or the program's own memory. A file of another build is never used silently.
import Glibc
import Reports

/// One ELF file in the program's memory.
struct MappedModule {
  enum Source {
    /// Owned: whoever takes the module closes it.
    case file(descriptor: Int32)
    /// Put together from memory.
    case image([UInt8])
    /// Code of another module that was mapped a second time (V8 puts its built-in functions near
    /// the code it generates); added to an address here it gives the one there.
    case copy(distance: UInt64)
    case none
  }

  var path: String
  var buildID: [UInt8]?
  /// Added to the file's addresses.
  var bias: UInt64
  var start: UInt64
  var end: UInt64
  var source: Source
}

struct ModuleMap {
  private let core: CoreFile
  private let replaced: [ReplacedModule]
  private let executable: String?
  private let limits: SymbolicationLimits
  private(set) var modules: [MappedModule] = []
  private(set) var defects: [String] = []
  private var imageBytes = 0

  /// Images from memory, all together: a module's code and unwind tables.
  private static let mostImageBytes = 256 << 20

  init(
    core: CoreFile, replaced: [ReplacedModule], executable: String?, limits: SymbolicationLimits
  ) {
    self.core = core
    self.replaced = replaced
    self.executable = executable
    self.limits = limits
    var groups: [[CoreFile.Mapping]] = []
    for mapping in core.mappings {
      if let last = groups.last?.last, last.path == mapping.path, last.offset <= mapping.offset {
        groups[groups.count - 1].append(mapping)
      } else {
        groups.append([mapping])
      }
    }
    groups = groups.filter { $0.contains { core.isExecutable($0.start) } }
    // Modules that begin with their file's begin first: others may be copies of a part of them.
    for group in groups.filter({ $0[0].offset == 0 }) + groups.filter({ $0[0].offset != 0 }) {
      if modules.count == limits.modules {
        defects.append("more than \(limits.modules) modules: the others were left out")
        break
      }
      add(group)
    }
    addVirtualObject()
    modules.sort { $0.start < $1.start }
    var end: UInt64 = 0
    var kept: [MappedModule] = []
    for module in modules {
      if module.start < end {
        defects.append("'\(module.path)' overlaps another module and was left out")
        if case .file(let descriptor) = module.source { _ = close(descriptor) }
        continue
      }
      end = module.end
      kept.append(module)
    }
    modules = kept
  }

  private mutating func add(_ group: [CoreFile.Mapping]) {
    let first = group[0]
    if first.offset != 0, let copied = copyOfPart(group) {
      modules.append(copied)
      return
    }
    let inMemory =
      first.offset == 0 ? ElfLayout(memory: core, base: first.start) : nil
    var module = MappedModule(
      path: first.path, buildID: inMemory?.buildID, bias: 0, start: first.start,
      end: group.last!.end, source: .none)
    let deleted = " (deleted)"
    if module.path.hasSuffix(deleted) { module.path.removeLast(deleted.utf8.count) }

    var reason = "no file was found"
    for candidate in candidates(group, module.path) {
      switch candidate.open() {
      case .failure(let cause): reason = cause.reason
      case .success(let descriptor):
        if let refused = use(descriptor, for: &module, group, inMemory) {
          _ = close(descriptor)
          reason = refused
        } else {
          return
        }
      }
    }
    if useMemory(for: &module, group, inMemory) {
      defects.append("'\(module.path)': \(reason); its symbols come from the program's memory")
    } else {
      defects.append("'\(module.path)': \(reason); its frames have no names")
    }
    modules.append(module)
  }

  /// A part of a file of which the whole is mapped elsewhere.
  private func copyOfPart(_ group: [CoreFile.Mapping]) -> MappedModule? {
    for original in core.mappings
    where original.path == group[0].path && original.start != group[0].start {
      let inside = group[0].offset &- original.offset
      guard group[0].offset >= original.offset, inside < original.end - original.start,
        let module = modules.first(where: {
          $0.start <= original.start && original.start < $0.end
        })
      else { continue }
      return MappedModule(
        path: module.path, buildID: module.buildID, bias: 0, start: group[0].start,
        end: group[group.count - 1].end,
        source: .copy(distance: original.start &+ inside &- group[0].start))
    }
    return nil
  }

  private struct Refusal: Error { let reason: String }

  private enum Candidate {
    case path(String)
    case borrowed(Int32)

    func open() -> Result<Int32, Refusal> {
      switch self {
      case .borrowed(let number):
        let copy = fcntl(number, F_DUPFD_CLOEXEC, 3)
        return copy < 0
          ? .failure(Refusal(reason: "its descriptor cannot be used")) : .success(copy)
      case .path(let path):
        // Not blocking: a path may have become a FIFO.
        let descriptor = unsafe Glibc.open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
        if descriptor < 0 {
          let cause = errno
          return .failure(
            Refusal(reason: unsafe "cannot be opened (\(String(cString: strerror(cause))))"))
        }
        var status = stat()
        guard unsafe fstat(descriptor, &status) == 0, status.st_mode & S_IFMT == S_IFREG else {
          _ = close(descriptor)
          return .failure(Refusal(reason: "is no regular file"))
        }
        return .success(descriptor)
      }
    }
  }

  private func candidates(_ group: [CoreFile.Mapping], _ path: String) -> [Candidate] {
    var found: [Candidate] = replaced.filter { $0.path == path || $0.path == group[0].path }
      .map { .borrowed($0.descriptor) }
    found.append(.path(path))
    if let executable, executable != path, let entry = core.auxiliary[9],
      group.contains(where: { $0.start <= entry && entry < $0.end })
    {
      // In another root or mount namespace the core's path is not ours.
      found.append(.path(executable))
    }
    return found
  }

  /// Takes the file if it is the one that was mapped; else says why not.
  private mutating func use(
    _ descriptor: Int32, for module: inout MappedModule, _ group: [CoreFile.Mapping],
    _ inMemory: ElfLayout?
  ) -> String? {
    let file = FileBytes(descriptor: descriptor)
    guard let layout = ElfLayout(file: file, machine: core.machine) else {
      return "is no ELF file of this processor"
    }
    if let known = module.buildID {
      guard layout.buildID == known else {
        return "the file is of another build (\(layout.buildID.map(hexadecimal) ?? "none"), "
          + "the program ran \(hexadecimal(known)))"
      }
    } else if group[0].path != module.path {
      return "the file was deleted while it ran"
    } else if let inMemory, inMemory.loads != layout.loads {
      return "the file is not the one that was mapped"
    }
    guard let bias = layout.bias(offset: group[0].offset, at: group[0].start),
      let extent = layout.extent(bias: bias), layout.kind == 3 || bias == 0,
      extent.start <= group[0].start, extent.end >= group.last!.start
    else { return "the file does not fit to where it was mapped" }
    module.buildID = layout.buildID
    module.bias = bias
    (module.start, module.end) = extent
    module.source = .file(descriptor: descriptor)
    modules.append(module)
    return nil
  }

  /// Puts the module together from what of its memory is in the core.
  private mutating func useMemory(
    for module: inout MappedModule, _ group: [CoreFile.Mapping], _ layout: ElfLayout?
  ) -> Bool {
    guard let layout, let bias = layout.bias(offset: 0, at: group[0].start),
      let extent = layout.extent(bias: bias), layout.kind == 3 || bias == 0
    else { return false }
    let room = UInt64(ModuleMap.mostImageBytes - imageBytes)
    var image: [UInt8] = []
    // A page of the file may be mapped twice (the end of the code, the begin of the data): the
    // first, read-only one counts.
    var covered: UInt64 = 0
    for mapping in group {
      var at = mapping.start
      if mapping.offset < covered { at += min(covered - mapping.offset, mapping.end - at) }
      while at < mapping.end, let segment = core.nextStored(at), segment.start < mapping.end {
        at = max(at, segment.start)
        let storedEnd = min(segment.start + segment.stored, mapping.end)
        if storedEnd <= at {
          at = segment.end
          continue
        }
        let (offset, overflow) = mapping.offset.addingReportingOverflow(at - mapping.start)
        guard !overflow, offset < room, storedEnd - at <= room - offset,
          let bytes = core.bytes(at, Int(storedEnd - at))
        else { return false }
        if UInt64(image.count) < offset {
          image += repeatElement(0, count: Int(offset) - image.count)
        }
        image.replaceSubrange(
          Int(offset)..<min(image.count, Int(offset) + bytes.count), with: bytes)
        covered = offset + UInt64(bytes.count)
        at = storedEnd
      }
    }
    guard image.count > 4_096 else { return false }
    imageBytes += image.count
    module.bias = bias
    (module.start, module.end) = extent
    module.source = .image(ModuleMap.withoutMissingSections(image))
    return true
  }

  /// The kernel's own shared object: no file, whole in every core.
  private mutating func addVirtualObject() {
    guard let base = core.auxiliary[33], let segment = core.segment(base), segment.start == base,
      let layout = ElfLayout(memory: core, base: base),
      let bias = layout.bias(offset: 0, at: base), let extent = layout.extent(bias: bias),
      segment.stored <= 1 << 20, let bytes = core.bytes(base, Int(segment.stored))
    else { return }
    modules.append(
      MappedModule(
        path: "[vdso]", buildID: layout.buildID, bias: bias, start: extent.start, end: extent.end,
        source: .image(ModuleMap.withoutMissingSections(bytes))))
  }

  /// Section headers lie at a file's end and are rarely mapped: without them libelf uses the
  /// program headers.
  private static func withoutMissingSections(_ bytes: [UInt8]) -> [UInt8] {
    var image = bytes
    guard let offset = image.number(40, 8), let size = image.number(58, 2),
      let count = image.number(60, 2)
    else { return image }
    let end = offset.addingReportingOverflow(size * count)
    if offset == 0 || count == 0 || end.overflow || end.partialValue > UInt64(image.count)
      || !image[Int(offset)..<Int(end.partialValue)].contains(where: { $0 != 0 })
    {
      image.replaceSubrange(40..<48, with: repeatElement(0, count: 8))
      image.replaceSubrange(60..<64, with: repeatElement(0, count: 4))
    }
    return image
  }
}

func hexadecimal(_ bytes: [UInt8]) -> String {
  let digits = Array("0123456789abcdef".utf8)
  return String(
    decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
}

func hexadecimal(_ address: UInt64) -> String { "0x" + String(address, radix: 16) }
