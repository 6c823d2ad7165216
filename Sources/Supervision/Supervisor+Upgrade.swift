// `guardianctl upgrade`: guardian's new binary is executed in guardian's place. The process stays,
// so the program stays its child: it notices nothing. The new binary is asked first whether it can;
// whatever goes wrong before the exec leaves everything as it was.
import CLinux
import Control
import Glibc
import Kernel
import Policy
import Reports
import Settings

/// One that is under way.
final class Upgrade {
  let client: ControlClient
  /// The new binary.
  let path: String
  var stage = Stage.asked
  var timer: EventLoop.Timer?
  /// Called when nothing else is to be done.
  var moment: EventSource?

  enum Stage {
    /// Whether it knows this form of handing over.
    case asked
    /// Whether it accepts our options.
    case checked
    /// It could; what is under way here is waited for.
    case waiting
  }

  init(_ client: ControlClient, _ path: String) {
    self.client = client
    self.path = path
  }
}

extension Supervisor {
  func upgrade(for client: ControlClient) {
    if upgrade != nil {
      answer(client, ControlAnswer(error: "another upgrade is under way", exit: 1))
      return
    }
    guard let own = try? Files.readLink("/proc/self/exe") else {
      answer(client, ControlAnswer(error: "cannot tell where guardian's binary is", exit: 1))
      return
    }
    // What was replaced by a new file of the same name.
    let mark = " (deleted)"
    let path = own.hasSuffix(mark) ? String(own.dropLast(mark.count)) : own
    let upgrade = Upgrade(client, path)
    upgrade.timer = try? loop.timer(CLOCK_MONOTONIC) { [unowned self] in upgradeTimedOut() }
    self.upgrade = upgrade
    check(upgrade, ["--print", "handover"].map { Array($0.utf8) })
  }

  private func check(_ upgrade: Upgrade, _ words: [[UInt8]]) {
    var launch = Launch()
    launch.path = Array(upgrade.path.utf8)
    launch.arguments = [launch.path] + words
    launch.environment = command.ownEnvironment
    guard let ends = try? Sockets.packetPair() else {
      return refuse("cannot ask the new binary: no descriptors")
    }
    launch.descriptors = [(command.nullDescriptor, 0), (ends.1.raw, 1), (ends.1.raw, 2)]
    do {
      let child = try launch.start()
      let helper = Helper(child, .check)
      helper.result = ends.0
      helpers[child.pid] = helper
      upgrade.timer?.set(after: Limit.checkPatience)
    } catch {
      refuse(error.words(launch))
    }
  }

  func checkEnded(_ helper: Helper, _ result: WaitResult) {
    guard let upgrade else { return }
    upgrade.timer?.disarm()
    var output: [UInt8] = []
    while output.count < 4096, let socket = helper.result,
      let part = Sockets.receive(socket.descriptor, limit: 4096), !part.bytes.isEmpty
    {
      output += part.bytes
    }
    let line = Printable.text(output.prefix { $0 != 10 })
    switch upgrade.stage {
    case .asked:
      guard result.how == .exited(0), line == guardianHandover else {
        return refuse(
          "'\(upgrade.path)' does not know how to take over (\(Words.how(result.how)); it said: "
            + "\(line))")
      }
      upgrade.stage = .checked
      check(upgrade, [Array("--check".utf8)] + arguments.dropFirst())
    case .checked:
      guard result.how == .exited(0) else {
        return refuse("'\(upgrade.path)' does not accept guardian's options: \(line)")
      }
      upgrade.stage = .waiting
      upgrade.timer?.set(after: configuration.reportTimeout ?? Limit.upgradePatience)
    case .waiting: break
    }
  }

  private func upgradeTimedOut() {
    guard let upgrade else { return }
    switch upgrade.stage {
    case .asked, .checked:
      for helper in helpers.values {
        if case .check = helper.work { helper.child.signal(SIGKILL) }
      }
      refuse("'\(upgrade.path)' did not answer within \(Limit.checkPatience.words)")
    case .waiting:
      // Reports that take too long stay plain, as when guardian leaves.
      if machine.standing != nil, !helpers.isEmpty {
        endReporters()
        upgrade.timer?.set(after: .seconds(5))
        if !isOccupied { return }
      }
      refuse("something else is under way: \(sentence)")
    }
    settle()
  }

  /// Something that is not a report, which could be ended.
  private var isOccupied: Bool {
    !descendants.isEmpty || !capturesWaiting.isEmpty || awaitedTree != nil
      || machine.standing == nil
  }

