/// The moves that more than one cell of the table makes: each sets the next state and gives
/// back what is to be done.
extension ServiceMachine {
  /// How long a spawn may go without an answer when there is no start timeout: an exec can
  /// hang on a dead network file system.
  static let spawnTimeout: Duration = .seconds(90)

  mutating func spawnNext(at now: Now) -> [Effect] {
    let life = history.lastLife.next
    history.lastLife = life
    history.departure = .none
    state = .spawning(
      Spawning(
        life: life, started: now,
        until: now.monotonic + (policy.startTimeout ?? Self.spawnTimeout)))
    return [.spawn(life), .persist]
  }

  /// When a program that has to say that it is ready must have done so.
  func startLimit(of run: Run) -> Duration? {
    policy.startTimeout.map { run.started.monotonic + $0 }
  }

  mutating func cancel(_ spawning: Spawning, _ request: Request, at now: Now) -> [Effect] {
    state = .cancelling(
      Cancelling(
        life: spawning.life, started: spawning.started, request: request,
        until: now.monotonic + policy.stopTimeout))
    return []
  }

  mutating func stop(_ run: Run, _ request: Request, at now: Now) -> [Effect] {
    let until = now.monotonic + policy.stopTimeout
    state = .stopping(
      run,
      Stopping(
        request: request,
        stage: .signalled(until: until, latest: until + policy.extensionMax)))
    return [.signalStop(run.life)]
  }

  /// Back to what it was before the capture. The time in which it stood still is not held
  /// against it.
  mutating func resume(_ run: Run, _ hold: Hold, at now: Now) -> [Effect] {
    switch hold.before {
    case .starting(let left):
      state = .starting(run, until: left.map { now.monotonic + $0 })
    case .running:
      var run = run
      run.heartbeat = now.monotonic
      state = .running(run)
    }
    return []
  }

  mutating func hang(_ run: Run, _ hang: Hang, at now: Now) -> [Effect] {
    state = .hanging(
      run,
      Hanging(hang: hang, stage: .captured(until: now.monotonic + policy.captureTimeout)))
    return [.captureHang(run.life)]
  }

  mutating func abort(_ run: Run, _ hang: Hang, at now: Now) -> [Effect] {
    state = .hanging(
      run, Hanging(hang: hang, stage: .aborted(until: now.monotonic + policy.abortTimeout)))
    return [.abort(run.life)]
  }

  /// A stop was asked for while it hangs: there is nothing left to be gentle with.
  mutating func cutShort(
    _ run: Run, _ hanging: Hanging, _ request: Request, at now: Now
  ) -> [Effect] {
    let release: [Effect] =
      switch hanging.stage {
      case .captured: [.release(run.life)]
      case .aborted: []
      }
    return release
      + kill(run.life, since: run.started, .hangThenRequest(hanging.hang, request), at: now)
  }

  mutating func kill(
    _ life: Life, since started: Now, _ why: Killing.Why, at now: Now
  ) -> [Effect] {
    state = .killing(
      Killing(
        life: life, started: started, why: why, until: now.monotonic + policy.killTimeout))
    return [.kill(life)]
  }

  mutating func killRest(_ clearing: Clearing, at now: Now) -> [Effect] {
    var clearing = clearing
    switch clearing.stage {
    case .killed:
      state = .clearing(clearing)
      return []
    case .asked:
      clearing.stage = .killed(until: now.monotonic + policy.killTimeout)
      state = .clearing(clearing)
      return [.kill(clearing.life)]
    }
  }

  // MARK: endings

  func occurrence(
    _ life: Life, since started: Now, _ ending: Ending, _ signature: CrashSignature?, at now: Now
  ) -> RestartPolicy.Occurrence {
    RestartPolicy.Occurrence(
      life: life, ending: ending, signature: signature,
      uptime: max(now.boot - started.boot, .zero), at: now.boot)
  }

  /// An ending that nobody asked for.
  mutating func concludeUnasked(
    _ occurrence: RestartPolicy.Occurrence, at now: Now
  ) -> [Effect] {
    let judgement = policy.judge(occurrence, name: name, history: history)
    let life = occurrence.life
    let words = record(occurrence, judgement)
    switch judgement.verdict.decision {
    case .restart(let delay):
      // A new life must not meet processes of the old one, and must not wait for their
      // manners.
      state = .clearing(
        Clearing(
          life: life, next: .start(at: now.monotonic + delay),
          stage: .killed(until: now.monotonic + policy.killTimeout),
          owed: delay == .zero ? words : []))
      return [.kill(life), .awaitTree(life)] + (delay == .zero ? [] : words)
    case .stop, .giveUp:
      state = .clearing(
        Clearing(
          life: life, next: .leave(.decided),
          stage: .asked(until: now.monotonic + policy.stopTimeout), owed: []))
      return [.signalStop(life), .awaitTree(life)] + words
    }
  }

