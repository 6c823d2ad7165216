// A pretended kernel, adapter and operator around one machine. Everything is decided by a
// seed: what programs do, how late each answer comes, in which order, and when somebody asks
// for something. Nothing here acts on the machine's state, only on `deadline` and effects;
// which states were visited is counted, to show how far the simulation gets.
import Policy

/// SplitMix64: small, and fixed for ever, so that a seed means the same tomorrow.
struct SeededGenerator: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }
  /// True in so many of a hundred cases.
  mutating func chance(_ percent: Int) -> Bool { Int(next() % 100) < percent }
  mutating func below(_ limit: Int) -> Int { Int(next() % UInt64(limit)) }
}

/// What a mutant does to the machine: each is a mistake that somebody could make, and that a
/// checker must catch.
struct Sabotage: Sendable {
  let name: String
  /// Changes the policy that the machine gets; the checkers know the true one.
  var policy: @Sendable (inout RestartPolicy) -> Void = { _ in }
  /// Changes an event on its way in. nil: it is lost.
  var input: @Sendable (ServiceMachine.Input, Life) -> ServiceMachine.Input? = { input, _ in input }
  /// Changes the effects on their way out.
  var effects: @Sendable ([ServiceMachine.Effect]) -> [ServiceMachine.Effect] = { $0 }
  /// Changes the deadline.
  var deadline: @Sendable (Duration?) -> Duration? = { $0 }

  static let none = Sabotage(name: "none")
}

struct World {
  /// What one life's processes are truly doing.
  struct Process {
    enum Main { case forking, up, gone }
    var main = Main.forking
    /// Descendants that outlive the main process.
    var rest = false
    /// KILL does nothing (uninterruptible sleep).
    var stuck = false
    var obeys = true
    /// Asked to stop, it does nothing but ask for more time.
    var clings = false
    /// The machine said it forgets it.
    var abandoned = false
    var treeAsked = false
    var lives: Bool { main != .gone || rest }
  }

  enum Happening {
    case deliver(ServiceMachine.Input)
    /// The main process does what it would do by itself, or because of a signal.
    case ends(Life, Ending, CrashSignature?)
    case restGone(Life)
    case ring(Life)
    case operate
  }

  var random: SeededGenerator
  let policy: RestartPolicy
  let sabotage: Sabotage
  var machine: ServiceMachine
  var checker: Checker
  var clock: Duration = .seconds(5000)
  var suspended: Duration = .zero
  var processes: [Life: Process] = [:]
  var current = Life(rawValue: 0)
  /// Unsorted, and small: a few events are on their way at any time.
  var queue: [(at: Duration, order: UInt64, what: Happening)] = []
  var order: UInt64 = 0
  var steps = 0
  var left = false
  /// A bit for each state and for each effect that was seen.
  var statesVisited: UInt32 = 0
  var effectsSeen: UInt32 = 0

  init(seed: UInt64, sabotage: Sabotage = .none) {
    random = SeededGenerator(state: seed)
    var policy = RestartPolicy()
    policy.restart = random.chance(70) ? .onFailure : RestartPolicy.Mode.allCases[random.below(7)]
    policy.maxCrashes = random.chance(10) ? nil : random.below(8)
    policy.crashWindow = random.chance(10) ? nil : .seconds(20 + random.below(600))
    policy.awaitsReadiness = random.chance(40)
    policy.startTimeout = random.chance(20) ? nil : .seconds(5)
    policy.watchdog = random.chance(30) ? .seconds(10) : nil
    policy.extensionMax = .seconds(30)
    policy.restartDelayMax = .seconds(5)
    self.policy = policy
    var given = policy
    sabotage.policy(&given)
    self.sabotage = sabotage
    machine = ServiceMachine(
      name: "sim", policy: given, history: CrashHistory(bootID: "b", identity: noIdentity))
    checker = Checker(policy: policy)
  }

  var now: Now { Now(boot: clock + suspended, monotonic: clock) }

  mutating func soon(_ what: Happening, within milliseconds: Int) {
    order += 1
    // In microseconds, so that two things seldom come at once.
    queue.append((clock + .microseconds(random.below(milliseconds * 1000 + 1)), order, what))
  }

  /// Runs until guardian left, or so many events.
  mutating func run(steps limit: Int) {
    feed(.begin)
    soon(.operate, within: 60_000)
    while !left, steps < limit, checker.complaint == nil { step() }
    if left { checker.end(processes, at: now) }
  }

