// Reports: from the evidence of an ending to a plain report on disk, and the reporter that makes
// it a full one while the program is running again.
import CLinux
import CSystemd
import Glibc
import Kernel
import Policy
import Reports
import Ring
import Settings

extension Supervisor {
  /// The report of a life's ending, which has its id at once: the next life is told it.
  func report(_ number: Life, _ ending: Ending, _ verdict: Verdict) -> OpenIncident {
    let record = running(number)
    let incident: OpenIncident
    if let announced = record?.incident, explains(announced, record, ending) {
      incident = announced
    } else if record == nil, let interrupted, interrupted.life == number {
      incident = openIncident(of: interrupted)
    } else {
      if let other = record?.incident { discard(other) }
      incident = OpenIncident(
        newReportID(), life: record, number: number, role: .main,
        pid: record?.pid ?? 0, slot: nil)
    }
    record?.incident = nil
    incident.isOwed = true
    incident.ending = (ending, verdict, .now())
    incident.startFailure = spawnFailedWords[number]
    crashedLastRun = true
    lastReport = incident.id
    return incident
  }

  /// Later than every other: the newest report is the one with the greatest id, also after the clock
  /// was set back.
  func newReportID() -> ReportID {
    let newest = newestReportTime ?? store.newest()?.time
    var time = WallTime.now()
    if let newest, time.milliseconds <= newest.milliseconds {
      time = WallTime(nanosecondsSince1970: UInt64(newest.milliseconds + 1) * 1_000_000)
    }
    newestReportTime = time
    return ReportID.make(at: time)
  }

  /// Makes good what `report` promised; it is written now, or when its capture is over.
  func begin(_ incident: OpenIncident) {
    incident.isOwed = false
    // An announced crash has one, or could not have one.
    if incident.slot == nil && incident.folder == nil { openFolder(incident) }
    incident.life?.channel.drainOutputs()
    if !incident.isCapturing { write(incident) }
  }

  /// Of a life whose guardian died with it, with the snapshot if there is one.
  private func openIncident(of running: StateFile.Unfinished) -> OpenIncident {
    let begun = takeBegun(running.life)
    let incident = OpenIncident(
      begun?.id ?? newReportID(), life: nil, number: running.life, role: .main,
      pid: running.pid, slot: begun?.slot)
    incident.folder = begun.map { store.folder($0.id) }
    incident.ring = ringBefore
    incident.earlier = running
    incident.defects.append("written by the next guardian, which knows of it from the state file")
    return incident
  }

  /// The snapshot of this life's main process.
  func takeBegun(_ life: Life) -> BegunIncident? {
    guard let index = begun.lastIndex(where: { $0.role == .main && $0.life == life.rawValue })
    else { return nil }
    return begun.remove(at: index)
  }

  /// Snapshots that belong to nothing that is known: they are all there is of those crashes.
  func reportBegun() {
    for begun in begun {
      let incident = OpenIncident(
        begun.id, life: nil, number: Life(rawValue: begun.life), role: begun.role, pid: begun.pid,
        slot: nil)
      incident.folder = store.folder(begun.id)
      incident.earlier = StateFile.Unfinished(
        life: Life(rawValue: begun.life), pid: begun.pid, startedWall: begun.startedWall,
        command: configuration.command)
      let status =
        begun.signal.map { Ending.Status.signaled(Signal(rawValue: $0), coreDumped: false) }
        ?? .unknown
      incident.ending = (Ending(status: status), nil, begun.id.time)
      incident.defects.append(
        "guardian was killed before it saw the ending: only the snapshot is left")
      write(incident)
    }
    begun = []
  }

  /// An ending that no guardian saw: the machine or guardian itself ended at the same time.
  func reportUnfinished(_ running: StateFile.Unfinished, _ cause: Ending.Cause) {
    let ending = Ending(status: .unknown, cause: cause)
    let incident = openIncident(of: running)
    incident.ending = (ending, nil, .now())
    if incident.folder == nil { openFolder(incident) }
    if incident.folder != nil { lastReport = incident.id }
    write(incident)
    endings[Self.cause(of: ending), default: 0] += 1
    var message = Words.ending(
      name: configuration.name, ending, life: running.life, pid: running.pid, uptime: nil,
      failure: nil)
    if incident.folder != nil { message += "; report \(incident.id)" }
    let sent = journal.send(
      JournalEntry(
        event: .interrupted, name: configuration.name, priority: LOG_ERR, message: message,
        fields: [
          ("GUARDIAN_NAME", configuration.name), ("GUARDIAN_LIFE", "\(running.life.rawValue)"),
          ("GUARDIAN_PID", "\(running.pid)"), ("GUARDIAN_REASON", ending.words),
          ("GUARDIAN_REPORT", incident.id.text),
        ]))
    if !(sent && Journal.isStandardError) { say(message, .normal, LOG_ERR) }
  }

