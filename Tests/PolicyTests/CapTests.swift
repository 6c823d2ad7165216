import Policy
import Testing

@Suite struct `The cap` {
  /// How many restarts come of failures at this distance from each other.
  func restarts(_ policy: RestartPolicy, every: Duration, limit: Int) -> Int {
    var driver = Driver(policy)
    for count in 0..<limit {
      guard let verdict = driver.live(every, segv).verdict else { return -1 }
      if !verdict.decision.restarts { return count }
    }
    return limit
  }

  @Test(arguments: [0, 1, 2, 10, 37])
  func `N gives at most N restarts, 0 one life`(_ cap: Int) {
    var policy = RestartPolicy()
    policy.maxCrashes = cap
    policy.restartDelayMax = .seconds(1)
    #expect(restarts(policy, every: .seconds(1), limit: 100) == cap)
  }

  @Test func `without a cap it goes on`() {
    var policy = RestartPolicy()
    policy.maxCrashes = nil
    #expect(restarts(policy, every: .milliseconds(1), limit: 500) == 500)
  }

  @Test func `the window slides`() {
    var policy = RestartPolicy()
    policy.maxCrashes = 3
    policy.crashWindow = .seconds(100)
    // The fourth within 100 s is too much; at 34 s each the first has left by then.
    #expect(restarts(policy, every: .seconds(33), limit: 100) == 3)
    #expect(restarts(policy, every: .seconds(34), limit: 100) == 100)
  }

  @Test func `a window without end forgets nothing`() {
    var policy = RestartPolicy()
    policy.maxCrashes = 3
    policy.crashWindow = nil
    #expect(restarts(policy, every: .seconds(1_000_000), limit: 100) == 3)
  }

  @Test func `every failure counts, also of long lives and of failed starts`() {
    var policy = RestartPolicy()
    policy.maxCrashes = 2
    policy.crashWindow = .seconds(100_000)
    var driver = Driver(policy)
    _ = driver.live(.seconds(10_000), segv)
    driver.feed(.spawnFailed(driver.life, errno: 2))
    driver.reachDeadline()
    let (verdict, effects) = driver.live(.seconds(5_000), exit(9))
    #expect(verdict?.decision == .giveUp)
    #expect(verdict?.failures == 3)
    #expect(words(effects).contains("report runGiveUp"))
  }

  @Test func `clean endings and asked-for ones do not count`() {
    var policy = RestartPolicy()
    policy.restart = .always
    policy.maxCrashes = 1
    var driver = Driver(policy)
    for _ in 0..<50 {
      #expect(driver.live(.seconds(1), exit(0)).verdict?.decision.restarts == true)
    }
    #expect(driver.machine.history.failures.isEmpty)
    driver.comeUp()
    driver.feed(.stop)
    let life = driver.life
    let effects = driver.feed(.ended(life, segv, signature: nil))
    #expect(reports(in: effects) == [segv], "a crash inside a stop is reported")
    #expect(driver.machine.history.failures.isEmpty, "and is no failure")
  }

  @Test func `suspended time makes failures older`() {
    var policy = RestartPolicy()
    policy.maxCrashes = 1
    policy.crashWindow = .seconds(100)
    var driver = Driver(policy)
    #expect(driver.live(.seconds(1), segv).verdict?.decision.restarts == true)
    driver.suspended += .seconds(100)
    #expect(driver.live(.seconds(1), segv).verdict?.failures == 1)
  }

  @Test func `giving up runs the command, is announced, and leaves with the last status`() {
    var policy = RestartPolicy()
    policy.maxCrashes = 1
    var driver = Driver(policy)
    _ = driver.live(.seconds(1), segv)
    let (verdict, effects) = driver.live(.seconds(1), exit(7))
    #expect(verdict?.decision == .giveUp)
    #expect(
      words(effects)
        == "signalStop awaitTree announce persist report runGiveUp persist awaitReporters")
    #expect(driver.machine.history.departure == .gaveUp)
    #expect(
      verdict?.reason
        == "2 failures within 10 min, more than max-crashes (1): SIGSEGV (life 1, 1 s ago), "
        + "exit status 7 (life 2)")
    let last = driver.feed(.reportersDone)
    #expect(words(last) == "leave")
    #expect(leave(of: last) == .exit(7))
  }

  @Test func `the same crash so many times at the start gives up at once`() {
    var policy = RestartPolicy()
    policy.maxIdentical = 3
    let one = CrashSignature(rawValue: 1)
    let two = CrashSignature(rawValue: 2)
    var driver = Driver(policy)
    func decision(_ after: Int, _ signature: CrashSignature?) -> Verdict.Decision? {
      driver.live(.seconds(after), segv, signature: signature).verdict?.decision
    }
    #expect(decision(1, one)?.restarts == true)
    #expect(decision(1, one)?.restarts == true)
    #expect(decision(1, two)?.restarts == true, "another one breaks the row")
    #expect(decision(1, two)?.restarts == true)
    #expect(decision(11, two)?.restarts == true, "a stable life breaks the row")
    #expect(decision(1, two)?.restarts == true)
    #expect(decision(1, nil)?.restarts == true, "an unknown one breaks the row")
    #expect(decision(1, two)?.restarts == true)
    #expect(decision(1, two)?.restarts == true)
    #expect(decision(1, two) == .giveUp)
    #expect(driver.machine.lastVerdict?.reason.contains("max-identical is 3") == true)
  }

  @Test func `no more failures are kept than are needed`() {
    var policy = RestartPolicy()
    policy.maxCrashes = nil
    policy.crashWindow = nil
    policy.restartDelayMax = .zero
    var driver = Driver(policy)
    for _ in 0..<1000 { _ = driver.live(.milliseconds(1), segv) }
    #expect(driver.machine.history.failures.count == CrashHistory.keptWithoutCap)
  }
}

