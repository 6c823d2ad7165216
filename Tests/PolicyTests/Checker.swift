// What must be true of any supervisor, written from the rules and not from the machine: it
// sees events, effects and the deadline, and knows what the pretended kernel knows.
import Policy

struct Checker {
  let policy: RestartPolicy
  private(set) var complaint: String?

  /// The last life that was asked for, and what has been seen of it.
  private var life = Life(rawValue: 0)
  private var spawnedAt = Now(boot: .zero, monotonic: .zero)
  private var hasLife = false
  private var answered = false
  /// The first life could not be executed, for a reason that stays.
  private var neverRan = false
  private var mainEnded = false
  private var treeDone = true
  private var treeAsked = false
  private var signalled = false
  private var hung = false
  private var killedAt: Duration?
  private var endedAt: Duration = .zero

  /// Requests since the last spawn, and those that stand.
  private var asked = false
  private var leaveAskedAt: Duration?
  private var stopAskedAt: Duration?
  private var mustAct = false
  private var everCleared = false

  private var failures: [Duration] = []
  private var row = 0
  private var automatic = false
  private var reports: [Life: Int] = [:]
  private var announcements: [Life: Int] = [:]
  private var expectsReport: Set<Life> = []
  private var left = false
  private var reportersAwaited = false

  init(policy: RestartPolicy) { self.policy = policy }

  private mutating func demand(_ condition: Bool, _ rule: String) {
    if !condition, complaint == nil { complaint = rule }
  }

  // MARK: events

  mutating func sees(_ input: ServiceMachine.Input, at now: Now) {
    mustAct = false
    switch input {
    case .terminate, .stop, .restart, .start:
      let isUp = hasLife && answered && !mainEnded && killedAt == nil && !hung
      if isUp, !asked, input != .start { mustAct = true }
      asked = true
      switch input {
      case .terminate: leaveAskedAt = leaveAskedAt ?? now.monotonic
      case .stop: stopAskedAt = stopAskedAt ?? now.monotonic
      default:
        stopAskedAt = nil
        failures = []
        everCleared = true
        row = 0
      }
    case .spawnFailed(let of, let errno) where of == life && hasLife && !mainEnded:
      neverRan = life.rawValue == 1 && errno == 2 && !asked && killedAt == nil
      ended(failed: true, unstable: true, isExec: true, at: now)
      treeDone = true
    case .ended(let of, let ending, _) where of == life && hasLife && !mainEnded:
      answered = true
      ended(
        failed: unclean(ending) || hung || killedAt != nil, unstable: false, isExec: false, at: now)
    case .treeGone(let of) where of == life && treeAsked:
      treeDone = true
    case .spawned(let of), .ready(let of), .crashAnnounced(let of), .heartbeat(let of),
      .extendTimeout(let of, _), .watchdogInterval(let of, _), .watchdogTriggered(let of),
      .unhealthy(let of):
      if of == life { answered = true }
    case .begin, .adopted, .spawnFailed, .captureEnded, .ended, .treeGone, .deadline,
      .reportersDone:
      break
    }
  }

  private func unclean(_ ending: Ending) -> Bool {
    switch ending.status {
    case .exited(let code): code != 0
    case .signaled(let signal, _): ![1, 2, 15].contains(signal.rawValue)
    case .execFailed, .unknown: true
    }
  }

  private mutating func ended(failed: Bool, unstable: Bool, isExec: Bool, at now: Now) {
    answered = true
    mainEnded = true
    endedAt = now.monotonic
    automatic = !asked
    if asked { return }
    if !unstable, now.boot - spawnedAt.boot >= policy.stableAfter { row = 0 }
    if failed {
      failures.append(now.boot)
      if !isExec { expectsReport.insert(life) }
    }
  }

  private func counted() -> Int {
    guard let last = failures.last else { return 0 }
    guard let window = policy.crashWindow else { return failures.count }
    return failures.count { last - $0 < window }
  }

  // MARK: effects

