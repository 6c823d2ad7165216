/// One reading of the clocks. Windows and stability are measured on `boot`
/// (CLOCK_BOOTTIME, goes on in suspend), timeouts on `monotonic` (CLOCK_MONOTONIC).
/// The wall clock is only for show and never reaches a decision.
package struct Now: Hashable, Sendable {
  /// Since boot, suspend included.
  package let boot: Duration
  /// Since boot, suspend excluded.
  package let monotonic: Duration
  package init(boot: Duration, monotonic: Duration) {
    self.boot = boot
    self.monotonic = monotonic
  }
}
