// Report → text for people. Pure. The first line says it all; the crashing thread comes first.
// Every string of the report is shown through `SafeText.oneLine`, because a terminal will show
// this file and the program chose most of the strings.

package enum ReportText {
  /// `SIGSEGV in billing::charge(int) at invoice.cpp:42, life 3 of api, up 2 h`, and where the
  /// program or its runtime said why, `Fatal error: no stock, in price() at Shop.swift:9, life …`.
  /// One line of bounded length, in which secrets are masked.
  package static func headline(_ report: Report) -> String {
    var line = what(report)
    let reason = reason(report)
    if let reason { line += ": " + reason }
    if let sender = sender(report) {
      // The line that happened to run has no part in it.
      line += " sent by " + sender
    } else if let frame = topFrame(report),
      // Where a program waits that hangs says less than why it hangs, unless it has a name.
      report.kind != .hang || reason == nil
        || frame.inApp && (frame.function ?? frame.rawFunction) != nil
    {
      var place = ""
      if let function = frame.function ?? frame.rawFunction {
        place += " in " + short(function)
      } else if let module = frame.module {
        place += " in " + short(module) + (frame.moduleOffset.map { "+" + $0 } ?? "")
      }
      if let file = frame.file {
        place += " at " + short(SafeText.lastComponent(file)) + (frame.line.map { ":\($0)" } ?? "")
      }
      line += (reason != nil && !place.isEmpty ? "," : "") + place
    }
    if report.program.role == .descendant {
      line += ", descendant \(report.program.pid) of \(report.program.name)"
    } else {
      line += ", life \(report.program.life) of \(report.program.name)"
    }
    if let uptime = report.program.uptimeSeconds {
      line += ", up " + TimeText.duration(seconds: uptime)
    }
    return SafeText.oneLine(line)
  }

  package static func render(_ report: Report) -> String {
    var page = Page()
    page.add(headline(report))
    page.add("")
    summary(report, &page)
    if let exception = report.exception { self.exception(exception, &page) }
    threads(report, &page)
    if !report.stderrTail.isEmpty {
      page.title("Last lines on stderr")
      for line in report.stderrTail {
        page.add("  \(clock(line.time))  \(SafeText.expandingTabs(line.text))")
      }
    }
    if !report.breadcrumbs.isEmpty {
      page.title("Breadcrumbs")
      // A category may have any length: one that is longer than most moves its own line only.
      let level = report.breadcrumbs.reduce(0) { max($0, $1.level.count) }
      let category = min(20, report.breadcrumbs.reduce(0) { max($0, $1.category.count) })
      for crumb in report.breadcrumbs {
        page.add(
          "  \(clock(crumb.time))  \(padded(crumb.level, level))  "
            + "\(padded(crumb.category, category))  \(crumb.message)")
      }
    }
    pairs("Annotations", report.annotations, &page)
    host(report, &page)
    process(report, &page)
    if !report.modules.isEmpty {
      page.title("Modules")
      for module in report.modules {
        page.add(
          "  \(module.base)-\(module.end)  \(module.path)"
            + (module.buildID.map { "  \($0)" } ?? ""))
      }
    }
    return page.text
  }

  private struct Page {
    var text = ""
    /// One line, whatever is in it.
    mutating func add(_ line: String) { text += SafeText.oneLine(line) + "\n" }
    mutating func title(_ line: String) {
      add("")
      add(line)
    }
    mutating func field(_ name: String, _ value: String?) {
      guard let value, !value.isEmpty else { return }
      add(name + String(repeating: " ", count: max(1, 14 - name.utf8.count)) + value)
    }
  }

  private static func padded(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(0, width - text.count))
  }

  /// Who killed it, if a signal from another process did: "bash (pid 108)".
  private static func sender(_ report: Report) -> String? {
    guard report.kind == .crash || report.kind == .killed, let signal = report.ending.signal,
      let pid = signal.senderPID, pid != report.program.pid
    else { return nil }
    return signal.senderName.map { "\($0) (pid \(pid))" } ?? "pid \(pid)"
  }

  private static func what(_ report: Report) -> String {
    switch report.kind {
    case .execFailed:
      return "exec failed" + (report.ending.startFailure.map { ": " + short($0, to: 300) } ?? "")
    case .oom: return "out of memory"
    case .hang: return "hang"
    case .crash, .killed, .exit: break
    }
    if let words = uncaught(report.exception) { return words }
    if report.exception != nil, reason(report) != nil { return short(report.exception?.type ?? "") }
    if let signal = report.ending.signal { return signal.name }
    if let exception = report.exception { return short(exception.type) }
    if let status = report.ending.exitStatus { return "exit \(status)" }
    return "ended, status unknown"
  }

  /// Why, in the words of the program or its runtime, or of guardian for a hang: the first line of
  /// them, cut. What the signal means by itself stands below.
  private static func reason(_ report: Report) -> String? {
    guard let exception = report.exception, sender(report) == nil else { return nil }
    switch report.kind {
    case .hang: break
    case .crash, .exit, .killed:
      // An optimised trap of Swift has its reason in the debug information.
      guard exception.source != .signal || exception.language == "swift",
        exception.source != .guardian
      else { return nil }
    case .execFailed, .oom: return nil
    }
    let line = exception.reason.prefix { !$0.isNewline }.drop { $0 == " " }
    guard !line.isEmpty else { return nil }
    if line.hasPrefix(exception.type) { return nil }
    // Masked before it is cut: half a secret is one too.
    let masked = Redaction().text(SafeText.cut(String(line), limit: 4096))
    return short(SafeText.expandingTabs(masked))
  }

  /// Of an exception that nobody caught, "uncaught shop::PaymentError": SIGABRT says less.
  private static func uncaught(_ exception: ExceptionFacts?) -> String? {
    guard let exception, exception.language == "c++",
      exception.source == .stderr || exception.source == .terminate,
      !["std::terminate", "pure virtual method call", ""].contains(exception.type)
    else { return nil }
    // A class has a name that speaks; "uncaught int" does not.
    let type = exception.type
    let isPlain = type.last == "*" || type.split(separator: " ").allSatisfy(plainTypes.contains)
    return (isPlain ? "uncaught exception of type " : "uncaught ") + short(type)
  }

  private static let plainTypes: Set<Substring> = [
    "bool", "char", "signed", "unsigned", "short", "int", "long", "float", "double", "__int128",
    "wchar_t", "char8_t", "char16_t", "char32_t", "const",
  ]

  /// The first frame of the program's own in the crashing thread, which in its executable need not
  /// have a name; where there is none, the first that has a name. A place that the runtime named is
  /// better than one without a name.
  package static func topFrame(_ report: Report) -> Frame? {
    let crashed = report.telling?.frames ?? []
    let own = crashed.first { frame in
      frame.inApp
        && ((frame.function ?? frame.rawFunction) != nil
          || frame.modulePath != nil && frame.modulePath == report.program.executable)
    }
    if let own, (own.function ?? own.rawFunction) != nil { return own }
    let thrown = (report.exception?.frames ?? []).filter { $0.function != nil || $0.file != nil }
    if let frame = thrown.first(where: \.inApp) ?? (own == nil ? thrown.first : nil) {
      return frame
    }
    if let own { return own }
    let named = crashed.filter { ($0.function ?? $0.rawFunction) != nil }
    return named.first { !isRaising($0) } ?? named.first ?? crashed.first
  }

  /// A function by which the C library turns a fault that was found into a signal: every abort has
  /// those on top.
  private static func isRaising(_ frame: Frame) -> Bool {
    guard var name = (frame.function ?? frame.rawFunction)?[...] else { return false }
    name = name.rest(after: "__GI_") ?? name
    while let rest = name.rest(after: "_") { name = rest }
    return ["pthread_kill", "assert_", "libc_message", "fortify_", "stack_chk_fail"]
      .contains { name.hasPrefix($0) }
      || [
        "raise", "gsignal", "abort", "kill", "tgkill", "libc_fatal", "chk_fail", "malloc_printerr",
      ].contains(name)
  }

  /// A template's name may fill pages.
  private static func short(_ function: String, to limit: Int = 120) -> String {
    function.count <= limit ? function : String(function.prefix(limit - 1)) + "…"
  }

  private static func summary(_ report: Report, _ page: inout Page) {
    page.field("id", report.id)
    page.field("time", report.time)
    page.field("program", ShellWords.text(report.program.command, limit: ReportLimits.textBytes))
    page.field("executable", report.program.executable)
    var process = "\(report.program.pid)"
    if let uid = report.program.uid { process += ", uid \(uid)" }
    if let gid = report.program.gid { process += ", gid \(gid)" }
    page.field("pid", process)
    page.field("started", report.program.startedAt)
    if let signal = report.ending.signal {
      var text = "\(signal.name) (\(signal.number))"
      if let code = signal.codeName ?? signal.code.map({ "code \($0)" }) { text += ", \(code)" }
      if let address = signal.address { text += ", address \(address)" }
      if let sender = signal.senderPID {
        text += ", sent by pid \(sender)"
        if let name = signal.senderName { text += " (\(name))" }
        if let uid = signal.senderUID { text += ", uid \(uid)" }
      }
      if report.ending.coreDumped { text += ", core dumped" }
      page.field("signal", text)
    }
    if let status = report.ending.exitStatus { page.field("exit status", "\(status)") }
    if report.ending.stopRequested { page.field("stop", "was asked for") }
    if let policy = report.policy {
      var text = policy.verdict.rawValue
      if let delay = policy.delayMilliseconds, policy.verdict == .restart {
        text += " after \(delay) ms"
      }
      page.field("verdict", text + ": " + policy.reason)
    }
    page.field("fingerprint", report.fingerprint)
    if let group = report.group {
      page.field(
        "group",
        group.count == 1
          ? "the first of its kind"
          : "\(group.count) of its kind, first \(group.firstSeen), last \(group.lastSeen)")
    }
    var capture =
      switch report.capture.threads {
      case .all: "all threads"
      case .crashing: "the crashing thread alone"
      case .none: "no threads"
      }
    capture += ", handler \(report.capture.handler)"
    if let held = report.capture.milliseconds { capture += ", held \(held) ms" }
    page.field("capture", capture)
    for defect in report.capture.defects { page.field("defect", defect) }
  }

  private static func exception(_ exception: ExceptionFacts, _ page: inout Page) {
    page.title(exception.type + (exception.reason.isEmpty ? "" : ": " + exception.reason))
    if let frames = exception.frames { self.frames(frames, &page) }
    for cause in exception.causes ?? [] {
      page.add("caused by " + cause.type + (cause.reason.isEmpty ? "" : ": " + cause.reason))
      if let frames = cause.frames { self.frames(frames, &page) }
    }
  }

  private static func threads(_ report: Report, _ page: inout Page) {
    let crashed = report.threads.filter(\.crashed)
    for thread in crashed {
      page.title("Thread \(thread.id)\(thread.name.map { " \"\($0)\"" } ?? "") crashed:")
      frames(thread.frames, &page)
      if let registers = thread.registers { self.registers(registers, &page) }
    }
    // Threads that wait at one place are told once.
    var order: [[Frame]] = []
    var alike: [[Frame]: [ThreadFacts]] = [:]
    // Without a snapshot the others are but names.
    let unknown = report.threads.allSatisfy { $0.crashed || $0.frames.isEmpty }
    for thread in report.threads where !thread.crashed && !unknown {
      let key = thread.frames.map(withoutStack)
      if alike[key] == nil { order.append(key) }
      alike[key, default: []].append(thread)
    }
    for key in order {
      let group = alike[key] ?? []
      let names = group.prefix(12).map { "\($0.id)\($0.name.map { " \"\($0)\"" } ?? "")" }
      let more = group.count > 12 ? ", … (\(group.count) threads)" : ""
      page.title(
        (group.count == 1 ? "Thread " : "\(group.count) threads alike: ")
          + names.joined(separator: ", ") + more + ":")
      frames(group[0].frames, &page)
    }
  }

  private static func withoutStack(_ frame: Frame) -> Frame {
    var frame = frame
    frame.index = 0
    return frame
  }

  private static func frames(_ frames: [Frame], _ page: inout Page) {
    var at = 0
    while at < frames.count {
      if let cycle = recursion(frames, from: at) {
        for index in at..<(at + cycle.length) { self.frame(frames[index], &page) }
        let skipped = cycle.length * (cycle.times - 1)
        page.add(
          "       … \(skipped) frames: "
            + (cycle.length == 1
              ? "the one above" : "the \(cycle.length) above") + ", \(cycle.times - 1) times more")
        at += cycle.length * cycle.times
      } else {
        self.frame(frames[at], &page)
        at += 1
      }
    }
  }

  /// Up to four functions that call each other in turn, at least three times.
  private static func recursion(_ frames: [Frame], from: Int) -> (length: Int, times: Int)? {
    for length in 1...4 {
      var times = 1
      while from + (times + 1) * length <= frames.count,
        (0..<length).allSatisfy({
          same(frames[from + $0], frames[from + times * length + $0])
        })
      {
        times += 1
      }
      if times >= 3 { return (length, times) }
    }
    return nil
  }

  private static func same(_ a: Frame, _ b: Frame) -> Bool {
    guard a.function != nil || a.rawFunction != nil else {
      return a.address != nil && a.address == b.address
    }
    return a.function == b.function && a.rawFunction == b.rawFunction && a.line == b.line
      && a.file == b.file
  }

  private static func frame(_ frame: Frame, _ page: inout Page) {
    let number = "#\(frame.index)"
    var line = "  " + number + String(repeating: " ", count: max(1, 5 - number.utf8.count))
    if let function = frame.function ?? frame.rawFunction {
      line += function
    } else {
      line += frame.address ?? "?"
    }
    if let file = frame.file {
      line += " at " + file
      if let number = frame.line { line += ":\(number)" }
      if let column = frame.column, column > 0 { line += ":\(column)" }
    } else if let offset = frame.offset, frame.function ?? frame.rawFunction != nil {
      line += " + \(offset)"
    }
    if let module = frame.module {
      line += " in " + module
      if frame.function ?? frame.rawFunction == nil, let offset = frame.moduleOffset {
        line += "+" + offset
      }
    }
    if frame.inlined { line += " (inlined)" }
    if frame.trust == .scan { line += " (guessed)" }
    page.add(line)
  }

  private static let registerOrder = [
    "rip", "rsp", "rbp", "rax", "rbx", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11",
    "r12", "r13", "r14", "r15", "eflags",
  ]

  private static func registers(_ registers: [String: String], _ page: inout Page) {
    let known = registerOrder.filter { registers[$0] != nil }
    let other = registers.keys.filter { !registerOrder.contains($0) }
      .sorted { ($0.utf8.count, $0) < ($1.utf8.count, $1) }
    var line = ""
    for (index, name) in (known + other).enumerated() {
      let cell = "\(name) \(registers[name] ?? "")"
      line += cell
      if index % 4 == 3 {
        page.add("       " + line)
        line = ""
      } else {
        line += String(repeating: " ", count: max(2, 26 - cell.utf8.count))
      }
    }
    if !line.isEmpty { page.add("       " + line) }
  }

  private static func host(_ report: Report, _ page: inout Page) {
    let host = report.host
    guard host != Host() else { return }
    page.title("Host")
    page.field("  name", host.hostname)
    page.field("  system", host.os)
    page.field(
      "  kernel", [host.kernel, host.architecture].compactMap { $0 }.joined(separator: " "))
    page.field("  cpus", host.cpus.map(String.init))
    page.field("  memory", host.memoryBytes.map(TimeText.bytes))
    page.field("  boot", host.bootID)
  }

  private static func process(_ report: Report, _ page: inout Page) {
    let process = report.process
    guard process != ProcessFacts() || report.program.workingDirectory != nil else { return }
    page.title("Process")
    page.field("  resident", process.residentBytes.map(TimeText.bytes))
    page.field("  threads", process.threads.map(String.init))
    page.field("  open files", process.openFiles.map(String.init))
    page.field("  directory", report.program.workingDirectory)
    page.field("  cgroup", process.cgroup)
    page.field("  oom kills", process.oomKills.map(String.init))
    pairs("Pressure", process.pressure ?? [:], &page)
    limits(process.limits ?? [:], &page)
    pairs("Environment", process.environment ?? [:], &page)
  }

  /// "Max open files" → "open files"; what has no limit on one line.
  private static func limits(_ values: [String: String], _ page: inout Page) {
    guard !values.isEmpty else { return }
    page.title("Limits")
    var named: [(name: String, value: String)] = values.map { name, value in
      (name.hasPrefix("Max ") ? String(name.dropFirst(4)) : name, value)
    }
    named.sort { $0.name < $1.name }
    let width = named.reduce(0) { max($0, $1.name.count) } + 2
    func row(_ name: String, _ value: String) {
      let gap = String(repeating: " ", count: max(1, width - name.count))
      page.add("  " + name + gap + value)
    }
    for (name, value) in named where value != "unlimited" { row(name, value) }
    let free = named.filter { $0.value == "unlimited" }.map(\.name)
    if !free.isEmpty { row("unlimited", free.joined(separator: ", ")) }
  }

  private static func pairs(_ title: String, _ values: [String: String], _ page: inout Page) {
    guard !values.isEmpty else { return }
    page.title(title)
    for (name, value) in values.sorted(by: { $0.key < $1.key }) { page.add("  \(name)=\(value)") }
  }

  /// Of an RFC 3339 text the time of day: the day stands above.
  private static func clock(_ time: String) -> String {
    guard time.utf8.count == 27 else { return time }
    return String(time.dropFirst(11).dropLast(1))
  }
}
