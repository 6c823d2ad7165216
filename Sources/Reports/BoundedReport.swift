// A report that is never larger than its limits: lists are cut, and what was cut is a defect.

extension Report {
  /// The report's JSON, at most `ReportLimits.jsonBytes`; `self` is changed to what was
  /// written.
  package mutating func boundedJSON(
    limit: Int = ReportLimits.jsonBytes
  ) throws(JSONTextError) -> [UInt8] {
    applyLimits()
    var bytes = try JSONText.encode(self)
    var round = 0
    while bytes.count > limit, round < 64 {
      shrink(byAtLeast: bytes.count - limit)
      bytes = try JSONText.encode(self)
      round += 1
    }
    return bytes
  }

  private mutating func defect(_ text: String) {
    if capture.defects.count < ReportLimits.defects { capture.defects.append(text) }
  }

  private mutating func applyLimits() {
    if capture.defects.count > ReportLimits.defects {
      let more = capture.defects.count - ReportLimits.defects + 1
      capture.defects.removeLast(more)
      capture.defects.append("\(more) further defects")
    }
    if threads.count > ReportLimits.threads {
      defect("threads: \(threads.count - ReportLimits.threads) of \(threads.count) left out")
      threads = Array(crashedFirst(threads).prefix(ReportLimits.threads))
    }
    for index in threads.indices { trimFrames(index) }
    if modules.count > ReportLimits.modules {
      defect("modules: \(modules.count - ReportLimits.modules) of \(modules.count) left out")
      modules.removeLast(modules.count - ReportLimits.modules)
    }
  }

  private func crashedFirst(_ threads: [ThreadFacts]) -> [ThreadFacts] {
    threads.filter(\.crashed) + threads.filter { !$0.crashed }
  }

  private mutating func trimFrames(_ index: Int) {
    let frames = threads[index].frames
    let kept = ReportLimits.newestFrames + ReportLimits.oldestFrames
    guard frames.count > kept else { return }
    if threads[index].crashed {
      defect("frames: \(frames.count - kept) of \(frames.count) in the middle left out")
    }
    threads[index].frames =
      Array(frames.prefix(ReportLimits.newestFrames) + frames.suffix(ReportLimits.oldestFrames))
  }

  /// Halves what costs most, the least valuable first.
  private mutating func shrink(byAtLeast excess: Int) {
    func half(_ count: Int) -> Int { (count + 1) / 2 }
    let reason = "left out: the report is limited to \(ReportLimits.jsonBytes >> 20) MiB"
    let sizes: [(weight: Int, list: Int)] = [
      (threads.dropFirst().reduce(0) { $0 + $1.frames.count * 400 + 200 }, 0),
      (modules.count * 250, 1),
      (breadcrumbs.reduce(0) { $0 + $1.message.utf8.count * 2 + 200 }, 2),
      (stderrTail.reduce(0) { $0 + $1.text.utf8.count * 2 + 100 }, 3),
      (process.environment?.reduce(0) { $0 + $1.value.utf8.count * 2 + 50 } ?? 0, 4),
      (annotations.reduce(0) { $0 + $1.value.utf8.count * 2 + 50 }, 5),
      (program.command.reduce(0) { $0 + $1.utf8.count * 2 + 10 }, 6),
    ]
    switch sizes.max(by: { $0.weight < $1.weight })?.list {
    case 0:
      let kept = half(threads.count)
      defect("threads: \(threads.count - kept) of \(threads.count) \(reason)")
      threads = Array(crashedFirst(threads).prefix(kept))
    case 1:
      let kept = half(modules.count) - 1
      defect("modules: \(modules.count - kept) of \(modules.count) \(reason)")
      modules = Array(modules.prefix(kept))
    case 2:
      let kept = half(breadcrumbs.count) - 1
      defect("breadcrumbs: the oldest \(breadcrumbs.count - kept) \(reason)")
      breadcrumbs = Array(breadcrumbs.suffix(kept))
    case 3:
      let kept = half(stderrTail.count) - 1
      defect("stderr: the oldest \(stderrTail.count - kept) lines \(reason)")
      stderrTail = Array(stderrTail.suffix(kept))
    case 4:
      defect("environment \(reason)")
      process.environment = nil
    case 5:
      defect("annotations \(reason)")
      annotations = [:]
    default:
      defect("command: arguments \(reason)")
      program.command = Array(program.command.prefix(1))
    }
  }
}
