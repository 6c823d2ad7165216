// What guardianctl asks: answered from the machine's state, or handed to the machine as an input.
import Control
import Glibc
import Kernel
import Policy
import Reports

extension Supervisor {
  func openControl() {
    let path = instance.runtimeDirectory + "/" + ControlRequest.socketName
    do {
      control = try ControlServer(
        path, inherited: handover?.descriptor("control"), loop: loop,
        onChange: { [unowned self] in tapOutput() },
        onRequest: { [unowned self] in asked($0, by: $1) })
    } catch {
      say("\(error): guardianctl cannot reach this guardian", .normal)
    }
  }

  private func asked(_ request: ControlRequest, by client: ControlClient) {
    let life = machine.history.lastLife.rawValue
    switch request {
    case .status:
      let status = controlStatus()
      answer(client, ControlAnswer(status: status, exit: status.exitStatus))
    case .why: answer(client, ControlAnswer(why: controlWhy()))
    case .signal(let signal):
      guard let program = self.life, !program.hasEnded else {
        answer(
          client, ControlAnswer(error: "no signal was sent: \(sentence)", exit: 1))
        return
      }
      program.main.signal(signal.rawValue)
      say("\(signal.name) sent to pid \(program.pid) as asked", .verbose)
      answer(client, ControlAnswer(status: controlStatus(), exit: 0))
    case .start, .stop, .restart:
      client.interest = .outcome(request, life: life)
      let input: ServiceMachine.Input =
        switch request {
        case .start: .start
        case .stop: .stop
        default: .restart
        }
      // Its end is where the outcome is looked at.
      feed(input)
    case .reload: reload(for: client)
    case .upgrade: upgrade(for: client)
    case .logs(let follow):
      client.interest = follow ? .output : .none
      sendTail(to: client)
      if !follow {
        control?.finish(client)
      } else {
        tapOutput()
      }
    case .watch:
      client.interest = .events(last: moment)
      tell(client, "now", sentence)
    }
  }

  private func reload(for client: ControlClient) {
    do {
      let result = try readOptionsAgain()
      if !result.applied.isEmpty {
        say("read again: \(result.applied.joined(separator: ", "))", .normal)
      }
      answer(
        client,
        ControlAnswer(
          reload: ControlReload(
            name: configuration.name, applied: result.applied, pending: result.pending)))
    } catch {
      answer(
        client,
        ControlAnswer(
          error: error.line(program: nil, consequence: "nothing was changed"), exit: 78))
    }
  }

  func answer(_ client: ControlClient, _ answer: ControlAnswer) {
    control?.answer(client, answer, isLast: true)
  }

  // MARK: what clients wait for

  /// After every event.
  func tellClients() {
    guard let control else { return }
    for client in control.clients {
      switch client.interest {
      case .none, .output: break
      case .events(let last):
        if last != moment {
          client.interest = .events(last: moment)
          tell(client, "state", sentence)
        }
      case .outcome(let request, let life):
        guard let exit = outcome(of: request, since: life) else { continue }
        client.interest = .none
        var result = ControlAnswer(status: controlStatus(), exit: exit)
        if exit != 0 {
          let isOvertaken = if case .waiting = machine.state { false } else { !machine.isLeaving }
          result.error = (isOvertaken ? "overtaken by another request: " : "") + sentence
        }
        answer(client, result)
      }
    }
  }

  /// nil: not carried out yet.
  private func outcome(of request: ControlRequest, since life: UInt32) -> Int32? {
    let isNew = machine.history.lastLife.rawValue != life
    switch machine.state {
    // Somebody else asked for something else meanwhile.
    case .running where request == .stop: return 1
    case .stopped where request != .stop: return 1
    case .running: return request == .start || request == .restart && isNew ? 0 : nil
    case .stopped: return 0
    case .waiting: return isNew ? 1 : nil
    case .leaving, .left: return request == .stop ? 0 : 1
    default: return nil
    }
  }

  func tellEnding(_ message: String) {
    guard let control else { return }
    for client in control.clients {
      if case .events = client.interest { tell(client, "ended", message) }
    }
  }

  private func tell(_ client: ControlClient, _ event: String, _ text: String) {
    control?.answer(
      client,
      ControlAnswer(
        event: ControlEvent(
          time: Self.text(Clock.wall), name: configuration.name, event: event, state: stateWord,
          text: text, life: machine.history.lastLife.rawValue, pid: life?.pid)))
  }

  // MARK: output

  /// The kept lines of the life before, while there is one, and of this one.
  private func sendTail(to client: ControlClient) {
    var lines = lastLines
    if let life, !life.hasEnded { lines += life.channel.lastLines }
    send(
      lines.suffix(Limit.tailLines).map { line in
        ControlLine(time: Self.text(line.time), text: SafeText.decode(line.bytes))
      }, to: client)
  }

