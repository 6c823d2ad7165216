// What a running guardian leaves for the binary that is executed in its place: facts by name in a
// sealed memory file, and the numbers of descriptors that stay open across exec. The process, its
// children and its lock stay what they are.
import CLinux
import CSpawn
import Glibc
import Kernel
import Policy
import Settings

package struct Handover {
  /// Names the memory file's descriptor.
  static let variable = "GUARDIAN_HANDOVER"
  private static let limit = 16 << 20

  private var facts: [String: [UInt8]] = [:]
  /// The descriptors among the facts: they stay open across exec.
  private(set) var kept: [Int32] = []
  /// false: there is something, but in no form that this binary knows.
  private(set) var isReadable = true

  package init() {}

  // MARK: facts

  package subscript(key: String) -> [UInt8]? {
    get { facts[key] }
    set { facts[key] = newValue }
  }
  package func text(_ key: String) -> String? {
    facts[key].flatMap { String(validating: $0, as: UTF8.self) }
  }
  package mutating func set(_ key: String, _ text: String?) {
    if let text { facts[key] = Array(text.utf8) }
  }
  package mutating func set(_ key: String, _ number: (some FixedWidthInteger)?) {
    if let number { set(key, String(number)) }
  }
  package mutating func set(_ key: String, _ time: Duration?) { set(key, time?.nanoseconds) }
  package mutating func set(_ key: String, _ flag: Bool) { if flag { set(key, "yes") } }
  mutating func keep(_ key: String, _ descriptor: Int32) {
    set(key, descriptor)
    kept.append(descriptor)
  }
  package func number(_ key: String) -> Int64? { text(key).flatMap { Int64($0) } }
  package func time(_ key: String) -> Duration? { number(key).map { .nanoseconds($0) } }
  package func flag(_ key: String) -> Bool { facts[key] != nil }
  /// An open descriptor's number.
  func descriptor(_ key: String) -> Int32? {
    guard let number = number(key), number > 2, number < 1 << 20,
      guardian_set_close_on_exec(Int32(number), true)
    else { return nil }
    return Int32(number)
  }

  /// Sockets that guardian had opened, by address.
  var listening: [String: Int32] {
    var found: [String: Int32] = [:]
    for index in 0..<Configuration.listenLimit {
      guard let address = text("listen-address-\(index)"),
        let number = descriptor("listen-\(index)")
      else { break }
      found[address] = number
    }
    return found
  }

  // MARK: bytes

  package var bytes: [UInt8] {
    var bytes = Array((guardianHandover + "\n").utf8)
    for (key, value) in facts.sorted(by: { $0.key < $1.key }) {
      bytes += Array("\(key) \(value.count)\n".utf8) + value + [10]
    }
    return bytes + Array("end\n".utf8)
  }

  /// nil: not in this form.
  package init?(_ bytes: [UInt8]) {
    var rest = bytes[...]
    func line() -> String? {
      guard let end = rest.prefix(256).firstIndex(of: 10) else { return nil }
      defer { rest = rest[(end + 1)...] }
      return String(validating: rest[..<end], as: UTF8.self)
    }
    guard line() == guardianHandover else { return nil }
    while true {
      guard let head = line() else { return nil }
      if head == "end" { break }
      let words = head.split(separator: " ", omittingEmptySubsequences: false)
      guard words.count == 2, let count = Int(words[1]), count >= 0, count < rest.count,
        rest[rest.startIndex + count] == 10,
        facts.updateValue(Array(rest.prefix(count)), forKey: String(words[0])) == nil
      else { return nil }
      rest = rest.dropFirst(count + 1)
    }
    if !rest.isEmpty { return nil }
  }

  // MARK: across exec

  /// The number of a memory file with these facts.
  func seal() throws(SystemError) -> Int32 {
    let bytes = bytes
    return try retrying("keep what is handed over") {
      unsafe bytes.withUnsafeBytes {
        unsafe guardian_sealed_memory("guardian-handover", $0.baseAddress, $0.count)
      }
    }
  }

  /// Who this is for: a variable that was inherited from elsewhere means nothing.
  static var addressee: String {
    "\(getpid()) \(Processes.startTime(of: getpid()) ?? 0) \(LifeRecord.currentBoot)"
  }

  /// Taken from the environment, once. nil: there is none.
  package static func received() -> Handover? {
    guard let value = unsafe getenv(variable) else { return nil }
    let text = unsafe String(cString: value)
    _ = unsafe unsetenv(variable)
    guard let number = Int32(text), number > 2, guardian_is_sealed_memory(number) else {
      return nil
    }
    let file = FileDescriptor(owning: number)
    let bytes = (try? file.read(count: limit, at: 0)) ?? []
    if let handover = Handover(bytes) {
      return handover.text("addressee") == addressee ? handover : nil
    }
    // The lock among them: it is taken anew.
    let listening =
      unsafe getenv("LISTEN_PID").flatMap { unsafe Int32(String(cString: $0)) } == getpid()
      ? unsafe getenv("LISTEN_FDS").flatMap { unsafe Int32(String(cString: $0)) } ?? 0 : 0
    for number in (3 + max(0, min(listening, 32)))..<1024 { _ = close(number) }
    ProcessVectors.complain(
      "guardian: what the guardian before this one handed over cannot be read: looking for the "
        + "program by its life file\n")
    var unreadable = Handover()
    unreadable.isReadable = false
    return unreadable
  }

  // MARK: what is needed first

  /// The program's signal state: this process's own is guardian's.
  var signals: guardian_signal_state? {
    guard let ignored = text("ignored").flatMap({ UInt64($0) }),
      let blocked = text("blocked").flatMap({ UInt64($0) })
    else { return nil }
    return guardian_signal_state(ignored: ignored, blocked: blocked, settled: 0)
  }

  /// The folders stay those in use, whatever the options say by now.
  func instance(_ configuration: inout Configuration) -> Instance? {
    guard isReadable, let runtime = text("runtime"), let state = text("state-directory"),
      let lock = descriptor("lock")
    else { return nil }
    if !configuration.nameIsGiven, let name = text("name"), name != configuration.name {
      let first = configuration
      for attempt in 2...Limit.nameAttempts where configuration.name != name {
        configuration = first
        configuration.number(attempt)
      }
      if configuration.name != name { configuration = first }
    }
    configuration.givenRuntimeDirectory = runtime
    configuration.givenStateDirectory = state
    return Instance.resume(runtime, lock: lock)
  }
}

