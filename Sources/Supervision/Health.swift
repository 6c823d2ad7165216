// Health probes: a command, a connection, an HTTP request. None of them blocks the loop, each is
// bounded in time and in what is read of it, and what it says in its own words is kept.
import CLinux
import CSystemd
import Glibc
import Kernel
import Settings

/// What one probe found.
enum ProbeResult {
  case healthy
  /// In the probe's own words: exit code and last line, errno, HTTP status line.
  case failed(String)
}

/// One probe at work. It is cancelled by letting go of it.
protocol Probe: AnyObject {
  /// What is to be said if its time is up.
  var pending: String { get }
  func cancel()
}

/// Probes one life at intervals until it fails so many times in a row.
final class HealthMonitor {
  enum Target {
    case exec(String)
    case tcp(NetworkAddress)
    case http(HealthURL)

    var text: String {
      switch self {
      case .exec(let command): "'\(Printable.text(Array(command.utf8), limit: 80))'"
      case .tcp(let address): "tcp \(address.text)"
      case .http(let url): "GET \(url.text)"
      }
    }
  }

  struct Plan {
    let target: Target
    let interval: Duration
    let timeout: Duration
    let retries: Int
    /// On CLOCK_MONOTONIC; failures until then do not count.
    let graceUntil: Duration
  }

  private let plan: Plan
  private let begin: (@escaping (ProbeResult) -> Void) throws(ProbeFailure) -> Probe
  private let onResult: () -> Void
  private let onUnhealthy: () -> Void
  private var timer: EventLoop.Timer?
  private var limit: EventLoop.Timer?
  private var probe: Probe?
  private var stopped = false
  private(set) var succeeded = false
  private(set) var failures = 0
  private(set) var lastWords: String?

  /// - Parameter begin: starts a probe.
  /// - Parameter onResult: after every probe. - Parameter onUnhealthy: after the last one.
  init(
    _ plan: Plan, loop: EventLoop,
    begin: @escaping (@escaping (ProbeResult) -> Void) throws(ProbeFailure) -> Probe,
    onResult: @escaping () -> Void, onUnhealthy: @escaping () -> Void
  ) throws(SystemError) {
    self.plan = plan
    self.begin = begin
    self.onResult = onResult
    self.onUnhealthy = onUnhealthy
    timer = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in ask() }
    limit = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in
      over(.failed("\(probe?.pending ?? "no answer") within \(plan.timeout.words)"))
    }
    timer?.set(after: plan.interval)
  }

  deinit { probe?.cancel() }

  /// The whole story, for the report: "3 probes in a row failed: GET …: HTTP/1.1 503 …".
  var verdict: String {
    "\(failures) probe\(failures == 1 ? "" : "s") in a row failed: \(plan.target.text): "
      + (lastWords ?? "no words")
  }

  /// For `guardianctl status`.
  var words: String {
    if failures > 0 {
      return "failed \(failures) of \(plan.retries) times in a row: \(lastWords ?? "")"
    }
    return succeeded ? "healthy" : lastWords.map { "starting: \($0)" } ?? "not probed yet"
  }

  /// The life ends, or is found to hang.
  func stop() {
    stopped = true
    timer?.disarm()
    limit?.disarm()
    probe?.cancel()
    probe = nil
  }

  private func ask() {
    if stopped { return }
    do {
      limit?.set(after: plan.timeout)
      probe = try begin { [unowned self] in over($0) }
    } catch {
      over(.failed(error.words))
    }
  }

  private func over(_ result: ProbeResult) {
    if stopped { return }
    limit?.disarm()
    probe?.cancel()
    probe = nil
    switch result {
    case .healthy:
      succeeded = true
      failures = 0
      lastWords = nil
    case .failed(let words):
      lastWords = words
      if succeeded || Clock.monotonic >= plan.graceUntil { failures += 1 }
    }
    onResult()
    if failures >= plan.retries { onUnhealthy() }
    // What was found may have been of no use just then.
    if !stopped { timer?.set(after: plan.interval) }
  }
}

/// A probe that could not be begun.
struct ProbeFailure: Error {
  let words: String
}

