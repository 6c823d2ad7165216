// Incident → report, before anything is unwound or symbolicated. Pure. This is what remains if
// every later step fails.
import Policy
import Ring

package enum PlainReport {
  package static func make(from incident: Incident, redaction: Redaction = Redaction()) -> Report {
    var defects = incident.defects
    var record = crashRecord(of: incident, defects: &defects)
    // The ABRT that ended a program that hung says nothing that the snapshot does not.
    if incident.hang != nil, incident.capture?.threadsCaptured ?? 0 > 0 { record = nil }
    let diagnosis = record.map { self.diagnosis($0, incident) }

    var program = incident.program
    program.command = redaction.command(
      program.command.prefix(ReportLimits.commandArguments).map { SafeText.cut($0) })
    program.executable = program.executable ?? incident.process.executable
    program.workingDirectory = program.workingDirectory ?? incident.process.workingDirectory
    program.uid = program.uid ?? incident.process.uid
    program.gid = program.gid ?? incident.process.gid

    let lines = incident.stderr.suffix(ReportLimits.stderrLines)
    let exception = exception(
      of: incident, record: record, diagnosis: diagnosis,
      lines: lines.filter { $0.life == program.life }.map { SafeText.decode($0.bytes) })

    var report = Report(
      id: incident.id.text, time: TimeText.rfc3339(incident.time),
      kind: kind(of: incident, record: record, exception: exception), program: program,
      ending: ending(of: incident, record: record, diagnosis: diagnosis),
      host: incident.host, process: incident.process.facts(redaction: redaction),
      policy: incident.verdict.map(policy),
      capture: CaptureFacts(handler: incident.handler, threads: .none))
    report.exception = exception
    report.modules = incident.process.modules
    report.threads = threads(of: incident, record: record, modules: report.modules)
    report.stderrTail = lines.map {
      Reports.StderrLine(time: TimeText.rfc3339($0.time), text: SafeText.decode($0.bytes))
    }
    if let ring = incident.ring {
      report.breadcrumbs = ring.crumbs.suffix(ReportLimits.breadcrumbs).map(breadcrumb)
      report.annotations = ring.annotations
      defects += ring.defects.map(\.description)
    }
    report.capture.threads = record == nil ? .none : .crashing
    if let capture = incident.capture {
      if capture.threadsCaptured > 0 { report.capture.threads = .all }
      report.capture.milliseconds = Double(capture.heldMicroseconds) / 1000
      if capture.threadsCaptured < capture.threadsSeen {
        defects.append(
          "\(capture.threadsSeen - capture.threadsCaptured) of \(capture.threadsSeen) threads are not in the snapshot"
        )
      }
      defects += capture.defects
    }
    report.capture.defects = defects.map { SafeText.cut($0, limit: 1024) }
    report.attachments = incident.attachments
    report.fingerprint = Fingerprint.of(report)
    return report
  }

  /// The record that explains this ending: the one the bell named, else the last of the ending
  /// signal. A program that lives on after a fault leaves a record that explains nothing.
  private static func crashRecord(
    of incident: Incident, defects: inout [String]
  ) -> RingContents.CrashRecord? {
    guard let ring = incident.ring, !ring.crashes.isEmpty else { return nil }
    let ended: Int32? =
      switch incident.ending.status {
      case .signaled(let signal, _): signal.rawValue
      // A process that is PID 1 of its namespace cannot die by its own signal.
      case .exited(let status) where status > 128 && status <= 128 + 64: status - 128
      case .exited: 0
      case .execFailed: 0
      case .unknown: nil
      }
    if let slot = incident.slot, let named = ring.crashes.last(where: { $0.slot == slot }) {
      if let ended, ended != named.signal, ended != 0 {
        defects.append(
          "the crash record is of \(SignalNames.name(named.signal)), the program ended by \(SignalNames.name(ended))"
        )
      }
      return ended == 0 ? nil : named
    }
    guard let ended else { return ring.crashes.last }
    return ring.crashes.last { $0.signal == ended }
  }

  private static func diagnosis(
    _ record: RingContents.CrashRecord, _ incident: Incident
  ) -> Diagnosis {
    var diagnosis = Diagnosis(signal: record.signal, code: record.code, ownPID: record.pid)
    diagnosis.address = record.address
    diagnosis.siginfo = record.siginfo
    if SignalNames.wasSent(code: record.code) {
      diagnosis.senderPID = record.senderPID
      diagnosis.senderUID = record.senderUID
      diagnosis.senderName = incident.senderName
    }
    // GUARDIAN_PART_REGISTERS
    if record.parts & 2 != 0 {
      diagnosis.pc = record.pc
      diagnosis.sp = record.sp
      diagnosis.registers = RegisterNames.named(
        record.registers, architecture: record.architecture)
      if record.architecture == RegisterNames.x86_64Machine {
        diagnosis.trapNumber = record.trapNumber
        diagnosis.errorCode = record.errorCode
      }
    }
    return diagnosis
  }

  private static func kind(
    of incident: Incident, record: RingContents.CrashRecord?, exception: ExceptionFacts?
  ) -> Report.Kind {
    switch incident.ending.cause {
    case .outOfMemory: return .oom
    case .watchdog, .startTimeout, .health, .stopTimeout: return .hang
    case .machineDown, .guardianDied: return .killed
    case .detached: return .exit
    case .own: break
    }
    switch incident.ending.status {
    case .execFailed: return .execFailed
    case .signaled(let signal, _):
      return record != nil || SignalNames.isCrash(signal.rawValue) ? .crash : .killed
    case .exited: return record != nil || exception != nil ? .crash : .exit
    case .unknown: return record != nil ? .crash : .exit
    }
  }

  private static func ending(
    of incident: Incident, record: RingContents.CrashRecord?, diagnosis: Diagnosis?
  ) -> EndingFacts {
    var facts = EndingFacts()
    facts.stopRequested = incident.stopRequested
    facts.startFailure = incident.startFailure.map { SafeText.cut($0, limit: 1024) }
    switch incident.ending.status {
    case .exited(let status): facts.exitStatus = status
    case .signaled(let signal, let coreDumped):
      facts.signal = .init(number: signal.rawValue, name: SignalNames.name(signal.rawValue))
      facts.coreDumped = coreDumped
    case .execFailed, .unknown: break
    }
    guard let record, let diagnosis else { return facts }
    if facts.signal == nil {
      facts.signal = .init(number: record.signal, name: SignalNames.name(record.signal))
    }
    guard facts.signal?.number == record.signal else { return facts }
    facts.signal?.code = record.code
    facts.signal?.codeName = SignalNames.codeName(signal: record.signal, code: record.code)
    facts.signal?.systemCall = diagnosis.systemCall.map {
      .init(number: $0.number, architecture: $0.architecture)
    }
    if diagnosis.hasAddress { facts.signal?.address = SafeText.hex(record.address) }
    if let sender = diagnosis.senderPID, sender > 0, record.code != -2 {
      // The program may live in a pid namespace of its own: of itself guardian's number is told.
      facts.signal?.senderPID = sender == diagnosis.ownPID ? incident.program.pid : sender
      facts.signal?.senderUID = diagnosis.senderUID
      facts.signal?.senderName = incident.senderName.map { SafeText.cut($0, limit: 256) }
    }
    return facts
  }

  /// Best first: what the runtime or the program told the handler, glibc's abort message, the
  /// runtime's words on stderr if they fit the ending, what the signal itself means.
  private static func exception(
    of incident: Incident, record: RingContents.CrashRecord?, diagnosis: Diagnosis?,
    lines: [String]
  ) -> ExceptionFacts? {
    if let hang = incident.hang, let type = hangType(incident.ending.cause) {
      return ExceptionFacts(type: type, reason: SafeText.cut(hang), source: .signal)
    }
    if let record, record.exceptionLanguage != 0, !record.exceptionType.isEmpty {
      return told(record, modules: incident.process.modules)
    }
    if let record, !record.abortMessage.isEmpty {
      return ExceptionText.abortMessage(record.abortMessage)
    }
    switch incident.ending.cause {
    case .machineDown:
      return ExceptionFacts(
        type: "machine down",
        reason: "the machine went down while it ran: power loss, a crash of the kernel, or a reset",
        source: .guardian)
    case .guardianDied:
      return ExceptionFacts(
        type: "guardian killed",
        reason: "guardian itself was killed or crashed, and the program was ended with it",
        source: .guardian)
    case .detached:
      return ExceptionFacts(
        type: "detached",
        reason: "its main process left with 0 at once and others live on in sessions of their own:"
          + " run it in the foreground", source: .guardian)
    default: break
    }
    if let found = ExceptionText.stderr(lines, fitting: incident.ending.status) { return found }
    if let record, let diagnosis {
      return ExceptionFacts(
        type: SignalNames.name(record.signal), reason: diagnosis.sentence, source: .signal)
    }
    switch incident.ending.status {
    case .signaled(let signal, _):
      let name = SignalNames.name(signal.rawValue)
      let reason =
        switch incident.ending.cause {
        case .outOfMemory: "killed by the kernel: the memory limit was reached"
        case .watchdog: "stopped by guardian: no heartbeat within the watchdog time"
        case .startTimeout: "stopped by guardian: not ready within the start time"
        case .health: "stopped by guardian: the health check failed"
        case .stopTimeout:
          "killed by guardian: it did not stop"
            + (incident.stopTimeout.map { " within \($0.words)" } ?? "")
            + " of \(incident.stopSignal)"
        case .own, .detached, .machineDown, .guardianDied: sentence(signal.rawValue, incident)
        }
      return ExceptionFacts(type: name, reason: reason, source: .signal)
    default: return nil
    }
  }

  private static func hangType(_ cause: Ending.Cause) -> String? {
    switch cause {
    case .watchdog: "watchdog timeout"
    case .startTimeout: "start timeout"
    case .health: "health check failed"
    case .stopTimeout: "stop timeout"
    case .own, .detached, .outOfMemory, .machineDown, .guardianDied: nil
    }
  }

  /// Without a crash record: what the number alone says.
  private static func sentence(_ signal: Int32, _ incident: Incident) -> String {
    switch signal {
    case 24: return "the limit of CPU time was reached"
    case 25: return "the limit of a file's size was reached"
    case 13: return "write to a pipe or socket that nobody reads any more"
    case 31: return "a seccomp filter forbade a system call"
    case 9:
      // waitid(2) has no sender, and this signal reaches no handler that could see one.
      if let limit = incident.killedByLimit { return "killed by the kernel: \(limit)" }
      return incident.process.oomKills == nil
        ? "killed: by another process, by itself, or by the kernel for lack of memory"
        : "killed: by another process or by itself; the kernel counted no kill for lack of memory"
    default:
      return SignalNames.isCrash(signal)
        ? "\(SignalNames.name(signal)); the crash handler did not see it: where and why is not known"
        : "ended by \(SignalNames.name(signal))"
    }
  }

  private static func told(
    _ record: RingContents.CrashRecord, modules: [Module]
  ) -> ExceptionFacts {
    var facts = ExceptionFacts(
      type: record.exceptionType, reason: record.exceptionReason,
      source: record.exceptionLanguage == 3 ? .api : .terminate)
    facts.language =
      switch record.exceptionLanguage {
      case 1: "c++"
      case 2: "swift"
      default: nil
      }
    if !record.exceptionFrames.isEmpty {
      facts.frames = record.exceptionFrames.enumerated().map { index, address in
        frame(index: index, address: address, trust: .cfi, modules: modules)
      }
    }
    return facts
  }

  /// The crashing thread as the ring has it, and the others by id and name alone.
  private static func threads(
    of incident: Incident, record: RingContents.CrashRecord?, modules: [Module]
  ) -> [ThreadFacts] {
    var result: [ThreadFacts] = []
    if let record {
      var crashed = thread(record, modules: modules)
      // The program may live in a pid namespace of its own: guardian's number counts.
      if let id = incident.capture?.crashingThread, id > 0 { crashed.id = id }
      result.append(crashed)
    }
    for (id, name) in incident.process.threadNames.sorted(by: { $0.key < $1.key })
    where id != result.first?.id {
      var other = ThreadFacts(id: id, crashed: false, frames: [])
      let text = SafeText.decode(name.last == UInt8(ascii: "\n") ? name.dropLast() : name)
      other.name = text.isEmpty ? nil : text
      result.append(other)
    }
    return result
  }

  private static func thread(
    _ record: RingContents.CrashRecord, modules: [Module]
  ) -> ThreadFacts {
    let hasRegisters = record.parts & 2 != 0
    var facts = ThreadFacts(
      id: record.tid, crashed: true,
      frames: hasRegisters
        ? [frame(index: 0, address: record.pc, trust: .context, modules: modules)] : [])
    facts.name = record.threadName.isEmpty ? nil : record.threadName
    let registers = RegisterNames.named(record.registers, architecture: record.architecture)
    if hasRegisters, !registers.isEmpty {
      facts.registers = Dictionary(
        registers.map { ($0.name, SafeText.hex($0.value)) }, uniquingKeysWith: { $1 })
    }
    return facts
  }

  private static func frame(
    index: Int, address: UInt64, trust: Frame.Trust, modules: [Module]
  ) -> Frame {
    var frame = Frame(index: index, address: SafeText.hex(address), trust: trust)
    for module in modules {
      guard let base = SafeText.number(hex: module.base),
        let end = SafeText.number(hex: module.end),
        base <= address, address < end
      else { continue }
      frame.modulePath = module.path
      frame.module = SafeText.lastComponent(module.path)
      frame.moduleOffset = SafeText.hex(address - base)
      frame.inApp = InApp.isInApp(modulePath: module.path, function: nil)
    }
    return frame
  }

  private static func breadcrumb(_ crumb: RingContents.Crumb) -> Breadcrumb {
    let level =
      switch crumb.level {
      case 0: "debug"
      case 1: "info"
      case 2: "warning"
      case 3: "error"
      case 4: "fatal"
      default: "level \(crumb.level)"
      }
    return Breadcrumb(
      time: TimeText.rfc3339(WallTime(nanosecondsSince1970: crumb.realtimeNanoseconds)),
      level: level, category: crumb.category, message: crumb.message, pid: crumb.pid,
      thread: crumb.tid)
  }

  package static func policy(_ verdict: Verdict) -> PolicyFacts {
    var facts: PolicyFacts
    switch verdict.decision {
    case .restart(let delay):
      facts = PolicyFacts(verdict: .restart, failures: verdict.failures, reason: verdict.reason)
      facts.delayMilliseconds = Int(delay / .milliseconds(1))
    case .stop:
      facts = PolicyFacts(verdict: .stop, failures: verdict.failures, reason: verdict.reason)
    case .giveUp:
      facts = PolicyFacts(verdict: .giveUp, failures: verdict.failures, reason: verdict.reason)
    }
    facts.maxCrashes = verdict.maxCrashes
    facts.windowSeconds = verdict.window.map { $0 / .seconds(1) }
    return facts
  }
}
