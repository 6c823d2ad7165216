extension ServiceMachine {
  /// When `deadline` has to be handed in, on CLOCK_MONOTONIC; nil: nothing is waited for
  /// but events. Derived from the state, never stored beside it. Ask after every `handle`.
  package var deadline: Duration? {
    switch state {
    case .idle, .stopped, .left: nil
    case .spawning(let spawning): spawning.until
    case .cancelling(let cancelling): cancelling.until
    case .starting(_, let until): until
    case .running(let run): run.watchdog.map { run.heartbeat + $0 }
    case .held(_, let hold): hold.until
    case .stopping(_, let stopping):
      switch stopping.stage {
      case .signalled(let until, _), .captured(let until): until
      }
    case .hanging(_, let hanging):
      switch hanging.stage {
      case .captured(let until), .aborted(let until): until
      }
    case .killing(let killing): killing.until
    case .clearing(let clearing):
      switch clearing.stage {
      case .asked(let until), .killed(let until): until
      }
    case .waiting(let waiting): waiting.until
    case .leaving(let leaving): leaving.until
    }
  }

  /// The life that the state is about; nil when there is no process of ours.
  package var currentLife: Life? {
    switch state {
    case .idle, .waiting, .stopped, .leaving, .left: nil
    case .spawning(let spawning): spawning.life
    case .cancelling(let cancelling): cancelling.life
    case .starting(let run, _), .running(let run), .held(let run, _), .stopping(let run, _),
      .hanging(let run, _):
      run.life
    case .killing(let killing): killing.life
    case .clearing(let clearing): clearing.life
    }
  }
}

extension ServiceMachine.Input {
  /// The life that an event from outside belongs to; nil for requests and times.
  package var life: Life? {
    switch self {
    case .begin, .adopted, .terminate, .stop, .start, .restart, .deadline, .reportersDone: nil
    case .spawned(let life), .spawnFailed(let life, _), .ready(let life),
      .crashAnnounced(let life), .captureEnded(let life), .ended(let life, _, _),
      .treeGone(let life), .extendTimeout(let life, _), .heartbeat(let life),
      .watchdogInterval(let life, _), .watchdogTriggered(let life), .unhealthy(let life):
      life
    }
  }
}

extension ServiceMachine.Effect {
  /// The life that this effect acts on; nil when it acts on none.
  package var life: Life? {
    switch self {
    case .runGiveUp, .persist, .awaitReporters, .endReporters, .leave: nil
    case .spawn(let life), .signalStop(let life), .release(let life), .captureHang(let life),
      .abort(let life), .kill(let life), .awaitTree(let life), .abandon(let life),
      .report(let life, _, _), .announce(let life, _, _):
      life
    }
  }
}

extension ServiceMachine {
  /// Whether somebody asked guardian to leave or the program to stop.
  package var isAskedToStop: Bool {
    switch state {
    case .cancelling(let cancelling): cancelling.request != .again
    case .stopping(_, let stopping): stopping.request != .again
    case .killing(let killing):
      switch killing.why {
      case .request(let request, _), .hangThenRequest(_, let request): request != .again
      case .hang: false
      }
    case .clearing(let clearing):
      switch clearing.next {
      case .leave(.asked), .stay: true
      case .start, .leave(.decided): false
      }
    case .leaving(let leaving):
      if case .asked = leaving.by { true } else { false }
    case .stopped, .left: true
    case .idle, .spawning, .starting, .running, .held, .hanging, .waiting: false
    }
  }

  /// Whether a life has begun and not ended.
  package var isRunning: Bool {
    switch state {
    case .starting, .running: true
    default: false
    }
  }

  /// Whether guardian ends with this life, or without one.
  package var isLeaving: Bool {
    switch state {
    case .leaving, .left: true
    case .clearing(let clearing):
      if case .leave = clearing.next { true } else { false }
    case .cancelling(let cancelling): cancelling.request == .leave
    case .stopping(_, let stopping): stopping.request == .leave
    case .killing(let killing):
      switch killing.why {
      case .request(let request, _), .hangThenRequest(_, let request): request == .leave
      case .hang: false
      }
    case .idle, .spawning, .starting, .running, .held, .hanging, .waiting, .stopped: false
    }
  }
}