  private func send(_ lines: [ControlLine], to client: ControlClient) {
    var part: [ControlLine] = []
    var size = 0
    for line in lines {
      // JSON writes a control character as six bytes.
      let most = 6 * line.text.utf8.count + 64
      if size + most > ControlRequest.maximumAnswerBytes, !part.isEmpty {
        control?.answer(client, ControlAnswer(lines: part))
        part = []
        size = 0
      }
      part.append(line)
      size += most
    }
    if !part.isEmpty { control?.answer(client, ControlAnswer(lines: part)) }
  }

  /// The program's output is looked at only while somebody follows it.
  func tapOutput() {
    let isFollowed =
      control?.clients.contains { if case .output = $0.interest { true } else { false } } ?? false
    if !isFollowed {
      streams.reader.see = nil
    } else if streams.reader.see == nil {
      streams.reader.see = { [unowned self] in wrote($0, $1) }
    }
  }

  private func wrote(_ stream: OutputStream, _ bytes: ArraySlice<UInt8>) {
    guard let control else { return }
    let time = Self.text(Clock.wall)
    for client in control.clients {
      guard case .output = client.interest else { continue }
      // A flood is not followed byte by byte: the newest is shown, the rest counted.
      let taken = bytes.suffix(client.hasRoom ? Limit.controlFollowBytes : 0)
      if taken.count < bytes.count {
        client.dropped += UInt64(bytes.count - taken.count)
        client.openLines[stream] = []
        if !client.hasRoom { continue }
      }
      if client.dropped > 0 {
        control.answer(client, ControlAnswer(dropped: client.dropped))
        client.dropped = 0
      }
      var lines: [ControlLine] = []
      var rest = taken
      // Each stream has its own line that goes on.
      var openLine = client.openLines[stream] ?? []
      while let end = rest.firstIndex(of: UInt8(ascii: "\n")) {
        var line = openLine + rest[..<end].prefix(Limit.lineBytes - openLine.count)
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        openLine = []
        lines.append(ControlLine(time: time, text: SafeText.decode(line)))
        rest = rest[(end + 1)...]
      }
      openLine += rest.prefix(Limit.lineBytes - openLine.count)
      client.openLines[stream] = openLine
      send(lines, to: client)
    }
  }

  // MARK: words and numbers

  private static func text(_ wall: Int64) -> String {
    TimeText.rfc3339(WallTime(nanosecondsSince1970: UInt64(max(wall, 0))))
  }

  var sentence: String {
    Words.status(machine, name: configuration.name, pid: life?.pid, at: now())
  }

  /// Equal as long as there is nothing new to tell. A quick restart changes the life alone.
  var moment: String { "\(stateWord) \(machine.history.lastLife.rawValue)" }

  var stateWord: String {
    switch machine.state {
    case .idle, .spawning, .starting: "starting"
    case .running: "running"
    case .held: "captured"
    case .stopping, .cancelling: "stopping"
    case .hanging: "hanging"
    case .killing: "killed"
    case .clearing: "ended"
    case .waiting: "waiting"
    case .stopped: "stopped"
    case .leaving, .left: "leaving"
    }
  }

  /// Lives that followed another one under this guardian.
  var restarts: UInt32 {
    let lives = machine.history.lastLife.rawValue &- lifeBefore
    return lives == 0 ? 0 : lives - 1
  }

  private var failuresNow: [CrashHistory.Failure] { machine.failures(at: Clock.boot) }

  func controlStatus() -> ControlStatus {
    var status = ControlStatus(name: configuration.name, state: stateWord, sentence: sentence)
    status.guardianPID = getpid()
    status.life = machine.history.lastLife.rawValue
    if let life, !life.hasEnded {
      status.pid = life.pid
      status.started = Self.text(life.startedWall)
      status.uptime = Int64(life.uptime.milliseconds)
      if let use = ProcessUse(of: life.pid) {
        status.memoryBytes = use.residentBytes
        status.cpu = use.processorMilliseconds
      }
      status.programStatus = life.statusText
      status.health = life.health?.words
      status.handler =
        switch life.handler {
        case .none(let why): "none: \(why)"
        default: "\(life.handler)"
        }
    }
    status.restarts = restarts
    status.failures = failuresNow.count
    status.maxCrashes = machine.policy.maxCrashes
    status.crashWindow = machine.policy.crashWindow.map { $0.nanoseconds / 1_000_000 }
    status.lastEnding = machine.lastEnding?.words
    status.lastEndingTime = lastEndingWall.map(Self.text)
    status.lastVerdict = machine.lastVerdict?.reason
    status.lastReport = lastReport?.text
    if case .waiting(let waiting) = machine.state {
      status.nextRestart = Int64(max(waiting.until - now().monotonic, .zero).milliseconds)
    }
    status.command = configuration.command.prefix(64).map { SafeText.cut($0, limit: 1024) }
    status.stateDirectory = configuration.stateDirectory
    status.runtimeDirectory = instance.runtimeDirectory
    return status
  }

