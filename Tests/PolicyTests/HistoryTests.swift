import Policy
import Testing

@Suite struct `When guardian starts, the count` {
  func saved(_ departure: CrashHistory.Departure = .none) -> CrashHistory {
    var history = CrashHistory(bootID: "boot", identity: noIdentity)
    history.departure = departure
    history.lastLife = Life(rawValue: 4)
    history.row = 3
    history.failures = [
      CrashHistory.Failure(at: .seconds(990), life: Life(rawValue: 4), words: "SIGSEGV")
    ]
    return history
  }

  func resume(
    _ history: CrashHistory?, boot: String = "boot",
    identity: CrashHistory.Identity = noIdentity
  ) -> CrashHistory.Resumption {
    CrashHistory.resume(history, bootID: boot, identity: identity)
  }

  @Test func `goes on after a guardian that did not say why it ended`() {
    let resumed = resume(saved())
    #expect(resumed.continued)
    #expect(resumed.history == saved())
    #expect(
      resumed.sentence
        == "guardian was killed last time: the failure count goes on (1 earlier failure)"
    )
  }

  @Test(arguments: [CrashHistory.Departure.gaveUp, .stopped])
  func `is cleared after one that gave up or was stopped`(_ departure: CrashHistory.Departure) {
    let resumed = resume(saved(departure))
    #expect(!resumed.continued)
    #expect(resumed.history == CrashHistory(bootID: "boot", identity: noIdentity))
    #expect(resumed.sentence.contains("cleared"))
  }

  @Test func `is cleared by another boot, for its times mean nothing there`() {
    let resumed = resume(saved(), boot: "other")
    #expect(!resumed.continued)
    #expect(resumed.history.bootID == "other")
    #expect(resumed.sentence.contains("the machine was started anew"))
  }

  @Test func `is cleared by another binary, command or configuration, and says which`() {
    var identity = noIdentity
    identity.binary = "new"
    #expect(resume(saved(), identity: identity).sentence.hasPrefix("the binary changed"))
    identity.configuration = "new"
    let resumed = resume(saved(), identity: identity)
    #expect(resumed.sentence.hasPrefix("the binary and configuration changed"))
    #expect(resumed.history.failures.isEmpty)
    identity = noIdentity
    identity.command = "new"
    #expect(resume(saved(), identity: identity).sentence.hasPrefix("the command changed"))
  }

  @Test func `begins at 0 where there is none`() {
    #expect(resume(nil).history == CrashHistory(bootID: "boot", identity: noIdentity))
    #expect(!resume(nil).continued)
  }

  @Test func `that goes on is what the cap counts, and lives are numbered on`() {
    var policy = RestartPolicy()
    policy.maxCrashes = 1
    var driver = Driver(policy)
    driver.machine = ServiceMachine(
      name: "api", policy: policy, history: resume(saved()).history)
    let verdict = driver.live(.seconds(1), segv).verdict
    #expect(driver.machine.history.lastLife == Life(rawValue: 5))
    #expect(verdict?.decision == .giveUp)
    #expect(verdict?.failures == 2)
  }

  @Test func `killed at any instant of a life leaves no departure behind`() {
    var driver = Driver()
    driver.comeUp()
    #expect(driver.machine.history.departure == .none)
    _ = driver.live(.seconds(1), segv)
    #expect(driver.machine.history.departure == .none)
  }
}

@Suite struct `Durations are written for people` {
  @Test(arguments: [
    (Duration.zero, "0 ms"), (.milliseconds(100), "100 ms"), (.milliseconds(1560), "1.6 s"),
    (.seconds(2), "2 s"), (.seconds(59), "59 s"), (.milliseconds(59_960), "1 min"),
    (.seconds(60), "1 min"), (.seconds(123), "2 min 3 s"), (.seconds(3600), "1 h"),
    (.seconds(18_600), "5 h 10 min"), (.seconds(86_400 * 3 + 7200), "3 d 2 h"),
    (.seconds(-5), "-5 s"),
  ])
  func `the two units that matter`(_ duration: Duration, _ text: String) {
    #expect(duration.words == text)
  }
}

@Suite struct `Failures are counted for people` {
  private func failures(_ words: [String]) -> [CrashHistory.Failure] {
    words.enumerated().map {
      .init(at: .seconds($0 * 10), life: Life(rawValue: UInt32($0 + 1)), words: $1)
    }
  }

  @Test(arguments: [
    (0, 10, "0 of 10"), (10, 10, "10 of 10"), (11, 10, "11, more than 10"), (7, nil, "7"),
  ])
  func `beside the cap`(_ count: Int, _ cap: Int?, _ text: String) {
    #expect(FailureCount.words(count, of: cap) == text)
  }

