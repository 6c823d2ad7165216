import Policy
import Testing

@Suite struct `A stop` {
  func running(_ policy: RestartPolicy = RestartPolicy()) -> Driver {
    var driver = Driver(policy)
    driver.comeUp()
    return driver
  }

  @Test func `ends the program and guardian with its status`() {
    var driver = running()
    let life = driver.life
    #expect(words(driver.feed(.terminate)) == "signalStop")
    #expect(
      words(driver.feed(.ended(life, died(.term), signature: nil)))
        == "awaitTree announce persist")
    #expect(words(driver.feed(.treeGone(life))) == "persist awaitReporters")
    #expect(driver.machine.history.departure == .stopped)
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(143))
  }

  @Test func `by guardianctl leaves guardian there, and start clears the count`() {
    var driver = Driver()
    _ = driver.live(.seconds(1), segv)
    driver.comeUp()
    let life = driver.life
    driver.feed(.stop)
    driver.feed(.ended(life, died(.term), signature: nil))
    driver.feed(.treeGone(life))
    #expect(driver.machine.state == .stopped)
    #expect(driver.machine.deadline == nil)
    #expect(driver.machine.history.failures.count == 1)
    #expect(words(driver.feed(.start)) == "spawn persist")
    #expect(driver.machine.history.failures.isEmpty)
    #expect(driver.machine.history.departure == .none)
  }

  @Test func `of a program that will not: snapshot, then KILL, then a report`() {
    var driver = running()
    let life = driver.life
    driver.feed(.terminate)
    let asked = driver.clock
    #expect(words(driver.reachDeadline()) == "captureHang")
    #expect(driver.clock == asked + .seconds(8))
    #expect(words(driver.feed(.captureEnded(life))) == "kill")
    let effects = driver.feed(.ended(life, died(.kill), signature: nil))
    #expect(
      reports(in: effects)
        == [Ending(status: .signaled(.kill, coreDumped: false), cause: .stopTimeout)])
    driver.feed(.treeGone(life))
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(137))
  }

  @Test func `asked for twice is KILL at once, and no report`() {
    var driver = running()
    let life = driver.life
    driver.feed(.terminate)
    #expect(words(driver.feed(.terminate)) == "kill")
    #expect(reports(in: driver.feed(.ended(life, died(.kill), signature: nil))).isEmpty)
  }

  @Test func `in a pause is immediate`() {
    var driver = Driver()
    _ = driver.live(.seconds(1), segv)
    _ = driver.live(.seconds(1), segv)
    #expect(words(driver.feed(.terminate)) == "persist awaitReporters")
    // The crashes were answered before; the stop itself went well.
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(143))
  }

  @Test func `in a capture is immediate`() {
    var driver = running()
    driver.feed(.crashAnnounced(driver.life))
    #expect(words(driver.feed(.terminate)) == "release signalStop")
  }

  @Test func `before exec waits for exec and no longer`() {
    var driver = Driver()
    driver.feed(.begin)
    let life = driver.life
    #expect(driver.feed(.terminate).isEmpty)
    #expect(words(driver.feed(.spawned(life))) == "signalStop")
    var stuck = Driver()
    stuck.feed(.begin)
    stuck.feed(.terminate)
    #expect(words(stuck.feed(.terminate)) == "kill")
  }

  @Test func `may be put off by the program, but not for ever`() {
    var policy = RestartPolicy()
    policy.extensionMax = .seconds(60)
    var driver = running(policy)
    driver.feed(.terminate)
    let asked = driver.clock
    driver.feed(.extendTimeout(driver.life, .seconds(30)))
    #expect(driver.machine.deadline == asked + .seconds(30))
    driver.feed(.extendTimeout(driver.life, .seconds(5)))
    #expect(driver.machine.deadline == asked + .seconds(30), "never sooner")
    driver.feed(.extendTimeout(driver.life, .seconds(1_000_000)))
    #expect(driver.machine.deadline == asked + .seconds(68))
  }

  @Test func `gives reporters what is left of its time, at least a little`() {
    var driver = running()
    driver.feed(.terminate)
    let asked = driver.clock
    let life = driver.life
    driver.clock += .seconds(1)
    driver.feed(.ended(life, segv, signature: nil))
    driver.feed(.treeGone(life))
    #expect(driver.machine.deadline == asked + .seconds(8))
    #expect(words(driver.reachDeadline()) == "endReporters leave")
    var late = running()
    late.feed(.terminate)
    late.clock += .seconds(7.9)
    late.feed(.ended(late.life, segv, signature: nil))
    late.feed(.treeGone(late.life))
    #expect(late.machine.deadline == late.clock + .milliseconds(1500))
  }

  @Test func `lets the rest of the tree end in its own way, until its time is up`() {
    var driver = running()
    driver.feed(.terminate)
    let asked = driver.clock
    let life = driver.life
    driver.clock += .seconds(1)
    driver.feed(.ended(life, exit(0), signature: nil))
    #expect(driver.machine.deadline == asked + .seconds(8))
    #expect(words(driver.reachDeadline()) == "kill")
    #expect(words(driver.reachDeadline()) == "abandon persist awaitReporters")
  }

  @Test func `after guardianctl restart starts anew and clears the count`() {
    var driver = Driver()
    _ = driver.live(.seconds(1), segv)
    driver.comeUp()
    let life = driver.life
    #expect(words(driver.feed(.restart)) == "signalStop")
    driver.feed(.ended(life, died(.term), signature: nil))
    #expect(words(driver.feed(.treeGone(life))) == "spawn persist")
    #expect(driver.machine.history.failures.isEmpty)
    #expect(driver.life == life.next)
  }
}