@Suite struct `The delay` {
  @Test func `is none at first, then doubles up to its greatest, within ten per cent`() {
    let policy = RestartPolicy()
    let expected = [0, 100, 200, 400, 800, 1600, 3200, 6400, 12800, 25600, 30000, 30000]
    for (row, milliseconds) in expected.enumerated() {
      for life in UInt32(1)...50 {
        let delay = policy.delay(beforeRestart: row, name: "api", life: Life(rawValue: life))
        let plain = Duration.milliseconds(milliseconds)
        #expect(delay >= plain * 9 / 10 && delay <= plain * 11 / 10, "row \(row): \(delay)")
      }
    }
  }

  @Test func `is a fixed function of name and life, and spreads`() {
    let policy = RestartPolicy()
    func delay(_ name: String, _ life: UInt32) -> Duration {
      policy.delay(beforeRestart: 11, name: name, life: Life(rawValue: life))
    }
    #expect(delay("api", 4) == delay("api", 4))
    #expect(delay("api", 4) != delay("api", 5))
    #expect(delay("api", 4) != delay("web", 4))
    let all = (UInt32(1)...1000).map { delay("api", $0) }
    #expect(Set(all).count > 990)
    #expect(all.min()! < .seconds(27.1) && all.max()! > .seconds(32.9))
    // Fixed for ever: a plan printed by one version is right for the next.
    #expect(delay("api", 1) == .nanoseconds(31_164_629_386))
  }

  @Test func `a stable life starts the row anew`() {
    var driver = Driver()
    var delays: [Duration] = []
    for seconds in [1, 1, 1, 10, 1, 1] {
      delays.append(driver.live(.seconds(seconds), segv).verdict?.decision.delay ?? .seconds(-1))
    }
    #expect(delays[0] == .zero)
    #expect(delays[1] > .zero && delays[2] > delays[1])
    #expect(delays[3] == .zero, "it reached stable-after")
    #expect(delays[4] > .zero && delays[5] > delays[4])
  }

  @Test func `is counted from the ending, not from when the rest was gone`() {
    var driver = Driver()
    _ = driver.live(.seconds(1), segv)
    driver.comeUp()
    let life = driver.life
    driver.feed(.ended(life, segv, signature: nil))
    let delay = driver.machine.lastVerdict!.decision.delay!
    driver.clock += .milliseconds(60)
    driver.feed(.treeGone(life))
    #expect(driver.machine.deadline == driver.clock + delay - .milliseconds(60))
  }

  @Test func `a failed exec backs off, and is reported once a row`() {
    var driver = Driver()
    driver.feed(.begin)
    var all: [ServiceMachine.Effect] = []
    var starts: [Duration] = []
    while driver.machine.currentLife != nil {
      starts.append(driver.clock)
      all += driver.feed(.spawnFailed(driver.life, errno: 26))
      if case .waiting = driver.machine.state { all += driver.reachDeadline() }
    }
    #expect(starts.count == 11, "ten restarts")
    #expect(starts[1] == starts[0] && starts[2] > starts[1])
    #expect(reports(in: all).count == 1)
    #expect(words(all).contains("runGiveUp"))
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(126))
  }

  @Test(
    arguments: [(Int32(2), Int32(127)), (8, 126), (13, 126), (20, 126), (40, 126)], [Int?.none, 10])
  func `what could never be executed is given up at once`(
    _ failure: (Int32, Int32), _ cap: Int?
  ) {
    var policy = RestartPolicy()
    policy.maxCrashes = cap
    var driver = Driver(policy)
    driver.feed(.begin)
    let effects = driver.feed(.spawnFailed(driver.life, errno: failure.0))
    #expect(driver.machine.lastVerdict?.decision == .giveUp)
    #expect(driver.machine.history.departure == .gaveUp)
    #expect(reports(in: effects).count == 1 && words(effects).contains("runGiveUp"))
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(failure.1))
  }

  @Test func `what may heal, and what ran before, is tried again`() {
    for errno in [Int32(4), 5, 11, 12, 26] {
      var driver = Driver()
      driver.feed(.begin)
      driver.feed(.spawnFailed(driver.life, errno: errno))
      #expect(driver.machine.lastVerdict?.decision.restarts == true, "\(errno)")
    }
    for errno in [Int32(2), 8, 13, 20, 40] {
      // A deploy takes the binary away for a moment.
      var driver = Driver()
      _ = driver.live(.seconds(1), segv)
      driver.feed(.spawnFailed(driver.life, errno: errno))
      #expect(driver.machine.lastVerdict?.decision.restarts == true, "\(errno)")
    }
  }

  @Test func `odd options do no harm`() {
    var policy = RestartPolicy()
    for backoff in [0, 0.5, 1, 1.5, 1e300, .infinity, .nan] {
      policy.restartBackoff = backoff
      for row in [1, 2, 50, 1_000_000] {
        let delay = policy.delay(beforeRestart: row, name: "x", life: Life(rawValue: 1))
        #expect(delay >= .milliseconds(90) && delay <= .seconds(33), "\(backoff), \(row)")
      }
    }
    policy.restartDelay = .zero
    #expect(policy.delay(beforeRestart: 9, name: "x", life: Life(rawValue: 1)) == .zero)
    policy.restartDelay = .seconds(-1)
    #expect(policy.delay(beforeRestart: 9, name: "x", life: Life(rawValue: 1)) == .zero)
  }
}