  mutating func step() {
    // The next thing by time: an event, or the deadline, which may come late.
    var index: Int?
    for candidate in queue.indices {
      guard let best = index else {
        index = candidate
        continue
      }
      if (queue[candidate].at, queue[candidate].order) < (queue[best].at, queue[best].order) {
        index = candidate
      }
    }
    let deadline = sabotage.deadline(machine.deadline)
    if let deadline, index.map({ queue[$0].at >= deadline }) ?? true {
      clock = max(clock, deadline)
      if random.chance(20) { clock += .microseconds(random.below(3000)) }
      feed(.deadline)
      return
    }
    guard let index else {
      // Nothing will ever happen by itself again; somebody comes by.
      clock += .seconds(random.below(1000))
      operate()
      return
    }
    let next = queue.remove(at: index)
    clock = max(clock, next.at)
    if random.chance(1) { suspended += .seconds(random.below(400)) }
    happen(next.what)
    if random.chance(3) { disturb() }
  }

  mutating func happen(_ what: Happening) {
    switch what {
    case .deliver(let input): feed(input)
    case .operate:
      operate()
      soon(.operate, within: 200_000)
    case .ring(let life):
      guard let process = processes[life], process.main == .up, !process.clings else { return }
      soon(.deliver(.crashAnnounced(life)), within: 3)
      if random.chance(80) { soon(.deliver(.captureEnded(life)), within: 3000) }
      if random.chance(90) {
        soon(.ends(life, died(.segv), CrashSignature(rawValue: 5)), within: 4000)
      }
    case .ends(let life, let ending, let signature):
      guard var process = processes[life], process.main != .gone, !process.clings else { return }
      process.main = .gone
      process.rest = random.chance(20)
      processes[life] = process
      soon(.deliver(.ended(life, ending, signature: signature)), within: random.chance(5) ? 900 : 4)
      if process.rest, random.chance(50) { soon(.restGone(life), within: 4000) }
    case .restGone(let life):
      processes[life]?.rest = false
      answerTree(life)
    }
  }

  mutating func answerTree(_ life: Life) {
    guard let process = processes[life], process.treeAsked, !process.lives else { return }
    soon(.deliver(.treeGone(life)), within: 2)
  }

  mutating func operate() {
    switch random.below(14) {
    case 0...3: feed(.terminate)
    case 4, 5: feed(.stop)
    case 6, 7, 8: feed(.start)
    case 9, 10, 11: feed(.restart)
    default: break
    }
    // Impatience.
    if random.chance(15) { feed(random.chance(50) ? .terminate : .stop) }
  }

  /// Late, doubled and impossible events.
  mutating func disturb() {
    let back = UInt32(1 + random.below(3))
    let life =
      random.chance(70)
      ? Life(rawValue: current.rawValue > back ? current.rawValue - back : 0) : current
    let harmless: [ServiceMachine.Input] = [
      .spawned(life), .ready(life), .heartbeat(life), .captureEnded(life), .deadline, .begin,
      .reportersDone, .extendTimeout(life, .seconds(3)),
    ]
    let late: [ServiceMachine.Input] = [
      .ended(life, segv, signature: nil), .treeGone(life), .spawnFailed(life, errno: 5),
      .crashAnnounced(life), .unhealthy(life), .watchdogTriggered(life),
    ]
    if life != current {
      feed(late[random.below(late.count)])
    } else {
      let input = harmless[random.below(harmless.count)]
      // Those would be lies of the kernel or of the adapter.
      if case .spawned = input, processes[life]?.main != .up { return }
      if case .ready = input, processes[life]?.main != .up { return }
      if case .heartbeat = input, processes[life]?.main != .up { return }
      if case .extendTimeout = input, processes[life]?.main != .up { return }
      if case .reportersDone = input { return }
      feed(input)
    }
  }

  mutating func feed(_ input: ServiceMachine.Input) {
    steps += 1
    checker.sees(input, at: now)
    var effects: [ServiceMachine.Effect] = []
    if let given = sabotage.input(input, current) {
      effects = sabotage.effects(machine.handle(given, at: now))
    }
    for effect in effects {
      effectsSeen |= 1 << effect.number
      checker.sees(effect, processes, at: now)
      perform(effect)
    }
    statesVisited |= 1 << machine.state.number
    checker.settles(
      after: input, effects, deadline: sabotage.deadline(machine.deadline), at: now)
  }