  @Test func `and equal endings in a row are told once`() {
    #expect(FailureCount.list([], at: .zero) == "")
    #expect(
      FailureCount.list(failures(["SIGSEGV", "SIGSEGV", "SIGSEGV"]), at: .seconds(20))
        == "SIGSEGV ×3 (lives 1–3 in 20 s)")
    #expect(
      FailureCount.list(failures(["exit status 3", "SIGSEGV", "SIGSEGV", "OOM"]), at: .seconds(30))
        == "exit status 3 (life 1, 30 s ago), SIGSEGV ×2 (lives 2–3 in 10 s), OOM (life 4)")
    #expect(
      FailureCount.list(
        failures((1...20).map { $0.isMultiple(of: 2) ? "a" : "b" }), at: .seconds(190)
      ).hasPrefix("14 earlier, b (life 15, 50 s ago), "))
  }
}

@Suite struct `A plan` {
  @Test func `shows when restarts would come and how it would end`() throws {
    let steps = try Timetable.parse("segv@2s x20")
    let plan = Timetable(name: "api", policy: RestartPolicy(), steps: steps)
    #expect(plan.rows.count == 11)
    #expect(plan.leave == .exit(139))
    #expect(plan.rows[0].start == .zero && plan.rows[0].end == .seconds(2))
    #expect(plan.rows[1].start == .seconds(2))
    #expect(plan.rows[2].start > .seconds(4.08) && plan.rows[2].start < .seconds(4.12))
    #expect(plan.rows[10].verdict.decision == .giveUp)
  }

  @Test func `is what the machine does`() throws {
    let steps = try Timetable.parse("segv@1s, exit:3@30s, exec, oom@5s, watchdog@1min, ok@1s, abrt")
    let plan = Timetable(name: "api", policy: RestartPolicy(), steps: steps)
    #expect(plan.rows.count == 6, "a clean exit ends it")
    #expect(plan.rows[4].ending.cause == .watchdog)
    #expect(plan.leave == .exit(0))
  }

  @Test func `that goes on has no end`() throws {
    let plan = Timetable(
      name: "api", policy: RestartPolicy(), steps: try Timetable.parse("segv@20s x3"))
    #expect(plan.rows.count == 3)
    #expect(plan.leave == nil)
  }

  @Test func `is read or refused with the word`() throws {
    #expect(try Timetable.parse("").isEmpty)
    #expect(
      try Timetable.parse("SIGSEGV@1.5s x2, exit:7@100ms,ok") == [
        Timetable.Step(segv, after: .milliseconds(1500)),
        Timetable.Step(segv, after: .milliseconds(1500)),
        Timetable.Step(exit(7), after: .milliseconds(100)),
        Timetable.Step(exit(0), after: .zero),
      ])
    for wrong in [
      "foo", "exit:256", "exit:", "segv@", "segv@2y", "segv@-1s", "x3", "segv x0", "segv x2 x2",
      "segv x100001", "segv@1e99s",
    ] {
      #expect(throws: PlanError.self, "\(wrong)") { try Timetable.parse(wrong) }
    }
  }
}

@Suite struct `What counts at a moment` {
  private func machine(window: Duration?, _ failures: [Int]) -> ServiceMachine {
    var history = CrashHistory(bootID: "boot", identity: noIdentity)
    history.failures = failures.map {
      CrashHistory.Failure(at: .seconds($0), life: Life(rawValue: 1), words: "SIGSEGV")
    }
    var policy = RestartPolicy()
    policy.crashWindow = window
    return ServiceMachine(name: "api", policy: policy, history: history)
  }

  @Test func `is what the window holds, and its oldest is the next to go`() {
    let machine = machine(window: .seconds(10), [1, 5, 20])
    #expect(machine.failures(at: .seconds(20)).map(\.at) == [.seconds(20)])
    #expect(machine.failures(at: .seconds(11)).map(\.at) == [.seconds(5), .seconds(20)])
    #expect(machine.failures(at: .seconds(10)).count == 3)
    #expect(machine.nextForgotten(at: .seconds(10)) == .seconds(11))
    #expect(machine.nextForgotten(at: .seconds(11)) == .seconds(15))
    #expect(machine.nextForgotten(at: .seconds(30)) == nil)
  }

  @Test func `without a window is all of them for ever`() {
    let machine = machine(window: nil, [1, 5])
    #expect(machine.failures(at: .seconds(1 << 30)).count == 2)
    #expect(machine.nextForgotten(at: .seconds(2)) == nil)
  }
}
