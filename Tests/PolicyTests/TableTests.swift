// Every state × every event. A pair that is not written here must change nothing at all.
import Policy
import Testing

private enum Event: String, CaseIterable {
  case begin, adopted, spawned, spawnFailed, ready, crashAnnounced, captureEnded, ended
  case treeGone, extendTimeout, heartbeat, watchdogInterval, watchdogTriggered, unhealthy
  case terminate, stop, start, restart, deadline, reportersDone

  func input(_ life: Life) -> ServiceMachine.Input {
    switch self {
    case .begin: .begin
    case .adopted: .adopted(life, started: Now(boot: .zero, monotonic: .zero))
    case .spawned: .spawned(life)
    case .spawnFailed: .spawnFailed(life, errno: 26)
    case .ready: .ready(life)
    case .crashAnnounced: .crashAnnounced(life)
    case .captureEnded: .captureEnded(life)
    case .ended: .ended(life, segv, signature: nil)
    case .treeGone: .treeGone(life)
    case .extendTimeout: .extendTimeout(life, .seconds(60))
    case .heartbeat: .heartbeat(life)
    case .watchdogInterval: .watchdogInterval(life, .seconds(7))
    case .watchdogTriggered: .watchdogTriggered(life)
    case .unhealthy: .unhealthy(life)
    case .terminate: .terminate
    case .stop: .stop
    case .start: .start
    case .restart: .restart
    case .deadline: .deadline
    case .reportersDone: .reportersDone
    }
  }
}

private func name(_ state: ServiceMachine.State) -> String {
  switch state {
  case .idle: "idle"
  case .spawning: "spawning"
  case .cancelling(let cancelling): "cancelling(\(cancelling.request))"
  case .starting: "starting"
  case .running: "running"
  case .held: "held"
  case .stopping(_, let stopping):
    switch stopping.stage {
    case .signalled: "stopping(\(stopping.request))"
    case .captured: "stopping(\(stopping.request), captured)"
    }
  case .hanging(_, let hanging):
    switch hanging.stage {
    case .captured: "hanging(captured)"
    case .aborted: "hanging(aborted)"
    }
  case .killing: "killing"
  case .clearing(let clearing):
    switch clearing.next {
    case .start: "clearing(start)"
    case .stay: "clearing(stay)"
    case .leave: "clearing(leave)"
    }
  case .waiting: "waiting"
  case .stopped: "stopped"
  case .leaving: "leaving"
  case .left: "left"
  }
}

private struct Row: CustomTestStringConvertible {
  let state: String
  /// The events that lead there, from idle; a deadline comes at its time.
  let path: [Event]
  /// Event: next state | effects.
  let cells: [Event: String]
  var testDescription: String { "\(state) by \(path.map(\.rawValue).joined(separator: " "))" }

  init(_ state: String, _ path: [Event], _ cells: [Event: String]) {
    self.state = state
    self.path = path
    self.cells = cells
  }

  var driver: Driver {
    var policy = RestartPolicy()
    policy.awaitsReadiness = true
    policy.startTimeout = .seconds(20)
    policy.watchdog = .seconds(30)
    var driver = Driver(policy)
    for event in path {
      if event == .deadline {
        driver.reachDeadline()
      } else {
        driver.feed(event.input(driver.life))
      }
      driver.clock += .milliseconds(10)
    }
    return driver
  }
}

private let up: [Event] = [.begin, .spawned, .ready]
private let respawn = "announce persist report spawn persist"
private let away = "leaving | persist awaitReporters"

