// The finisher: runs the worker within its budget, merges what it found into the plain report,
// and makes the report final. Whatever the worker does, a report comes out.
import CSeccomp
import FoundationEssentials
import Glibc
import Kernel
import Reports

enum Finisher {
  struct Options {
    var folder = ""
    var store = ""
    /// What the store may keep, as configured.
    var limits = StoreLimits()
    /// guardian waits for this report alone: no standing back.
    var isUrgent = false
    /// As guardian opened them while the program was held.
    var replaced: [(descriptor: Int32, path: String)] = []
    /// For the worker from its start to its end; a hundred thread stacks take well under one
    /// second of a processor, but on a busy machine it has to wait for that second.
    var workerMilliseconds: Int32 = 60_000
  }

  static func run(_ arguments: [String]) -> Int32 {
    guard let options = parse(arguments) else {
      complain("wrong arguments: \(arguments.joined(separator: " "))")
      return 64
    }
    if !options.isUrgent {
      Priority.lower()
      Priority.raise(afterSeconds: 3)
    }
    // Module files of a large program are many descriptors.
    _ = guardian_set_limit(GUARDIAN_LIMIT_FILES, .max)
    guard let id = ReportID(SafeText.lastComponent(options.folder)) else {
      complain("'\(options.folder)' is not a folder of a report")
      return 64
    }
    // Held until the end, so that a guardian that starts meanwhile does not adopt the folder.
    guard let lock = FolderLock(options.folder, wait: false) else {
      complain("report \(id): its folder is gone, or another process finishes it")
      return 1
    }
    defer { withExtendedLifetime(lock) {} }
    do {
      let calls = KernelStoreCalls()
      guard
        let json = try calls.read(
          options.folder + "/report.json", limit: WorkerResult.maximumBytes)
      else {
        complain("report \(id): there is no report.json to finish")
        return 1
      }
      // What the decoder says of damaged text is for programmers.
      guard var report = try? Report.decode(json) else {
        complain("report \(id): its report.json cannot be read as a report; it stays as it is")
        return 1
      }
      guard report.id == id.text else {
        complain("report \(id): its folder holds report \(report.id)")
        return 1
      }
      complete(&report, options)
      nameSystemCall(&report)
      // What of it is known is in the report; the rest is a raw copy of a stack.
      try? calls.removeFile(options.folder + "/ring")
      report.attachments = attachments(options.folder)
      let store = ReportStore(directory: options.store)
      try store.finish(report, limits: options.limits)
      return 0
    } catch {
      complain("report \(id) stays as it is: \(error)")
      return 1
    }
  }

  private static func parse(_ arguments: [String]) -> Options? {
    var options = Options()
    var arguments = arguments
    if arguments.last == "--urgent" {
      options.isUrgent = true
      arguments.removeLast()
    }
    var at = 0
    while at + 1 < arguments.count {
      let value = arguments[at + 1]
      switch arguments[at] {
      case "--folder": options.folder = value
      case "--store": options.store = value
      case "--reports-keep":
        guard let number = Int(value), number > 0 else { return nil }
        options.limits.reports = number
      case "--reports-bytes":
        guard let number = UInt64(value) else { return nil }
        options.limits.bytes = number
      case "--worker-milliseconds":
        guard let number = Int32(value), number > 0 else { return nil }
        options.workerMilliseconds = number
      case "--replaced":
        guard let colon = value.firstIndex(of: ":"), let number = Int32(value[..<colon]),
          number > 2
        else { return nil }
        options.replaced.append((number, String(value[value.index(after: colon)...])))
      default: return nil
      }
      at += 2
    }
    guard at == arguments.count, options.folder.hasPrefix("/"), options.store.hasPrefix("/")
    else { return nil }
    return options
  }

  private static func attachments(_ folder: String) -> [Attachment] {
    ["core", "stderr.log", "ring", "maps"].compactMap { name in
      var status = stat()
      guard unsafe lstat(folder + "/" + name, &status) == 0, status.st_size > 0 else { return nil }
      return Attachment(name: name, bytes: UInt64(status.st_size))
    }
  }

