// Lives: started, stopped, reaped, cleared away.
import CLinux
import Glibc
import Kernel
import Policy
import Reports

extension Supervisor {
  /// Whether the program gets a NOTIFY_SOCKET.
  var notifies: Bool { configuration.ready == .notify || configuration.watchdog != nil }

  // MARK: start

  func spawn(_ number: Life) {
    let channel: Channel
    do { channel = try self.channel(for: number) } catch {
      spawnFailedWords[number] = "cannot make its channel: \(error)"
      feed(.spawnFailed(number, errno: error.errno))
      return
    }
    let executable: Executable
    switch command.executable() {
    case .success(let found): executable = found
    case .failure(let error):
      spawnFailedWords[number] =
        error.description + (command.whyNotFound(error).map { ": " + $0 } ?? "")
      feed(.spawnFailed(number, errno: error.errno))
      return
    }
    var handler = executable.handler
    if !configuration.handler {
      handler = .none("switched off")
    } else if handler == .preload && toolbox.handler == nil {
      handler = .none("libguardian-handler.so was not found")
    } else if channel.folder.isEmpty, let error = channel.noRing {
      handler = .none("\(error)")
    }
    reviveSockets()
    let passed = passedDescriptors
    var environment = command.environment(
      life: number, channel: channel.folder,
      preload: handler == .preload ? toolbox.handler : nil, name: configuration.name,
      crashedLastRun: crashedLastRun, lastReport: lastReport?.text,
      notify: notifies, watchdog: configuration.watchdog, passed: passed)

    var output = streams.outputIsNull ? command.nullDescriptor : channel.output?.childDescriptor
    var error = streams.errorIsDirect ? nil : channel.errors.childDescriptor
    var outputIsLost = false
    let journalBefore = inheritedJournal?.variable
    if let inheritedJournal {
      // A journal that was stopped and started anew knows nothing of the old streams, and a program
      // that writes to one dies of it.
      if !inheritedJournal.renew() {
        if output == nil, inheritedJournal.isDead(1) {
          output = command.nullDescriptor
          outputIsLost = true
        }
        if error == nil, inheritedJournal.isDead(2) { error = command.nullDescriptor }
      }
      if let name = inheritedJournal.variable { environment.set("JOURNAL_STREAM", name) }
    }

    var launch = command.launch
    launch.path = executable.path
    launch.environment = environment
    launch.signals = inherited
    launch.ownGroup = true
    let hasTerminal = terminal?.isOurs ?? false
    launch.terminal = hasTerminal ? terminal?.raw ?? -1 : -1
    let cgroup = cgroups?.take()
    launch.cgroup = cgroup?.number ?? 0
    launch.deathSignal = configuration.onGuardianDeath == .kill ? SIGKILL : 0
    launch.descriptors = command.descriptors(output: output, error: error, passed: passed)
    if let pipe = channel.readiness, case .descriptor(let target) = configuration.ready {
      launch.descriptors.append((pipe.childDescriptor, target))
    }
    // These name a process, which is not known before the clone.
    if !passed.isEmpty { launch.pidVariables.append("LISTEN_PID") }
    if configuration.watchdog != nil { launch.pidVariables.append("WATCHDOG_PID") }
    do {
      let child = try launch.start()
      let life = RunningLife(
        number, child: child, channel: channel, handler: handler, environment: environment,
        notifies: notifies)
      life.hasTerminal = hasTerminal
      life.heartbeatLook = now().monotonic
      life.outputIsLost = outputIsLost
      self.life = life
      instance.note(life: number.rawValue, pid: child.pid)
      life.cgroup = cgroup?.path
      life.cgroupHold = cgroup
      // Of a life that ended with its guardian the count must not be lost again.
      if number.rawValue > 1, interrupted?.life.next != number { breathe() }
      later { [unowned self] in
        channel.beginOutputs()
        watch(life)
        if inheritedJournal?.variable != journalBefore { sink.reconnectNow() }
        if terminal != nil { watchKeys(life) }
        record(life)
        if let error = channel.noRing, !channel.folder.isEmpty {
          sayOnce("ring", "\(error): the program runs without the crash handler")
        }
        say("\(configuration.name) (life \(number.rawValue), pid \(child.pid)) started", .verbose)
      }
      feed(.spawned(number))
    } catch {
      spawnFailedWords[number] = error.words(launch)
      if hasTerminal { terminal?.takeBack() }
      feed(.spawnFailed(number, errno: error.errno))
    }
  }