  /// Whether what was announced is what it died of: a program may live through a fault.
  private func explains(_ incident: OpenIncident, _ life: RunningLife?, _ ending: Ending) -> Bool {
    guard let slot = incident.slot, let life else { return true }
    guard let record = life.channel.crashRecord(slot: slot) else { return true }
    switch ending.status {
    case .signaled(let signal, _): return signal.rawValue == record.signal
    // PID 1 of a namespace cannot die by its own signal.
    case .exited(let code): return code > 128 && record.signal == code - 128
    case .execFailed: return false
    case .unknown: return true
    }
  }

  func discard(_ incident: OpenIncident) {
    for helper in helpers.values {
      if case .capture(let other, _) = helper.work, other === incident {
        helper.child.signal(SIGKILL)
      }
    }
    if let folder = incident.folder { Files.removeShallow(folder.path) }
    incident.folder = nil
    freeSlot(of: incident)
  }

  /// Of a descendant that is dead; a program's own slot goes with its life.
  private func freeSlot(of incident: OpenIncident) {
    guard incident.role == .descendant, let slot = incident.slot else { return }
    incident.life?.channel.free(slot: slot)
  }

  /// The plain report: all that is known without unwinding. What remains if everything after it
  /// fails.
  func write(_ incident: OpenIncident) {
    guard let (ending, verdict, time) = incident.ending else { return }
    guard let folder = incident.folder else {
      freeSlot(of: incident)
      return
    }
    var program = Program(
      name: configuration.name, command: configuration.command, pid: incident.pid,
      life: incident.lifeNumber.rawValue, role: incident.role)
    var facts = Incident(
      id: incident.id, time: time, program: program, ending: ending,
      handler: incident.earlier == nil
        ? handlerWords(incident.life) : "unknown: an earlier guardian started it")
    if let earlier = incident.earlier {
      program.startedAt = TimeText.rfc3339(
        WallTime(nanosecondsSince1970: UInt64(clamping: earlier.startedWall)))
      program.command = earlier.command
    }
    var ringBytes = incident.ring
    if let ringBytes { facts.ring = RingDecoder.decode(ringBytes) }
    if let life = incident.life {
      program.startedAt = TimeText.rfc3339(
        WallTime(nanosecondsSince1970: UInt64(clamping: life.startedWall)))
      program.uptimeSeconds = life.uptime.seconds
      let bytes = life.channel.readRing()
      ringBytes = bytes
      facts.ring = RingDecoder.decode(bytes)
      facts.stopRequested = life.stopAsked
      facts.stderr = life.channel.errors.tail.all.map {
        Incident.StderrLine(
          time: WallTime(nanosecondsSince1970: UInt64(clamping: $0.time)), bytes: $0.bytes,
          life: life.number.rawValue)
      }
      if life.bellsRefused > 0 {
        incident.defects.append("\(life.bellsRefused) further crashes were not looked at")
      }
      if incident.process.environ.isEmpty {
        // It was gone before anybody could look: what it was started with.
        incident.process.environ = Array(life.environment.entries.joined(separator: [0]))
      }
      if incident.process.executable == nil {
        incident.process.executable = command.shownPath
      }
    }
    if host == nil { host = Host.read(machineID: MachineID.hashed()) }
    incident.process.oomKills = memory.kills
    for what in ["cpu", "io", "memory"] {
      incident.process.pressure[what] = try? Files.read("/proc/pressure/" + what, limit: 512)
    }
    facts.program = program
    facts.verdict = verdict
    facts.stopSignal = configuration.stopSignal.name
    facts.stopTimeout = configuration.stopTimeout
    facts.slot = incident.slot
    facts.senderName = incident.senderName
    facts.killedByLimit = incident.role == .main ? incident.life?.limitWords : nil
    facts.hang = incident.role == .main ? incident.life?.hangWords : nil
    facts.host = host!
    facts.process = incident.process
    facts.capture = incident.summary
    facts.defects = incident.defects
    facts.startFailure = incident.startFailure
    for name in ["core"] {
      if let status = try? Files.status(folder.path + "/" + name), status.size > 0 {
        facts.attachments.append(Attachment(name: name, bytes: UInt64(status.size)))
      } else {
        Files.remove(folder.path + "/" + name)
      }
    }
    let report = PlainReport.make(from: facts, redaction: Redaction(extra: configuration.redact))
    var stderr: [UInt8] = []
    for line in facts.stderr { stderr += line.bytes + [10] }
    freeSlot(of: incident)
    do {
      let missing = try folder.writePlain(
        report, ring: ringBytes, stderr: stderr, maps: incident.process.maps)
      if let missing { sayOnce("evidence", "\(missing): the report is there without it") }
    } catch {
      sayOnce("report", "\(error): reports are lost, supervision goes on")
      // Nobody is to look for a report that is not there.
      Files.removeShallow(folder.path)
      incident.folder = nil
      if lastReport == incident.id { lastReport = nil }
      return
    }
    incident.life = nil
    if reportsWaiting.count < Limit.reportersWaiting {
      reportsWaiting.append(incident)
    } else {
      keepPlain(incident)
    }
  }

