// guardian's own death: what stands ready for it, and what the next guardian makes of what it
// finds. There are never two lives of one program: what a dead guardian left is taken over or
// ended before anything is started.
import CSystemd
import Glibc
import Kernel
import Policy
import Reports
import Ring

extension Supervisor {
  // MARK: the life file

  /// Once the new life runs: it names the process to whoever comes after us.
  func record(_ life: RunningLife) {
    guard self.life === life, let process = Processes.look(life.pid) else { return }
    let handler: String =
      switch life.handler {
      case .preload: ""
      case .none(let why): why
      }
    let started = life.startedBoot.nanoseconds
    let slept = Clock.boot.nanoseconds - Clock.monotonic.nanoseconds
    do {
      try instance.write(
        LifeRecord(
          boot: machine.history.bootID, life: life.number.rawValue, pid: life.pid,
          start: process.start, session: process.session, channel: life.channel.name,
          wall: life.startedWall, sinceBoot: started, monotonic: max(0, started - slept),
          command: machine.history.identity.command, handler: handler,
          cgroup: life.cgroup ?? ""))
      recorded = life.number
    } catch {
      sayOnce("life file", "\(error): the next guardian will not know this life")
    }
  }

  /// Its ending was seen and judged: the next guardian has nothing to ask about it.
  func forget(_ life: RunningLife) {
    if recorded != life.number { return }
    recorded = nil
    instance.removeLifeRecord()
  }

  // MARK: the beginning

  /// The first input of the machine.
  func beginOrAdopt() {
    if let handover, handover.isReadable {
      self.handover = nil
      resume(handover)
      return
    }
    let isUnreadable = handover != nil
    handover = nil
    adoptByFile(always: isUnreadable)
  }

  private func feedBegin() {
    if !staysStopped {
      guard let ending = takeInterrupted(), let interrupted else { return feed(.begin) }
      let age = max(Duration.nanoseconds(Clock.wall - interrupted.startedWall), .zero)
      let time = now()
      feed(
        .adopted(
          interrupted.life,
          started: Now(boot: max(time.boot - age, Duration.zero), monotonic: time.monotonic)))
      return feed(.ended(interrupted.life, ending, signature: nil))
    }
    say(
      "\(configuration.name) was stopped by hand before the last guardian died, and stays so: start "
        + "it with guardianctl -n \(configuration.name) start", .normal)
    feed(.stop)
  }

  /// `always`: a new binary that could not take over in order finds the program there all the
  /// same.
  func adoptByFile(always: Bool = true) {
    let record = instance.lifeRecord
    if record == nil, instance.channels.isEmpty {
      feedBegin()
      return
    }
    if always || configuration.onGuardianDeath == .keep, let record,
      record.boot == machine.history.bootID
    {
      if record.life <= machine.history.lastLife.rawValue, savedRunning?.rawValue != record.life {
        // Its ending was judged and counted; guardian died before it could forget it.
      } else if record.command != machine.history.identity.command {
        say("the program that runs is another command: it is ended", .normal)
      } else if adopt(record) {
        return
      }
    }
    if let channel = record?.channel {
      ringBefore = try? Files.read(
        instance.runtimeDirectory + "/" + channel + "/ring", limit: RingLayout.size)
    }
    let sweep = Sweep(
      folder: instance.runtimeDirectory,
      scope: Sweep.Scope(rawValue: configuration.killMode.rawValue) ?? .tree)
    if let words = sweep.words(sweep.end(within: Limit.leftoverPatience)) {
      say("the guardian before this one died: \(words)", .normal)
    }
    instance.removeLifeRecord()
    instance.removeChannels()
    feedBegin()
  }

