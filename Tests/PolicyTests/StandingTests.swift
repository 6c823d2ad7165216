// What a machine hands over to another one.
import Policy
import Testing

@Suite struct `A machine that is handed over` {
  private func now(_ seconds: Int64) -> Now {
    Now(boot: .seconds(seconds), monotonic: .seconds(seconds))
  }

  private func fresh(_ change: (inout RestartPolicy) -> Void = { _ in }) -> ServiceMachine {
    var policy = RestartPolicy()
    change(&policy)
    return ServiceMachine(
      name: "x", policy: policy,
      history: CrashHistory(
        bootID: "b",
        identity: CrashHistory.Identity(binary: "b", command: "c", configuration: "d")))
  }

  private func handedOver(_ machine: ServiceMachine, at now: Now) -> ServiceMachine? {
    guard let standing = machine.standing else { return nil }
    return ServiceMachine(
      name: machine.name, policy: machine.policy, history: machine.history, standing: standing,
      lastEnding: machine.lastEnding, lastVerdict: machine.lastVerdict, at: now)
  }

  @Test func `stands where it stood: running, waiting, stopped`() throws {
    var machine = fresh()
    #expect(machine.standing == nil)
    _ = machine.handle(.begin, at: now(1))
    #expect(machine.standing == nil, "a spawn is under way")
    let life = try #require(machine.currentLife)
    _ = machine.handle(.spawned(life), at: now(2))
    #expect(handedOver(machine, at: now(2))?.state == machine.state)
    _ = machine.handle(.crashAnnounced(life), at: now(3))
    #expect(machine.standing == nil, "a capture is under way")
    _ = machine.handle(
      .ended(
        life, Ending(status: .signaled(Signal(rawValue: 11), coreDumped: false)), signature: nil),
      at: now(3))
    #expect(machine.standing == nil, "the rest is waited for")
    _ = machine.handle(.treeGone(life), at: now(3))
    let second = try #require(machine.currentLife)
    _ = machine.handle(.spawned(second), at: now(3))
    _ = machine.handle(.ended(second, Ending(status: .exited(1)), signature: nil), at: now(3))
    _ = machine.handle(.treeGone(second), at: now(3))
    guard case .waiting = machine.state else {
      Issue.record("\(machine.state)")
      return
    }
    let other = try #require(handedOver(machine, at: now(3)))
    #expect(other == machine)
    #expect(other.deadline == machine.deadline)
    _ = machine.handle(.stop, at: now(4))
    #expect(try #require(handedOver(machine, at: now(4))) == machine)
    _ = machine.handle(.terminate, at: now(5))
    #expect(machine.standing == nil)
  }

  @Test func `gives the watchdog its whole time anew`() throws {
    var machine = fresh { $0.watchdog = .seconds(10) }
    _ = machine.handle(.begin, at: now(1))
    let life = try #require(machine.currentLife)
    _ = machine.handle(.spawned(life), at: now(1))
    #expect(machine.deadline == .seconds(11))
    #expect(handedOver(machine, at: now(9))?.deadline == .seconds(19))
  }
}
