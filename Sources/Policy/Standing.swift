/// What one guardian hands over to the next within the same process: a state in which nothing is
/// under way that only the one who began it could finish.
extension ServiceMachine {
  package enum Standing: Hashable, Sendable {
    /// A life. `until`: it must have said that it is ready by then, if it has not yet.
    case living(Life, started: Now, isReady: Bool, until: Duration?, watchdog: Duration?)
    /// No process; the next life starts then.
    case waiting(until: Duration)
    /// No process, as was asked for.
    case stopped
  }

  /// nil: something is under way; it will be over by itself.
  package var standing: Standing? {
    switch state {
    case .starting(let run, let until):
      .living(
        run.life, started: run.started, isReady: false, until: until, watchdog: run.watchdog)
    case .running(let run):
      .living(run.life, started: run.started, isReady: true, until: nil, watchdog: run.watchdog)
    case .waiting(let waiting): .waiting(until: waiting.until)
    case .stopped: .stopped
    case .idle, .spawning, .cancelling, .held, .stopping, .hanging, .killing, .clearing, .leaving,
      .left:
      nil
    }
  }

  /// Goes on where another machine stood. The time in which nobody looked is not held against
  /// the program: its watchdog begins anew.
  package init(
    name: String, policy: RestartPolicy, history: CrashHistory, standing: Standing,
    lastEnding: Ending?, lastVerdict: Verdict?, at now: Now
  ) {
    self.init(name: name, policy: policy, history: history)
    self.lastEnding = lastEnding
    self.lastVerdict = lastVerdict
    switch standing {
    case .living(let life, let started, let isReady, let until, let watchdog):
      let run = Run(life, started: started, watchdog: watchdog, at: now)
      state = isReady ? .running(run) : .starting(run, until: until)
    case .waiting(let until): state = .waiting(Waiting(until: until))
    case .stopped: state = .stopped
    }
  }
}