/// Connects, and for HTTP asks.
final class NetworkProbe: Probe {
  private let socket: FileDescriptor
  private let request: [UInt8]?
  private let result: (ProbeResult) -> Void
  private var source: EventSource?
  private var isConnected = false
  private var answer: [UInt8] = []
  private var received = 0

  /// - Parameter url: nil: to connect is enough.
  init(
    _ address: NetworkAddress, url: HealthURL?, loop: EventLoop,
    result: @escaping (ProbeResult) -> Void
  ) throws(ProbeFailure) {
    let raw = unsafe guardian_connect_tcp(address.host, address.port)
    if raw < 0 { throw ProbeFailure(words: SystemError.text(errno)) }
    socket = FileDescriptor(owning: raw)
    request = url.map { url in
      Array(
        ("GET \(url.path) HTTP/1.1\r\nHost: \(url.host)\r\n"
          + "User-Agent: guardian/\(guardianVersion)\r\nAccept: */*\r\nConnection: close\r\n\r\n")
          .utf8)
    }
    self.result = result
    do {
      source = try loop.watch(socket.raw, events: EPOLLOUT.rawValue) { [unowned self] _ in
        connected(loop)
      }
    } catch { throw ProbeFailure(words: "\(error)") }
  }

  var pending: String { isConnected ? "no answer" : "no connection" }

  func cancel() { source = nil }

  private func connected(_ loop: EventLoop) {
    let error = guardian_socket_error(socket.raw)
    if error != 0 { return result(.failed(SystemError.text(error))) }
    isConnected = true
    guard let request else { return result(.healthy) }
    // A new socket's buffer holds all of it.
    guard let sent = try? socket.write(request[...]), sent == request.count else {
      return result(.failed("the request could not be sent"))
    }
    do {
      // One descriptor, one watch at a time; this very one is alive as long as its handler runs.
      source?.cancel()
      source = try loop.watch(socket.raw) { [unowned self] _ in readable() }
    } catch { result(.failed("\(error)")) }
  }

  /// The first line decides; the rest is read to its end, so that the server need not see an
  /// aborted connection, but not beyond a limit.
  private func readable() {
    var bytes = [UInt8](repeating: 0, count: 4096)
    let count: Int
    do { count = try socket.read(into: &bytes) } catch {
      if error.errno == EAGAIN { return }
      if let line { return decide(line) }
      return result(.failed(SystemError.text(error.errno)))
    }
    received += count
    if answer.count < Limit.probeTailBytes {
      answer += bytes[..<min(count, Limit.probeTailBytes - answer.count)]
    }
    if count > 0, received < Limit.probeAnswerBytes,
      line != nil || answer.count < Limit.probeTailBytes
    {
      return
    }
    if let line {
      decide(line)
    } else {
      result(
        .failed(received == 0 ? "the connection was closed without an answer" : "no HTTP answer"))
    }
  }

  private var line: ArraySlice<UInt8>? {
    answer.firstIndex(of: 10).map { answer[..<$0] }
  }

  private func decide(_ line: ArraySlice<UInt8>) {
    let text = Printable.text(line.filter { $0 != 13 }, limit: 200)
    let parts = text.split(separator: " ", maxSplits: 2)
    guard parts.count >= 2, parts[0].hasPrefix("HTTP/"), let status = Int(parts[1]) else {
      return result(.failed("no HTTP answer: '\(text)'"))
    }
    result((200...399).contains(status) ? .healthy : .failed(text))
  }
}

/// Runs a command. Its process is a helper of guardian's: bounded in time, in a group of its own.
final class ExecProbe: Probe {
  private let reading: FileDescriptor
  private var source: EventSource?
  private var child: Child?
  private var tail: [UInt8] = []
  private let result: (ProbeResult) -> Void
  private var isOver = false

  /// - Parameter pipe: the reading end of its output.
  init(
    _ pipe: consuming FileDescriptor, loop: EventLoop, result: @escaping (ProbeResult) -> Void
  ) {
    reading = pipe
    self.result = result
    source = try? loop.watch(reading.raw, urgency: .output) { [unowned self] _ in
      if !read() { source = nil }
    }
  }

  func started(_ child: Child) { self.child = child }