  mutating func sees(
    _ effect: ServiceMachine.Effect, _ processes: [Life: World.Process], at now: Now
  ) {
    demand(!left, "an effect after it left")
    switch effect {
    case .spawn(let next):
      demand(
        !processes.values.contains { $0.lives && !$0.abandoned }, "two lives at once")
      demand(next == Life(rawValue: life.rawValue + 1), "lives are not numbered one by one")
      demand(treeDone, "a life begins before the last one is known to be gone")
      demand(leaveAskedAt == nil, "a life begins after TERM")
      demand(stopAskedAt == nil, "a life begins after a stop")
      if hasLife, automatic, !asked {
        demand(policy.restart != .no, "a restart that the mode forbids")
        demand(!neverRan, "a restart of what can never run")
        if let cap = policy.maxCrashes {
          demand(counted() <= cap, "more restarts than the cap allows")
        }
        var least: Duration = .zero
        if row > 0 {
          least = min(
            policy.restartDelay * (1 << min(row - 1, 20)), policy.restartDelayMax)
          least = least * 89 / 100
        }
        demand(now.monotonic - endedAt >= least, "a restart too soon")
        row += 1
      }
      neverRan = false
      life = next
      spawnedAt = now
      (hasLife, answered, mainEnded, treeDone, treeAsked) = (true, false, false, false, false)
      (signalled, hung, killedAt, asked, automatic) = (false, false, nil, false, false)
    case .signalStop(let of):
      acts(on: of)
      signalled = true
    case .release(let of): acts(on: of)
    case .captureHang(let of):
      acts(on: of)
      if !signalled { hung = true }
    case .abort(let of):
      acts(on: of)
      demand(hung, "ABRT to what does not hang")
    case .kill(let of):
      acts(on: of)
      demand(
        mainEnded || asked || hung || !answered, "KILL to a program that is well")
      killedAt = killedAt ?? now.monotonic
    case .awaitTree(let of):
      acts(on: of)
      demand(mainEnded, "the tree is awaited before the main process ended")
      demand(!treeAsked, "the tree is awaited twice")
      treeAsked = true
    case .abandon(let of):
      acts(on: of)
      demand(
        killedAt.map { now.monotonic - $0 >= policy.killTimeout } ?? false,
        "a process is abandoned that was not given KILL, and time to die of it")
      if !mainEnded { ended(failed: true, unstable: false, isExec: false, at: now) }
      if asked { expectsReport.remove(life) }
      treeDone = true
    case .report(let of, _, _):
      reports[of, default: 0] += 1
      demand(of == life || of.next == life, "a report of an old life")
      demand(reports[of] == 1, "two reports of one ending")
    case .announce(let of, _, _):
      announcements[of, default: 0] += 1
      demand(announcements[of] == 1, "an ending is announced twice")
    case .runGiveUp:
      if neverRan {
      } else if let cap = policy.maxCrashes, !everCleared {
        demand(counted() > cap, "it gives up before the cap")
      } else if policy.maxCrashes == nil {
        demand(false, "it gives up without a cap")
      }
    case .persist, .endReporters: break
    case .awaitReporters: reportersAwaited = true
    case .leave:
      left = true
      demand(treeDone, "it leaves while a life is there")
      demand(reportersAwaited, "it leaves without a look at its reporters")
    }
  }

  private mutating func acts(on of: Life) {
    demand(of == life && hasLife, "an effect on a life that is not the current one")
    demand(!treeDone, "an effect on a life that is gone")
  }

  // MARK: after each event

  mutating func settles(
    after input: ServiceMachine.Input, _ effects: [ServiceMachine.Effect], deadline: Duration?,
    at now: Now
  ) {
    if effects.contains(where: { if case .spawn = $0 { true } else { false } }) {
      demand(effects.contains(.persist), "a life begins and the state file does not know it")
    }
    if mustAct {
      let acts = effects.contains(.signalStop(life)) || effects.contains(.kill(life))
      demand(acts, "a stop is not immediate")
    }
    if left { return }
    if mainEnded, !treeDone { demand(treeAsked, "nobody asks when the tree is gone") }
    let waits: Bool
    if !hasLife {
      waits = leaveAskedAt != nil
    } else if !treeDone {
      waits = !answered || mainEnded || signalled || hung || killedAt != nil
    } else {
      waits = leaveAskedAt != nil || stopAskedAt == nil
    }
    if waits { demand(deadline != nil, "it waits without a deadline") }
    if let deadline {
      demand(deadline - now.monotonic <= .seconds(95), "a deadline that is too far away")
    }
    if let leaveAskedAt {
      demand(now.monotonic - leaveAskedAt < .seconds(260), "a stop does not end")
    }
    if let stopAskedAt, !treeDone {
      demand(now.monotonic - stopAskedAt < .seconds(260), "a stop does not end")
    }
  }

  mutating func end(_ processes: [Life: World.Process], at now: Now) {
    demand(
      !processes.values.contains { $0.lives && !$0.abandoned }, "it left a process behind")
    for number in 0..<life.rawValue {
      demand(
        announcements[Life(rawValue: number + 1)] == 1, "an ending that nobody was told of")
    }
    for life in expectsReport {
      demand(reports[life] == 1, "a failure without a report")
    }
  }
}
