import Policy
import Testing

@Suite struct `The restart table is systemd's` {
  /// systemd.service(5), table "Exit causes and the effect of the Restart= settings", the rows
  /// in `EndingClass`'s words: no, always, on-success, on-failure, on-abnormal, on-abort,
  /// on-watchdog.
  static let table: [(EndingClass, [Bool])] = [
    (.cleanExit, [false, true, true, false, false, false, false]),
    (.cleanSignal, [false, true, true, false, false, false, false]),
    (.uncleanExit, [false, true, false, true, false, false, false]),
    (.uncleanSignal, [false, true, false, true, true, true, false]),
    (.coreDump, [false, true, false, true, true, true, false]),
    (.timeout, [false, true, false, true, true, false, false]),
    (.watchdog, [false, true, false, true, true, false, true]),
    (.outOfMemory, [false, true, false, true, true, false, false]),
    // Ours: unknown is treated as a timeout is, detached is never healed.
    (.unknown, [false, true, false, true, true, false, false]),
    (.detached, [false, false, false, false, false, false, false]),
  ]
  static let modes: [RestartPolicy.Mode] = [
    .no, .always, .onSuccess, .onFailure, .onAbnormal, .onAbort, .onWatchdog,
  ]

  @Test func `cell by cell`() {
    #expect(Self.table.count == EndingClass.allCases.count)
    #expect(Self.modes.count == RestartPolicy.Mode.allCases.count)
    for (kind, row) in Self.table {
      for (mode, expected) in zip(Self.modes, row) {
        #expect(mode.restarts(after: kind) == expected, "\(mode.rawValue), \(kind.rawValue)")
      }
    }
  }

  @Test func `endings are sorted`() {
    let policy = RestartPolicy()
    #expect(policy.classify(exit(0)) == .cleanExit)
    #expect(policy.classify(exit(1)) == .uncleanExit)
    for signal in [Signal.hup, .int, .term] {
      #expect(policy.classify(died(signal)) == .cleanSignal)
    }
    #expect(policy.classify(died(.pipe)) == .uncleanSignal, "other than for systemd")
    #expect(policy.classify(died(.kill)) == .uncleanSignal)
    #expect(policy.classify(died(.segv)) == .uncleanSignal)
    #expect(
      policy.classify(Ending(status: .signaled(.segv, coreDumped: true))) == .coreDump)
    #expect(policy.classify(Ending(status: .execFailed(errno: 2))) == .uncleanExit)
    #expect(policy.classify(Ending(status: .unknown)) == .unknown)
    #expect(
      policy.classify(Ending(status: .exited(0), cause: .watchdog)) == .watchdog,
      "a program that says 0 when it is aborted did hang all the same")
    #expect(policy.classify(Ending(status: .exited(0), cause: .startTimeout)) == .timeout)
    #expect(policy.classify(Ending(status: .exited(0), cause: .health)) == .watchdog)
    #expect(policy.classify(Ending(status: .exited(0), cause: .detached)) == .detached)
    #expect(
      policy.classify(
        Ending(status: .signaled(.kill, coreDumped: false), cause: .outOfMemory))
        == .outOfMemory)
  }

  @Test func `what the options add is clean`() {
    var policy = RestartPolicy()
    policy.successExitStatuses = [3]
    policy.successSignals = [.usr1]
    #expect(policy.classify(exit(3)) == .cleanExit)
    #expect(policy.classify(died(.usr1)) == .cleanSignal)
  }

  @Test func `by default a failure is restarted and a clean exit is not`() {
    var driver = Driver()
    #expect(driver.live(.seconds(1), segv).verdict?.decision == .restart(after: .zero))
    var clean = Driver()
    #expect(clean.live(.seconds(1), exit(0)).verdict?.decision == .stop)
    #expect(leave(of: clean.feed(.reportersDone)) == .exit(0))
  }
}

@Suite struct `guardian leaves with the program's own status` {
  static let endings: [(Ending, Int32)] = [
    (exit(0), 0), (exit(1), 1), (exit(255), 255), (died(.term), 143), (died(.segv), 139),
    (died(.kill), 137), (Ending(status: .exited(0), cause: .detached), 78),
    (Ending(status: .unknown), 1),
  ]
  @Test(arguments: endings)
  func `own code, 128 and the signal, 78 for a program that detached`(
    _ ending: Ending, _ code: Int32
  ) {
    var policy = RestartPolicy()
    policy.restart = .no
    var driver = Driver(policy)
    #expect(driver.live(.seconds(1), ending).verdict?.decision == .stop)
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(code))
  }

  @Test(arguments: [(Int32(2), Int32(127)), (13, 126), (8, 126)])
  func `126 and 127 when it cannot be executed`(_ errno: Int32, _ code: Int32) {
    var policy = RestartPolicy()
    policy.maxCrashes = 0
    var driver = Driver(policy)
    driver.feed(.begin)
    driver.feed(.spawnFailed(driver.life, errno: errno))
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(code))
  }

  @Test func `of the same signal itself with exit-as-signal`() {
    var policy = RestartPolicy()
    policy.restart = .no
    policy.exitAsSignal = true
    var driver = Driver(policy)
    _ = driver.live(.seconds(1), segv)
    #expect(leave(of: driver.feed(.reportersDone)) == .signal(.segv))
    var clean = Driver(policy)
    _ = clean.live(.seconds(1), exit(4))
    #expect(leave(of: clean.feed(.reportersDone)) == .exit(4))
  }

  @Test func `0 when nothing ever ran`() {
    var driver = Driver()
    driver.feed(.terminate)
    #expect(leave(of: driver.feed(.reportersDone)) == .exit(0))
  }
}

@Suite struct `Signals have names` {
  @Test func `both ways`() {
    for number in Int32(1)...64 where number != 32 && number != 33 {
      let signal = Signal(rawValue: number)
      #expect(Signal(name: signal.name) == signal)
    }
    #expect(Signal.segv.name == "SIGSEGV")
    #expect(Signal(name: "term") == .term)
    #expect(Signal(name: "SIGRTMIN+3") == Signal(rawValue: 37))
    #expect(Signal(name: "9") == .kill)
    for wrong in ["", "0", "65", "-1", "SIG", "SIGFOO", "RTMIN+31", "RTMIN-1", "SIGRTMINX"] {
      #expect(Signal(name: wrong) == nil, "\(wrong)")
    }
  }
}