  var pending: String {
    _ = read()
    return lastLine.map { "no end, its last words '\($0)'," } ?? "no end"
  }

  func cancel() {
    isOver = true
    source = nil
    // The whole group: nothing of a probe outlives it.
    if let child {
      child.signal(SIGKILL)
      _ = kill(-child.pid, SIGKILL)
    }
    child = nil
  }

  /// It was seen to end and has not been reaped, or just so.
  func ended(_ how: WaitResult.How) {
    child = nil
    if isOver { return }
    _ = read()
    if case .exited(0) = how { return result(.healthy) }
    result(.failed(Words.how(how) + (lastLine.map { ": '\($0)'" } ?? "")))
  }

  /// A few pieces at a time. false: the end.
  private func read() -> Bool {
    var bytes = [UInt8](repeating: 0, count: 4096)
    for _ in 0..<16 {
      guard let count = try? reading.read(into: &bytes) else { return true }
      if count == 0 { return false }
      tail += bytes[..<count]
      tail.removeFirst(max(0, tail.count - Limit.probeTailBytes))
    }
    return true
  }

  private var lastLine: String? {
    tail.split(separator: 10).last { !$0.allSatisfy { $0 <= 32 } }.map {
      Printable.text($0, limit: 200)
    }
  }
}

extension Supervisor {
  /// Once the program is ready.
  func startHealth() {
    guard case .running = machine.state, let life, life.health == nil, !life.hasEnded,
      let target = healthTarget
    else { return }
    let number = life.number
    life.health = try? HealthMonitor(
      HealthMonitor.Plan(
        target: target, interval: configuration.healthInterval,
        timeout: configuration.healthTimeout, retries: configuration.healthRetries,
        graceUntil: life.startedMonotonic + configuration.healthStartPeriod),
      loop: loop,
      begin: { [unowned self, unowned life] result throws(ProbeFailure) in
        try probe(target, life, result)
      },
      onResult: { [unowned self, unowned life] in
        if life.health?.failures ?? 0 > 0, let words = life.health?.words {
          say("\(configuration.name) (life \(number.rawValue)): health check \(words)", .verbose)
        }
        // It is stopping of its own: it need not answer any more.
        if life.saysStopping { life.health?.stop() }
      },
      onUnhealthy: { [unowned self] in feed(.unhealthy(number)) })
  }

  private var healthTarget: HealthMonitor.Target? {
    if let command = configuration.healthExec { return .exec(command) }
    if let address = configuration.healthTCP { return .tcp(address) }
    return configuration.healthHTTP.map { .http($0) }
  }

  private func probe(
    _ target: HealthMonitor.Target, _ life: RunningLife, _ result: @escaping (ProbeResult) -> Void
  ) throws(ProbeFailure) -> Probe {
    switch target {
    case .tcp(let address):
      return try NetworkProbe(address, url: nil, loop: loop, result: result)
    case .http(let url):
      return try NetworkProbe(url.address, url: url, loop: loop, result: result)
    case .exec(let command): return try startProbe(command, life, result)
    }
  }

  private func startProbe(
    _ line: String, _ life: RunningLife, _ result: @escaping (ProbeResult) -> Void
  ) throws(ProbeFailure) -> Probe {
    let writing: SharedDescriptor
    let probe: ExecProbe
    do {
      let (from, to) = try Files.makePipe()
      writing = to
      probe = ExecProbe(try from.descriptor.duplicate(), loop: loop, result: result)
    } catch { throw ProbeFailure(words: "no pipe: \(SystemError.text(error.errno))") }
    var launch = command.launch
    launch.path = Array("/bin/sh".utf8)
    launch.arguments = ["/bin/sh", "-c", line].map { Array($0.utf8) }
    launch.environment = command.probeEnvironment(life: life.number, pid: life.pid)
    launch.signals = inherited
    launch.ownGroup = true
    launch.deathSignal = SIGKILL
    launch.descriptors = [(command.nullDescriptor, 0), (writing.raw, 1), (writing.raw, 2)]
    do {
      let child = try launch.start()
      probe.started(child)
      helpers[child.pid] = Helper(child, .probe(probe))
    } catch { throw ProbeFailure(words: error.words(launch)) }
    return probe
  }
}
