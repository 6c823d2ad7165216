// The options again, while a program runs: what can change under it, and what cannot.

extension Settings {
  package struct Reloaded: Hashable, Sendable {
    /// The one that holds, with what could be taken over.
    package let configuration: Configuration
    /// Names of options whose new values hold from now on.
    package let applied: [String]
    /// Names of those that hold when guardian is started anew.
    package let pending: [String]
  }

  /// Reads all sources again; `arguments` and `environment` are those guardian was started with.
  /// - Throws: what is wrong with them; then everything stays as it was.
  package static func reload(
    _ current: Configuration, arguments: [String], environment: [String: String], uid: UInt32
  ) throws(SettingsError) -> Reloaded {
    guard
      case .run(let new) = try request(
        arguments: arguments, environment: environment, uid: uid,
        canBeMade: StartCheck.canBeMade)
    else { return Reloaded(configuration: current, applied: [], pending: []) }
    var result = current
    var applied: [String] = []
    var pending: [String] = []
    for option in Option.available where option.get(current) != option.get(new) {
      // A derived name may have got a number since.
      if option.name == "name", !new.nameIsGiven { continue }
      if let take = changeable[option.name] {
        take(&result, new)
        applied.append(option.name)
      } else {
        pending.append(option.name)
      }
    }
    if current.command != new.command { pending.append("command") }
    // The same names, other contents.
    if result.fileEnvironment != new.fileEnvironment {
      result.fileEnvironment = new.fileEnvironment
      if !applied.contains("env-file") { applied.append("env-file") }
    }
    if result.account != new.account {
      result.account = new.account
      if !applied.contains("user"), !applied.contains("group") { applied.append("user") }
    }
    return Reloaded(configuration: result, applied: applied, pending: pending)
  }

  /// Read at each use, so that a new value holds from the next use on.
  private static let changeable: [String: @Sendable (inout Configuration, Configuration) -> Void] =
    [
      "restart": { $0.restart = $1.restart },
      "max-crashes": { $0.maxCrashes = $1.maxCrashes },
      "crash-window": { $0.crashWindow = $1.crashWindow },
      "restart-delay": { $0.restartDelay = $1.restartDelay },
      "restart-backoff": { $0.restartBackoff = $1.restartBackoff },
      "restart-delay-max": { $0.restartDelayMax = $1.restartDelayMax },
      "stable-after": { $0.stableAfter = $1.stableAfter },
      "max-identical": { $0.maxIdentical = $1.maxIdentical },
      "success-exit-status": { $0.successExitStatus = $1.successExitStatus },
      "exit-as-signal": { $0.exitAsSignal = $1.exitAsSignal },
      "on-give-up": { $0.onGiveUp = $1.onGiveUp },
      "working-directory": { $0.workingDirectory = $1.workingDirectory },
      "env": { $0.environment = $1.environment },
      "env-file": { $0.environmentFiles = $1.environmentFiles },
      "user": { $0.user = $1.user },
      "group": { $0.group = $1.group },
      "umask": { $0.umask = $1.umask },
      "nice": { $0.nice = $1.nice },
      "oom-score-adjust": { $0.oomScoreAdjust = $1.oomScoreAdjust },
      "limit": { $0.limits = $1.limits },
      "stdin": { $0.standardInput = $1.standardInput },
      "log-bytes": { $0.logBytes = $1.logBytes },
      "log-keep": { $0.logKeep = $1.logKeep },
      "kernel-core": { $0.kernelCore = $1.kernelCore },
      "start-timeout": { $0.startTimeout = $1.startTimeout },
      "watchdog": { $0.watchdog = $1.watchdog },
      "health-exec": { $0.healthExec = $1.healthExec },
      "health-tcp": { $0.healthTCP = $1.healthTCP },
      "health-http": { $0.healthHTTP = $1.healthHTTP },
      "health-interval": { $0.healthInterval = $1.healthInterval },
      "health-timeout": { $0.healthTimeout = $1.healthTimeout },
      "health-retries": { $0.healthRetries = $1.healthRetries },
      "health-start-period": { $0.healthStartPeriod = $1.healthStartPeriod },
      "stop-signal": { $0.stopSignal = $1.stopSignal },
      "stop-timeout": { $0.stopTimeout = $1.stopTimeout },
      "kill-mode": { $0.killMode = $1.killMode },
      "rewrite-signal": { $0.signalRewrites = $1.signalRewrites },
      "forward-to": { $0.forwardTo = $1.forwardTo },
      "capture-timeout": { $0.captureTimeout = $1.captureTimeout },
      "report-timeout": { $0.reportTimeout = $1.reportTimeout },
      "redact": { $0.redact = $1.redact },
      "quiet": { $0.quiet = $1.quiet },
      "verbose": { $0.verbose = $1.verbose },
    ]
}