private let rows: [Row] = [
  Row(
    "idle", [],
    [
      .begin: "spawning | spawn persist", .start: "spawning | spawn persist",
      .restart: "spawning | spawn persist", .adopted: "running | persist",
      .terminate: away, .stop: "stopped | persist",
    ]),
  Row(
    "spawning", [.begin],
    [
      .spawned: "starting | ", .spawnFailed: "spawning | \(respawn)", .ready: "running | ",
      .crashAnnounced: "held | ", .ended: "clearing(start) | kill awaitTree",
      .heartbeat: "starting | ", .extendTimeout: "starting | ", .watchdogInterval: "starting | ",
      .watchdogTriggered: "hanging(captured) | captureHang",
      .unhealthy: "hanging(captured) | captureHang", .terminate: "cancelling(leave) | ",
      .stop: "cancelling(stay) | ", .deadline: "killing | kill",
    ]),
  Row(
    "cancelling(stay)", [.begin, .stop],
    [
      .spawned: "stopping(stay) | signalStop", .spawnFailed: "stopped | announce persist persist",
      .crashAnnounced: "stopping(stay) | signalStop",
      .ended: "clearing(stay) | signalStop awaitTree announce persist report",
      .terminate: "killing | kill", .stop: "killing | kill", .start: "cancelling(again) | ",
      .restart: "cancelling(again) | ", .deadline: "killing | kill",
    ]),
  Row(
    "cancelling(leave)", [.begin, .terminate],
    [
      .spawned: "stopping(leave) | signalStop",
      .spawnFailed: "leaving | announce persist persist awaitReporters",
      .crashAnnounced: "stopping(leave) | signalStop",
      .ended: "clearing(leave) | signalStop awaitTree announce persist report",
      .terminate: "killing | kill", .stop: "killing | kill", .deadline: "killing | kill",
    ]),
  Row(
    "cancelling(again)", [.begin, .stop, .restart],
    [
      .spawned: "stopping(again) | signalStop",
      .spawnFailed: "spawning | announce persist spawn persist",
      .crashAnnounced: "stopping(again) | signalStop",
      .ended: "clearing(start) | signalStop awaitTree announce persist report",
      .terminate: "cancelling(leave) | ", .stop: "cancelling(stay) | ",
      .deadline: "killing | kill",
    ]),
  Row(
    "starting", [.begin, .spawned],
    [
      .ready: "running | ", .crashAnnounced: "held | ",
      .ended: "clearing(start) | kill awaitTree", .extendTimeout: "starting | ",
      .watchdogInterval: "starting | ", .watchdogTriggered: "hanging(captured) | captureHang",
      .unhealthy: "hanging(captured) | captureHang", .terminate: "stopping(leave) | signalStop",
      .stop: "stopping(stay) | signalStop", .restart: "stopping(again) | signalStop",
      .deadline: "hanging(captured) | captureHang",
    ]),
  Row(
    "running", up,
    [
      .crashAnnounced: "held | ", .ended: "clearing(start) | kill awaitTree",
      .heartbeat: "running | ", .watchdogInterval: "running | ",
      .watchdogTriggered: "hanging(captured) | captureHang",
      .unhealthy: "hanging(captured) | captureHang", .terminate: "stopping(leave) | signalStop",
      .stop: "stopping(stay) | signalStop", .restart: "stopping(again) | signalStop",
      .deadline: "hanging(captured) | captureHang",
    ]),
  Row(
    "running", [.adopted],
    [
      .crashAnnounced: "held | ", .ended: "clearing(start) | kill awaitTree",
      .heartbeat: "running | ", .watchdogInterval: "running | ",
      .watchdogTriggered: "hanging(captured) | captureHang",
      .unhealthy: "hanging(captured) | captureHang", .terminate: "stopping(leave) | signalStop",
      .stop: "stopping(stay) | signalStop", .restart: "stopping(again) | signalStop",
      .deadline: "hanging(captured) | captureHang",
    ]),
  Row(
    "held", up + [.crashAnnounced],
    [
      .captureEnded: "running | ", .deadline: "running | release",
      .ended: "clearing(start) | kill awaitTree", .watchdogInterval: "held | ",
      .terminate: "stopping(leave) | release signalStop",
      .stop: "stopping(stay) | release signalStop",
      .restart: "stopping(again) | release signalStop",
    ]),
  Row(
    "held", [.begin, .spawned, .crashAnnounced],
    [
      .captureEnded: "starting | ", .deadline: "starting | release", .ready: "held | ",
      .ended: "clearing(start) | kill awaitTree", .watchdogInterval: "held | ",
      .terminate: "stopping(leave) | release signalStop",
      .stop: "stopping(stay) | release signalStop",
      .restart: "stopping(again) | release signalStop",
    ]),
  Row(
    "stopping(stay)", up + [.stop],
    [
      .ended: "clearing(stay) | awaitTree announce persist report", .terminate: "killing | kill",
      .stop: "killing | kill", .start: "stopping(again) | ", .restart: "stopping(again) | ",
      .extendTimeout: "stopping(stay) | ", .deadline: "stopping(stay, captured) | captureHang",
    ]),
  Row(
    "stopping(leave)", up + [.terminate],
    [
      .ended: "clearing(leave) | awaitTree announce persist report",
      .terminate: "killing | kill", .stop: "killing | kill",
      .extendTimeout: "stopping(leave) | ", .deadline: "stopping(leave, captured) | captureHang",
    ]),
  Row(
    "stopping(again)", up + [.restart],
    [
      .ended: "clearing(start) | awaitTree announce persist report",
      .terminate: "stopping(leave) | ", .stop: "stopping(stay) | ",
      .extendTimeout: "stopping(again) | ", .deadline: "stopping(again, captured) | captureHang",
    ]),
  Row(
    "stopping(stay, captured)", up + [.stop, .deadline],
    [
      .ended: "clearing(stay) | kill awaitTree announce persist report",
      .terminate: "killing | release kill", .stop: "killing | release kill",
      .start: "stopping(again, captured) | ", .restart: "stopping(again, captured) | ",
      .captureEnded: "killing | kill", .deadline: "killing | release kill",
    ]),
  Row(
    "hanging(captured)", up + [.deadline],
    [
      .ended: "clearing(start) | kill awaitTree", .captureEnded: "hanging(aborted) | abort",
      .deadline: "hanging(aborted) | release abort", .terminate: "killing | release kill",
      .stop: "killing | release kill", .restart: "killing | release kill",
    ]),
  Row(
    "hanging(aborted)", up + [.deadline, .captureEnded],
    [
      .ended: "clearing(start) | kill awaitTree", .deadline: "killing | kill",
      .terminate: "killing | kill", .stop: "killing | kill", .restart: "killing | kill",
    ]),
  Row(
    "killing", up + [.stop, .stop],
    [
      .ended: "clearing(stay) | kill awaitTree announce persist report",
      .spawnFailed: "stopped | announce persist persist", .terminate: "killing | ",
      .start: "killing | ", .restart: "killing | ",
      .deadline: "stopped | abandon announce persist persist",
    ]),
  Row(
    "killing", up + [.deadline, .captureEnded, .deadline],
    [
      .ended: "clearing(start) | kill awaitTree", .spawnFailed: "spawning | \(respawn)",
      .terminate: "killing | ", .stop: "killing | ", .restart: "killing | ",
      .deadline: "spawning | abandon \(respawn)",
    ]),
  Row(
    "killing", up + [.unhealthy, .terminate],
    [
      .ended: "clearing(leave) | kill awaitTree announce persist report",
      .spawnFailed: "leaving | announce persist report persist awaitReporters",
      .deadline: "leaving | abandon announce persist report persist awaitReporters",
    ]),
  Row(
    "killing", up + [.unhealthy, .stop],
    [
      .ended: "clearing(stay) | kill awaitTree announce persist report",
      .spawnFailed: "stopped | announce persist report persist", .terminate: "killing | ",
      .start: "killing | ", .restart: "killing | ",
      .deadline: "stopped | abandon announce persist report persist",
    ]),
  Row(
    "clearing(start)", up + [.ended],
    [
      .treeGone: "spawning | \(respawn)", .deadline: "spawning | abandon \(respawn)",
      .terminate: "clearing(leave) | ", .stop: "clearing(stay) | ",
      .start: "clearing(start) | persist", .restart: "clearing(start) | persist",
    ]),
  Row(
    "clearing(stay)", up + [.stop, .ended],
    [
      .treeGone: "stopped | persist", .deadline: "clearing(stay) | kill",
      .terminate: "clearing(leave) | kill", .stop: "clearing(stay) | kill",
      .start: "clearing(start) | persist", .restart: "clearing(start) | persist",
    ]),
  Row(
    "clearing(stay)", up + [.stop, .ended, .deadline],
    [
      .treeGone: "stopped | persist", .deadline: "stopped | abandon persist",
      .terminate: "clearing(leave) | ", .start: "clearing(start) | persist",
      .restart: "clearing(start) | persist",
    ]),
  Row(
    "clearing(leave)", up + [.terminate, .ended],
    [
      .treeGone: away, .deadline: "clearing(leave) | kill", .terminate: "clearing(leave) | kill",
      .stop: "clearing(leave) | kill",
    ]),
  Row(
    "waiting", up + [.ended, .treeGone, .spawned, .ended, .treeGone],
    [
      .deadline: "spawning | spawn persist", .start: "spawning | spawn persist",
      .restart: "spawning | spawn persist", .stop: "stopped | persist", .terminate: away,
    ]),
  Row(
    "stopped", up + [.stop, .ended, .treeGone],
    [
      .start: "spawning | spawn persist", .restart: "spawning | spawn persist",
      .terminate: away,
    ]),
  Row(
    "leaving", up + [.terminate, .ended, .treeGone],
    [
      .reportersDone: "left | leave", .deadline: "left | endReporters leave",
      .terminate: "left | endReporters leave",
    ]),
  Row("left", up + [.terminate, .ended, .treeGone, .reportersDone], [:]),
]