  private func refuse(_ why: String) {
    guard let upgrade else { return }
    self.upgrade = nil
    say("no upgrade: \(why); guardian goes on as it is", .normal)
    answer(
      upgrade.client, ControlAnswer(error: "no upgrade: \(why); guardian goes on as it is", exit: 1)
    )
  }

  /// After every event.
  func continueUpgrade() {
    guard let upgrade, case .waiting = upgrade.stage, canHandOver else { return }
    // What the loop has read and not handled yet (a TERM from its signalfd) would be lost with the
    // exec; behind all of that there is nothing.
    if upgrade.moment == nil {
      upgrade.moment = try? loop.whenIdle { [unowned self] in
        guard let upgrade = self.upgrade, canHandOver, let standing = machine.standing else {
          return
        }
        handOver(upgrade, standing)
      }
    }
    upgrade.moment?.isEnabled = true
  }

  private var canHandOver: Bool {
    if isOccupied || !reportsWaiting.isEmpty || machine.standing == nil { return false }
    // Let go after its capture, it is about to die, or it lives through the fault.
    if let captured = life?.incident?.capturedAt {
      let left = captured + .seconds(1) - Clock.monotonic
      if left > .zero {
        treeTimer?.set(after: left)
        return false
      }
    }
    return helpers.values.allSatisfy { if case .sweep = $0.work { true } else { false } }
  }

  // MARK: giving

  private func handOver(_ upgrade: Upgrade, _ standing: ServiceMachine.Standing) {
    persist()
    prepared = nil
    // The new binary starts one of its own.
    keys?.finish()
    keys = nil
    var handover = Handover()
    handover.set("addressee", Handover.addressee)
    handover.set("version", guardianVersion)
    handover.set("name", configuration.name)
    handover.set("runtime", instance.runtimeDirectory)
    handover.set("state-directory", configuration.stateDirectory)
    handover.set("ignored", inherited.ignored)
    handover.set("blocked", inherited.blocked)
    handover.keep("lock", instance.lockNumber)
    if let terminal { handover.set("terminal", terminal.raw) }
    handover.set(standing)
    handover.set("lost-time", lostTime)
    handover.set(
      "bystanders", bystanders.map { "\($0.key):\($0.value)" }.joined(separator: " "))
    handover["history"] = StateFile.encode(machine.history)
    if let ending = machine.lastEnding { handover.set(ending) }
    if let verdict = machine.lastVerdict { handover.set(verdict) }
    handover.set("life-before", lifeBefore)
    handover.set("last-report", lastReport?.text)
    handover.set("crashed-last-run", crashedLastRun)
    handover.set("last-ending-wall", lastEndingWall)
    handover.set("told-ready", toldReady)
    handover.set("sweeps", sweepsStarted)
    handover.set("recorded", recorded?.rawValue)
    handover.set(
      "endings", endings.map { "\($0.key) \($0.value)" }.sorted().joined(separator: "\n"))
    if let control {
      handover.keep("control", control.listenerNumber)
      if !upgrade.client.isGone { handover.keep("client", upgrade.client.number) }
      for (index, (client, standing)) in control.clients.compactMap({ client in
        client === upgrade.client ? nil : client.standing.map { (client, $0) }
      }).enumerated() {
        handover.keep("client-\(index)", client.number)
        handover.set("client-standing-\(index)", standing)
      }
    }
    if let helper = helpers.values.first {
      handover.set("sweep-pid", helper.child.pid)
      handover.keep("sweep-pidfd", helper.child.pidfd.raw)
    }
    for (index, output) in earlierOutputs.filter(\.isOpen).enumerated() {
      handover.keep("earlier-\(index)", output.readingNumber)
      handover.set("earlier-stream-\(index)", output.stream.rawValue)
    }
    for (index, socket) in sockets.opened.enumerated() {
      handover.set("listen-address-\(index)", socket.address)
      handover.keep("listen-\(index)", socket.descriptor)
    }
    for (index, passed) in kept.all.enumerated() {
      handover.set("stored-name-\(index)", passed.name)
      handover.keep("stored-\(index)", passed.descriptor.raw)
    }
    if let life {
      // A fault that the program lived through.
      if let incident = life.incident { discard(incident) }
      life.incident = nil
      give(life, to: &handover)
    }
    streams.finish(within: .milliseconds(500))

    let memory: Int32
    do { memory = try handover.seal() } catch { return refuse("\(error)") }
    // Those that the service manager passed are found where they are, by its own variables.
    let numbers = handover.kept + sockets.passed.map(\.descriptor.raw)
    for number in numbers { _ = guardian_set_close_on_exec(number, false) }
    var environment = Environment(self.environment)
    environment.set(Handover.variable, "\(memory)")
    let path = CStrings([Array(upgrade.path.utf8)])
    let argv = CStrings(arguments)
    let envp = CStrings(environment.entries)
    Priority.restore()
    let cause = withExtendedLifetime((path, argv, envp)) {
      _ = unsafe execve(path.vector[0]!, argv.vector, envp.vector)
      return errno
    }
    // Here it is as if nothing had been.
    Priority.raise()
    for number in numbers { _ = guardian_set_close_on_exec(number, true) }
    close(memory)
    refuse("cannot execute '\(upgrade.path)': \(SystemError.text(cause))")
  }