// MARK: values

extension Handover {
  package mutating func set(_ standing: ServiceMachine.Standing) {
    switch standing {
    case .living(let life, let started, let isReady, let until, let watchdog):
      set("standing", "living")
      set("life", life.rawValue)
      set("started-boot", started.boot)
      set("started-monotonic", started.monotonic)
      set("ready", isReady)
      set("until", until)
      set("watchdog", watchdog)
    case .waiting(let until):
      set("standing", "waiting")
      set("until", until)
    case .stopped: set("standing", "stopped")
    }
  }

  package var bystanders: [Int32: UInt64] {
    var result: [Int32: UInt64] = [:]
    for word in (text("bystanders") ?? "").split(separator: " ") {
      let parts = word.split(separator: ":")
      if parts.count == 2, let pid = Int32(parts[0]), let start = UInt64(parts[1]) {
        result[pid] = start
      }
    }
    return result
  }

  /// What the times of `standing` are behind CLOCK_MONOTONIC.
  package var lostTime: Duration? { time("lost-time") }

  package var standing: ServiceMachine.Standing? {
    switch text("standing") {
    case "living":
      guard let life = number("life").flatMap({ UInt32(exactly: $0) }),
        let boot = time("started-boot"), let monotonic = time("started-monotonic")
      else { return nil }
      return .living(
        Life(rawValue: life), started: Now(boot: boot, monotonic: monotonic),
        isReady: flag("ready"), until: time("until"), watchdog: time("watchdog"))
    case "waiting": return time("until").map { .waiting(until: $0) }
    case "stopped": return .stopped
    default: return nil
    }
  }

