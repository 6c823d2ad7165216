// What the program says of itself: its notify socket, its heartbeat, its readiness; and why it is
// found to hang. Everything it says is hostile but the sender, which is the kernel's word.
import Glibc
import Kernel
import Policy

extension Supervisor {
  func notifications(of life: RunningLife) {
    let socket = life.channel.notify.raw
    var errands = 0
    for _ in 0..<Limit.datagramsPerTurn {
      let datagram: Datagram
      let hasDescriptors: Bool
      switch Sockets.receiveFromStranger(socket, limit: Limit.notifyBytes + 1) {
      case .nothing: return
      case .datagram(let found):
        datagram = found
        hasDescriptors = false
      case .withDescriptors(let found):
        datagram = found
        hasDescriptors = true
      }
      let isBelieved =
        !datagram.truncated && !life.hasEnded && datagram.senderPID > 0
        && belongs(datagram.senderPID, to: life)
      let message = NotifyMessage(datagram.bytes)
      var taken = Errands.Taken()
      if hasDescriptors {
        errands += 1
        let room = isBelieved && message.storesDescriptors ? Limit.storedDescriptors : 0
        guard errands <= Limit.errandsPerTurn,
          let found = Errands.take(from: socket, room: room)
        else {
          if Errands.isFull {
            sayOnce(
              "errands",
              "\(configuration.name) sends descriptors that cannot be closed: "
                + "its messages wait until they are")
          }
          break
        }
        taken = found
      }
      // Whatever comes of the message, its descriptors end with it, unless they are kept.
      if isBelieved { heed(message, taken, life) } else { Errands.close(taken.kept) }
    }
    // There is more than anybody sends, or it cannot be taken now: others have their turn.
    pauseNotifications(of: life)
  }

  private func heed(
    _ message: NotifyMessage, _ taken: Errands.Taken, _ life: RunningLife
  ) {
    if message.barrier {
      Errands.close(taken.kept)
      return
    }
    if let pid = message.mainPID, pid != life.pid { takeMain(pid, life) }
    keep(taken, message, life)
    if let status = message.status { life.statusText = status.isEmpty ? nil : status }
    if message.stopping { life.saysStopping = true }
    if message.reloading, !life.isReloading, forwarded.take() {
      life.isReloading = true
      tellReload(
        began: message.monotonic ?? UInt64(max(Clock.monotonic.nanoseconds / 1000, 0)))
    }
    if let interval = message.watchdogInterval { feed(.watchdogInterval(life.number, interval)) }
    if message.ready {
      if life.isReloading {
        life.isReloading = false
        tellReload(began: nil)
      }
      // With a descriptor for it, this is not what was agreed on.
      if configuration.ready == .notify { feed(.ready(life.number)) }
    }
    if message.heartbeat {
      life.beatsByMessage = true
      feed(.heartbeat(life.number))
    }
    if message.watchdogTriggered {
      life.triggered = true
      feed(.watchdogTriggered(life.number))
    }
    // A deadline is put off for a program that was told where to ask for it.
    if life.notifies, let extra = message.extendTimeout {
      feed(.extendTimeout(life.number, extra))
      tellExtension(extra)
    }
  }

  /// Whether a process is the life's: a descendant of its main process, or an orphan of it, which
  /// came to guardian. Not a helper of ours.
  private func belongs(_ pid: Int32, to life: RunningLife) -> Bool {
    if pid == life.pid || pid == life.child.pid { return true }
    var current = pid
    for _ in 0..<64 {
      guard let above = Processes.parent(of: current) else { return false }
      if above == life.pid || above == life.child.pid { return true }
      if above == getpid() {
        return helpers[current] == nil && !Errands.pids.contains(current)
      }
      if above <= 1 { return false }
      current = above
    }
    return false
  }

