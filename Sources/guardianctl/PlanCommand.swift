// `plan`: what a policy would do. Nothing runs; the machine that supervises is asked itself.
import Glibc
import Policy
import Reports
import Settings

enum PlanCommand {
  private struct Plan: Encodable {
    struct Row: Encodable {
      var life: UInt32
      var start_ms: Int64
      var end_ms: Int64
      var ending: String
      var decision: String
      var delay_ms: Int64?
      var failures: Int
      var reason: String
    }
    var name: String
    var lives: [Row]
    /// What guardian would leave with; absent: it would go on.
    var exit: Int32?
    var verdict: String
  }

  /// - Parameter words: guardian's own command line; the command may be missing.
  static func run(
    _ words: [String], simulate: String?, environment: [String: String], json: Bool
  ) throws {
    let configuration = try configuration(words, environment)
    let policy = configuration.policy
    let text = simulate ?? "segv x\((policy.maxCrashes.map { min($0, 40) } ?? 20) + 1)"
    let steps: [Timetable.Step]
    do throws(PlanError) { steps = try Timetable.parse(text) } catch {
      throw ControlError("option '--simulate': \(error)", status: 64)
    }
    if steps.isEmpty { throw ControlError("option '--simulate': there is no ending", status: 64) }
    let table = Timetable(name: configuration.name, policy: policy, steps: steps)
    let verdict =
      switch table.leave {
      case nil: "the program would run: life \((table.rows.last?.life.rawValue ?? 0) + 1)"
      case .exit(let code)?: "guardian would leave with \(code)"
      case .signal(let signal)?: "guardian would die of \(signal.name)"
      }
    if json {
      var exit: Int32?
      if case .exit(let code)? = table.leave { exit = code }
      if case .signal(let signal)? = table.leave { exit = 128 + signal.rawValue }
      let rows = table.rows.map { row in
        var delay: Int64?
        var decision = "stop"
        switch row.verdict.decision {
        case .restart(let after): (decision, delay) = ("restart", after.nanoseconds / 1_000_000)
        case .giveUp: decision = "give-up"
        case .stop: break
        }
        return Plan.Row(
          life: row.life.rawValue, start_ms: row.start.nanoseconds / 1_000_000,
          end_ms: row.end.nanoseconds / 1_000_000, ending: row.ending.words, decision: decision,
          delay_ms: delay, failures: row.verdict.failures, reason: row.verdict.reason)
      }
      Output.print(
        bytes: try JSONText.encode(
          Plan(name: configuration.name, lives: rows, exit: exit, verdict: verdict)))
      return
    }
    var lines = [["LIFE", "STARTS", "ENDS", "ENDING", "FAILURES", "THEN"]]
    for row in table.rows {
      let then =
        switch row.verdict.decision {
        case .restart(let delay):
          delay == .zero ? "restart at once" : "restart in \(delay.words)"
        case .stop: "not restarted"
        case .giveUp: "give up"
        }
      lines.append([
        String(row.life.rawValue), row.start.words, row.end.words, row.ending.words,
        FailureCount.words(row.verdict.failures, of: row.verdict.maxCrashes), then,
      ])
    }
    Table.print(lines)
    Output.print("")
    if table.leave != nil, let last = table.rows.last {
      Output.print(SafeText.oneLine(last.verdict.reason))
    }
    Output.print(verdict)
  }

  private static func configuration(
    _ words: [String], _ environment: [String: String]
  ) throws -> Configuration {
    func read(_ words: [String]) throws(SettingsError) -> Configuration? {
      let request = try Settings.request(
        arguments: ["guardian"] + words, environment: environment, uid: geteuid())
      if case .run(let configuration) = request { return configuration }
      return nil
    }
    do {
      if let found = try read(words) { return found }
    } catch {
      // A plan needs no command; then it is what is missing.
      if let found = try? read(words + ["program"]) { return found }
      throw ControlError(error.line(program: nil, consequence: nil), status: 64)
    }
    throw ControlError("'plan' takes guardian's options behind --", status: 64)
  }
}