  /// A program may shut its listening socket down (shutdown(2)), and with it everybody's.
  private func reviveSockets() {
    for (address, error) in sockets.revive() {
      let words = error.map { "cannot be listened on again: \($0)" } ?? "is listened on again"
      sayOnce(
        "listen \(address)",
        "\(configuration.name) shut its listening socket \(address) down: it \(words)")
    }
  }

  func watch(_ life: RunningLife) {
    life.channel.guardSize(loop)
    life.bell = try? loop.watch(life.channel.bell.raw) { [unowned self, unowned life] _ in
      bells(of: life)
    }
    // Also without a NOTIFY_SOCKET: guardian_ready() knows the way. Not before the output: a
    // flood of either must not silence the other.
    life.notify = try? loop.watch(life.channel.notify.raw, urgency: .output) {
      [unowned self, unowned life] _ in
      notifications(of: life)
      settle()
    }
    life.channel.readiness?.begin(loop) { [unowned self, unowned life] in
      feed(.ready(life.number))
    }
  }

  /// ^C goes to the program, which has the terminal; guardian learns of it here.
  func watchKeys(_ life: RunningLife) {
    guard !life.hasEnded, let keys = TerminalKeys(group: life.group) else { return }
    self.keys = keys
    keys.source = try? loop.watch(keys.raw) { [unowned self, unowned keys] _ in
      let typed = keys.typed()
      // Its end: it was killed together with the program.
      if typed.isEmpty { keys.source = nil }
      for again in typed where again || machine.isAskedToStop {
        if !machine.isAskedToStop {
          say("^C twice: stopping", .normal)
          manager.stopping(status: "stopping")
        }
        feed(.terminate)
      }
    }
  }

  // MARK: stop

  func signalStop(_ number: Life) {
    guard let life = running(number) else { return }
    if !life.hasEnded { life.stopAsked = true }
    life.health?.stop()
    let signal = machine.policy.stopSignal.rawValue
    signalMain(life, signal)
    life.scan.renew()
    if configuration.killMode == .tree { signalStrays(signal) }
    // A stopped process would not see it.
    signalMain(life, SIGCONT)
  }

  /// The main process, and unless it is meant alone its group, each process once.
  private func signalMain(_ life: RunningLife, _ signal: Int32) {
    if configuration.killMode != .process { signalGroup(life, signal) }
    if configuration.killMode == .process
      || life.hasOtherMain && !life.hasEnded
        && Processes.processGroup(of: life.pid) != life.group
    {
      life.main.signal(signal)
    }
  }

  // MARK: endings

  /// SIGCHLD came: signals coalesce, so everything that ended is looked at.
  func reap() {
    while let result = Processes.lookForEnded() {
      if let life, life.child.pid == result.pid, !life.reaped, !life.isAdopted {
        // What it still had to say: that another process is the main one, what is to be kept.
        if life.notifies { notifications(of: life) }
        if life.hasOtherMain { take(life) } else { mainEnded(life, result.how) }
      } else if let life, life.hasOtherMain, life.pid == result.pid, !life.hasEnded {
        notifications(of: life)
        _ = Processes.take(result.pid)
        mainEnded(life, result.how)
      } else if let keys, keys.pid == result.pid {
        keys.finish()
        self.keys = nil
      } else if Errands.ended(result.pid) {
        _ = Processes.take(result.pid)
      } else if let helper = helpers.removeValue(forKey: result.pid) {
        _ = Processes.take(result.pid)
        helperEnded(helper, result)
      } else {
        _ = Processes.take(result.pid)
        descendantReaped(result)
      }
    }
    if awaitedTree != nil { checkTree() }
    if let terminal, let life, !life.hasEnded, let signal = Processes.takeStop(life.group) {
      stopWithProgram(life, terminal, by: signal)
    }
  }

  /// ^Z went to the program alone, which has the terminal, or the program wanted the terminal from
  /// the background. The shell knows only guardian: it stops too, and with `fg` both go on.
  private func stopWithProgram(_ life: RunningLife, _ terminal: Terminal, by signal: Int32) {
    let had = terminal.foregroundGroup == life.group
    guard had || signal == SIGTTIN || signal == SIGTTOU else { return }
    if terminal.hasShell {
      terminal.takeBack(from: life.group)
      life.hasTerminal = false
      stopSelf()
      // Here again: `fg` gave us the terminal, `bg` did not.
      terminal.handOver(to: life)
    } else if !had {
      return
    }
    // Without a shell nobody could ever continue it: there ^Z does nothing.
    signalGroup(life, SIGCONT)
  }