  private func give(_ life: RunningLife, to handover: inout Handover) {
    handover.set("pid", life.child.pid)
    handover.set("start", Processes.startTime(of: life.pid) ?? 0)
    handover.set("channel", life.channel.folder)
    switch life.handler {
    case .preload: break
    case .none(let why): handover.set("handler", why)
    }
    handover.set("started-wall", life.startedWall)
    handover.set("environment-count", life.environment.entries.count)
    handover["environment"] = Array(life.environment.entries.joined(separator: [0]))
    handover.set("adopted", life.isAdopted)
    handover.set("has-group", life.hasGroup)
    handover.set("life-cgroup", life.cgroup)
    handover.set("stop-asked", life.stopAsked)
    handover.set("status-text", life.statusText)
    handover.set("bells-refused", life.bellsRefused)
    handover.set("notifies", life.notifies)
    handover.set("has-terminal", life.hasTerminal)
    handover.set("is-terminal", life.channel.errors.isTerminal)
    handover.set("tail", life.channel.errors.tail)
    if let output = life.channel.output, output.isOpen {
      handover.set("stdout-is-terminal", output.isTerminal)
      handover.set("stdout-tail", output.tail)
      handover.keep("stdout", output.readingNumber)
    }
    if life.hasOtherMain {
      handover.set("main-pid", life.main.pid)
      handover.keep("main-pidfd", life.main.pidfd.raw)
    }
    if let readiness = life.channel.readiness {
      handover.keep("readiness", readiness.readingNumber)
    }
    handover.keep("pidfd", life.child.pidfd.raw)
    handover.keep("ring", life.channel.ringNumber)
    handover.keep("bell", life.channel.bell.raw)
    handover.keep("notify", life.channel.notify.raw)
    handover.keep("output", life.channel.errors.readingNumber)
  }

  // MARK: taking

  /// In the place of `begin`.
  func resume(_ handover: Handover) {
    guard let standing = handover.standing,
      let history = handover["history"].flatMap({ StateFile.decode($0)?.history })
    else { return resumeByFile("the state") }
    var resumed = history
    resumed.identity = machine.history.identity
    machine = ServiceMachine(
      name: configuration.name, policy: Self.policy(of: configuration, under: manager),
      history: resumed,
      standing: standing, lastEnding: handover.ending, lastVerdict: handover.verdict, at: now())
    lifeBefore = handover.number("life-before").flatMap { UInt32(exactly: $0) } ?? lifeBefore
    lastReport = handover.text("last-report").flatMap { ReportID($0) }
    crashedLastRun = handover.flag("crashed-last-run")
    lastEndingWall = handover.number("last-ending-wall")
    toldReady = handover.flag("told-ready")
    sweepsStarted = Int(handover.number("sweeps") ?? 0)
    recorded = handover.number("recorded").flatMap { UInt32(exactly: $0) }.map {
      Life(rawValue: $0)
    }
    for line in (handover.text("endings") ?? "").split(separator: "\n") {
      guard let space = line.lastIndex(of: " "),
        let count = UInt64(line[line.index(after: space)...])
      else { continue }
      endings[String(line[..<space])] = count
    }
    if let pid = handover.number("sweep-pid"), let pidfd = handover.descriptor("sweep-pidfd") {
      let child = Child(pid: Int32(clamping: pid), pidfd: FileDescriptor(owning: pidfd))
      helpers[child.pid] = Helper(child, .sweep)
      if configuration.onGuardianDeath == .keep { endSweep() }
    }
    for index in 0..<Limit.earlierOutputs {
      guard let number = handover.descriptor("earlier-\(index)") else { break }
      let stream = handover.text("earlier-stream-\(index)").flatMap { OutputStream(rawValue: $0) }
      let output = ProgramOutput(
        resuming: number, stream: stream ?? .stderr, isTerminal: false, tail: OutputTail(),
        sink: stream == .stdout ? streams.output ?? streams.error : streams.error,
        reader: streams.reader, loop: loop)
      output.begin()
      earlierOutputs.append(output)
    }
    for index in 0..<Limit.storedDescriptors {
      guard let number = handover.descriptor("stored-\(index)") else { break }
      _ = kept.keep(
        SharedDescriptor(FileDescriptor(owning: number)),
        name: handover.text("stored-name-\(index)") ?? "stored", watches: true)
    }
    if case .living(let number, let started, _, _, _) = standing {
      guard let life = life(number, started, from: handover) else {
        return resumeByFile("the life")
      }
      self.life = life
      instance.removeChannels(except: life.channel.name)
      watch(life)
      life.channel.beginOutputs()
      if terminal != nil { watchKeys(life) }
      watchEnding(life, start: handover.number("start").map { UInt64(clamping: $0) } ?? 0)
    }
    for index in 0..<Limit.controlClients {
      guard let number = handover.descriptor("client-\(index)") else { break }
      let standing = handover.text("client-standing-\(index)")
      let client = control?.resume(number, hasAsked: standing != "new")
      switch standing {
      case "output": client?.interest = .output
      case "events": client?.interest = .events(last: "")
      default: break
      }
    }
    tapOutput()
    let from = handover.text("version") ?? "?"
    let done =
      "guardian \(guardianVersion) took over from \(from) in the same process, pid \(getpid()): "
      + sentence
    say(done, .normal)
    if let number = handover.descriptor("client"), let client = control?.resume(number) {
      var status = controlStatus()
      status.sentence = done
      answer(client, ControlAnswer(status: status, exit: 0))
    }
    // What ended meanwhile waits as a signal that is blocked; looking costs little.
    reap()
    settle()
  }

