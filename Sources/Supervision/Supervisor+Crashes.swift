// Crashes as they are announced: the bell, the capture while the program waits, its release.
// Everything a bell says is hostile but its sender, which is the kernel's word.
import CLinux
import CSpawn
import Glibc
import Kernel
import Policy
import Reports
import Ring

extension Supervisor {
  // MARK: the bell

  func bells(of life: RunningLife) {
    for _ in 0..<Limit.datagramsPerTurn {
      let datagram: Datagram
      switch Sockets.receiveFromStranger(life.channel.bell.raw, limit: 64) {
      case .nothing: return
      case .datagram(let found): datagram = found
      case .withDescriptors(let found):
        // Before Linux 6.16 nothing keeps them away.
        guard Errands.take(from: life.channel.bell.raw, room: 0) != nil else {
          sayOnce(
            "bell", "\(configuration.name) stuffs its bell: its crashes are not heard any more")
          life.bell = nil
          return
        }
        datagram = found
      }
      guard let bell = RingBell(datagram.bytes), datagram.senderPID > 0 else { continue }
      // The handler counts its own runs; who rings by hand is not captured for ever.
      life.bells += 1
      if life.bells > Int(Limit.handlerRuns) * 2 {
        life.channel.release(slot: bell.slot)
        continue
      }
      rang(bell, life, sender: datagram.senderPID)
    }
  }

  private func rang(_ bell: RingBell, _ life: RunningLife, sender: Int32) {
    if sender == life.pid {
      guard !life.hasEnded else { return }
      if let earlier = life.incident {
        // A program that lived through one fault and has another: only the last can kill it. One
        // that hangs has been captured; this is the ABRT it gets for it.
        if earlier.isCapturing || earlier.isHang {
          life.channel.release(slot: bell.slot)
          return
        }
        discard(earlier)
      }
      let incident = begin(life, role: .main, pid: sender, slot: bell.slot)
      life.incident = incident
      feed(.crashAnnounced(life.number))
      if life.incident === incident { capture(incident, life, thread: bell.tid, limit: nil) }
      return
    }
    descendantRang(bell, life, sender: sender)
  }

  /// Begins a report: its folder, and what /proc says while the process is still there.
  private func begin(
    _ life: RunningLife, role: Program.Role, pid: Int32, slot: Int?
  ) -> OpenIncident {
    let incident = OpenIncident(
      newReportID(), life: life, number: life.number, role: role, pid: pid, slot: slot)
    openFolder(incident)
    return incident
  }

  func openFolder(_ incident: OpenIncident) {
    // It was said at the start why there are no reports.
    guard stateIsOurs else { return }
    do { incident.folder = try store.begin(incident.id) } catch {
      sayOnce("folder", "\(error): reports are lost, supervision goes on")
    }
  }

  // MARK: the capture

