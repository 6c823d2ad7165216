/// What a policy would do: the machine itself, run against a made-up sequence of endings on a
/// made-up clock. Nothing is started. For `guardianctl plan`.
package struct Timetable: Hashable, Sendable {
  /// One life: how it ends, and how long after its start.
  package struct Step: Hashable, Sendable {
    package var ending: Ending
    package var after: Duration
    package init(_ ending: Ending, after: Duration) {
      self.ending = ending
      self.after = after
    }
  }

  package struct Row: Hashable, Sendable {
    package let life: Life
    /// Since the beginning.
    package let start: Duration
    package let end: Duration
    package let ending: Ending
    package let verdict: Verdict
  }

  /// One for each life that ended.
  package let rows: [Row]
  /// How guardian would leave; nil: the sequence is over and the program runs.
  package let leave: Leave?

  /// The most lives that a plan may have.
  package static let maximumSteps = 100_000

  package init(name: String, policy: RestartPolicy, steps: [Step]) {
    var clock: Duration = .zero
    var now: Now { Now(boot: clock, monotonic: clock) }
    // The plan says when a life ends: no heartbeat, no readiness.
    var plain = policy
    plain.watchdog = nil
    plain.awaitsReadiness = false
    var machine = ServiceMachine(
      name: name, policy: plain,
      history: CrashHistory(
        bootID: "", identity: CrashHistory.Identity(binary: "", command: "", configuration: "")))
    var rows: [Row] = []
    var left: Leave?
    var start = clock

    func perform(_ effects: [ServiceMachine.Effect]) {
      for effect in effects {
        switch effect {
        case .spawn: start = clock
        case .awaitTree(let life): perform(machine.handle(.treeGone(life), at: now))
        case .awaitReporters: perform(machine.handle(.reportersDone, at: now))
        case .leave(let leave): left = leave
        case .announce, .signalStop, .release, .captureHang, .abort, .kill, .abandon, .report,
          .runGiveUp, .persist, .endReporters:
          break
        }
      }
    }

    perform(machine.handle(.begin, at: now))
    for step in steps.prefix(Self.maximumSteps) {
      while let deadline = machine.deadline, case .waiting = machine.state {
        clock = max(clock, deadline)
        perform(machine.handle(.deadline, at: now))
      }
      guard left == nil, let life = machine.currentLife else { break }
      let began = start
      clock += max(step.after, .zero)
      let effects: [ServiceMachine.Effect]
      if case .execFailed(let errno) = step.ending.status {
        effects = machine.handle(.spawnFailed(life, errno: errno), at: now)
      } else {
        effects =
          machine.handle(.spawned(life), at: now)
          + machine.handle(.ended(life, step.ending, signature: step.signature), at: now)
      }
      let end = clock
      perform(effects)
      let verdict: Verdict? = machine.lastVerdict
      if let verdict {
        rows.append(
          Row(life: life, start: began, end: end, ending: step.ending, verdict: verdict))
      }
    }
    self.rows = rows
    self.leave = left
  }
}

extension Timetable.Step {
  /// Equal endings of a plan count as the same crash.
  fileprivate var signature: CrashSignature? {
    guard case .signaled(let signal, _) = ending.status, signal.tellsOfCrash else { return nil }
    return CrashSignature(rawValue: UInt64(UInt32(bitPattern: signal.rawValue)))
  }
}

/// What is wrong with the text of a plan: the word, and what is wanted.
package struct PlanError: Error, Hashable, Sendable, CustomStringConvertible {
  package let word: String
  package let expected: String
  package var description: String { "'\(word)' in the plan: expected \(expected)" }
}

extension Timetable {
  /// Reads a sequence such as `segv@2s x10, exit:3, oom@1min`: an ending, when it comes after
  /// the start (default 0), and how often (default 1); blanks and commas separate. Endings are
  /// names of signals, `exit:N`, `ok` (exit 0), `oom`, `watchdog`, `health`,
  /// `start-timeout`, `exec` (cannot be executed) and `detach`.
  package static func parse(_ text: String) throws(PlanError) -> [Step] {
    var steps: [Step] = []
    var last: Step?
    var repeated = true
    for part in text.split(whereSeparator: { $0 == " " || $0 == "," || $0.isNewline || $0 == "\t" }
    ) {
      let word = String(part)
      if word.first == "x", let times = Int(word.dropFirst()) {
        guard let step = last, !repeated, times >= 1 else {
          throw PlanError(word: word, expected: "a count of at least 1 behind an ending")
        }
        guard times <= maximumSteps - steps.count else {
          throw PlanError(word: word, expected: "no more than \(maximumSteps) lives in all")
        }
        steps += [Step](repeating: step, count: times - 1)
        repeated = true
        continue
      }
      let halves = word.split(separator: "@", maxSplits: 1, omittingEmptySubsequences: false)
      guard let ending = ending(halves[0].lowercased()) else {
        throw PlanError(
          word: word,
          expected:
            "a signal, 'exit:N', 'ok', 'oom', 'watchdog', 'health', 'start-timeout', 'exec' or "
            + "'detach', then maybe '@TIME' and ' xCOUNT'")
      }
      var after: Duration = .zero
      if halves.count == 2 {
        guard let time = duration(String(halves[1])) else {
          throw PlanError(word: word, expected: "a time such as 2s, 100ms or 1min behind '@'")
        }
        after = time
      }
      guard steps.count < maximumSteps else {
        throw PlanError(word: word, expected: "no more than \(maximumSteps) lives in all")
      }
      let step = Step(ending, after: after)
      steps.append(step)
      last = step
      repeated = false
    }
    return steps
  }

  private static func ending(_ word: String) -> Ending? {
    switch word {
    case "ok": return Ending(status: .exited(0))
    case "oom": return Ending(status: .signaled(.kill, coreDumped: false), cause: .outOfMemory)
    case "watchdog": return Ending(status: .signaled(.abrt, coreDumped: false), cause: .watchdog)
    case "health": return Ending(status: .signaled(.abrt, coreDumped: false), cause: .health)
    case "start-timeout":
      return Ending(status: .signaled(.abrt, coreDumped: false), cause: .startTimeout)
    case "exec": return Ending(status: .execFailed(errno: 2))
    case "detach": return Ending(status: .exited(0), cause: .detached)
    default: break
    }
    if word.hasPrefix("exit:") {
      guard let code = Int32(word.dropFirst(5)), code >= 0, code <= 255 else { return nil }
      return Ending(status: .exited(code))
    }
    return Signal(name: word).map { Ending(status: .signaled($0, coreDumped: false)) }
  }

  private static func duration(_ text: String) -> Duration? {
    let digits = text.prefix { $0.isASCII && ($0.isNumber || $0 == ".") }
    guard let value = Double(String(digits)), value >= 0, value <= 1e9 else { return nil }
    let nanoseconds: Double
    switch text.dropFirst(digits.count) {
    case "ms": nanoseconds = 1e6
    case "s", "": nanoseconds = 1e9
    case "m", "min": nanoseconds = 60e9
    case "h": nanoseconds = 3600e9
    case "d": nanoseconds = 86_400e9
    default: return nil
    }
    let total = value * nanoseconds
    return total <= 9e18 ? .nanoseconds(Int64(total)) : nil
  }
}