  private func controlWhy() -> ControlWhy {
    let history = machine.history
    let policy = machine.policy
    let failures = failuresNow
    let now = Clock.boot
    let list = failures.suffix(Limit.controlFailures).map { failure in
      ControlWhy.Failure(
        life: failure.life.rawValue, ending: failure.words,
        ago: (now - failure.at).nanoseconds / 1_000_000,
        forgottenIn: policy.crashWindow.map { ($0 - (now - failure.at)).nanoseconds / 1_000_000 })
    }
    var resets: [String] = []
    if let window = policy.crashWindow {
      resets.append("each failure is forgotten \(window.words) after it (crash-window)")
    }
    resets.append(
      "a life of \(policy.stableAfter.words) ends the row: the restart after it comes at once "
        + "(stable-after)")
    resets.append("'guardianctl restart' and 'guardianctl start' clear the count")
    resets.append(
      "so does a new guardian, unless the last one was killed and binary, command and "
        + "configuration are the same")
    return ControlWhy(
      name: configuration.name, failures: failures.count, maxCrashes: policy.maxCrashes,
      crashWindow: policy.crashWindow.map { $0.nanoseconds / 1_000_000 }, row: history.row,
      nextDelay: policy.delay(
        beforeRestart: history.row, name: configuration.name, life: history.lastLife
      ).nanoseconds / 1_000_000,
      lastVerdict: machine.lastVerdict?.reason, list: list, resets: resets)
  }

  // MARK: metrics

  /// - Parameter isUp: false: guardian is about to leave.
  func metrics(isUp: Bool) -> Metrics {
    var metrics = Metrics(program: configuration.name)
    let program = life.flatMap { !$0.hasEnded ? $0 : nil }
    let use = program.flatMap { ProcessUse(of: $0.pid) }
    let history = machine.history
    metrics.add("guardian_up", .gauge, "Whether guardian runs.", isUp ? 1 : 0)
    metrics.add(
      "guardian_program_up", .gauge, "Whether the program has a process.",
      program == nil ? 0 : 1)
    metrics.add(
      "guardian_state", .gauge, "1 for the state that the program is in.", 1,
      labels: [("state", stateWord)])
    metrics.add(
      "guardian_life", .gauge, "Number of the last life.", Double(history.lastLife.rawValue))
    metrics.add(
      "guardian_restarts_total", .counter, "Restarts since guardian began.", Double(restarts))
    metrics.add(
      "guardian_failures_in_window", .gauge, "Failures that count now.",
      Double(failuresNow.count))
    metrics.add(
      "guardian_failures_max", .gauge, "Failures that are answered by a restart.",
      machine.policy.maxCrashes.map(Double.init))
    for (how, count) in endings.sorted(by: { $0.key < $1.key }) {
      metrics.add(
        "guardian_endings_total", .counter, "Endings since guardian began, by cause.",
        Double(count), labels: [("cause", how)])
    }
    if let ending = machine.lastEnding {
      var signal = 0.0
      if case .signaled(let number, _) = ending.status { signal = Double(number.rawValue) }
      metrics.add(
        "guardian_last_ending_signal", .gauge,
        "Signal that the last life died of; 0 if of none.", signal)
      metrics.add(
        "guardian_last_ending_exit_code", .gauge,
        "Exit code of the last life; 128 plus the signal.", Double(ending.exitCode))
    }
    metrics.add(
      "guardian_last_ending_timestamp_seconds", .gauge, "When the last life ended.",
      lastEndingWall.map { Double($0 / 1_000_000) / 1000 })
    metrics.add(
      "guardian_program_start_time_seconds", .gauge, "When this life began.",
      program.map { Double($0.startedWall / 1_000_000) / 1000 })
    metrics.add(
      "guardian_program_uptime_seconds", .gauge, "Age of this life.",
      program.map { Double($0.uptime.nanoseconds / 1_000_000) / 1000 })
    metrics.add(
      "guardian_program_resident_memory_bytes", .gauge, "Resident memory of the main process.",
      use.map { Double($0.residentBytes) })
    metrics.add(
      "guardian_program_cpu_seconds_total", .counter, "Processor time of the main process.",
      use.map { Double($0.processorMilliseconds) / 1000 })
    return metrics
  }

  /// For the count of endings by cause.
  static func cause(of ending: Ending) -> String {
    switch ending.cause {
    case .outOfMemory: return "oom"
    case .watchdog: return "watchdog"
    case .startTimeout: return "start-timeout"
    case .health: return "health"
    case .stopTimeout: return "stop-timeout"
    case .detached: return "detached"
    case .machineDown: return "machine-down"
    case .guardianDied: return "guardian-died"
    case .own: break
    }
    return switch ending.status {
    case .exited(0): "exit-0"
    case .exited: "exit"
    case .signaled: "signal"
    case .execFailed: "exec"
    case .unknown: "unknown"
    }
  }
}

/// What a process uses, from /proc; the kernel's own numbers.
struct ProcessUse {
  let residentBytes: UInt64
  let processorMilliseconds: Int64

  init?(of pid: Int32) {
    guard let use = Processes.use(of: pid) else { return nil }
    residentBytes = use.residentPages * UInt64(sysconf(Int32(_SC_PAGESIZE)))
    let ticks = Int64(max(sysconf(Int32(_SC_CLK_TCK)), 1))
    processorMilliseconds = Int64(clamping: use.ticks) * 1000 / ticks
  }
}
