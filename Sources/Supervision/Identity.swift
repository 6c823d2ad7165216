// What a failure count is bound to: another binary, command or configuration starts a new one.
import Policy
import Settings

enum Identity {
  static func of(command: ProgramCommand, configuration: Configuration) -> CrashHistory.Identity {
    var binary = StableHash()
    command.hashBinary(into: &binary)
    var words = StableHash()
    command.hash(into: &words)
    var settings = StableHash()
    settings.add(String(describing: configuration.policy).utf8)
    for variable in configuration.environment {
      settings.add(variable.name.utf8)
      settings.add(variable.value.utf8)
    }
    return CrashHistory.Identity(
      binary: binary.text, command: words.text, configuration: settings.text)
  }
}

extension Configuration {
  /// The part of the options that the policy decides by.
  var policy: RestartPolicy {
    var policy = RestartPolicy()
    policy.restart = RestartPolicy.Mode(rawValue: restart.rawValue) ?? .onFailure
    policy.maxCrashes = maxCrashes
    policy.crashWindow = crashWindow
    policy.restartDelay = restartDelay
    policy.restartBackoff = restartBackoff
    policy.restartDelayMax = restartDelayMax
    policy.stableAfter = stableAfter
    policy.maxIdentical = maxIdentical
    policy.exitAsSignal = exitAsSignal
    for status in successExitStatus {
      switch status {
      case .code(let code): policy.successExitStatuses.insert(code)
      case .signal(let signal): policy.successSignals.insert(signal)
      }
    }
    policy.stopSignal = stopSignal
    // "infinity" for the policy: longer than any machine is up.
    let forever = Duration.seconds(100 * 365 * 86_400)
    policy.stopTimeout = stopTimeout ?? forever
    policy.captureTimeout = captureTimeout
    policy.reportTimeout = reportTimeout ?? forever
    policy.awaitsReadiness = ready != .exec
    policy.startTimeout = startTimeout
    policy.watchdog = watchdog
    return policy
  }
}
