// The worker: no rights, descriptors only. Reads the core, which is hostile; ends without an
// answer if anything is wrong.
import CSeccomp
import FoundationEssentials
import Glibc
import Kernel
import Reports
import Symbolication

enum Worker {
  static func run(_ arguments: [String]) -> Int32 {
    var uid = geteuid()
    var milliseconds: UInt64 = 20_000
    var parent = getppid()
    var replaced: [ReplacedModule] = []
    var at = 0
    while at + 1 < arguments.count {
      let value = arguments[at + 1]
      switch arguments[at] {
      case "--uid": uid = UInt32(value) ?? uid
      case "--parent": parent = Int32(value) ?? parent
      case "--milliseconds": milliseconds = UInt64(value) ?? milliseconds
      case "--replaced":
        if let colon = value.firstIndex(of: ":"), let number = Int32(value[..<colon]) {
          replaced.append(
            ReplacedModule(
              path: String(value[value.index(after: colon)...]), descriptor: number))
        }
      default: return 64
      }
      at += 2
    }
    // Whatever else was open in guardian or the finisher.
    guardian_close_range(6, 9)
    guardian_close_range(10 + UInt32(replaced.count), .max)
    // Whatever it waits for (a file system that does not answer, a file that is a FIFO by now), it
    // ends by itself, a little after the finisher would have ended it.
    Priority.endItself(afterSeconds: UInt32(clamping: milliseconds / 1000 + 2))
    do {
      let urls = ProcessInfo.processInfo.environment["DEBUGINFOD_URLS"] ?? ""
      try Sandbox.enter(
        uid: uid, seconds: min(milliseconds / 1000, 20) + 1, network: !urls.isEmpty,
        parent: parent)
      try answer(replaced, milliseconds: milliseconds)
      return 0
    } catch {
      complain("symbolication: \(error)")
      return 1
    }
  }

  private static func answer(_ replaced: [ReplacedModule], milliseconds: UInt64) throws {
    let answer = FileDescriptor(owning: 3)
    let core = FileDescriptor(owning: 4)
    let plain = try Report.decode(
      FileDescriptor(owning: 5).readToEnd(limit: WorkerResult.maximumBytes))

    var names: [Int32: String] = [:]
    for thread in plain.threads { names[thread.id] = thread.name }
    var limits = SymbolicationLimits()
    // Time to write the answer remains.
    limits.milliseconds = milliseconds / 4 * 3
    // Where an exception was thrown, if the handler could tell.
    let thrown = (plain.exception?.frames ?? []).compactMap { SafeText.number(hex: $0.address) }
    var snapshot = try Symbolicator.snapshot(
      core: core, replaced: replaced, executable: plain.program.executable, threadNames: names,
      crashed: plain.kind != .hang, addresses: thrown, limits: limits)
    for index in snapshot.threads.indices { markOwn(&snapshot.threads[index].frames) }
    markOwn(&snapshot.resolved)

    var exception = plain.exception
    if !snapshot.resolved.isEmpty { exception?.frames = snapshot.resolved }
    if exception == nil || exception?.source == .signal,
      let crashed = snapshot.threads.first(where: \.crashed),
      let trap = ExceptionText.swiftRuntimeFailure(crashed.frames)
    {
      exception = trap
    }
    let result = WorkerResult(
      threads: snapshot.threads, modules: snapshot.modules, exception: exception,
      defects: snapshot.defects)
    try answer.writeAll(try JSONText.encode(result, layout: .compact))
  }

  private static func markOwn(_ frames: inout [Frame]) {
    for index in frames.indices {
      frames[index].inApp = InApp.isInApp(
        modulePath: frames[index].modulePath ?? frames[index].module,
        function: frames[index].function ?? frames[index].rawFunction, file: frames[index].file)
    }
  }
}