  /// An ending that was asked for. `grace`: the rest may end in its own way until then; nil:
  /// KILL has been sent already.
  mutating func concludeAsked(
    _ occurrence: RestartPolicy.Occurrence, _ request: Request, grace: Duration?, at now: Now
  ) -> [Effect] {
    let judgement = policy.judge(occurrence, asked: request, history: history)
    let life = occurrence.life
    let words = record(occurrence, judgement)
    let stage: Clearing.Stage =
      if let grace {
        .asked(until: grace)
      } else {
        .killed(until: now.monotonic + policy.killTimeout)
      }
    state = .clearing(
      Clearing(life: life, next: next(request, grace: grace, at: now), stage: stage, owed: []))
    return (grace == nil ? [.kill(life)] : []) + [.awaitTree(life)] + words
  }

  /// The end of a life that KILL was sent to.
  mutating func conclude(
    _ killing: Killing, _ ending: Ending, _ signature: CrashSignature?, hasTree: Bool, at now: Now
  ) -> [Effect] {
    func occurrence(_ cause: Ending.Cause?) -> RestartPolicy.Occurrence {
      self.occurrence(
        killing.life, since: killing.started, cause.map { ending.caused(by: $0) } ?? ending,
        signature, at: now)
    }
    switch killing.why {
    case .hang(let hang):
      let occurrence = occurrence(hang.cause)
      if hasTree { return concludeUnasked(occurrence, at: now) }
      return concludeWithoutTree(
        occurrence, policy.judge(occurrence, name: name, history: history), nil, at: now)
    case .request(let request, let timedOut):
      let occurrence = occurrence(timedOut ? .stopTimeout : nil)
      if hasTree { return concludeAsked(occurrence, request, grace: nil, at: now) }
      return concludeWithoutTree(
        occurrence, policy.judge(occurrence, asked: request, history: history), request, at: now)
    case .hangThenRequest(let hang, let request):
      let occurrence = occurrence(hang.cause)
      if hasTree { return concludeAsked(occurrence, request, grace: nil, at: now) }
      return concludeWithoutTree(
        occurrence, policy.judge(occurrence, asked: request, history: history), request, at: now)
    }
  }

  /// The spawn failed, and nobody asked for anything.
  mutating func failed(
    _ life: Life, since started: Now, errno: Int32, at now: Now
  ) -> [Effect] {
    let occurrence = self.occurrence(
      life, since: started, Ending(status: .execFailed(errno: errno)), nil, at: now)
    return concludeWithoutTree(
      occurrence, policy.judge(occurrence, name: name, history: history), nil, at: now)
  }

  /// An ending after which there is nothing to clear. `request`: nil when nobody asked.
  mutating func concludeWithoutTree(
    _ occurrence: RestartPolicy.Occurrence, _ judgement: RestartPolicy.Judgement,
    _ request: Request?, at now: Now
  ) -> [Effect] {
    let words = record(occurrence, judgement)
    let next: Clearing.Next =
      if let request {
        self.next(request, grace: nil, at: now)
      } else if case .restart(let delay) = judgement.verdict.decision {
        .start(at: now.monotonic + delay)
      } else {
        .leave(.decided)
      }
    return proceed(next, owed: words, at: now)
  }

  /// Keeps the judgement and gives back what is to be said about it.
  mutating func record(
    _ occurrence: RestartPolicy.Occurrence, _ judgement: RestartPolicy.Judgement
  ) -> [Effect] {
    let verdict = judgement.verdict
    history = judgement.history
    lastEnding = occurrence.ending
    lastVerdict = verdict
    var words: [Effect] = [.announce(occurrence.life, occurrence.ending, verdict)]
    if case .giveUp = verdict.decision { history.departure = .gaveUp }
    words.append(.persist)
    if judgement.reports {
      words.append(.report(occurrence.life, occurrence.ending, verdict))
    }
    if case .giveUp = verdict.decision {
      words.append(
        .runGiveUp(
          GiveUp(
            reason: verdict.reason, ending: occurrence.ending, failures: verdict.failures)))
    }
    return words
  }