  /// Starts the helper; the program is released in any case, by it or by us.
  func capture(
    _ incident: OpenIncident, _ life: RunningLife, thread: Int32, limit: Duration?
  ) {
    func without(_ defect: String) {
      incident.defects.append(defect)
      captureOver(incident, life)
    }
    guard let path = toolbox.capture else {
      return without("no snapshot: guardian-capture was not found")
    }
    guard let folder = incident.folder, let core = try? folder.openCore(),
      let ends = try? Sockets.packetPair()
    else { return without("no snapshot: its file cannot be made") }
    // Before there is anything in it: guardian may die at any moment.
    folder.note(
      BegunIncident(
        id: incident.id, life: incident.lifeNumber.rawValue, pid: incident.pid,
        role: incident.role, slot: incident.slot,
        signal: incident.slot.flatMap { life.channel.crashRecord(slot: $0)?.signal },
        startedWall: life.startedWall))
    // What /proc knows and the process's end will take away: before the helper starts, which has
    // the higher priority and may release the program before we have our turn again.
    incident.process = texts(of: incident, life)
    noteSender(incident, life)
    let limit = limit ?? configuration.captureTimeout
    var launch = Launch()
    launch.path = Array(path.utf8)
    launch.arguments =
      [launch.path]
      + [
        "--pid", "\(incident.pid)", "--tid", "\(thread)", "--timeout-ms", "\(limit.milliseconds)",
      ].map { Array($0.utf8) }
    launch.descriptors = [
      (command.nullDescriptor, 0), (command.nullDescriptor, 1), (2, 2), (ends.1.raw, 3),
      (core.raw, 4),
    ]
    if let slot = incident.slot {
      launch.arguments += ["--slot", "\(slot)"].map { Array($0.utf8) }
      launch.descriptors.append((life.channel.ringNumber, 5))
    }
    do {
      let child = try startRaised(launch)
      let helper = Helper(child, .capture(incident, life))
      helper.result = ends.0
      helper.limit = try? loop.timer(CLOCK_MONOTONIC) { [unowned self, unowned helper] in
        if helper.isOverdue {
          // It hangs in the kernel, over the program's memory or a file system of its making.
          helper.isAbandoned = true
          captureOver(incident, life)
        } else {
          helper.isOverdue = true
          incident.defects.append("the snapshot took longer than \(limit.milliseconds) ms")
          helper.child.signal(SIGKILL)
          if let slot = incident.slot { life.channel.release(slot: slot) }
          helper.limit?.set(after: Limit.killPatience)
        }
        settle()
      }
      helper.limit?.set(after: limit)
      helpers[child.pid] = helper
      incident.isCapturing = true
    } catch {
      return without("no snapshot: \(error.words(launch))")
    }
  }

  /// Environment and mappings are read through the process's own memory, which can be made to hang:
  /// not by guardian itself.
  private func texts(of incident: OpenIncident, _ life: RunningLife) -> ProcessTexts {
    let folder = "/proc/\(incident.pid)"
    var read: [String: [UInt8]] = [:]
    if !life.holdsReaders {
      let wanted = ProcessTexts.ofMemory
      if let found = Errands.read(wanted.map { ("\(folder)/\($0.name)", $0.limit) }) {
        for (file, text) in zip(wanted, found) { read["\(folder)/\(file.name)"] = text }
      } else {
        life.holdsReaders = true
      }
    }
    if life.holdsReaders {
      incident.defects.append("its environment and memory map could not be read in time")
    }
    return ProcessTexts.read(pid: incident.pid) { path, _ in read[path] ?? [] }
  }

  /// Raised before its first instruction: beside 31 busy threads on two processors a helper that
  /// raises itself waits half a second for its first turn.
  private func startRaised(_ launch: Launch) throws(LaunchFailure) -> Child {
    let lowest = Priority.lowest
    guard lowest < 0 else { return try launch.start() }
    var raised = launch
    raised.nice = lowest
    do { return try raised.start() } catch {
      // Root without CAP_SYS_NICE.
      guard error.step == GUARDIAN_SPAWN_NICE else { throw error }
      return try launch.start()
    }
  }

  private func noteSender(_ incident: OpenIncident, _ life: RunningLife) {
    guard let slot = incident.slot,
      let record = life.channel.crashRecord(slot: slot), record.code <= 0,
      record.senderPID > 0, record.senderPID != record.pid
    else { return }
    incident.senderName = Processes.name(of: record.senderPID)
  }

  private func captureOver(_ incident: OpenIncident, _ life: RunningLife) {
    incident.isCapturing = false
    incident.capturedAt = Clock.monotonic
    if let slot = incident.slot { life.channel.release(slot: slot) }
    // First the report: without it in the queue guardian might think itself free to leave.
    if incident.ending != nil, !incident.isOwed { write(incident) }
    if incident.role == .main { feed(.captureEnded(life.number)) }
    startWaitingCapture()
  }