  /// MAINPID: the program went into another process of its own. From now on that one's ending is
  /// the life's.
  private func takeMain(_ pid: Int32, _ life: RunningLife) {
    func refuse(_ why: String) {
      sayOnce(
        "main",
        "\(configuration.name) says MAINPID=\(pid), \(why): the main process stays \(life.pid)")
    }
    if pid == life.child.pid, !life.reaped {
      life.setMain(life.child)
      return
    }
    guard pid > 1, pid != getpid(), belongs(pid, to: life) else {
      return refuse("which is no process of its own")
    }
    // Opened, and then looked at again: the number may have gone to somebody else between.
    guard let pidfd = try? Processes.open(pid), belongs(pid, to: life),
      Processes.look(pid)?.isAlive ?? false
    else { return refuse("which has ended") }
    watchMain(Child(pid: pid, pidfd: pidfd), of: life)
    say(
      "\(configuration.name) (life \(life.number.rawValue)): its main process is now pid \(pid), "
        + "as it says", .verbose)
  }

  /// From now on this process's ending is the life's.
  func watchMain(_ process: Child, of life: RunningLife) {
    life.setMain(process)
    life.mainSource = try? loop.watch(process.pidfd.raw, urgency: .ending) {
      [unowned self, unowned life] _ in
      // Its end may be the end of the record.
      let life = life
      life.mainSource = nil
      // An orphan is ours to reap; of another's child the status is only asked for.
      reap()
      if !life.hasEnded, life.main === process {
        mainEnded(life, Processes.exitStatus(process.pidfd) ?? .unknown)
      }
      settle()
    }
  }

  private func keep(
    _ taken: Errands.Taken, _ message: NotifyMessage, _ life: RunningLife
  ) {
    if message.removesDescriptors {
      if let name = message.descriptorName {
        kept.remove(name)
        if storing.take() { manager.dropStored(name) }
      }
    }
    guard message.storesDescriptors, !message.removesDescriptors else {
      Errands.close(taken.kept)
      return
    }
    let name = message.descriptorName ?? "stored"
    var beyond: [Int32] = []
    for number in taken.kept {
      let before = kept.all.count
      if !kept.keep(number, name: name, watches: message.watchesDescriptors) {
        beyond.append(number)
      } else if kept.all.count > before, storing.take() {
        manager.store(number, name: name, watches: message.watchesDescriptors)
      }
    }
    Errands.close(beyond)
    if taken.refused > 0 {
      sayOnce(
        "store kinds",
        "\(configuration.name) gives a descriptor to keep that is neither a socket, a pipe, memory "
          + "nor an event: it is closed, since a use of it might wait for ever")
    }
    if taken.beyond > 0 || !beyond.isEmpty {
      sayOnce(
        "store",
        "\(configuration.name) gives more than \(Limit.storedDescriptors) descriptors to keep: "
          + "the others are closed")
    }
  }

  // MARK: the heartbeat

  /// When the timer is to fire: at the machine's deadline, and where the heartbeat is a counter,
  /// often enough before it to see when it stands still.
  var wakeUp: Duration? {
    guard let deadline = machine.deadline else { return nil }
    guard case .running(let run) = machine.state, let watchdog = run.watchdog, let life,
      !life.beatsByMessage
    else { return deadline }
    return min(deadline, life.heartbeatLook + watchdog / Limit.looksPerWatchdog)
  }

  func lookAtHeartbeat() {
    guard case .running(let run) = machine.state, run.watchdog != nil, let life, !life.hasEnded
    else { return }
    life.heartbeatLook = now().monotonic
    let count = life.channel.heartbeat
    if count == life.heartbeats { return }
    life.heartbeats = count
    feed(.heartbeat(life.number))
  }

  // MARK: hangs

  /// Why the machine just decided that it hangs, or would not stop.
  func hangWords(_ life: RunningLife) -> String? {
    switch machine.state {
    case .hanging(let run, let hanging):
      switch hanging.hang {
      case .watchdog:
        if life.triggered { return "it said so itself: WATCHDOG=trigger" }
        return "no heartbeat for \(run.watchdog?.words ?? "the watchdog's time")"
      case .health: return life.health?.verdict ?? "the health check failed"
      case .startTimeout:
        let missing =
          switch configuration.ready {
          case .exec: "it was not executed"
          case .notify: "no READY=1 came on its notify socket"
          case .descriptor(let number): "no newline came on descriptor \(number)"
          }
        return "\(missing) within \((configuration.startTimeout ?? life.uptime).words)"
      }
    case .stopping:
      return "it was still there \(configuration.stopTimeout?.words ?? "long") after "
        + configuration.stopSignal.name
    default: return nil
    }
  }
}