  mutating func perform(_ effect: ServiceMachine.Effect) {
    switch effect {
    case .spawn(let life): spawn(life)
    case .signalStop(let life):
      if let process = processes[life], process.main == .up, process.obeys {
        soon(
          .ends(
            life, random.chance(5) ? died(.segv) : random.chance(50) ? exit(0) : died(.term), nil),
          within: 3000)
      } else if processes[life]?.main == .up, random.chance(20) {
        // It would rather live for ever.
        processes[life]?.clings = true
        for _ in 0..<150 { soon(.deliver(.extendTimeout(life, .seconds(20))), within: 400_000) }
      } else if processes[life]?.main == .gone, random.chance(70) {
        soon(.restGone(life), within: 2000)
      }
    case .release: break
    case .captureHang(let life):
      if random.chance(80) { soon(.deliver(.captureEnded(life)), within: 1500) }
    case .abort(let life):
      if processes[life]?.main == .up, random.chance(60) {
        soon(.ends(life, died(.abrt), nil), within: 4000)
      }
    case .kill(let life):
      guard let process = processes[life] else { return }
      processes[life]?.clings = false
      if process.stuck {
        soon(.ends(life, died(.kill), nil), within: 40_000)
        soon(.restGone(life), within: 60_000)
      } else {
        switch process.main {
        case .forking:
          processes[life]?.main = .gone
          soon(.deliver(.spawnFailed(life, errno: 4)), within: 4)
        case .up: soon(.ends(life, died(.kill), nil), within: 3)
        case .gone: break
        }
        soon(.restGone(life), within: 8)
      }
    case .awaitTree(let life):
      processes[life]?.treeAsked = true
      answerTree(life)
    case .abandon(let life): processes[life]?.abandoned = true
    case .awaitReporters:
      if random.chance(80) { soon(.deliver(.reportersDone), within: 2000) }
    case .leave: left = true
    case .report, .announce, .runGiveUp, .persist, .endReporters: break
    }
  }

  mutating func spawn(_ life: Life) {
    current = life
    var process = Process()
    process.stuck = random.chance(2)
    process.obeys = random.chance(85)
    if random.chance(8) {
      process.main = .gone
      processes[life] = process
      soon(.deliver(.spawnFailed(life, errno: 2)), within: 4)
      return
    }
    if random.chance(1) {
      // exec hangs: only KILL helps.
      processes[life] = process
      return
    }
    process.main = .up
    processes[life] = process
    // Any order: `ready` may overtake `spawned`, and so may the ending.
    soon(.deliver(.spawned(life)), within: 4)
    if random.chance(90) { soon(.deliver(.ready(life)), within: random.chance(50) ? 4 : 3000) }
    for _ in 0..<random.below(4) { soon(.deliver(.heartbeat(life)), within: 20_000) }
    if random.chance(20) {
      soon(.deliver(.extendTimeout(life, .seconds(random.below(20)))), within: 8000)
    }
    if random.chance(5) { soon(.deliver(.unhealthy(life)), within: 9000) }
    if random.chance(5) { soon(.deliver(.watchdogInterval(life, .seconds(4))), within: 9000) }
    switch random.below(10) {
    case 0, 1, 2, 3: soon(.ring(life), within: random.chance(50) ? 100 : 15_000)
    case 4: soon(.ends(life, exit(Int32(random.below(3))), nil), within: 15_000)
    case 5: soon(.ends(life, died(.kill), nil), within: 60_000)
    case 6: soon(.ends(life, Ending(status: .unknown), nil), within: 2000)
    case 7: soon(.ends(life, exit(1), nil), within: 50)
    default: soon(.ring(life), within: 400_000)
    }
  }
}

extension ServiceMachine.State {
  static let count: UInt32 = 14
  var number: UInt32 {
    switch self {
    case .idle: 0
    case .spawning: 1
    case .cancelling: 2
    case .starting: 3
    case .running: 4
    case .held: 5
    case .stopping: 6
    case .hanging: 7
    case .killing: 8
    case .clearing: 9
    case .waiting: 10
    case .stopped: 11
    case .leaving: 12
    case .left: 13
    }
  }
}

extension ServiceMachine.Effect {
  static let count: UInt32 = 15
  var number: UInt32 {
    switch self {
    case .spawn: 0
    case .signalStop: 1
    case .release: 2
    case .captureHang: 3
    case .abort: 4
    case .kill: 5
    case .awaitTree: 6
    case .abandon: 7
    case .report: 8
    case .announce: 9
    case .runGiveUp: 10
    case .persist: 11
    case .awaitReporters: 12
    case .endReporters: 13
    case .leave: 14
    }
  }
}
