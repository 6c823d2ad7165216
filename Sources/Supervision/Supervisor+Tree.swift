// All that a life started, wherever it went: found, signalled, killed, waited for.
import Glibc
import Kernel
import CSystemd
import Policy

extension Supervisor {
  func killAll(_ number: Life) {
    guard let life = running(number) else { return }
    if !life.hasEnded { life.main.signal(SIGKILL) }
    if configuration.killMode != .process { signalGroup(life, SIGKILL) }
    life.isKilled = true
    if configuration.killMode == .tree { killStrays(life) }
  }

  /// The group's number is that of the process guardian started, and stays taken until that one is
  /// reaped; after that it may be somebody else's, and only processes of the life are signalled.
  func signalGroup(_ life: RunningLife, _ signal: Int32) {
    if !life.hasGroup { return }
    if !life.reaped {
      _ = kill(-life.group, signal)
      return
    }
    for process in strays() where Processes.processGroup(of: process.pid) == life.group {
      ProcessTree.signal(process, signal)
    }
  }

  private func groupExists(_ life: RunningLife) -> Bool {
    if !life.hasGroup { return false }
    if !life.reaped { return Descendants.groupExists(life.group) }
    return strays().contains { Processes.processGroup(of: $0.pid) == life.group }
  }

  func signalStrays(_ signal: Int32) {
    for process in strays() { ProcessTree.signal(process, signal) }
  }

  /// Descendants that left the group, orphans, which came to us, and what an adopted life left.
  func strays() -> [TreeProcess] {
    var own = Set(helpers.keys).union(Errands.pids)
    if let keys { own.insert(keys.pid) }
    if let life, !life.reaped, !life.hasOtherMain { own.insert(life.pid) }
    var found = Descendants.ofThisProcess().filter { !own.contains($0) && !isBystander($0) }
    if let life, !life.hasEnded { found += Descendants.children(of: life.pid) }
    // Also those whose parents left them to somebody else.
    if let cgroup = (awaitedTree ?? life)?.cgroup {
      found += Cgroup.processes(cgroup).filter { !own.contains($0) && !found.contains($0) }
    }
    var seen = Set(found)
    var next = 0
    while next < found.count && found.count < Limit.strays {
      for pid in Descendants.children(of: found[next]) where seen.insert(pid).inserted {
        found.append(pid)
      }
      next += 1
    }
    if let life, life.hasOtherMain, !life.hasEnded { found.removeAll { $0 == life.pid } }
    var processes = found.compactMap(Processes.look).filter(\.isAlive)
    if let life = awaitedTree ?? life, life.isAdopted {
      // Its orphans did not come to us: they are known by what it gave them.
      processes += life.scan.find(
        marks(of: life), sparing: own.union(seen).union([life.pid]),
        patience: Limit.scanPatience)
    }
    if abandoned.isEmpty { return processes }
    return processes.filter { !abandoned.contains($0.identity) }
  }

  /// A child that guardian had before it started anything: whoever executed it left it behind (an
  /// entry point that starts a helper and then executes guardian).
  private func isBystander(_ pid: Int32) -> Bool {
    guard let start = bystanders[pid] else { return false }
    return Processes.startTime(of: pid) == start
  }

  func marks(of life: RunningLife) -> LifeMarks {
    var marks = LifeMarks(folder: instance.runtimeDirectory)
    marks.cgroup = life.cgroup
    marks.since = life.startTicks
    return marks
  }

  /// Whether a process belongs to this life, as far as the kernel tells.
  func isOurs(_ pid: Int32, _ life: RunningLife) -> Bool {
    if Processes.isDescendant(pid, of: getpid()) { return true }
    return life.isAdopted
      && (Processes.isDescendant(pid, of: life.pid)
        || life.scan.find(marks(of: life), patience: Limit.scanPatience)
          .contains { $0.pid == pid })
  }

  // MARK: killing

  /// Frozen first: who stands still forks no more, and nobody loses his place in the tree.
  private func killStrays(_ life: RunningLife) {
    let left = strays()
    func remember(_ processes: [TreeProcess]) {
      for process in processes where life.killed[process.identity] == nil {
        life.killed[process.identity] = Processes.name(of: process.pid) ?? "?"
      }
    }
    // At once and without a race, where the kernel offers it; also who cannot be seen.
    if let cgroup = life.cgroup {
      remember(left)
      Cgroup.kill(cgroup)
    }
    // The usual case, on the way to a restart: nobody is there.
    if left.isEmpty { return }
    let found = ProcessTree.freeze(within: Limit.freezePatience, strays)
    remember(found)
    for process in found { ProcessTree.signal(process, SIGKILL) }
  }

  private func nameKilled(_ life: RunningLife) {
    if life.killed.isEmpty { return }
    say(
      "life \(life.number.rawValue): killed what was left of it: "
        + ProcessTree.words(life.killed), .normal)
    life.killed = [:]
  }

  // MARK: what is left of a life

  func awaitTree(_ number: Life) {
    guard let life = running(number) else {
      feed(.treeGone(number))
      return
    }
    take(life)
    life.scan.renew()
    awaitedTree = life
    checkTree()
    if awaitedTree === life, !life.stopAsked, life.leftCleanly, configuration.killMode == .tree {
      let left = strays()
      if left.isEmpty { return }
      say(
        "life \(number.rawValue): its main process left with 0; ending what is left of it: "
          + ProcessTree.words(left), .normal, LOG_NOTICE)
    }
  }

  func checkTree() {
    guard let life = awaitedTree else { return }
    let gone: Bool =
      switch configuration.killMode {
      case .process: true
      case .group: !groupExists(life)
      case .tree: strays().isEmpty
      }
    if gone {
      awaitedTree = nil
      feed(.treeGone(life.number))
      later { [unowned self] in nameKilled(life) }
      return
    }
    // Who was being forked when KILL went round.
    if life.isKilled {
      if configuration.killMode != .process { signalGroup(life, SIGKILL) }
      if configuration.killMode == .tree { killStrays(life) }
    }
    // Those whose parent is not us end without a SIGCHLD.
    treeTimer?.set(after: life.treePause)
    life.treePause = min(life.treePause * 2, Limit.treePause)
  }

  func abandon(_ number: Life) {
    var left = strays()
    let life = running(number)
    if let life, !life.hasEnded, let main = Processes.look(life.pid) { left.insert(main, at: 0) }
    say(
      "life \(number.rawValue): cannot end "
        + (left.isEmpty ? "what is left of it" : ProcessTree.words(left))
        + "; going on without it", .normal)
    // The next life's end is not to wait for them again.
    abandoned = abandoned.filter { Processes.startTime(of: $0.pid) == $0.start }
    abandoned.formUnion(left.map(\.identity))
    if let life {
      // One that stays cannot be said to have been killed.
      for process in left { life.killed[process.identity] = nil }
      nameKilled(life)
      // Its ending is still to be told, and with it what was found out before.
      ended[number] = life.hasEnded ? nil : life
    }
    awaitedTree = nil
    if self.life?.number == number { self.life = nil }
  }
}
