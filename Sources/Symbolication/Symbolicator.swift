// The front of the target: a core file in, threads with named frames out. Runs in the
// reporter's sandboxed worker: the core and every file it names are an attacker's work, so
// whatever is odd becomes a defect and a partial result. Knows nothing of guardian, of the
// ring or of where reports are kept.
import Kernel
import Reports

/// What a core told.
package struct Snapshot: Sendable {
  /// The crashing thread first: the core's first thread, unless the core is of a hang.
  package var threads: [ThreadFacts] = []
  /// By base address.
  package var modules: [Module] = []
  /// The `addresses` of the request, symbolicated; empty unless asked for.
  package var resolved: [Frame] = []
  /// In plain words, for `capture.defects`.
  package var defects: [String] = []
  package init() {}
}

/// A mapped file that is no longer the one at its path: the descriptor was opened while the
/// program was held.
package struct ReplacedModule: Sendable {
  package var path: String
  /// Borrowed: stays open and is not read through its file position.
  package var descriptor: Int32
  package init(path: String, descriptor: Int32) {
    self.path = path
    self.descriptor = descriptor
  }
}

/// Why there is no snapshot at all. Everything less is a defect of the snapshot.
package enum SymbolicationError: Error, Hashable, Sendable, CustomStringConvertible {
  case unreadableCore(SystemError)
  case notACore(String)
  case library(String)

  package var description: String {
    switch self {
    case .unreadableCore(let error): "\(error); the report has no stacks"
    case .notACore(let reason): "the core is not usable: \(reason); the report has no stacks"
    case .library(let reason): "libdw failed: \(reason); the report has no stacks"
    }
  }
}

package enum Symbolicator {
  /// - Parameters:
  ///   - core: an ELF core file; whole memory or a minicore.
  ///   - replaced: see `ReplacedModule`.
  ///   - executable: the program's file, for a core that does not name it.
  ///   - threadNames: by thread id, for a core that has none.
  ///   - crashed: the first thread of the core is the crashing one (false: a hang).
  ///   - addresses: further code addresses to resolve, return addresses first to last (the
  ///     place an exception was thrown from).
  package static func snapshot(
    core: borrowing FileDescriptor, replaced: [ReplacedModule] = [], executable: String? = nil,
    threadNames: [Int32: String] = [:], crashed: Bool = true, addresses: [UInt64] = [],
    limits: SymbolicationLimits = SymbolicationLimits()
  ) throws(SymbolicationError) -> Snapshot {
    let deadline = Deadline(milliseconds: limits.milliseconds)
    let core = try CoreFile(descriptor: core.raw)
    let map = ModuleMap(core: core, replaced: replaced, executable: executable, limits: limits)
    let session = try Session(core: core, modules: map.modules, limits: limits)
    let unwinder = Unwinder(session: session, limits: limits, deadline: deadline)

    var snapshot = Snapshot()
    snapshot.defects = core.defects + map.defects + session.defects
    var stacks: [(CoreFile.ThreadState, Unwinder.Stack)] = []
    for thread in core.threads.prefix(limits.threads) {
      stacks.append((thread, unwinder.stack(thread)))
    }
    if stacks.count < core.threads.count {
      snapshot.defects.append(
        "\(core.threads.count - stacks.count) of \(core.threads.count) threads were not unwound")
    }

    var namer = FrameNamer(session: session, deadline: deadline)
    for (index, (thread, stack)) in stacks.enumerated() {
      var facts = ThreadFacts(
        id: thread.id, crashed: crashed && index == 0, frames: namer.frames(stack.frames))
      facts.name = threadNames[thread.id] ?? core.threadNames[thread.id]
      facts.registers = Dictionary(
        uniqueKeysWithValues: zip(core.machine.registers, thread.values).map {
          ($0.name, hexadecimal($1))
        })
      snapshot.threads.append(facts)
      snapshot.defects += stack.defects.map { "thread \(thread.id): \($0)" }
    }
    var given = FrameCollector(limit: limits.framesPerThread)
    for address in addresses { given.append(pc: address, isReturnAddress: true, trust: .cfi) }
    snapshot.resolved = namer.frames(given.frames)
    snapshot.modules = session.modules.map { $0.mapped }.map {
      Module(
        path: HostileText.shown($0.path), buildID: $0.buildID.map(hexadecimal),
        base: hexadecimal($0.start), end: hexadecimal($0.end))
    }
    if deadline.passed {
      snapshot.defects.append(
        "symbolication ran out of its \(limits.milliseconds) ms: frames or their names are missing")
    }
    return snapshot
  }
}