  func next(_ request: Request, grace: Duration?, at now: Now) -> Clearing.Next {
    switch request {
    case .again: .start(at: now.monotonic)
    case .stay: .stay
    case .leave: .leave(.asked(until: grace ?? now.monotonic))
    }
  }

  mutating func cleared(_ clearing: Clearing, at now: Now) -> [Effect] {
    proceed(clearing.next, owed: clearing.owed, at: now)
  }

  /// The old life is gone altogether.
  mutating func proceed(_ next: Clearing.Next, owed: [Effect], at now: Now) -> [Effect] {
    switch next {
    case .start(let time):
      if now.monotonic >= time { return owed + spawnNext(at: now) }
      state = .waiting(Waiting(until: time))
      return owed
    case .stay: return owed + rest()
    case .leave(let departing): return owed + depart(departing, at: now)
    }
  }

  mutating func rest() -> [Effect] {
    history.departure = .stopped
    state = .stopped
    return [.persist]
  }

  /// Asked to leave while no program runs: what the last one ended with was answered already, and
  /// the stop itself went well.
  mutating func departIdle(at now: Now) -> [Effect] {
    if case .waiting = state, let last = lastVerdict {
      lastVerdict = Verdict(
        decision: .stop, failures: last.failures, maxCrashes: last.maxCrashes, window: last.window,
        reason: "stopped as asked before the next life began")
    }
    let stopped = 128 + Signal.term.rawValue
    return depart(
      .asked(until: now.monotonic), at: now,
      with: lastEnding.map(policy.classify)?.isFailure ?? false
        ? .exit(policy.leavesCleanWithZero ? 0 : stopped) : nil)
  }

  mutating func depart(_ departing: Departing, at now: Now, with other: Leave? = nil) -> [Effect] {
    let until =
      switch departing {
      case .decided: now.monotonic + policy.reportTimeout
      case .asked(let until):
        min(
          max(until, now.monotonic + policy.reportTimeoutInStop),
          now.monotonic + policy.reportTimeout)
      }
    if history.departure == .none { history.departure = .stopped }
    state = .leaving(Leaving(leave: other ?? leave, by: departing, until: until))
    return [.persist, .awaitReporters]
  }

  /// With the program's own last status; 0 if no life ever ended.
  var leave: Leave {
    guard let lastEnding else { return .exit(0) }
    if policy.exitAsSignal, case .signaled(let signal, _) = lastEnding.status,
      lastEnding.cause != .detached
    {
      return .signal(signal)
    }
    if policy.leavesCleanWithZero, [.cleanExit, .cleanSignal].contains(policy.classify(lastEnding))
    {
      return .exit(0)
    }
    return .exit(lastEnding.exitCode)
  }
}

extension ServiceMachine.Run {
  init(_ life: Life, started: Now, watchdog: Duration?, at now: Now) {
    self.init(life: life, started: started, watchdog: watchdog, heartbeat: now.monotonic)
  }
}

extension ServiceMachine.Request {
  /// What both together ask for: to leave is the last word; between staying and a new life
  /// the later one counts.
  func joined(by later: Self) -> Self {
    switch (self, later) {
    case (.leave, .leave), (.leave, .stay), (.leave, .again): .leave
    case (.stay, .leave), (.again, .leave): .leave
    case (.stay, .stay), (.again, .stay): .stay
    case (.stay, .again), (.again, .again): .again
    }
  }
}

extension ServiceMachine.Killing.Why {
  func joined(by request: ServiceMachine.Request) -> Self {
    switch self {
    case .request(let earlier, let timedOut):
      .request(earlier.joined(by: request), timedOut: timedOut)
    case .hang(let hang): .hangThenRequest(hang, request)
    case .hangThenRequest(let hang, let earlier):
      .hangThenRequest(hang, earlier.joined(by: request))
    }
  }
}

extension ServiceMachine.Hang {
  var cause: Ending.Cause {
    switch self {
    case .watchdog: .watchdog
    case .health: .health
    case .startTimeout: .startTimeout
    }
  }
}

extension Ending {
  /// What the machine knows of the cause is more than the kernel knows, but for memory: that
  /// has its own remedy.
  func caused(by cause: Cause) -> Ending {
    self.cause == .outOfMemory ? self : Ending(status: status, cause: cause)
  }
}
