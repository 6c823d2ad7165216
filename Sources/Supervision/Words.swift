// What guardian says to people: short lines, each with what happens next.
import Kernel
import Policy

enum Words {
  static func ending(
    name: String, _ ending: Ending, life: Life, pid: Int32?, uptime: Duration?, failure: String?,
    hang: String? = nil
  ) -> String {
    var who = "\(name) (life \(life.rawValue)"
    if let pid { who += ", pid \(pid)" }
    who += ")"
    let after = uptime.map { " after " + $0.words } ?? ""
    let why = hang.map { " (\($0))" } ?? ""
    switch ending.cause {
    case .detached:
      return "\(who) detached: its main process left with 0 and others live on; "
        + "run it in the foreground"
    case .outOfMemory: return "\(who) was killed for lack of memory\(after)"
    case .watchdog: return "\(who) gave no sign of life\(why) and was ended\(after)"
    case .startTimeout: return "\(who) was not ready in time\(why) and was ended\(after)"
    case .health: return "\(who) failed its health check\(why) and was ended\(after)"
    case .stopTimeout: return "\(who) did not stop in time\(why) and was killed\(after)"
    case .machineDown:
      return
        "\(who) ended when the machine went down: power loss, a crash of the kernel, or a reset"
    case .guardianDied: return "\(who) ended with its guardian, which was killed"
    case .own: break
    }
    switch ending.status {
    case .exited(let code): return "\(who) exited with \(code)\(after)"
    case .signaled(let signal, let dumped):
      return "\(who) died of \(signal.name)\(dumped ? " (core dumped)" : "")\(why)\(after)"
    case .execFailed(let errno):
      return "\(name) (life \(life.rawValue)) did not start: "
        + (failure ?? SystemError.text(errno))
    case .unknown: return "\(who) ended\(after), nobody knows how"
    }
  }

  static func next(_ verdict: Verdict, stopping: Bool, asked: Bool = false) -> String {
    switch verdict.decision {
    case .restart where asked: "restarting as asked"
    case .restart(let delay):
      delay == .zero ? "restarting at once" : "restarting in \(delay.words)"
    case .stop: stopping ? "stopped as asked" : "not restarted"
    case .giveUp: "giving up: \(verdict.reason)"
    }
  }

  static func verdict(_ verdict: Verdict) -> String {
    switch verdict.decision {
    case .restart: "restart"
    case .stop: "stop"
    case .giveUp: "give-up"
    }
  }

  static func how(_ how: WaitResult.How) -> String {
    switch how {
    case .exited(let code): "left with \(code)"
    case .signaled(let signal, _): "died of \(Signal(rawValue: signal).name)"
    case .unknown: "ended"
    }
  }

  private static func ended(_ machine: ServiceMachine, _ name: String, _ failures: String) -> String
  {
    guard let verdict = machine.lastVerdict, case .giveUp = verdict.decision,
      let ending = machine.lastEnding
    else { return "\(name) ended, \(failures)" }
    let count = "\(verdict.failures) failure\(verdict.failures == 1 ? "" : "s")"
    return "\(name) gave up: \(ending.words), \(count)"
      + (verdict.window.map { " within \($0.words)" } ?? "")
  }

  static func status(_ machine: ServiceMachine, name: String, pid: Int32?, at now: Now) -> String {
    let count = machine.failures(at: now.boot).count
    let failures =
      count == 0
      ? "no failures" : "failures: \(FailureCount.words(count, of: machine.policy.maxCrashes))"
    let life = machine.history.lastLife.rawValue
    let who = "\(name) life \(life)" + (pid.map { ", pid \($0)" } ?? "")
    switch machine.state {
    case .idle, .spawning, .starting: return "\(who) is starting, \(failures)"
    case .running: return "\(who) is running, \(failures)"
    case .held: return "\(who) crashed and is being captured, \(failures)"
    case .stopping, .cancelling: return "\(who) is stopping"
    case .hanging: return "\(who) hangs and is being captured, \(failures)"
    case .killing: return "\(who) is being killed"
    case .clearing: return "\(name) life \(life) ended, \(failures)"
    case .waiting(let waiting):
      let left = max(waiting.until - now.monotonic, .zero)
      return "\(name) life \(life + 1) starts in \(left.words), \(failures)"
    case .stopped: return "\(name) is stopped"
    case .leaving: return "\(ended(machine, name, failures)); waiting for reports"
    case .left: return ended(machine, name, failures)
    }
  }
}
