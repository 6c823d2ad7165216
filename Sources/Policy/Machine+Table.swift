/// The table: state × event, every pair written. No `default`: a new state or event does not
/// compile until each of its pairs has been thought of.
extension ServiceMachine {
  /// Takes one event and gives back what is to be done, in this order. Never fails: an event
  /// that cannot be, or that comes late, changes nothing.
  package mutating func handle(_ input: Input, at now: Now) -> [Effect] {
    // Events of an earlier life, and of lives that were never begun, change nothing. Below,
    // an event that carries a life carries the current one.
    if let life = input.life, life != currentLife { return [] }

    switch state {
    case .idle: return whenIdle(input, at: now)
    case .spawning(let spawning): return whenSpawning(spawning, input, at: now)
    case .cancelling(let cancelling): return whenCancelling(cancelling, input, at: now)
    case .starting(let run, let until): return whenStarting(run, until, input, at: now)
    case .running(let run): return whenRunning(run, input, at: now)
    case .held(let run, let hold): return whenHeld(run, hold, input, at: now)
    case .stopping(let run, let stopping): return whenStopping(run, stopping, input, at: now)
    case .hanging(let run, let hanging): return whenHanging(run, hanging, input, at: now)
    case .killing(let killing): return whenKilling(killing, input, at: now)
    case .clearing(let clearing): return whenClearing(clearing, input, at: now)
    case .waiting(let waiting): return whenWaiting(waiting, input, at: now)
    case .stopped: return whenStopped(input, at: now)
    case .leaving(let leaving): return whenLeaving(leaving, input, at: now)
    case .left: return whenLeft(input, at: now)
    }
  }
}