  func helperEnded(_ helper: Helper, _ result: WaitResult) {
    switch helper.work {
    case .capture(let incident, let life):
      if helper.isAbandoned { return }
      helper.limit?.disarm()
      if let result = helper.result,
        let message = Sockets.receive(result.descriptor, limit: CaptureSummary.maximumBytes)
      {
        let summary = CaptureSummary(decoding: message.bytes)
        incident.summary = summary
        incident.replaced = zip(message.descriptors, summary.replacedModules).map { ($0, $1) }
      }
      if case .exited(0) = result.how {
      } else if incident.defects.isEmpty {
        incident.defects.append("no snapshot: guardian-capture \(Words.how(result.how))")
      }
      captureOver(incident, life)
    case .reporter(let incident): reporterEnded(incident, result)
    case .giveUp: break
    case .probe(let probe): probe.ended(result.how)
    case .sweep: sweepEnded(result)
    case .check: checkEnded(helper, result)
    }
  }

  /// The machine's time for it is up.
  func release(_ number: Life) {
    guard let life = running(number) else { return }
    if let slot = life.incident?.slot { life.channel.release(slot: slot) }
    for helper in helpers.values {
      if case .capture(let incident, let owner) = helper.work, owner === life,
        incident.role == .main
      {
        helper.child.signal(SIGKILL)
      }
    }
  }

  func captureHang(_ number: Life) {
    guard let life = running(number), !life.hasEnded else {
      feed(.captureEnded(number))
      return
    }
    life.health?.stop()
    life.hangWords = hangWords(life)
    say(
      "\(configuration.name) (life \(number.rawValue), pid \(life.pid)) hangs: "
        + (life.hangWords ?? "") + "; it is captured and ended", .normal)
    if let earlier = life.incident, !earlier.isCapturing { discard(earlier) }
    let incident = begin(life, role: .main, pid: life.pid, slot: nil)
    incident.isHang = true
    life.incident = incident
    capture(incident, life, thread: life.pid, limit: nil)
  }

  // MARK: descendants

  private func descendantRang(_ bell: RingBell, _ life: RunningLife, sender: Int32) {
    let record = life.channel.crashRecord(slot: bell.slot)
    // `yes | head` must not cry wolf, and who is killed from outside has not crashed.
    let killer = record.flatMap {
      $0.code <= 0 && $0.senderPID > 0 && $0.senderPID != $0.pid ? $0.senderPID : nil
    }
    // A master that ends its worker with ABRT wants to know where it hangs.
    let sent = killer.map { bell.signal == SIGQUIT || !isOurs($0, life) } ?? false
    if [SIGPIPE, SIGXCPU, SIGXFSZ].contains(bell.signal) || sent
      || !isOurs(sender, life) || descendants[sender] != nil
    {
      life.channel.release(slot: bell.slot)
      return
    }
    guard descendants.count < Limit.descendantsWatched, let pidfd = try? Processes.open(sender)
    else {
      life.bellsRefused += 1
      life.channel.release(slot: bell.slot)
      return
    }
    let incident = begin(life, role: .descendant, pid: sender, slot: bell.slot)
    let watched = WatchedDescendant(incident, life, pidfd: pidfd, signal: bell.signal)
    let raw = watched.pidfd.raw
    watched.source = try? loop.watch(raw) { [unowned self] _ in
      descendantEnded(sender, how: nil)
      settle()
    }
    descendants[sender] = watched
    let busy = helpers.values.filter {
      if case .capture = $0.work { !$0.isAbandoned } else { false }
    }.count
    if busy < Limit.capturesAtOnce {
      capture(incident, life, thread: bell.tid, limit: nil)
    } else if capturesWaiting.count < Limit.capturesWaiting {
      capturesWaiting.append((incident, life))
    } else {
      incident.defects.append("no snapshot: too many crashes at one time")
      life.channel.release(slot: bell.slot)
    }
  }