  /// guardian itself knows the number only: libseccomp has the table of names.
  private static func nameSystemCall(_ report: inout Report) {
    guard var call = report.ending.signal?.systemCall,
      let text = unsafe guardian_seccomp_call_name(call.architecture, call.number)
    else { return }
    defer { unsafe free(text) }
    let name = unsafe String(cString: text)
    if report.exception?.source == .signal,
      report.exception?.reason == Diagnosis.seccomp(call.number, name: nil)
    {
      report.exception?.reason = Diagnosis.seccomp(call.number, name: name)
    }
    call.name = name
    report.ending.signal?.systemCall = call
  }

  // MARK: The worker

  /// Adds what the worker finds in the core; without it names why.
  private static func complete(_ report: inout Report, _ options: Options) {
    let core = unsafe open(options.folder + "/core", O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
    guard core >= 0 else { return }
    defer { _ = close(core) }
    var status = stat()
    guard unsafe fstat(core, &status) == 0, status.st_size > 0 else {
      _ = unsafe unlink(options.folder + "/core")
      return
    }
    do {
      let bytes = try runWorker(report, core: core, options)
      guard let result = WorkerResult.decode(bytes) else {
        throw WorkerFailure(text: "its answer could not be read")
      }
      merge(result, into: &report)
    } catch {
      report.capture.defects.append("not symbolicated: \(error)")
    }
  }

  struct WorkerFailure: Error, CustomStringConvertible {
    var text: String
    var description: String { text }
  }

  private static func merge(_ result: WorkerResult, into report: inout Report) {
    let plain = report.threads.first { $0.crashed }
    if !result.threads.isEmpty {
      report.threads = result.threads
      if let plain, !report.threads.contains(where: \.crashed) {
        report.threads.insert(plain, at: 0)
      }
    }
    if let at = report.threads.firstIndex(where: \.crashed), let plain {
      report.threads[at].name = report.threads[at].name ?? plain.name
      report.threads[at].registers = report.threads[at].registers ?? plain.registers
      if report.threads[at].frames.isEmpty { report.threads[at].frames = plain.frames }
    }
    if !result.modules.isEmpty { report.modules = result.modules }
    if let exception = result.exception { report.exception = exception }
    report.capture.defects += result.defects
    if let path = report.program.executable {
      report.program.buildID =
        report.program.buildID ?? report.modules.first { $0.path == path }?.buildID
    }
    report.fingerprint = Fingerprint.of(report)
  }

  /// Descriptors of the worker: 3 answer, 4 core, 5 plain report, from 10 module files.
  private static func runWorker(
    _ report: Report, core: Int32, _ options: Options
  ) throws -> [UInt8] {
    let answer = FileDescriptor(
      owning: try retrying("make a memory file") { unsafe guardian_memory_file("answer") })
    let plain = FileDescriptor(
      owning: try retrying("open", options.folder + "/report.json") {
        unsafe open(options.folder + "/report.json", O_RDONLY | O_CLOEXEC | O_NOFOLLOW)
      })
    let uid = Sandbox.workerUID(program: report.program.uid)
    var files = options.replaced
    files += unreadableModules(options, uid: uid)
    defer { for file in files { _ = close(file.descriptor) } }

    var arguments = [
      "guardian-reporter", "worker", "--uid", "\(uid)", "--milliseconds",
      "\(options.workerMilliseconds)", "--parent", "\(getpid())",
    ]
    for (index, file) in files.enumerated() {
      arguments += ["--replaced", "\(10 + index):\(file.path)"]
    }
    let environment = ProcessInfo.processInfo.environment
      .filter { $0.key.hasPrefix("DEBUGINFOD_") || $0.key == "HOME" }
      .map { "\($0.key)=\($0.value)" }

    let child = try spawn(
      arguments, environment,
      descriptors: [(answer.raw, 3), (core, 4), (plain.raw, 5)]
        + files.enumerated().map { ($1.descriptor, Int32(10 + $0)) })
    Priority.raiseLater(child)
    let how = wait(child, milliseconds: options.workerMilliseconds)
    guard how == .exited(0) else { throw WorkerFailure(text: how.text(options)) }

    var status = stat()
    let raw = answer.raw
    _ = try retrying("look at the answer") { unsafe fstat(raw, &status) }
    guard status.st_size > 0, status.st_size <= WorkerResult.maximumBytes else {
      throw WorkerFailure(text: "its answer has \(status.st_size) bytes")
    }
    return try answer.read(count: Int(status.st_size), at: 0)
  }

  /// Files of the program's modules that the worker's user cannot open by their paths (a home
  /// folder of mode 0700), opened here. Only if they are, by device and inode, what the program
  /// had mapped: it could read them, so nothing is given away.
  private static func unreadableModules(
    _ options: Options, uid: UInt32
  ) -> [(descriptor: Int32, path: String)] {
    guard geteuid() == 0, uid != 0 else { return [] }
    var texts = ProcessTexts()
    texts.maps =
      ((try? KernelStoreCalls().read(
        options.folder + "/maps", limit: ReportLimits.procTextBytes)) ?? nil) ?? []
    let known = Set(options.replaced.map(\.path))
    var opened: [(descriptor: Int32, path: String)] = []
    for mapped in texts.mappedModules where mapped.module.path.hasPrefix("/") {
      let path = mapped.module.path
      if known.contains(path) || opened.count >= 512 { continue }
      // Only looked at: the program chose the path, and opening alone makes a device act.
      guard let place = try? Files.look(at: Array(path.utf8)), let status = try? place.status(),
        status.isRegular, status.device == mapped.device, status.inode == mapped.inode
      else { continue }
      setfsgid(uid)
      setfsuid(uid)
      // Both, the way to it and the file itself.
      let asWorker = try? Files.look(at: Array(path.utf8)).openedForReading().status()
      setfsuid(0)
      setfsgid(0)
      if asWorker != nil { continue }
      guard let file = try? place.openedForReading() else { continue }
      opened.append((file.release(), path))
    }
    return opened
  }

  private static func spawn(
    _ arguments: [String], _ environment: [String], descriptors: [(from: Int32, to: Int32)]
  ) throws(SystemError) -> Int32 {
    // Out of the way of the numbers they are to have.
    var moved: [(from: Int32, to: Int32)] = []
    defer { for pair in moved { _ = close(pair.from) } }
    for pair in descriptors {
      moved.append(
        (try retrying("duplicate a descriptor") { fcntl(pair.from, F_DUPFD_CLOEXEC, 600) }, pair.to)
      )
    }
    var actions = unsafe posix_spawn_file_actions_t()
    unsafe posix_spawn_file_actions_init(&actions)
    defer { unsafe posix_spawn_file_actions_destroy(&actions) }
    for pair in moved { unsafe posix_spawn_file_actions_adddup2(&actions, pair.from, pair.to) }

    let words = unsafe arguments.map { unsafe strdup($0) } + [nil]
    let variables = unsafe environment.map { unsafe strdup($0) } + [nil]
    defer { unsafe (words + variables).forEach { unsafe free($0) } }
    var pid: pid_t = 0
    let error = unsafe posix_spawn(&pid, "/proc/self/exe", &actions, nil, words, variables)
    if error != 0 { throw SystemError("start the worker", errno: error) }
    return pid
  }

  private enum How: Equatable {
    case exited(Int32)
    case signaled(Int32)
    case tooLong

    func text(_ options: Options) -> String {
      switch self {
      case .exited(let status): "the worker ended with status \(status)"
      case .signaled(let signal): "the worker died of \(SignalNames.name(signal))"
      case .tooLong: "the worker took longer than \(options.workerMilliseconds) ms"
      }
    }
  }

  private static func wait(_ pid: Int32, milliseconds: Int32) -> How {
    let pidfd = guardian_pidfd_open(pid)
    var timedOut = false
    if pidfd >= 0 {
      let end = Clock.monotonic + .milliseconds(Int64(milliseconds))
      while true {
        var poller = pollfd(fd: pidfd, events: Int16(POLLIN), revents: 0)
        let left = max(0, Int32((end - Clock.monotonic) / .milliseconds(1)))
        let count = unsafe poll(&poller, 1, left)
        if count < 0, errno == EINTR { continue }
        timedOut = count == 0
        break
      }
      _ = close(pidfd)
    }
    // Our own child and not reaped yet: the number is still its own.
    if timedOut { _ = kill(pid, SIGKILL) }
    var status: Int32 = 0
    while unsafe waitpid(pid, &status, 0) < 0, errno == EINTR {}
    if timedOut { return .tooLong }
    let signal = status & 0x7f
    return signal == 0 ? .exited(status >> 8 & 0xff) : .signaled(signal)
  }
}
