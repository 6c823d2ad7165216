// The metrics file: replaced in one step, at changes and now and then. It is for show: whatever
// goes wrong with it is said once and stops nothing.
import Control
import Glibc
import Kernel

final class MetricsFile {
  private let path: String
  private let make: () -> Metrics
  private let complain: (String) -> Void
  private var timer: EventLoop.Timer?
  private var lastWrite: Duration?
  private var isDue = false
  private var hasComplained = false

  /// `make` is asked when something is to be written.
  init(
    _ path: String, loop: EventLoop, make: @escaping () -> Metrics,
    complain: @escaping (String) -> Void
  ) {
    self.path = path
    self.make = make
    self.complain = complain
    timer = try? loop.timer(CLOCK_MONOTONIC) { [unowned self] in due() }
  }

  /// Something changed. A row of quick restarts is written once.
  func changed() {
    if isDue { return }
    if let lastWrite, Clock.monotonic - lastWrite < Limit.metricsPause {
      isDue = true
      timer?.set(at: lastWrite + Limit.metricsPause)
    } else {
      isDue = true
      due()
    }
  }

  private func due() {
    // A program that has just begun uses nothing yet: soon again.
    let next = isDue ? Limit.metricsSoon : Limit.metricsInterval
    isDue = false
    write(make())
    timer?.set(after: next)
  }

  /// Not synchronised with the disk: after a power loss other numbers hold anyway.
  func write(_ metrics: Metrics) {
    lastWrite = Clock.monotonic
    do {
      // The node exporter runs as another user. Only a plain file or nothing may be replaced.
      if let status = try? Files.status(path, follow: false), !status.isRegular {
        throw SystemError("replace the metrics file", path, errno: EEXIST)
      }
      // The collector reads names that end in .prom: the draft must not.
      try Files.replace(path, with: Array(metrics.text.utf8), mode: 0o644)
      hasComplained = false
    } catch {
      if hasComplained { return }
      hasComplained = true
      complain("\(error): the metrics are not written; supervision goes on")
    }
  }
}