  private func startWaitingCapture() {
    while !capturesWaiting.isEmpty {
      let (incident, life) = capturesWaiting.removeFirst()
      // It may have waited as long as a handler waits, and died.
      if descendants[incident.pid] == nil { continue }
      let thread = incident.slot.flatMap { life.channel.crashRecord(slot: $0)?.tid } ?? incident.pid
      capture(incident, life, thread: thread, limit: nil)
      return
    }
  }

  /// A descendant that crashed has died, or is about to: guardian does not leave before its report is
  /// on its way.
  var awaitsDescendants: Bool {
    descendants.values.contains { $0.incident.isCapturing || $0.isDead }
  }

  /// They live on although they rang: nothing of them is to be found later.
  func discardDescendants() {
    for watched in descendants.values { discard(watched.incident) }
    descendants = [:]
  }

  /// A child that is neither the program nor a helper: an orphan that came to us.
  func descendantReaped(_ result: WaitResult) { descendantEnded(result.pid, how: result.how) }

  private func descendantEnded(_ pid: Int32, how: WaitResult.How?) {
    guard let watched = descendants.removeValue(forKey: pid) else { return }
    let incident = watched.incident
    watched.source = nil
    if capturesWaiting.contains(where: { $0.0 === incident }) {
      capturesWaiting.removeAll { $0.0 === incident }
      incident.defects.append("no snapshot: too many crashes at one time")
    }
    let known = how ?? Processes.exitStatus(watched.pidfd)
    let status: Ending.Status
    switch known {
    case .exited:
      // It lived on after the fault and left in its own way.
      discard(incident)
      return
    case .signaled(let signal, let dumped):
      status = .signaled(Signal(rawValue: signal), coreDumped: dumped)
    case nil, .unknown?:
      // Its parent has the wait status, and this kernel tells nobody else.
      status = .signaled(Signal(rawValue: watched.signal), coreDumped: false)
      incident.defects.append("the wait status went to its own parent; the signal is the handler's")
    }
    incident.ending = (Ending(status: status), nil, .now())
    if !incident.isCapturing { write(incident) }
    let told = incident.folder == nil ? "" : "; report \(incident.id)"
    var fields: [(name: String, value: String)] = [
      ("GUARDIAN_NAME", configuration.name),
      ("GUARDIAN_LIFE", "\(watched.life.number.rawValue)"), ("GUARDIAN_PID", "\(pid)"),
      ("GUARDIAN_SIGNAL", Signal(rawValue: watched.signal).name),
    ]
    if incident.folder != nil { fields.append(("GUARDIAN_REPORT", incident.id.text)) }
    let sent = journal.send(
      JournalEntry(
        event: .descendantCrashed, name: configuration.name, priority: LOG_ERR,
        message: "A descendant of \(configuration.name), pid \(pid), died of "
          + Signal(rawValue: watched.signal).name,
        fields: fields))
    if sent && Journal.isStandardError { return }
    say(
      "\(configuration.name) (life \(watched.life.number.rawValue)): its descendant, pid \(pid), "
        + "died of \(Signal(rawValue: watched.signal).name)\(told)", .normal, LOG_ERR)
  }

  // MARK: signatures

  /// What makes two endings the same before anything is symbolicated. The crash's place is the
  /// offset of the instruction in its page, which address space randomisation leaves alone.
  func signature(of life: RunningLife, _ ending: Ending) -> CrashSignature? {
    if configuration.maxIdentical == 0 { return nil }
    var hash = StableHash()
    hash.add(ending.words.utf8)
    if case .signaled(let signal, _) = ending.status, let slot = life.incident?.slot,
      let record = life.channel.crashRecord(slot: slot), record.signal == signal.rawValue
    {
      hash.add(record.pc & 0xfff)
      hash.add(record.code)
      hash.add(record.abortMessage.utf8)
    }
    return CrashSignature(rawValue: hash.value)
  }
}
