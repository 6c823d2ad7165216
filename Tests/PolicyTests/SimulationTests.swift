// The machine against a pretended kernel. GUARDIAN_SIMULATION_STEPS makes it run longer than
// the million steps of every test run, GUARDIAN_SIMULATION_SEED begins elsewhere. A seed that
// once found a mistake is kept below for ever.
import Glibc
import Policy
import Testing

private func number(_ variable: String) -> Int? {
  guard let text = getenv(variable) else { return nil }
  return Int(String(cString: text))
}

/// Seeds that found a mistake.
private let keptSeeds: [UInt64] = []

@Suite struct `Simulated` {
  @Test func `a million steps without a complaint`() {
    var steps = number("GUARDIAN_SIMULATION_STEPS") ?? 1_000_000
    var seed = UInt64(number("GUARDIAN_SIMULATION_SEED") ?? 1)
    var seeds = keptSeeds
    var spawns: UInt64 = 0
    var states: UInt32 = 0
    var effects: UInt32 = 0
    while steps > 0 {
      let next = seeds.popLast() ?? seed
      if next == seed { seed += 1 }
      var world = World(seed: next)
      world.run(steps: 20_000)
      steps -= world.steps
      spawns += UInt64(world.current.rawValue)
      states |= world.statesVisited
      effects |= world.effectsSeen
      if let complaint = world.checker.complaint {
        Issue.record(
          "seed \(next), step \(world.steps): \(complaint); state \(world.machine.state)")
        return
      }
      #expect(world.left, "seed \(next) came to no end")
    }
    // It must have lived: a simulation in which nothing happens proves nothing.
    #expect(spawns > 2 * seed)
    // All but `idle`, which it leaves with the first event.
    #expect(states == (1 << ServiceMachine.State.count) - 2)
    #expect(effects == (1 << ServiceMachine.Effect.count) - 1)
  }

  @Test func `a seed means the same every time`() {
    var one = World(seed: 42)
    var two = World(seed: 42)
    one.run(steps: 5000)
    two.run(steps: 5000)
    #expect(one.machine == two.machine)
    #expect(one.steps == two.steps)
  }

  @Test(arguments: Sabotage.mutants)
  func `a mutant is caught`(_ mutant: Sabotage) {
    for seed in UInt64(1)...4000 {
      var world = World(seed: seed, sabotage: mutant)
      world.run(steps: 20_000)
      if world.checker.complaint != nil { return }
    }
    Issue.record("nobody noticed: \(mutant.name)")
  }
}

extension Sabotage: CustomTestStringConvertible {
  var testDescription: String { name }

  private static func effects(
    _ name: String,
    _ change: @escaping @Sendable (ServiceMachine.Effect) -> [ServiceMachine.Effect]
  ) -> Sabotage {
    Sabotage(name: name, effects: { $0.flatMap(change) })
  }

  private static func policy(
    _ name: String, _ change: @escaping @Sendable (inout RestartPolicy) -> Void
  ) -> Sabotage {
    Sabotage(name: name, policy: change)
  }

  static let mutants: [Sabotage] = [
    effects("never kills") { if case .kill = $0 { [] } else { [$0] } },
    effects("spawns twice") { if case .spawn = $0 { [$0, $0] } else { [$0] } },
    effects("spawns before the tree is gone") {
      if case .awaitTree(let life) = $0 { [$0, .spawn(life.next)] } else { [$0] }
    },
    effects("forgets to leave") { if case .leave = $0 { [] } else { [$0] } },
    effects("leaves twice") { if case .leave = $0 { [$0, $0] } else { [$0] } },
    effects("leaves when it gives up") {
      if case .runGiveUp(let why) = $0 { [$0, .leave(.exit(why.ending.exitCode))] } else { [$0] }
    },
    effects("kills the life before") {
      if case .kill(let life) = $0 { [.kill(Life(rawValue: life.rawValue - 1))] } else { [$0] }
    },
    effects("loses reports") { if case .report = $0 { [] } else { [$0] } },
    effects("writes reports twice") { if case .report = $0 { [$0, $0] } else { [$0] } },
    effects("tells nobody") { if case .announce = $0 { [] } else { [$0] } },
    effects("never asks for the tree") { if case .awaitTree = $0 { [] } else { [$0] } },
    effects("forgets the state file") { if case .persist = $0 { [] } else { [$0] } },
    effects("does not pass the stop on") { if case .signalStop = $0 { [] } else { [$0] } },
    effects("abandons what it stops") {
      if case .signalStop(let life) = $0 { [$0, .abandon(life)] } else { [$0] }
    },
    effects("aborts whoever it stops") {
      if case .signalStop(let life) = $0 { [$0, .abort(life)] } else { [$0] }
    },
    effects("waits for no reporter") { if case .awaitReporters = $0 { [] } else { [$0] } },
    policy("one restart too many") { $0.maxCrashes = $0.maxCrashes.map { $0 + 1 } },
    policy("one restart too few") { $0.maxCrashes = $0.maxCrashes.map { max($0 - 1, 0) } },
    policy("no cap") { $0.maxCrashes = nil },
    policy("a cap where there is none") { $0.maxCrashes = $0.maxCrashes ?? 2 },
    policy("a window too short") { $0.crashWindow = $0.crashWindow.map { $0 / 4 } },
    policy("no window where there is none") { $0.crashWindow = $0.crashWindow ?? .seconds(5) },
    policy("no delay") { $0.restartDelay = .zero },
    policy("every life is stable") { $0.stableAfter = .zero },
    policy("no growth of the delay") { $0.restartBackoff = 1 },
    policy("restarts what it must not") { $0.restart = .always },
    policy("does not wait for the killed") { $0.killTimeout = .zero },
    policy("extends for ever") { $0.extensionMax = .seconds(100_000) },
    Sabotage(name: "ignores TERM", input: { input, _ in input == .terminate ? nil : input }),
    Sabotage(
      name: "takes TERM for stop", input: { input, _ in input == .terminate ? .stop : input }),
    Sabotage(
      name: "takes stop for restart", input: { input, _ in input == .stop ? .restart : input }),
    Sabotage(
      name: "believes late endings",
      input: { input, current in
        if case .ended(_, let ending, let signature) = input {
          .ended(current, ending, signature: signature)
        } else {
          input
        }
      }),
    Sabotage(
      name: "believes late words of the tree",
      input: { input, current in
        if case .treeGone = input { .treeGone(current) } else { input }
      }),
    Sabotage(
      name: "misses endings",
      input: { input, _ in if case .ended = input { nil } else { input } }),
    Sabotage(name: "has no deadline", deadline: { _ in nil }),
    Sabotage(name: "wakes too late", deadline: { $0.map { $0 + .seconds(300) } }),
  ]
}
