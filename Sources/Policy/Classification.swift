/// Endings sorted as systemd sorts them (systemd.service(5), `Restart=`), and its table.
package enum EndingClass: String, CaseIterable, Hashable, Sendable {
  case cleanExit = "clean exit"
  case cleanSignal = "clean signal"
  case uncleanExit = "unclean exit code"
  case uncleanSignal = "unclean signal"
  case coreDump = "core dump"
  case timeout = "timeout"
  case watchdog = "watchdog"
  case outOfMemory = "out of memory"
  /// Nobody knows how it ended; not known to be clean, so it is a failure.
  case unknown = "unknown"
  /// The main process left and the program goes on without it: a mistake in the
  /// configuration that no restart heals.
  case detached = "detached"

  /// Not clean. (Whether a stop was asked for is not known here: then it is none either.)
  package var isFailure: Bool {
    switch self {
    case .cleanExit, .cleanSignal, .detached: false
    case .uncleanExit, .uncleanSignal, .coreDump, .timeout, .watchdog, .outOfMemory, .unknown: true
    }
  }
}

extension RestartPolicy {
  /// Clean are 0, HUP, INT, TERM and what the options add. PIPE is not clean, other than for
  /// systemd: a server that dies of a closed connection has a bug that should be seen. A
  /// failure to execute is an unclean exit code, as systemd's own 203 is.
  package func classify(_ ending: Ending) -> EndingClass {
    switch ending.cause {
    case .watchdog, .health: return .watchdog
    case .startTimeout, .stopTimeout: return .timeout
    case .outOfMemory: return .outOfMemory
    case .detached: return .detached
    case .machineDown, .guardianDied: return .unknown
    case .own: break
    }
    switch ending.status {
    case .exited(let code):
      return code == 0 || successExitStatuses.contains(code) ? .cleanExit : .uncleanExit
    case .execFailed: return .uncleanExit
    case .unknown: return .unknown
    case .signaled(let signal, let dumped):
      if dumped { return .coreDump }
      let clean: Set<Signal> = [.hup, .int, .term]
      return clean.contains(signal) || successSignals.contains(signal)
        ? .cleanSignal : .uncleanSignal
    }
  }
}

extension RestartPolicy.Mode {
  /// systemd's table.
  package func restarts(after ending: EndingClass) -> Bool {
    switch (self, ending) {
    case (_, .detached): false
    case (.no, _): false
    case (.always, _): true
    case (.onSuccess, .cleanExit), (.onSuccess, .cleanSignal): true
    case (.onSuccess, _): false
    case (.onFailure, .cleanExit), (.onFailure, .cleanSignal): false
    case (.onFailure, _): true
    case (.onAbnormal, .cleanExit), (.onAbnormal, .cleanSignal), (.onAbnormal, .uncleanExit): false
    case (.onAbnormal, _): true
    case (.onAbort, .uncleanSignal), (.onAbort, .coreDump): true
    case (.onAbort, _): false
    case (.onWatchdog, .watchdog): true
    case (.onWatchdog, _): false
    }
  }
}