extension ServiceMachine {
  private mutating func whenIdle(
    _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .begin, .start, .restart:
      return spawnNext(at: now)
    case .adopted(let life, let started):
      history.lastLife = life
      history.departure = .none
      state = .running(Run(life, started: started, watchdog: policy.watchdog, at: now))
      return [.persist]
    case .terminate:
      return depart(.asked(until: now.monotonic), at: now)
    case .stop:
      return rest()
    case .spawned, .spawnFailed, .ready, .crashAnnounced, .captureEnded, .ended, .treeGone,
      .extendTimeout, .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy:
      // No current life: sorted out above.
      return []
    case .deadline:
      // There is none.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenSpawning(
    _ spawning: Spawning, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .spawned:
      let run = Run(spawning.life, started: now, watchdog: policy.watchdog, at: now)
      state = policy.awaitsReadiness ? .starting(run, until: startLimit(of: run)) : .running(run)
      return []
    case .spawnFailed(_, let errno):
      return failed(spawning.life, since: spawning.started, errno: errno, at: now)
    case .ended, .ready, .crashAnnounced, .heartbeat, .extendTimeout, .watchdogInterval,
      .watchdogTriggered, .unhealthy:
      // The word of the program has overtaken the word of its exec.
      return handle(.spawned(spawning.life), at: now) + handle(input, at: now)
    case .terminate:
      return cancel(spawning, .leave, at: now)
    case .stop:
      return cancel(spawning, .stay, at: now)
    case .deadline:
      guard now.monotonic >= spawning.until else { return [] }
      return kill(spawning.life, since: spawning.started, .hang(.startTimeout), at: now)
    case .start, .restart:
      // A new life is just what is being made.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .captureEnded:
      // Of a capture whose time was up.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenCancelling(
    _ cancelling: Cancelling, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .spawned:
      let run = Run(
        cancelling.life, started: cancelling.started, watchdog: policy.watchdog, at: now)
      return stop(run, cancelling.request, at: now)
    case .spawnFailed(_, let errno):
      let occurrence = self.occurrence(
        cancelling.life, since: cancelling.started, Ending(status: .execFailed(errno: errno)),
        nil, at: now)
      return concludeWithoutTree(
        occurrence, policy.judge(occurrence, asked: cancelling.request, history: history),
        cancelling.request, at: now)
    case .ended, .crashAnnounced:
      return handle(.spawned(cancelling.life), at: now) + handle(input, at: now)
    case .terminate, .stop:
      var cancelling = cancelling
      let asked: Request = input == .terminate ? .leave : .stay
      if cancelling.request == .again {
        cancelling.request = asked
        state = .cancelling(cancelling)
        return []
      }
      return kill(
        cancelling.life, since: cancelling.started,
        .request(cancelling.request.joined(by: asked), timedOut: false), at: now)
    case .start, .restart:
      var cancelling = cancelling
      cancelling.request = cancelling.request.joined(by: .again)
      state = .cancelling(cancelling)
      return []
    case .deadline:
      guard now.monotonic >= cancelling.until else { return [] }
      return kill(
        cancelling.life, since: cancelling.started,
        .request(cancelling.request, timedOut: true), at: now)
    case .ready, .heartbeat, .extendTimeout, .watchdogInterval, .watchdogTriggered, .unhealthy:
      // It is to stop: how well it is does not matter. `spawned` follows.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .captureEnded:
      // Of a capture whose time was up.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenStarting(
    _ run: Run, _ until: Duration?, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .ready:
      var run = run
      run.heartbeat = now.monotonic
      state = .running(run)
      return []
    case .crashAnnounced:
      let left = until.map { max($0 - now.monotonic, .zero) }
      state = .held(
        run, Hold(until: now.monotonic + policy.captureTimeout, before: .starting(left: left)))
      return []
    case .extendTimeout(_, let more):
      guard let until, let limit = startLimit(of: run) else { return [] }
      let latest = limit + policy.extensionMax
      state = .starting(run, until: max(until, min(now.monotonic + more, latest)))
      return []
    case .deadline:
      guard let until, now.monotonic >= until else { return [] }
      return hang(run, .startTimeout, at: now)
    case .watchdogInterval(_, let interval):
      var run = run
      run.watchdog = interval > .zero ? interval : nil
      state = .starting(run, until: until)
      return []
    case .heartbeat:
      // The watchdog begins with readiness.
      return []
    case .ended(_, let ending, let signature):
      return concludeUnasked(
        occurrence(run.life, since: run.started, ending, signature, at: now), at: now)
    case .watchdogTriggered:
      return hang(run, .watchdog, at: now)
    case .unhealthy:
      return hang(run, .health, at: now)
    case .terminate:
      return stop(run, .leave, at: now)
    case .stop:
      return stop(run, .stay, at: now)
    case .restart:
      return stop(run, .again, at: now)
    case .start:
      // It is up.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed:
      // A spawn is answered once; here it has been, or the program itself proved it.
      return []
    case .captureEnded:
      // Of a capture whose time was up.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenRunning(
    _ run: Run, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .crashAnnounced:
      state = .held(run, Hold(until: now.monotonic + policy.captureTimeout, before: .running))
      return []
    case .heartbeat:
      var run = run
      run.heartbeat = now.monotonic
      state = .running(run)
      return []
    case .watchdogInterval(_, let interval):
      var run = run
      run.watchdog = interval > .zero ? interval : nil
      run.heartbeat = now.monotonic
      state = .running(run)
      return []
    case .deadline:
      guard let watchdog = run.watchdog, now.monotonic >= run.heartbeat + watchdog else {
        return []
      }
      return hang(run, .watchdog, at: now)
    case .ready, .extendTimeout:
      // Said twice, or nothing that could be put off.
      return []
    case .ended(_, let ending, let signature):
      return concludeUnasked(
        occurrence(run.life, since: run.started, ending, signature, at: now), at: now)
    case .watchdogTriggered:
      return hang(run, .watchdog, at: now)
    case .unhealthy:
      return hang(run, .health, at: now)
    case .terminate:
      return stop(run, .leave, at: now)
    case .stop:
      return stop(run, .stay, at: now)
    case .restart:
      return stop(run, .again, at: now)
    case .start:
      // It is up.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed:
      // A spawn is answered once; here it has been, or the program itself proved it.
      return []
    case .captureEnded:
      // Of a capture whose time was up.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenHeld(
    _ run: Run, _ hold: Hold, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .ended(_, let ending, let signature):
      return concludeUnasked(
        occurrence(run.life, since: run.started, ending, signature, at: now), at: now)
    case .captureEnded:
      // Released: mostly it dies now. If it lives on, there was no crash.
      return resume(run, hold, at: now)
    case .deadline:
      guard now.monotonic >= hold.until else { return [] }
      return [.release(run.life)] + resume(run, hold, at: now)
    case .ready:
      state = .held(run, Hold(until: hold.until, before: .running))
      return []
    case .watchdogInterval(_, let interval):
      var run = run
      run.watchdog = interval > .zero ? interval : nil
      state = .held(run, hold)
      return []
    case .terminate:
      return [.release(run.life)] + stop(run, .leave, at: now)
    case .stop:
      return [.release(run.life)] + stop(run, .stay, at: now)
    case .restart:
      return [.release(run.life)] + stop(run, .again, at: now)
    case .crashAnnounced, .extendTimeout, .heartbeat, .watchdogTriggered, .unhealthy, .start:
      // It stands still: no sign of life is missed and none believed.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed:
      // A spawn is answered once; here it has been, or the program itself proved it.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenStopping(
    _ run: Run, _ stopping: Stopping, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .ended(_, let ending, let signature):
      let timedOut: Bool
      let grace: Duration?
      switch stopping.stage {
      case .signalled(let until, _):
        timedOut = false
        grace = until
      case .captured:
        timedOut = true
        grace = nil
      }
      return concludeAsked(
        occurrence(
          run.life, since: run.started, timedOut ? ending.caused(by: .stopTimeout) : ending,
          signature, at: now),
        stopping.request, grace: grace, at: now)
    case .terminate, .stop:
      let asked: Request = input == .terminate ? .leave : .stay
      if stopping.request == .again {
        state = .stopping(run, Stopping(request: asked, stage: stopping.stage))
        return []
      }
      // Asked twice: at once.
      let timedOut: Bool
      let release: [Effect]
      switch stopping.stage {
      case .signalled: (timedOut, release) = (false, [])
      case .captured: (timedOut, release) = (true, [.release(run.life)])
      }
      return release
        + kill(
          run.life, since: run.started,
          .request(stopping.request.joined(by: asked), timedOut: timedOut), at: now)
    case .start, .restart:
      state = .stopping(
        run, Stopping(request: stopping.request.joined(by: .again), stage: stopping.stage))
      return []
    case .extendTimeout(_, let more):
      switch stopping.stage {
      case .signalled(let until, let latest):
        let later = max(until, min(now.monotonic + more, latest))
        state = .stopping(
          run,
          Stopping(request: stopping.request, stage: .signalled(until: later, latest: latest)))
      case .captured: break
      }
      return []
    case .deadline:
      switch stopping.stage {
      case .signalled(let until, _):
        guard now.monotonic >= until else { return [] }
        state = .stopping(
          run,
          Stopping(
            request: stopping.request,
            stage: .captured(until: now.monotonic + policy.captureTimeout)))
        return [.captureHang(run.life)]
      case .captured(let until):
        guard now.monotonic >= until else { return [] }
        return [.release(run.life)]
          + kill(
            run.life, since: run.started, .request(stopping.request, timedOut: true), at: now)
      }
    case .captureEnded:
      switch stopping.stage {
      case .signalled:
        // Of a crash inside the stop: its ending follows.
        return []
      case .captured:
        return kill(
          run.life, since: run.started, .request(stopping.request, timedOut: true), at: now)
      }
    case .crashAnnounced:
      // The stop timeout goes on while it is captured.
      return []
    case .ready, .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy:
      // It is to stop: how well it is does not matter.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed:
      // A spawn is answered once; here it has been, or the program itself proved it.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenHanging(
    _ run: Run, _ hanging: Hanging, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .ended(_, let ending, let signature):
      return concludeUnasked(
        occurrence(
          run.life, since: run.started, ending.caused(by: hanging.hang.cause), signature,
          at: now),
        at: now)
    case .captureEnded:
      switch hanging.stage {
      case .captured: return abort(run, hanging.hang, at: now)
      // The crash handler's own, after the ABRT: its ending follows.
      case .aborted: return []
      }
    case .deadline:
      switch hanging.stage {
      case .captured(let until):
        guard now.monotonic >= until else { return [] }
        return [.release(run.life)] + abort(run, hanging.hang, at: now)
      case .aborted(let until):
        guard now.monotonic >= until else { return [] }
        return kill(run.life, since: run.started, .hang(hanging.hang), at: now)
      }
    case .terminate:
      return cutShort(run, hanging, .leave, at: now)
    case .stop:
      return cutShort(run, hanging, .stay, at: now)
    case .restart:
      return cutShort(run, hanging, .again, at: now)
    case .crashAnnounced:
      // The ABRT at work; the abort timeout goes on.
      return []
    case .ready, .extendTimeout, .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy,
      .start:
      // The judgement that it hangs is made.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed:
      // A spawn is answered once; here it has been, or the program itself proved it.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenKilling(
    _ killing: Killing, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .ended(_, let ending, let signature):
      return conclude(killing, ending, signature, hasTree: true, at: now)
    case .spawnFailed(_, let errno):
      return conclude(
        killing, Ending(status: .execFailed(errno: errno)), nil, hasTree: false, at: now)
    case .deadline:
      guard now.monotonic >= killing.until else { return [] }
      return [.abandon(killing.life)]
        + conclude(killing, Ending(status: .unknown), nil, hasTree: false, at: now)
    case .terminate:
      var killing = killing
      killing.why = killing.why.joined(by: .leave)
      state = .killing(killing)
      return []
    case .stop:
      var killing = killing
      killing.why = killing.why.joined(by: .stay)
      state = .killing(killing)
      return []
    case .restart:
      var killing = killing
      killing.why = killing.why.joined(by: .again)
      state = .killing(killing)
      return []
    case .start:
      var killing = killing
      switch killing.why {
      case .request(.stay, _), .hangThenRequest(_, .stay):
        killing.why = killing.why.joined(by: .again)
        state = .killing(killing)
      case .request(.again, _), .request(.leave, _), .hang, .hangThenRequest(_, .again),
        .hangThenRequest(_, .leave):
        break
      }
      return []
    case .spawned, .ready, .crashAnnounced, .captureEnded, .extendTimeout, .heartbeat,
      .watchdogInterval, .watchdogTriggered, .unhealthy:
      // KILL cannot be overtaken by good or bad news.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .treeGone:
      // Nobody asked yet: the main process has not ended.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenClearing(
    _ clearing: Clearing, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .treeGone:
      return cleared(clearing, at: now)
    case .deadline:
      switch clearing.stage {
      case .asked(let until):
        guard now.monotonic >= until else { return [] }
        return killRest(clearing, at: now)
      case .killed(let until):
        guard now.monotonic >= until else { return [] }
        return [.abandon(clearing.life)] + cleared(clearing, at: now)
      }
    case .terminate:
      var clearing = clearing
      let patience = Departing.asked(until: now.monotonic)
      switch clearing.next {
      case .start, .leave(.decided):
        clearing.next = .leave(patience)
        state = .clearing(clearing)
        return []
      case .stay:
        clearing.next = .leave(patience)
        return killRest(clearing, at: now)
      case .leave(.asked):
        return killRest(clearing, at: now)
      }
    case .stop:
      var clearing = clearing
      switch clearing.next {
      case .start:
        clearing.next = .stay
        state = .clearing(clearing)
        return []
      case .stay, .leave(.asked):
        return killRest(clearing, at: now)
      case .leave(.decided):
        // It leaves anyway.
        return []
      }
    case .start, .restart:
      var clearing = clearing
      switch clearing.next {
      case .start, .stay:
        history.clear()
        clearing.next = .start(at: now.monotonic)
        state = .clearing(clearing)
        return [.persist]
      case .leave: return []
      }
    case .spawned, .spawnFailed, .ready, .crashAnnounced, .captureEnded, .ended, .extendTimeout,
      .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy:
      // Late: the main process is gone.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenWaiting(
    _ waiting: Waiting, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .deadline:
      guard now.monotonic >= waiting.until else { return [] }
      return spawnNext(at: now)
    case .start, .restart:
      history.clear()
      return spawnNext(at: now)
    case .stop:
      return rest()
    case .terminate:
      return departIdle(at: now)
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed, .ready, .crashAnnounced, .captureEnded, .ended, .treeGone,
      .extendTimeout, .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy:
      // No current life: sorted out above.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenStopped(
    _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .start, .restart:
      history.clear()
      return spawnNext(at: now)
    case .terminate:
      return departIdle(at: now)
    case .stop:
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed, .ready, .crashAnnounced, .captureEnded, .ended, .treeGone,
      .extendTimeout, .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy:
      // No current life: sorted out above.
      return []
    case .deadline:
      // There is none.
      return []
    case .reportersDone:
      // Nobody waits for them.
      return []
    }
  }

  private mutating func whenLeaving(
    _ leaving: Leaving, _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .reportersDone:
      state = .left
      return [.leave(leaving.leave)]
    case .deadline:
      guard now.monotonic >= leaving.until else { return [] }
      state = .left
      return [.endReporters, .leave(leaving.leave)]
    case .terminate:
      switch leaving.by {
      case .decided:
        // Somebody waits now.
        let until = min(leaving.until, now.monotonic + policy.reportTimeoutInStop)
        state = .leaving(
          Leaving(leave: leaving.leave, by: .asked(until: until), until: until))
        return []
      case .asked:
        state = .left
        return [.endReporters, .leave(leaving.leave)]
      }
    case .start, .stop, .restart:
      // Too late.
      return []
    case .begin, .adopted:
      // A guardian begins once.
      return []
    case .spawned, .spawnFailed, .ready, .crashAnnounced, .captureEnded, .ended, .treeGone,
      .extendTimeout, .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy:
      // No current life: sorted out above.
      return []
    }
  }

  private mutating func whenLeft(
    _ input: Input, at now: Now
  ) -> [Effect] {
    switch input {
    case .begin, .adopted, .spawned, .spawnFailed, .ready, .crashAnnounced, .captureEnded, .ended,
      .treeGone, .extendTimeout, .heartbeat, .watchdogInterval, .watchdogTriggered, .unhealthy,
      .terminate, .stop, .start, .restart, .deadline, .reportersDone:
      // guardian is gone.
      return []
    }
  }
}