  /// false: there is nothing to take over.
  private func adopt(_ record: LifeRecord) -> Bool {
    let number = Life(rawValue: record.life)
    let channel: Channel
    do {
      channel = try Channel(
        adopting: instance.runtimeDirectory + "/" + record.channel, life: record.life,
        streams: streams, loop: loop)
    } catch {
      say("\(error): life \(record.life) cannot be taken over", .normal)
      return false
    }
    instance.removeChannels(except: record.channel)
    // The pidfd first, then the look: what is looked at is what the pidfd holds. A number that
    // is another's by now is nobody: nothing is ever sent to it.
    var pidfd: FileDescriptor?
    do { pidfd = try Processes.open(record.pid) } catch { pidfd = nil }
    let process = pidfd == nil ? nil : record.process
    if process == nil { pidfd = nil }
    let environment = (Errands.read([("/proc/\(record.pid)/environ", 2 << 20)])?.first ?? [])
      .split(separator: 0).map(Array.init)
    let held: FileDescriptor
    if let pidfd {
      held = pidfd
    } else {
      do { held = try FileDescriptor.open("/dev/null", O_RDONLY) } catch { return false }
    }
    let life = RunningLife(
      number, child: Child(pid: record.pid, pidfd: held), channel: channel,
      handler: record.handler.isEmpty ? .preload : .none(record.handler),
      environment: Environment(process == nil ? [] : environment),
      notifies: notifies)
    life.startedWall = record.wall
    life.startedBoot = .nanoseconds(record.sinceBoot)
    life.startTicks = record.start
    life.isAdopted = process?.parent != getpid()
    life.hasGroup = record.marks(in: instance.runtimeDirectory).group != nil
    life.cgroup = record.cgroup.isEmpty ? nil : record.cgroup
    self.life = life
    recorded = number
    watch(life)
    channel.beginOutputs()
    let started = Now(
      boot: .nanoseconds(record.sinceBoot), monotonic: .nanoseconds(record.monotonic))
    // It crashed, or lives through the fault: as with a snapshot of our own.
    let begun = takeBegun(number)
    if let begun {
      let incident = OpenIncident(
        begun.id, life: life, number: number, role: .main, pid: record.pid, slot: begun.slot)
      incident.folder = store.folder(begun.id)
      life.incident = incident
    }
    if process == nil {
      say(
        "\(configuration.name) (life \(record.life), pid \(record.pid)) ended while no guardian "
          + "was there", .normal)
      feed(.adopted(number, started: started))
      adoptedEnded(
        life, how: begun?.signal.map { .signaled($0, coreDumped: false) } ?? .unknown)
      return true
    }
    watchEnding(life, start: record.start)
    say(
      "took over \(configuration.name) (life \(record.life), pid \(record.pid)), which an earlier "
        + "guardian started", .normal)
    feed(.adopted(number, started: started))
    return true
  }

  /// Of a program that is not our child: of one that is, SIGCHLD tells.
  func watchEnding(_ life: RunningLife, start: UInt64) {
    if !life.isAdopted { return }
    life.ending = try? loop.watch(life.main.pidfd.raw, urgency: .ending) {
      [unowned self, unowned life] _ in
      life.ending?.isEnabled = false
      adoptedEnded(life, how: ending(of: life, start: start))
      settle()
    }
  }

  /// Its parent has the wait status. It can be seen until the parent takes it, and on Linux 6.15
  /// and later by any holder of a pidfd after that.
  private func ending(of life: RunningLife, start: UInt64) -> WaitResult.How {
    Processes.exitStatus(life.main.pidfd)
      ?? Processes.zombieStatus(of: life.pid, start: start)
      ?? Processes.exitStatus(life.main.pidfd) ?? .unknown
  }

  private func adoptedEnded(_ life: RunningLife, how: WaitResult.How) {
    guard !life.hasEnded else { return }
    mainEnded(life, how)
  }

  // MARK: guardian-sweep

  /// What ends the rest of the program if guardian itself is killed. Not for the first process of
  /// a container: with it the kernel ends everything.
  func startSweep() {
    guard configuration.onGuardianDeath == .kill, getpid() != 1, !machine.isLeaving,
      // After an upgrade there is one.
      !helpers.values.contains(where: { if case .sweep = $0.work { true } else { false } })
    else { return }
    guard let path = toolbox.sweep, let own = try? Processes.open(getpid()) else {
      sayOnce("sweep", "guardian-sweep was not found: descendants would outlive guardian's death")
      return
    }
    sweepsStarted += 1
    var launch = Launch()
    launch.path = Array(path.utf8)
    launch.arguments = [
      path, "--runtime", instance.runtimeDirectory, "--scope", configuration.killMode.rawValue,
    ].map { Array($0.utf8) }
    launch.descriptors = [
      (command.nullDescriptor, 0), (command.nullDescriptor, 1), (2, 2), (own.raw, 3),
    ]
    launch.ownGroup = true
    do {
      let child = try launch.start()
      helpers[child.pid] = Helper(child, .sweep)
    } catch {
      sayOnce("sweep", "\(error.words(launch)): descendants would outlive guardian's death")
    }
  }

  func sweepEnded(_ result: WaitResult) {
    if sweepsStarted >= Limit.sweepStarts {
      sayOnce("sweeps", "guardian-sweep \(Words.how(result.how)): it is not started any more")
      return
    }
    startSweep()
  }

  /// guardian leaves in order: nothing is to be swept away. Waited for: the service manager would
  /// find it in the unit, and say so, after guardian has left.
  func endSweep() {
    for (pid, helper) in helpers {
      guard case .sweep = helper.work else { continue }
      helper.child.signal(SIGKILL)
      var dead = pollfd(fd: helper.child.pidfd.raw, events: Int16(POLLIN), revents: 0)
      let limit = Int32(clamping: Limit.sweepPatience.milliseconds)
      if unsafe poll(&dead, 1, limit) == 1, Processes.take(pid) != nil { helpers[pid] = nil }
    }
  }
}