@Suite struct `State by event` {
  @Test(arguments: rows)
  fileprivate func `every pair`(_ row: Row) {
    #expect(name(row.driver.machine.state) == row.state)
    for event in Event.allCases {
      var driver = row.driver
      let before = driver.machine
      driver.clock += .milliseconds(5)
      let effects =
        event == .deadline ? driver.reachDeadline() : driver.feed(event.input(driver.life))
      if let cell = row.cells[event] {
        let outcome = "\(name(driver.machine.state)) | \(words(effects))"
        #expect(outcome == cell, "\(row.state), \(event)")
        #expect(driver.machine != before, "\(row.state), \(event) changes nothing")
      } else {
        #expect(driver.machine == before, "\(row.state), \(event) changes something")
        #expect(effects.isEmpty, "\(row.state), \(event): \(words(effects))")
      }
    }
  }

  @Test func `every state is there`() {
    let states = Set(rows.map { $0.state.prefix { $0 != "(" } })
    #expect(states.count == 14)
  }

  @Test(arguments: rows)
  fileprivate func `a late event of an earlier life changes nothing`(_ row: Row) {
    for event in Event.allCases {
      for other in [row.driver.life.next, Life(rawValue: row.driver.life.rawValue &- 1)] {
        let input = event.input(other)
        if input.life == nil { continue }
        var driver = row.driver
        let before = driver.machine
        #expect(driver.feed(input).isEmpty)
        #expect(driver.machine == before)
      }
    }
  }

  @Test(arguments: rows)
  fileprivate func `a deadline that comes too early changes nothing`(_ row: Row) {
    var driver = row.driver
    guard let deadline = driver.machine.deadline else { return }
    let before = driver.machine
    driver.clock = deadline - .nanoseconds(1)
    #expect(driver.feed(.deadline).isEmpty)
    #expect(driver.machine == before)
  }
}