  /// Some fact is missing: the program is there all the same, and is known by its file.
  private func resumeByFile(_ what: String) {
    say("what was handed over lacks \(what): looking for the program by its life file", .normal)
    adoptByFile()
  }

  private func life(_ number: Life, _ started: Now, from handover: Handover) -> RunningLife? {
    guard let pid = handover.number("pid"), let folder = handover.text("channel"),
      let pidfd = handover.descriptor("pidfd"), let ring = handover.descriptor("ring"),
      let bell = handover.descriptor("bell"), let notify = handover.descriptor("notify"),
      let output = handover.descriptor("output")
    else { return nil }
    let standardOutput = handover.descriptor("stdout").map {
      ProgramOutput(
        resuming: $0, stream: .stdout, isTerminal: handover.flag("stdout-is-terminal"),
        tail: handover.tail("stdout-tail") ?? OutputTail(), sink: streams.output ?? streams.error,
        reader: streams.reader, loop: loop)
    }
    let channel = Channel(
      resuming: folder, life: number.rawValue, ring: ring, bell: bell, notify: notify,
      readiness: handover.descriptor("readiness"),
      errors: ProgramOutput(
        resuming: output, stream: .stderr, isTerminal: handover.flag("is-terminal"),
        tail: handover.tail("tail") ?? OutputTail(), sink: streams.error, reader: streams.reader,
        loop: loop), output: standardOutput)
    let entries = (handover["environment"] ?? []).split(
      separator: 0, omittingEmptySubsequences: false)
    let life = RunningLife(
      number, child: Child(pid: Int32(clamping: pid), pidfd: FileDescriptor(owning: pidfd)),
      channel: channel, handler: handover.text("handler").map { .none($0) } ?? .preload,
      environment: Environment(
        handover.number("environment-count") == 0 ? [] : entries.map(Array.init)),
      notifies: handover.flag("notifies"))
    if let main = handover.number("main-pid"), let pidfd = handover.descriptor("main-pidfd") {
      watchMain(
        Child(pid: Int32(clamping: main), pidfd: FileDescriptor(owning: pidfd)), of: life)
    }
    life.hasTerminal = handover.flag("has-terminal")
    life.startedWall = handover.number("started-wall") ?? Clock.wall
    life.startedBoot = started.boot
    life.isAdopted = handover.flag("adopted")
    life.hasGroup = handover.flag("has-group")
    life.cgroup = handover.text("life-cgroup")
    life.stopAsked = handover.flag("stop-asked")
    life.statusText = handover.text("status-text")
    life.bellsRefused = Int(handover.number("bells-refused") ?? 0)
    return life
  }
}