  private static let causes: [(String, Ending.Cause)] = [
    ("own", .own), ("out-of-memory", .outOfMemory), ("watchdog", .watchdog),
    ("start-timeout", .startTimeout), ("health", .health), ("stop-timeout", .stopTimeout),
    ("detached", .detached), ("machine-down", .machineDown), ("guardian-died", .guardianDied),
  ]

  package mutating func set(_ ending: Ending) {
    switch ending.status {
    case .exited(let code): set("ended", "exited \(code)")
    case .signaled(let signal, let dumped):
      set("ended", "signaled \(signal.rawValue) \(dumped ? 1 : 0)")
    case .execFailed(let errno): set("ended", "exec-failed \(errno)")
    case .unknown: set("ended", "unknown")
    }
    set("cause", Self.causes.first { $0.1 == ending.cause }?.0)
  }

  package var ending: Ending? {
    guard let words = text("ended")?.split(separator: " "), let kind = words.first else {
      return nil
    }
    let numbers = words.dropFirst().compactMap { Int32($0) }
    let status: Ending.Status
    switch (kind, numbers.count) {
    case ("exited", 1): status = .exited(numbers[0])
    case ("signaled", 2):
      status = .signaled(Signal(rawValue: numbers[0]), coreDumped: numbers[1] == 1)
    case ("exec-failed", 1): status = .execFailed(errno: numbers[0])
    case ("unknown", 0): status = .unknown
    default: return nil
    }
    let cause = Self.causes.first { $0.0 == text("cause") }?.1 ?? .own
    return Ending(status: status, cause: cause)
  }

  package mutating func set(_ verdict: Verdict) {
    switch verdict.decision {
    case .restart(let after): set("verdict", "restart \(after.nanoseconds)")
    case .stop: set("verdict", "stop")
    case .giveUp: set("verdict", "give-up")
    }
    set("verdict-failures", verdict.failures)
    set("verdict-cap", verdict.maxCrashes)
    set("verdict-window", verdict.window)
    set("verdict-reason", verdict.reason)
  }

  package var verdict: Verdict? {
    guard let words = text("verdict")?.split(separator: " "), let kind = words.first,
      let failures = number("verdict-failures"), let reason = text("verdict-reason")
    else { return nil }
    let decision: Verdict.Decision
    switch kind {
    case "restart": decision = .restart(after: .nanoseconds(Int64(words.last!) ?? 0))
    case "stop": decision = .stop
    case "give-up": decision = .giveUp
    default: return nil
    }
    return Verdict(
      decision: decision, failures: Int(failures),
      maxCrashes: number("verdict-cap").map { Int($0) }, window: time("verdict-window"),
      reason: reason)
  }

  /// Lines as "TIME LENGTH", a line end, the bytes, a line end.
  package mutating func set(_ key: String, _ tail: OutputTail?) {
    guard let tail else { return }
    var bytes: [UInt8] = []
    for line in tail.all {
      bytes += Array("\(line.time) \(line.bytes.count)\n".utf8) + line.bytes + [10]
    }
    self[key] = bytes
  }

  package func tail(_ key: String) -> OutputTail? {
    guard var rest = self[key]?[...] else { return nil }
    var tail = OutputTail()
    while let end = rest.firstIndex(of: 10) {
      let words = String(decoding: rest[..<end], as: UTF8.self).split(separator: " ")
      guard words.count == 2, let time = Int64(words[0]), let count = Int(words[1]), count >= 0,
        count < rest.endIndex - end - 1
      else { return tail }
      let start = end + 1
      tail.append(rest[start...(start + count)], at: time)
      rest = rest[(start + count + 1)...]
    }
    return tail
  }
}
