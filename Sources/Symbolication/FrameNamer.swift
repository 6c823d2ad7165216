// From raw frames to the report's: module, function, file, line, and the inline frames in between.
import Reports

struct FrameNamer {
  private let session: Session
  private let deadline: Deadline
  private var demangler = Demangler()
  /// By the address that was looked up; threads wait in the same places.
  private var known: [UInt64: [Named]] = [:]

  private struct Named {
    var function: String?
    var rawFunction: String?
    var start: UInt64?
    var file: String?
    var line: Int?
    var column: Int?
    var inlined: Bool
  }

  init(session: Session, deadline: Deadline) {
    self.session = session
    self.deadline = deadline
  }

  mutating func frames(_ raw: [RawFrame]) -> [Frame] {
    var frames: [Frame] = []
    // Inline frames have places of their own in the numbering.
    var shift = 0
    for frame in raw {
      let module = session.module(frame.lookup)
      let names = names(frame.lookup, module)
      for (position, named) in names.enumerated() {
        if position > 0 { shift += 1 }
        var result = Frame(
          index: frame.index + shift, address: hexadecimal(frame.pc), trust: frame.trust)
        result.function = named.function
        result.rawFunction = named.rawFunction
        if let start = named.start, frame.pc >= start { result.offset = frame.pc - start }
        if let mapped = module?.mapped {
          let path = HostileText.shown(mapped.path)
          result.modulePath = path
          result.module = path.split(separator: "/").last.map(String.init) ?? path
          result.moduleOffset = hexadecimal(frame.pc - mapped.start)
          result.inApp = FrameNamer.isOwn(path)
        } else {
          result.inApp = false
        }
        result.file = named.file
        result.line = named.line
        result.column = named.column
        result.inlined = named.inlined
        frames.append(result)
      }
    }
    return frames
  }

  private mutating func names(_ address: UInt64, _ module: LoadedModule?) -> [Named] {
    if let seen = known[address] { return seen }
    let nothing = Named(inlined: false)
    if let module, case .copy(let distance) = module.mapped.source,
      let original = session.module(address &+ distance), original !== module
    {
      if case .copy = original.mapped.source { return [nothing] }
      var names = names(address &+ distance, original)
      // Offsets are taken from addresses here.
      for index in names.indices { names[index].start = names[index].start.map { $0 &- distance } }
      known[address] = names
      return names
    }
    guard let module, unsafe module.handle != nil, !deadline.passed else { return [nothing] }
    // Data that was run has labels, yet no function.
    let symbol =
      session.core.isExecutable(address) ? module.symbols.function(at: address) : nil
    var names = module.debug.scopes(at: address).map { scope in
      var named = Named(
        start: scope.start, file: scope.position.file.map { HostileText.shown($0) },
        line: scope.position.line, column: scope.position.column, inlined: scope.inlined)
      switch scope.name {
      case .linkage(let name):
        named.function = demangler.readable(name)
        named.rawFunction = HostileText.shown(name)
      case .source(let name):
        named.function = HostileText.shown(name)
        named.rawFunction = named.function
      case nil: break
      }
      if !scope.inlined, let symbol {
        // The symbol's start counts: a function's cold part is a symbol of its own.
        named.start = symbol.start
        var mangled = false
        if case .source = scope.name, symbol.name.hasPrefix("_Z") { mangled = true }
        if named.function == nil || mangled {
          named.function = demangler.readable(symbol.name)
          named.rawFunction = HostileText.shown(symbol.name)
        }
      }
      return named
    }
    if names.isEmpty {
      var named = nothing
      if let symbol {
        named.function = demangler.readable(symbol.name)
        named.rawFunction = HostileText.shown(symbol.name)
        named.start = symbol.start
      }
      names = [named]
    }
    known[address] = names
    return names
  }

  /// Not the system's: the program's own code, wherever it is installed outside of the system's
  /// library folders.
  private static func isOwn(_ path: String) -> Bool {
    for folder in ["/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "[vdso]"]
    where path.hasPrefix(folder) {
      return false
    }
    let base = path.split(separator: "/").last ?? ""
    return !["libswift", "libstdc++.", "libgcc_s.", "libFoundation", "libguardian-handler."]
      .contains { base.hasPrefix($0) }
  }
}