@Suite struct `A hang` {
  func running() -> Driver {
    var policy = RestartPolicy()
    policy.watchdog = .seconds(30)
    policy.awaitsReadiness = true
    policy.startTimeout = .seconds(20)
    var driver = Driver(policy)
    driver.comeUp()
    return driver
  }

  @Test func `is captured, aborted, killed, and counted with its cause`() {
    var driver = running()
    let life = driver.life
    driver.clock += .seconds(29)
    driver.feed(.heartbeat(life))
    let beat = driver.clock
    #expect(words(driver.reachDeadline()) == "captureHang")
    #expect(driver.clock == beat + .seconds(30))
    #expect(words(driver.reachDeadline()) == "release abort")
    #expect(words(driver.reachDeadline()) == "kill")
    var effects = driver.feed(.ended(life, died(.kill), signature: nil))
    effects += driver.feed(.treeGone(life))
    #expect(
      reports(in: effects)
        == [Ending(status: .signaled(.kill, coreDumped: false), cause: .watchdog)])
    #expect(driver.machine.history.failures.count == 1)
    #expect(driver.machine.lastVerdict?.decision.restarts == true)
  }

  @Test func `is not what a program does that is held for a capture`() {
    var driver = running()
    let life = driver.life
    driver.clock += .seconds(29.9)
    driver.feed(.crashAnnounced(life))
    driver.clock += .seconds(1.9)
    driver.feed(.captureEnded(life))
    #expect(driver.machine.deadline == driver.clock + .seconds(30))
  }

  @Test func `before readiness is a start timeout`() {
    var policy = RestartPolicy()
    policy.awaitsReadiness = true
    policy.startTimeout = .seconds(20)
    var driver = Driver(policy)
    driver.feed(.begin)
    let begun = driver.clock
    let life = driver.life
    driver.feed(.spawned(life))
    driver.reachDeadline()
    #expect(driver.clock == begun + .seconds(20))
    driver.feed(.captureEnded(life))
    driver.feed(.ended(life, exit(0), signature: nil))
    #expect(driver.machine.lastEnding?.cause == .startTimeout)
    #expect(driver.machine.lastVerdict?.decision.restarts == true)
  }

  @Test func `the program may set its own watchdog, and turn it off`() {
    var driver = running()
    driver.feed(.watchdogInterval(driver.life, .seconds(3)))
    #expect(driver.machine.deadline == driver.clock + .seconds(3))
    driver.feed(.watchdogInterval(driver.life, .zero))
    #expect(driver.machine.deadline == nil)
  }

  @Test func `without readiness to wait for, exec is readiness`() {
    var driver = Driver()
    driver.feed(.begin)
    driver.feed(.spawned(driver.life))
    #expect(driver.machine.deadline == nil, "nothing is waited for: nothing wakes guardian")
  }
}

@Suite struct `A crash` {
  @Test func `that was announced and not died of is none`() {
    var driver = Driver()
    driver.comeUp()
    let life = driver.life
    driver.feed(.crashAnnounced(life))
    #expect(driver.feed(.captureEnded(life)).isEmpty)
    #expect(driver.machine.history.failures.isEmpty)
    driver.feed(.terminate)
    #expect(reports(in: driver.feed(.ended(life, died(.term), signature: nil))).isEmpty)
  }

  @Test func `is released when its capture does not end`() {
    var driver = Driver()
    driver.comeUp()
    driver.feed(.crashAnnounced(driver.life))
    let announced = driver.clock
    #expect(words(driver.reachDeadline()) == "release")
    #expect(driver.clock == announced + .seconds(2))
  }

  @Test func `is answered by a new life at once, which is told of it`() {
    var driver = Driver()
    driver.comeUp()
    let life = driver.life
    #expect(words(driver.feed(.ended(life, segv, signature: nil))) == "kill awaitTree")
    #expect(words(driver.feed(.treeGone(life))) == "announce persist report spawn persist")
  }

  @Test func `that detached is told apart, and stops with 78`() {
    var driver = Driver()
    let (verdict, effects) = driver.live(
      .milliseconds(10), Ending(status: .exited(0), cause: .detached))
    #expect(verdict?.decision == .stop)
    #expect(verdict?.reason == "it detached: run it in the foreground")
    #expect(reports(in: effects).count == 1)
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(78))
  }

  @Test func `of an unknown kind is a failure like any other`() {
    var driver = Driver()
    let verdict = driver.live(.seconds(1), Ending(status: .unknown)).verdict
    #expect(verdict?.decision.restarts == true)
    #expect(verdict?.failures == 1)
  }

  @Test func `of an adopted life counts, and the next life has the next number`() {
    var driver = Driver()
    driver.feed(.adopted(Life(rawValue: 7), started: driver.now))
    driver.clock += .seconds(1)
    driver.feed(.ended(Life(rawValue: 7), segv, signature: nil))
    driver.feed(.treeGone(Life(rawValue: 7)))
    #expect(driver.life == Life(rawValue: 8))
    #expect(driver.machine.history.failures.count == 1)
  }
}
