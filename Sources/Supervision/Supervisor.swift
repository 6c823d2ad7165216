// The supervisor: performs what the policy's machine decides, and decides nothing. One thread;
// every event comes through the loop, becomes an input of the machine, and its effects are
// performed in their order. A restart waits for nothing it can avoid: reports, state and messages
// are put by until the new life has begun.
import CLinux
import CSpawn
import CSystemd
import Control
import Glibc
import Kernel
import Policy
import Reports
import Ring
import Settings

package final class Supervisor {
  private(set) var configuration: Configuration
  private(set) var command: ProgramCommand
  let loop: EventLoop
  let sink: OutputSink
  /// nil: neither of guardian's own streams is the journal's.
  let inheritedJournal: InheritedJournal?
  let streams: StandardStreams
  let instance: Instance
  let toolbox: Toolbox
  let manager = ServiceManager()
  let journal = Journal()
  private(set) var inherited: guardian_signal_state
  /// guardian's own, for reading the options again.
  let arguments: [[UInt8]]
  let environment: [[UInt8]]
  let terminal: Terminal?
  /// Of the life that runs; nil: no terminal.
  var keys: TerminalKeys?
  let store: ReportStore<KernelStoreCalls>
  /// The state folder is there and nobody else may write to it; else nothing is written to it.
  private(set) var stateIsOurs = false
  let memory = CgroupMemory()
  let sockets: ListeningSockets
  let kept: DescriptorStore
  let cgroups = LifeCgroups()

  var machine: ServiceMachine
  var life: RunningLife?
  /// Children that guardian had before it started anything, by pid, with their start times.
  var bystanders: [Int32: UInt64] = [:]
  /// Lives that ended and whose report is not written yet.
  var ended: [Life: RunningLife] = [:]
  var helpers: [Int32: Helper] = [:]
  var capturesWaiting: [(OpenIncident, RunningLife)] = []
  var reportsWaiting: [OpenIncident] = []
  var descendants: [Int32: WatchedDescendant] = [:]
  /// Outputs of earlier lives that somebody still holds open, oldest first.
  var earlierOutputs: [ProgramOutput] = []
  /// The next life's channel, made ahead.
  var prepared: Channel?
  var awaitedTree: RunningLife?
  /// What KILL did not end: a process that waits in the kernel may do so for ever.
  var abandoned: Set<TreeProcess.Identity> = []
  var awaitsReporters = false
  var spawnFailedWords: [Life: String] = [:]
  var lastReport: ReportID?
  var crashedLastRun = false
  var leave: Leave?
  var host: Host?
  var saidOnce: Set<String> = []
  var control: ControlServer?
  /// The last lines of the life before this one.
  var lastLines: [OutputTail.Line] = []
  var lastEndingWall: Int64?
  /// Since guardian began, by cause.
  var endings: [String: UInt64] = [:]
  /// A life that ended together with an earlier guardian, and how.
  private var unfinished: (life: StateFile.Unfinished, cause: Ending.Cause)?
  /// One of those that the machine is told of, so that it counts.
  private(set) var interrupted: StateFile.Unfinished?
  var newestReportTime: WallTime?
  /// Snapshots that the guardian before this one left without a report.
  var begun: [BegunIncident] = []
  /// The last ring of the guardian before this one.
  var ringBefore: [UInt8]?
  /// The failures before this guardian count: the same program, the same boot.
  private let countGoesOn: Bool
  /// The life that the state file named as running.
  let savedRunning: Life?
  /// The last life of the guardians before this one.
  var lifeBefore: UInt32
  /// What the binary before this one left, until it is taken up.
  var handover: Handover?
  var upgrade: Upgrade?
  /// The life that the life file names.
  var recorded: Life?
  var sweepsStarted = 0

  private var inputs: [ServiceMachine.Input] = []
  private var isFeeding = false
  private var announcements: [Announcement] = []
  /// Reports that are promised and not begun.
  private var owedReports: [OpenIncident] = []
  /// The new life was woken on this processor and cannot run before guardian lets go of it: what is
  /// owed of the old one takes longer than a start, and waits this long.
  private static let breath = Duration.milliseconds(2)
  private var breathTimer: EventLoop.Timer?
  private var isBreathing = false
  private var postponed: [() -> Void] = []
  private var stateIsDirty = false
  private var stateWarned = false
  var toldReady = false
  private var lastStatus = ""
  /// The deadline that systemd was told to wait for.
  private var toldDeadline: Duration?
  private var sources: [EventSource] = []
  private var deadlineTimer: EventLoop.Timer?
  private var armed: Duration?
  /// How long guardian did not run while a program did, since it began.
  private(set) var lostTime = Duration.zero
  private var lastLook = Clock.monotonic
  private var forgiven: Duration?
  /// Stopped by hand before the last guardian died: the service manager started this one, and nobody
  /// asked for the program.
  private(set) var staysStopped = false
  var treeTimer: EventLoop.Timer?
  private var statusTimer: EventLoop.Timer?
  /// On CLOCK_BOOTTIME, as the window is: the status counts one failure less.
  private var forgetTimer: EventLoop.Timer?
  private var forgetAt: Duration?
  private var statusSent: Duration = .zero
  private var lastBase = ""
  private var notifyTimer: EventLoop.Timer?
  var forwarded = Budget(perSecond: Limit.forwardedPerSecond)
  var storing = Budget(perSecond: Limit.storedPerSecond)
  private var preparation: EventSource?
  private var forgotStartUp = false
  private var memoryEvents: EventSource?
  private var metricsFile: MetricsFile?
  private var metricsMoment = ""

  struct Announcement {
    let life: Life
    let ending: Ending
    let verdict: Verdict
    var report: ReportID?
  }

  /// - Parameter arguments: guardian's own, as bytes.
  /// - Parameter inherited: saved before anything was changed.
  package init(
    _ wanted: Configuration, arguments: [[UInt8]], environment: [[UInt8]],
    inherited: StartConditions, handover: Handover? = nil
  ) throws(SupervisorError) {
    self.inherited = handover?.signals ?? inherited.signals
    self.handover = handover
    self.arguments = arguments
    self.environment = environment
    lostTime = handover?.lostTime ?? .zero
    if let handover {
      bystanders = handover.bystanders
    } else {
      for pid in Descendants.ofThisProcess() { bystanders[pid] = Processes.startTime(of: pid) }
    }
    guardian_close_on_exec_from(3)
    sockets = ListeningSockets(
      inherited: Environment(environment), takesStored: handover == nil)
    SignalPlan.blockAll()
    Priority.raise()
    do {
      loop = try EventLoop()
    } catch { throw .system(error) }
    kept = DescriptorStore(loop: loop)
    for (passed, watches) in sockets.stored {
      _ = kept.keep(passed.descriptor, name: passed.name, watches: watches)
    }
    sink = OutputSink(2, loop: loop)
    if wanted.onGuardianDeath == .keep, let obstacle = Keeping.obstacle() {
      throw SupervisorError.impossible("on-guardian-death=keep: \(obstacle): nothing was started")
    }
    var configuration = wanted
    if let handover, let taken = handover.instance(&configuration) {
      instance = taken
    } else {
      do { instance = try Instance.take(&configuration) } catch {
        throw SupervisorError.instance(error)
      }
    }
    self.configuration = configuration
    if case .descriptor(let number) = configuration.ready {
      let first = 3 + sockets.all.count + configuration.listen.count
      if number < first { throw .readinessDescriptor(number, first: first) }
    }
    do {
      try sockets.open(
        configuration.listen, name: configuration.name, handed: handover?.listening ?? [:])
    } catch {
      sockets.removeFiles()
      throw .system(error)
    }
    inheritedJournal = InheritedJournal(identifier: configuration.name)
    toolbox = Toolbox.find()
    command = ProgramCommand(configuration, arguments: arguments, environment: environment)
    streams = StandardStreams(configuration, own: sink)
    terminal =
      handover?.number("terminal").map { Terminal(resuming: Int32(clamping: $0)) }
      ?? Terminal.controlling()
    store = ReportStore(directory: configuration.stateDirectory + "/reports")

    let identity = Identity.of(command: command, configuration: configuration)
    let bootID = LifeRecord.currentBoot
    let statePath = configuration.stateDirectory + "/" + StateFile.name
    var warning: String?
    var contents: StateFile.Contents?
    do {
      // The system's folder above holds the names of all: also of units with a User= of their own.
      if configuration.givenStateDirectory == nil, geteuid() == 0 {
        try Files.makeDirectories(configuration.places.state, mode: 0o755)
      }
      try Files.makeDirectories(configuration.stateDirectory, mode: 0o700)
      try Files.checkOwner(configuration.stateDirectory)
      try Files.checkAbove(configuration.stateDirectory)
      try store.checkOwners()
      stateIsOurs = true
    } catch {
      warning = "\(error): there will be no reports, and counts end with guardian"
    }
    if stateIsOurs, let bytes = try? Files.read(statePath, limit: Limit.stateBytes) {
      contents = StateFile.decode(bytes)
      if contents == nil {
        warning = "the state file '\(statePath)' is damaged: the failure count begins at 0"
      }
    }
    let saved = contents?.history
    let resumption = CrashHistory.resume(saved, bootID: bootID, identity: identity)
    var history = resumption.history
    // Begun, and guardian was killed before it could write that down.
    let begun = instance.before.flatMap {
      resumption.continued && saved?.bootID == bootID && $0.life > history.lastLife.rawValue
        ? StateFile.Unfinished(
          life: Life(rawValue: $0.life), pid: $0.pid, startedWall: Clock.wall,
          command: configuration.command) : nil
    }
    if let begun { history.lastLife = begun.life }
    machine = ServiceMachine(
      name: configuration.name,
      policy: Self.policy(of: configuration, under: manager), history: history)
    staysStopped =
      manager.isPresent && handover == nil && contents?.diedWhileStopped ?? false
      && saved?.bootID == bootID
    lifeBefore = machine.history.lastLife.rawValue
    countGoesOn = resumption.continued
    savedRunning = contents?.running?.life
    if saved?.lastLife.rawValue ?? 0 > 0, resumption.continued { crashedLastRun = true }

    if handover == nil, let running = begun ?? contents?.running,
      saved?.departure == CrashHistory.Departure.none
    {
      // Times and pids of another boot mean nothing; of this one, the program that was to be kept
      // may be alive.
      if saved?.bootID != bootID {
        unfinished = (running, .machineDown)
      } else if configuration.onGuardianDeath == .kill {
        unfinished = (running, .guardianDied)
      }
      if unfinished != nil { crashedLastRun = true }
    }
    if let inheritedJournal {
      sink.reconnect = { inheritedJournal.newStandardError() }
      sink.onReturn = { [unowned self] count in journalIsBack(lost: count) }
    }
    if let warning { say(warning, .normal) }
    if let warning = sockets.warning { say(warning, .normal) }
    if configuration.name != wanted.name {
      say(
        "the name '\(wanted.name)' is taken: this one is called '\(configuration.name)'", .normal,
        LOG_NOTICE)
    }
    if handover == nil, !(saved?.failures.isEmpty ?? true) {
      say(resumption.sentence, .normal, LOG_NOTICE)
    }
  }

  /// A life whose guardian was killed with it, where the policy would restart it: it is judged as
  /// any other ending, or a crash that takes guardian along each time would never reach the cap.
  func takeInterrupted() -> Ending? {
    guard countGoesOn, let (life, cause) = unfinished, cause == .guardianDied else { return nil }
    let signal = begun.last { $0.role == .main && $0.life == life.life.rawValue }?.signal
    let ending =
      signal.map { Ending(status: .signaled(Signal(rawValue: $0), coreDumped: false)) }
      ?? Ending(status: .unknown, cause: .guardianDied)
    guard machine.policy.restart.restarts(after: machine.policy.classify(ending)) else {
      return nil
    }
    interrupted = life
    unfinished = nil
    return ending
  }

  // MARK: the loop

  /// Until guardian is to leave.
  package func run() throws(SupervisorError) -> Leave {
    do {
      try watch()
      loop.answerWatchdog()
      // Every orphan below us comes to us: to be reaped, and to be found when a life ends.
      guardian_become_subreaper()
      adoptReports()
      openControl()
      openMetrics()
      beginOrAdopt()
      reportBegun()
      if let (life, cause) = unfinished {
        unfinished = nil
        reportUnfinished(life, cause)
        settle()
      }
      try loop.run()
    } catch { throw .system(error) }
    // While guardian still has a place in the tree of control groups.
    journal.waitUntilRead(within: Limit.journalPatience)
    control?.close()
    metricsFile?.write(metrics(isUp: false))
    streams.finish(within: .milliseconds(500))
    sockets.removeFiles()
    kept.removeAll()
    endSweep()
    instance.removeLifeRecord()
    instance.removeChannels()
    return leave ?? .exit(70)
  }

  private func watch() throws(SystemError) {
    deadlineTimer = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in
      noticeLostTime()
      armed = nil
      // What the program said meanwhile counts before the deadline does.
      if let life, life.notifies, !life.hasEnded { notifications(of: life) }
      lookAtHeartbeat()
      feed(.deadline)
    }
    breathTimer = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in
      isBreathing = false
      settle()
    }
    statusTimer = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in settle() }
    forgetTimer = try loop.timer(CLOCK_BOOTTIME) { [unowned self] in
      forgetAt = nil
      settle()
    }
    notifyTimer = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in
      life?.notify?.isEnabled = true
    }
    treeTimer = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in
      checkTree()
      settle()
    }
    sources.append(
      try loop.watchSignal(SIGCHLD, urgency: .ending) { [unowned self] _ in
        reap()
        settle()
      })
    for signal in SignalPlan.handled {
      sources.append(
        try loop.watchSignal(signal) { [unowned self] info in received(info) })
    }
    preparation = try loop.whenIdle { [unowned self] in prepare() }
    streams.open(
      configuration, loop: loop,
      onRoom: { [unowned self] in
        life?.channel.resumeOutputs()
        for output in earlierOutputs { output.resume() }
      },
      complain: { [unowned self] in say($0, .quiet) })
  }

  private func openMetrics() {
    guard let path = configuration.metricsFile else { return }
    metricsFile = MetricsFile(
      path, loop: loop, make: { [unowned self] in metrics(isUp: true) },
      complain: { [unowned self] in say($0, .normal) })
  }

  func readOptionsAgain() throws(SettingsError) -> Settings.Reloaded {
    let result = try Settings.reload(
      configuration, arguments: arguments.map { String(decoding: $0, as: UTF8.self) },
      environment: ProcessVectors.texts(environment), uid: geteuid())
    configuration = result.configuration
    command.adopt(configuration)
    streams.adopt(configuration)
    // It was made for the user before.
    prepared = nil
    prepareLater()
    machine.adopt(
      Self.policy(of: configuration, under: manager),
      identity: Identity.of(command: command, configuration: configuration))
    persist()
    return result
  }

  static func policy(of configuration: Configuration, under manager: ServiceManager)
    -> RestartPolicy
  {
    var policy = configuration.policy
    policy.leavesCleanWithZero = manager.isPresent
    return policy
  }

  /// The machine's time: in it guardian was never away.
  func now() -> Now { Now(boot: Clock.boot, monotonic: Clock.monotonic - lostTime) }

  /// Guardian did not run when the deadline came: from what it saw last until now no time has passed
  /// for a program that is to show signs of life or to get ready. Once for each deadline: a machine
  /// that is always late must not put off a stop for ever.
  private func noticeLostTime() {
    let before = lastLook
    let time = now().monotonic
    lastLook = time
    guard let armed, armed != forgiven, time - armed > Limit.lateness else { return }
    switch machine.state {
    case .starting, .running, .stopping: break
    default: return
    }
    lostTime += time - before
    lastLook = before
    // Later by what was not used of it.
    forgiven = machine.deadline
    self.armed = nil
    life?.heartbeatLook = before
    say("guardian did not run for \((time - before).words): deadlines are put off", .verbose)
  }

  func feed(_ input: ServiceMachine.Input) {
    noticeLostTime()
    inputs.append(input)
    if isFeeding { return }
    endBreath()
    isFeeding = true
    while !inputs.isEmpty {
      let next = inputs.removeFirst()
      for effect in machine.handle(next, at: now()) { perform(effect) }
    }
    isFeeding = false
    settle()
  }

  private func perform(_ effect: ServiceMachine.Effect) {
    switch effect {
    case .spawn(let number): spawn(number)
    case .signalStop(let number): signalStop(number)
    case .release(let number): release(number)
    case .captureHang(let number): captureHang(number)
    case .abort(let number): running(number)?.main.signal(SIGABRT)
    case .kill(let number): killAll(number)
    case .awaitTree(let number): awaitTree(number)
    case .abandon(let number): abandon(number)
    case .report(let number, let ending, let verdict):
      let incident = report(number, ending, verdict)
      if let index = announcements.lastIndex(where: { $0.life == number }) {
        announcements[index].report = incident.id
      }
      owedReports.append(incident)
    case .announce(let number, let ending, let verdict):
      announcements.append(Announcement(life: number, ending: ending, verdict: verdict))
    case .runGiveUp(let giveUp):
      pay()
      runGiveUp(giveUp)
    case .persist: stateIsDirty = true
    case .awaitReporters:
      awaitsReporters = true
      hurryReporters()
    case .endReporters:
      pay()
      endReporters()
    case .leave(let how):
      pay()
      discardDescendants()
      leave = how
      persist()
      for helper in helpers.values {
        if case .check = helper.work { helper.child.signal(SIGKILL) }
      }
      loop.leave()
    }
  }

  /// Now, or when the new life has begun.
  func later(_ work: @escaping () -> Void) {
    if isBreathing { postponed.append(work) } else { work() }
  }

  /// For a restart: what is owed is put by for a moment.
  func breathe() {
    isBreathing = true
    breathTimer?.set(after: Self.breath)
  }

  private func endBreath() {
    if !isBreathing { return }
    isBreathing = false
    breathTimer?.disarm()
    settle()
  }

  /// What is due after every event: said, written and armed once, however many effects there were.
  func settle() {
    if isFeeding { return }
    noticeLostTime()
    if isBreathing {
      armDeadline()
      return
    }
    while !postponed.isEmpty { postponed.removeFirst()() }
    // First what counts: whatever a report may run into, this failure is remembered.
    if stateIsDirty { persist() }
    pay()
    if machine.isRunning { prepareLater() }
    startReporters()
    if awaitsReporters && isQuiet {
      awaitsReporters = false
      feed(.reportersDone)
      return
    }
    tellManager()
    tellDeadline()
    tellClients()
    if let metricsFile {
      if metricsMoment != moment {
        metricsMoment = moment
        metricsFile.changed()
      }
    }
    startHealth()
    continueUpgrade()
    armDeadline()
  }

  private func armDeadline() {
    let wanted = wakeUp
    if wanted == armed { return }
    armed = wanted
    if let armed { deadlineTimer?.set(at: armed + lostTime) } else { deadlineTimer?.disarm() }
  }

  /// Also one whose ending was announced already, while what is left of it is waited for.
  func running(_ number: Life) -> RunningLife? {
    if let life, life.number == number { return life }
    if let awaitedTree, awaitedTree.number == number { return awaitedTree }
    return ended[number]
  }

  // MARK: words

  /// - Parameter priority: as in syslog(3); nil: as the level has it.
  func say(_ text: String, _ level: Verbosity, _ priority: Int32? = nil) {
    if level > configuration.verbosity { return }
    let usual =
      switch level {
      case .quiet: LOG_ERR
      case .normal: LOG_WARNING
      case .verbose: LOG_INFO
      }
    // sd-daemon(3): a line's priority, where a journal reads it.
    let prefix = Journal.isStandardError ? "<\(priority ?? usual)>" : ""
    sink.write(prefix + "guardian: " + text + "\n")
  }

  /// The first line of a new stream.
  private func journalIsBack(lost count: UInt64) -> String {
    var text =
      "<\(LOG_WARNING)>guardian: the journal is back: \(count) bytes of guardian's and the program's "
      + "words were lost"
    if let life, life.outputIsLost {
      text +=
        "; life \(life.number.rawValue) was started meanwhile: its standard output goes nowhere until "
        + "\(configuration.name) is restarted"
    }
    return text + "\n"
  }

  /// The reports and messages that are owed, the reports first: a message names its report.
  private func pay() {
    while !owedReports.isEmpty {
      let incident = owedReports.removeFirst()
      begin(incident)
      if incident.folder == nil,
        let index = announcements.lastIndex(where: { $0.report == incident.id })
      {
        announcements[index].report = nil
      }
    }
    while !announcements.isEmpty {
      let announcement = announcements.removeFirst()
      announce(announcement)
      retire(announcement.life)
    }
  }

  private func announce(_ announcement: Announcement) {
    let number = announcement.life
    let record = running(number)
    // Its last words come before ours.
    record?.channel.drainOutputs()
    let verdict = announcement.verdict
    let words = Words.ending(
      name: configuration.name, announcement.ending, life: number, pid: record?.pid,
      uptime: record?.uptime, failure: spawnFailedWords[number],
      hang: record?.hangWords ?? record?.limitWords)
    let next = Words.next(
      verdict, stopping: machine.isAskedToStop, asked: record?.stopAsked ?? false)
    var message = "\(words); \(next)"
    if let report = announcement.report { message += "; report \(report)" }
    lastEndingWall = Clock.wall
    endings[Self.cause(of: announcement.ending), default: 0] += 1
    tellEnding(message)
    let isFailure = configuration.policy.classify(announcement.ending).isFailure
    let asked = record?.stopAsked ?? false
    spawnFailedWords[number] = nil

    var fields: [(name: String, value: String)] = [
      ("GUARDIAN_NAME", configuration.name), ("GUARDIAN_LIFE", "\(number.rawValue)"),
      ("GUARDIAN_VERDICT", Words.verdict(verdict)), ("GUARDIAN_REASON", verdict.reason),
      ("GUARDIAN_FAILURES", "\(verdict.failures)"),
    ]
    if let max = verdict.maxCrashes { fields.append(("GUARDIAN_MAX_CRASHES", "\(max)")) }
    if let report = announcement.report { fields.append(("GUARDIAN_REPORT", report.text)) }
    if let pid = record?.pid { fields.append(("GUARDIAN_PID", "\(pid)")) }
    switch announcement.ending.status {
    case .exited(let status): fields.append(("GUARDIAN_EXIT_STATUS", "\(status)"))
    case .signaled(let signal, _): fields.append(("GUARDIAN_SIGNAL", signal.name))
    case .execFailed(let errno): fields.append(("GUARDIAN_ERRNO", "\(errno)"))
    case .unknown: break
    }
    let event: JournalEntry.Event
    let priority: Int32
    switch verdict.decision {
    case .giveUp: (event, priority) = (.gaveUp, LOG_CRIT)
    case .restart: (event, priority) = (.restarted, isFailure ? LOG_ERR : LOG_NOTICE)
    case .stop: (event, priority) = (.ended, isFailure && !asked ? LOG_ERR : LOG_NOTICE)
    }
    let sent = journal.send(
      JournalEntry(
        event: event, name: configuration.name, priority: priority, message: message,
        fields: fields))
    // Once is enough where both would end up in the journal.
    if sent && Journal.isStandardError { return }
    if case .giveUp = verdict.decision {
      // An error, and the last thing that is said.
      say(message, .quiet, priority)
    } else {
      say(
        message, isFailure || announcement.report != nil || !asked ? .normal : .verbose, priority)
    }
  }

  /// STATUS= for `systemctl status`, READY= once the program is ready for the first time.
  private func tellManager() {
    if !manager.isPresent { return }
    let now = now()
    let base = Words.status(machine, name: configuration.name, pid: life?.pid, at: now)
    let next = machine.nextForgotten(at: now.boot)
    if next != forgetAt {
      forgetAt = next
      if let next { forgetTimer?.set(at: next) } else { forgetTimer?.disarm() }
    }
    var status = base
    if let said = life?.statusText { status += ": " + said }
    if !toldReady, case .running = machine.state {
      toldReady = true
      manager.ready(status: status)
    } else if status != lastStatus {
      // The program may change its words as often as it likes.
      let next = statusSent + Limit.statusPause
      if base == lastBase, Clock.monotonic < next {
        statusTimer?.set(at: next)
        return
      }
      // STOPPING=1 cannot be taken back: it is said of guardian's own end only.
      if machine.isLeaving { manager.stopping(status: status) } else { manager.status(status) }
    } else {
      return
    }
    lastStatus = status
    lastBase = base
    statusSent = Clock.monotonic
  }

  /// A stop may take as long as the configuration of the program says, not as the unit does.
  /// Guardian's own deadlines bound it: the stop timeout, then that for reports.
  private func tellDeadline() {
    guard manager.isPresent, machine.isLeaving, let deadline = machine.deadline,
      deadline != toldDeadline
    else { return }
    toldDeadline = deadline
    manager.extendTimeout(max(deadline - now().monotonic, .zero) + Limit.leaving)
  }

  /// The program reads its configuration again, or has done so.
  func tellReload(began monotonic: UInt64?) {
    if let monotonic { manager.reloading(monotonic) } else { manager.ready(status: lastStatus) }
  }

  /// The manager waits for the start or the stop, and the program wants more time for it.
  func tellExtension(_ more: Duration) {
    if (!toldReady || machine.isAskedToStop), forwarded.take() { manager.extendTimeout(more) }
  }

  // MARK: state

  func persist() {
    stateIsDirty = false
    guard stateIsOurs else { return }
    let path = configuration.stateDirectory + "/" + StateFile.name
    var running: StateFile.Unfinished?
    if let life, !life.hasEnded {
      running = StateFile.Unfinished(
        life: life.number, pid: life.pid, startedWall: life.startedWall,
        command: configuration.command)
    }
    do {
      try StateFile.save(
        machine.history, running: running, farewell: farewell.facts, to: path)
      stateWarned = false
    } catch {
      if stateWarned { return }
      stateWarned = true
      say("\(error): the failure count ends with this guardian", .normal)
    }
  }

  /// What guardianctl tells when nobody answers any more. How guardian left is known at its end;
  /// one that is killed says no more.
  private var farewell: Farewell {
    var farewell = Farewell(.none)
    farewell.name = configuration.name
    farewell.startAgain = startAgain
    guard let leave else { return farewell }
    farewell.time = TimeText.rfc3339(WallTime.now())
    farewell.reason = machine.lastVerdict?.reason
    farewell.ending = machine.lastEnding?.words
    switch leave {
    case .exit(let code): farewell.exit = "\(code)"
    case .signal(let signal): farewell.exit = signal.name
    }
    farewell.report = lastReport?.text
    return farewell
  }

  /// The command line that starts this guardian once more.
  private lazy var startAgain: String =
    manager.startAgain
    ?? Farewell.startAgain(
      arguments.map { Printable.text($0, limit: 1000) },
      redaction: Redaction(extra: configuration.redact),
      directory: try? Files.readLink("/proc/self/cwd"))

  // MARK: signals

  private func received(_ info: signalfd_siginfo) {
    let signal = Int32(bitPattern: info.ssi_signo)
    let code = info.ssi_code
    // A write of our own to a pipe that nobody reads (the kernel says we sent it), and what we sent
    // to our own process group.
    if info.ssi_pid == UInt32(bitPattern: getpid()) && code <= 0 { return }
    if signal == SIGHUP { streams.reopen() }
    let fromTerminal = code == Int32(SI_KERNEL)
    switch signal {
    case SIGTERM, SIGINT:
      if let rewrite = rewrite(of: signal) {
        guard let to = rewrite.to else { return }
        // The request stays one; only the words to the program are others.
        var policy = machine.policy
        policy.stopSignal = to
        machine.adopt(policy, identity: machine.history.identity)
      }
      if !machine.isAskedToStop { manager.stopping(status: "stopping") }
      if case .waiting = machine.state {
        say(
          "\(configuration.name): stopped as asked before the next life began", .normal, LOG_NOTICE)
      }
      feed(.terminate)
      return
    case SIGWINCH: life?.channel.errors.copySize()
    case SIGTTIN, SIGTTOU:
      // Somebody else in our own group wanted the terminal that the program has.
      if fromTerminal { return }
    case SIGTSTP:
      // ^Z between two lives: there is only guardian to stop.
      if fromTerminal, life == nil, let terminal, terminal.hasShell {
        stopSelf()
        return
      }
    case SIGCONT:
      // `fg`: the shell gave the terminal to our group, and it is for the program.
      if let life, !life.hasEnded, let terminal { terminal.handOver(to: life) }
    case SIGHUP:
      // The terminal is gone. Its session's leader is told; if that is a shell, it tells its jobs, us
      // among them, and when it ends the kernel tells the foreground, which was the program.
      if let life, life.hasTerminal, let terminal, terminal.foregroundGroup < 0,
        getsid(0) != getpid()
      {
        return
      }
    default: break
    }
    let passed = rewrite(of: signal)
    if let passed, passed.to == nil { return }
    forward(passed?.to?.rawValue ?? signal)
  }

  private func rewrite(of signal: Int32) -> SignalRewrite? {
    configuration.signalRewrites.last { $0.from.rawValue == signal }
  }

  private func forward(_ signal: Int32) {
    guard let life, !life.hasEnded else { return }
    switch configuration.forwardTo {
    case .process: life.main.signal(signal)
    case .group: signalGroup(life, signal)
    }
  }

  /// Stops this process and the rest of its job, as ^Z does, until somebody continues it.
  func stopSelf() {
    // Ours stays blocked, and is dropped when we go on (signal(7)).
    kill(0, SIGTSTP)
    kill(getpid(), SIGSTOP)
    // What continued us is no news for the program: it gets its own.
    var set = sigset_t()
    unsafe sigemptyset(&set)
    unsafe sigaddset(&set, SIGCONT)
    var none = timespec()
    _ = unsafe sigtimedwait(&set, nil, &none)
  }

  // MARK: the next channel

  /// Made while nothing else is to be done, so that a restart finds it ready.
  private func prepare() {
    let next = machine.history.lastLife.next
    if prepared?.life == next.rawValue || machine.isLeaving || isBreathing { return }
    prepared = nil
    prepared = try? makeChannel(next)
    cgroups?.prepare()
    if !forgotStartUp {
      forgotStartUp = true
      unsafe guardian_signal_state_settle(&inherited)
      startSweep()
      // Not when the first crash waits for its report.
      newestReportTime = newestReportTime ?? store.newest()?.time
      if memory.isTold, let path = memory.path {
        // So that the kill of another process long ago is not taken for the program's.
        memoryEvents = try? loop.watchChanges(of: path) { [unowned self] in
          memory.look(at: Clock.monotonic)
        }
      }
      if let group = memory.groupKilledTogether {
        say(
          "memory.oom.group is set in '\(group)': when memory runs out there, the kernel kills "
            + "guardian together with the program, and nobody restarts it", .normal)
      }
      guardian_forget_start_up()
    }
  }

  /// The one that was made ahead, or a new one. A cleaner of /run or /tmp may have taken the folder
  /// away: it is made again. Where that cannot be, the program runs without a channel.
  func channel(for number: Life) throws(SystemError) -> Channel {
    if let ready = prepared, ready.life == number.rawValue {
      prepared = nil
      if ready.isThere { return ready }
    }
    do { return try makeChannel(number) } catch {
      if instance.restore() {
        later { [unowned self] in
          control?.close()
          openControl()
        }
        if let channel = try? makeChannel(number) { return channel }
      }
      sayOnce("channel", "\(error): the program runs without the crash handler")
      return try Channel(
        withoutFolder: number.rawValue, because: error, readinessPipe: configuration.readyByPipe,
        streams: streams, user: command.launch.user, loop: loop)
    }
  }

  func makeChannel(_ number: Life) throws(SystemError) -> Channel {
    try Channel(
      life: number.rawValue, runtime: instance.runtimeDirectory,
      captureTimeout: configuration.captureTimeout, readinessPipe: configuration.readyByPipe,
      streams: streams, user: command.launch.user, loop: loop,
      takesDescriptors: notifies, mayBeTerminal: configuration.onGuardianDeath == .kill)
  }

  /// Sockets first, then what the program gave to keep.
  var passedDescriptors: ArraySlice<PassedDescriptor> {
    kept.dropHungUp()
    let all = sockets.all + kept.all
    if case .descriptor(let number) = configuration.ready { return all.prefix(Int(number) - 3) }
    return all[...]
  }

  func pauseNotifications(of life: RunningLife) {
    life.notify?.isEnabled = false
    notifyTimer?.set(after: Limit.notifyPause)
  }

  private func prepareLater() {
    if prepared?.life != machine.history.lastLife.next.rawValue { preparation?.isEnabled = true }
  }
}

package enum SupervisorError: Error {
  case system(SystemError)
  /// The runtime folder cannot be had.
  case place(SystemError)
  case taken(String)
  /// `--ready fd:N` names a number that a passed socket has.
  case readinessDescriptor(Int32, first: Int)
  /// What was asked for cannot be had here.
  case impossible(String)

  static func instance(_ failure: Instance.Failure) -> SupervisorError {
    switch failure {
    case .taken: .taken(failure.words)
    case .system(let error): .place(error)
    }
  }

  package var words: String {
    switch self {
    case .system(let error): "\(error): nothing was started"
    case .place(let error):
      "\(error): give --runtime-directory a writable folder; nothing was started"
    case .taken(let words), .impossible(let words): words
    case .readinessDescriptor(let number, let first):
      "ready: descriptor \(number) is a listening socket's, take one from \(first) on; "
        + "nothing was started"
    }
  }
  package var exitCode: Int32 {
    switch self {
    case .system, .place: 71  // EX_OSERR
    case .taken: 75  // EX_TEMPFAIL: later it may be free
    case .readinessDescriptor, .impossible: 78  // EX_CONFIG
    }
  }
}