  private func handlerWords(_ life: RunningLife?) -> String {
    guard let life else { return "none: the program did not start" }
    switch life.handler {
    case .none(let why):
      return life.channel.handlerFlags & RingLayout.HandlerFlag.loaded != 0
        ? "linked" : "none: \(why)"
    case .preload:
      let flags = life.channel.handlerFlags
      if flags & RingLayout.HandlerFlag.loaded == 0 {
        return "none: preloaded, but it did not start"
      }
      return "preloaded"
    }
  }

  // MARK: reporters

  private var reportersAtWork: Int {
    helpers.values.filter { if case .reporter = $0.work { true } else { false } }.count
  }

  func startReporters() {
    while !reportsWaiting.isEmpty, reportersAtWork < Limit.reportersAtOnce {
      let incident = reportsWaiting.removeFirst()
      guard let folder = incident.folder, let path = toolbox.reporter else {
        keepPlain(incident)
        continue
      }
      var launch = Launch()
      launch.path = Array(path.utf8)
      launch.environment = command.ownEnvironment
      launch.arguments = [
        path, "report", "--folder", folder.path, "--store", store.directory,
        // nil is without a limit.
        "--reports-keep", "\(configuration.reportsKeep ?? .max)",
        "--reports-bytes", "\(configuration.reportsBytes ?? .max)",
      ].map { Array($0.utf8) }
      launch.descriptors = [(command.nullDescriptor, 0), (command.nullDescriptor, 1), (2, 2)]
      for (offset, module) in incident.replaced.enumerated() {
        let number = 10 + Int32(offset)
        launch.descriptors.append((module.descriptor.raw, number))
        launch.arguments += ["--replaced", "\(number):\(module.path)"].map { Array($0.utf8) }
      }
      launch.ownGroup = true
      // guardian waits for nothing else: the program does not run, and this is now what counts.
      if awaitsReporters { launch.arguments.append(Array("--urgent".utf8)) }
      launch.nice = awaitsReporters ? nil : 19
      do {
        let child = try launch.start()
        helpers[child.pid] = Helper(child, .reporter(incident))
        incident.replaced = []
      } catch {
        sayOnce(path, "\(error.words(launch)): reports stay plain")
        keepPlain(incident)
      }
    }
  }

  func reporterEnded(_ incident: OpenIncident, _ result: WaitResult) {
    if let folder = incident.folder, Files.exists(folder.path + "/report.json") {
      // It died, or was ended, before it could move the folder.
      sayOnce("reporter", "guardian-reporter \(Words.how(result.how)): the plain report stays")
      keepPlain(incident)
    }
  }

  /// Final as it is. False: it is not there any more, or cannot be moved.
  @discardableResult
  private func keepPlain(_ incident: OpenIncident, isLast: Bool = true) -> Bool {
    guard let folder = incident.folder, Files.exists(folder.path + "/report.json") else {
      return false
    }
    var limits = StoreLimits()
    limits.reports = configuration.reportsKeep ?? .max
    limits.bytes = configuration.reportsBytes ?? .max
    return (try? store.keep(folder.id, limits: isLast ? limits : nil)) != nil
  }

