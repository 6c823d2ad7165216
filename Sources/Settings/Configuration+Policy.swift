// The options as the policy wants them: for guardian, and for a plan that runs nothing.
import Policy

extension Configuration {
  /// The part of the options that the policy decides by.
  package var policy: RestartPolicy {
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