  func mainEnded(_ life: RunningLife, _ how: WaitResult.How) {
    life.hasEnded = true
    life.endedBoot = Clock.boot
    life.mainSource = nil
    life.health?.stop()
    ended[life.number] = life
    let hadForeground = terminal?.foregroundGroup == life.group
    if let terminal { terminal.takeBack(from: life.group) }
    let status: Ending.Status =
      switch how {
      case .exited(let code): .exited(code)
      case .signaled(let signal, let dumped):
        .signaled(Signal(rawValue: signal), coreDumped: dumped)
      case .unknown: .unknown
      }
    var cause = Ending.Cause.own
    if case .signaled(SIGKILL, _) = how, memory.sawKill(at: Clock.monotonic) {
      cause = .outOfMemory
    }
    if case .exited(0) = how {
      life.leftCleanly = true
      if hasDetached(life) { cause = .detached }
    }
    let ending = Ending(status: status, cause: cause)
    if case .signaled(SIGKILL, _) = how, cause == .own { life.limitWords = limitWords(life) }
    // ^C went to the program alone, which has the terminal: it was meant for both, however the
    // program ends of it.
    keys?.finish()
    // It may take its time to clean up; but a crash is one unless it came at once.
    let patience: Duration? =
      if case .exited = how { configuration.stopTimeout } else { TerminalKeys.together }
    let typed = keys?.wasTyped(within: patience) ?? false
    keys = nil
    if typed || hadForeground && [.exited(130), .signaled(SIGINT, coreDumped: false)].contains(how)
    {
      life.stopAsked = true
      feed(.terminate)
    } else if case .signaled(SIGPIPE, _) = how, nobodyReads {
      // `guardian -- yes | head`: no life to come has a reader either.
      say("nobody reads standard output any more: stopping", .normal, LOG_NOTICE)
      life.stopAsked = true
      feed(.terminate)
    }
    feed(.ended(life.number, ending, signature: signature(of: life, ending)))
    // Whatever the machine wanted of the group had to come before this.
    take(life)
    if self.life === life { self.life = nil }
    later { [unowned self] in
      forget(life)
      for output in life.channel.outputs { keepReading(output) }
      lastLines = life.channel.lastLines
    }
    settle()
  }

  /// The program's standard output is a pipe of guardian's that has lost its reader.
  private var nobodyReads: Bool {
    guard [.inherit, .direct].contains(configuration.standardOutput) else { return false }
    var poller = pollfd(fd: 1, events: 0, revents: 0)
    return unsafe poll(&poller, 1, 0) == 1 && poller.revents & Int16(POLLERR) != 0
  }

  /// KILL is also what the kernel sends at the hard limit of processor time. Only until it is reaped.
  private func limitWords(_ life: RunningLife) -> String? {
    guard let limit = Processes.hardLimit("Max cpu time", of: life.pid),
      let use = Processes.use(of: life.pid)
    else { return nil }
    // The kernel's own count is finer than that in ticks.
    let second = UInt64(sysconf(Int32(_SC_CLK_TCK)))
    return use.ticks + second / 2 >= limit.multipliedReportingOverflow(by: second).partialValue
      ? "its limit of processor time, \(limit) s, was reached" : nil
  }

  func take(_ life: RunningLife) {
    if life.reaped { return }
    life.reaped = true
    _ = Processes.take(life.child.pid)
  }

  /// It left with 0 at once, and descendants live on in sessions of their own.
  private func hasDetached(_ life: RunningLife) -> Bool {
    if life.stopAsked || life.isAdopted || life.uptime > .seconds(5) { return false }
    let own = Processes.session(of: getpid())
    let end = Clock.monotonic + Limit.detaching
    while true {
      let left = strays()
      if left.contains(where: { $0.session != own }) { return true }
      // It may not have come to its setsid(2) yet.
      if left.isEmpty || Clock.monotonic >= end { return false }
      Clock.pause(.milliseconds(2))
    }
  }

  /// The old life's pipe goes on being read while a descendant holds it.
  func keepReading(_ output: ProgramOutput) {
    output.drain()
    if !output.isOpen { return }
    earlierOutputs.removeAll { !$0.isOpen }
    earlierOutputs.append(output)
    if earlierOutputs.count > Limit.earlierOutputs { earlierOutputs.removeFirst().close() }
  }

  /// The ending was announced; without a report nothing more is needed of this life.
  func retire(_ number: Life) {
    guard let life = ended[number] else { return }
    life.ending = nil
    if let incident = life.incident { discard(incident) }
    life.incident = nil
    ended[number] = nil
    // Bells of descendants of an old life are not waited for.
    life.bell = nil
    life.notify = nil
  }
}
