// Drives a machine by hand: a clock that only moves when told to.
import Policy

let segv = Ending(status: .signaled(.segv, coreDumped: false))
func exit(_ code: Int32) -> Ending { Ending(status: .exited(code)) }
func died(_ signal: Signal) -> Ending { Ending(status: .signaled(signal, coreDumped: false)) }

let noIdentity = CrashHistory.Identity(binary: "b", command: "c", configuration: "d")

struct Driver {
  var machine: ServiceMachine
  /// Both clocks, unless `suspended` time was added.
  var clock: Duration = .seconds(1000)
  var suspended: Duration = .zero

  init(_ policy: RestartPolicy = RestartPolicy(), name: String = "api") {
    machine = ServiceMachine(
      name: name, policy: policy,
      history: CrashHistory(bootID: "boot", identity: noIdentity))
  }

  var now: Now { Now(boot: clock + suspended, monotonic: clock) }
  var life: Life { machine.currentLife ?? machine.history.lastLife }

  @discardableResult
  mutating func feed(_ input: ServiceMachine.Input) -> [ServiceMachine.Effect] {
    machine.handle(input, at: now)
  }

  /// Moves the clock to the deadline and hands it in.
  @discardableResult
  mutating func reachDeadline() -> [ServiceMachine.Effect] {
    if let deadline = machine.deadline { clock = max(clock, deadline) }
    return feed(.deadline)
  }

  /// Up and ready, from any state in which a life begins.
  mutating func comeUp() {
    if case .idle = machine.state { feed(.begin) }
    if case .waiting = machine.state { reachDeadline() }
    feed(.spawned(life))
    feed(.ready(life))
  }

  /// One whole life; gives back the verdict and all effects until the next one begins or not.
  mutating func live(
    _ after: Duration, _ ending: Ending, signature: CrashSignature? = nil
  ) -> (verdict: Verdict?, effects: [ServiceMachine.Effect]) {
    comeUp()
    let life = life
    clock += after
    var effects = feed(.ended(life, ending, signature: signature))
    effects += feed(.treeGone(life))
    return (machine.lastVerdict, effects)
  }
}

extension Verdict.Decision {
  var delay: Duration? { if case .restart(let delay) = self { delay } else { nil } }
  var restarts: Bool { delay != nil }
}

extension ServiceMachine.Effect {
  var word: String {
    switch self {
    case .spawn: "spawn"
    case .signalStop: "signalStop"
    case .release: "release"
    case .captureHang: "captureHang"
    case .abort: "abort"
    case .kill: "kill"
    case .awaitTree: "awaitTree"
    case .abandon: "abandon"
    case .report: "report"
    case .announce: "announce"
    case .runGiveUp: "runGiveUp"
    case .persist: "persist"
    case .awaitReporters: "awaitReporters"
    case .endReporters: "endReporters"
    case .leave: "leave"
    }
  }
}

func words(_ effects: [ServiceMachine.Effect]) -> String {
  effects.map(\.word).joined(separator: " ")
}

func leave(of effects: [ServiceMachine.Effect]) -> Leave? {
  for case .leave(let leave) in effects { return leave }
  return nil
}

func reports(in effects: [ServiceMachine.Effect]) -> [Ending] {
  effects.compactMap { if case .report(_, let ending, _) = $0 { ending } else { nil } }
}