  /// Nothing but reporters is left to wait for: they need not stand back any longer.
  func hurryReporters() {
    for helper in helpers.values {
      guard case .reporter = helper.work else { continue }
      // Without the right to it they stay as they are.
      Priority.give(Priority.inherited, to: helper.child.pid)
      for worker in Descendants.children(of: helper.child.pid) {
        Priority.give(Priority.inherited, to: worker)
      }
    }
  }

  /// Reports that a guardian or reporter before us could not finish.
  func adoptReports() {
    guard stateIsOurs else { return }
    let program = Program(
      name: configuration.name, command: configuration.command, pid: 0, life: 0, role: .main)
    begun = store.begun()
    _ = try? store.adoptOrphans(program: program, except: Set(begun.map(\.id)))
  }

  /// Nobody is at work for us.
  var isQuiet: Bool {
    reportsWaiting.isEmpty && !awaitsDescendants
      && !helpers.values.contains {
        switch $0.work {
        case .reporter, .giveUp: true
        case .sweep, .check: false
        case .capture(let incident, _): incident.ending != nil && !$0.isAbandoned
        case .probe: false
        }
      }
  }

  func endReporters() {
    for helper in helpers.values {
      if case .sweep = helper.work { continue }
      helper.child.signal(SIGKILL)
    }
    var left: [OpenIncident] = []
    for helper in helpers.values {
      switch helper.work {
      case .capture(let incident, _) where incident.ending != nil && incident.isCapturing:
        incident.isCapturing = false
        incident.defects.append("no snapshot: the time for reports was up")
        write(incident)
      case .reporter(let incident):
        // Its worker with it: as long as it is not reaped, the group is its own.
        kill(-helper.child.pid, SIGKILL)
        // It must not move the folder while it is moved here; KILL takes a moment.
        var poller = pollfd(fd: helper.child.pidfd.raw, events: Int16(POLLIN), revents: 0)
        _ = unsafe poll(&poller, 1, 500)
        left.append(incident)
      case .capture, .giveUp, .probe, .sweep, .check: break
      }
    }
    left += reportsWaiting
    reportsWaiting = []
    var count = 0
    for (index, incident) in left.enumerated()
    where keepPlain(incident, isLast: index == left.count - 1) { count += 1 }
    if count > 0 {
      say("the time for reports is up: \(count) stay\(count == 1 ? "s" : "") plain", .normal)
    }
  }

  func runGiveUp(_ giveUp: GiveUp) {
    guard let line = configuration.onGiveUp else { return }
    var launch = Launch()
    launch.path = Array("/bin/sh".utf8)
    launch.arguments = ["/bin/sh", "-c", line].map { Array($0.utf8) }
    launch.environment = command.ownEnvironment
    launch.environment.set("GUARDIAN_NAME", configuration.name)
    launch.environment.set("GUARDIAN_REASON", giveUp.reason)
    launch.environment.set("GUARDIAN_ENDING", giveUp.ending.words)
    launch.environment.set("GUARDIAN_FAILURES", "\(giveUp.failures)")
    if let lastReport { launch.environment.set("GUARDIAN_LAST_REPORT", lastReport.text) }
    launch.descriptors = [(command.nullDescriptor, 0), (2, 1), (2, 2)]
    do {
      let child = try launch.start()
      helpers[child.pid] = Helper(child, .giveUp)
    } catch {
      say("on-give-up: \(error.words(launch))", .normal)
    }
  }

  /// A full disk would otherwise say the same with every crash.
  func sayOnce(_ key: String, _ text: String) {
    if saidOnce.insert(key).inserted { say(text, .normal) }
  }
}

enum MachineID {
  /// For guardian alone: the machine's own id must not leave it (machine-id(5)).
  static func hashed() -> String? {
    // An id of guardian's own, made once with `systemd-id128 new`.
    let application = sd_id128_t(
      bytes: (
        0x4f, 0x0d, 0x2a, 0x5b, 0x93, 0x3e, 0x4d, 0x1c, 0xa7, 0x66, 0x21, 0x0b, 0xc8, 0x52, 0x7e,
        0xf9
      ))
    var result = sd_id128_t()
    guard unsafe sd_id128_get_machine_app_specific(application, &result) >= 0 else { return nil }
    let bytes = unsafe withUnsafeBytes(of: &result) { unsafe Array($0) }
    return bytes.map { ($0 < 16 ? "0" : "") + String($0, radix: 16) }.joined()
  }
}
