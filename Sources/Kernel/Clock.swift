// The clocks, in nanoseconds. Which of them a decision is measured on is not decided here.
import Glibc

package enum Clock {
  /// Nanoseconds.
  package static func read(_ clock: clockid_t) -> Int64 {
    var time = timespec()
    _ = unsafe clock_gettime(clock, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
  }
  /// Since boot, suspend included.
  package static var boot: Duration { .nanoseconds(read(CLOCK_BOOTTIME)) }
  /// Since boot, suspend excluded.
  package static var monotonic: Duration { .nanoseconds(read(CLOCK_MONOTONIC)) }
  /// Since the epoch, nanoseconds: only for show.
  package static var wall: Int64 { read(CLOCK_REALTIME) }
}

extension Clock {
  /// Lets others run for so long; a signal may cut it short.
  package static func pause(_ length: Duration) {
    let parts = length.components
    var wanted = timespec(
      tv_sec: Int(parts.seconds), tv_nsec: Int(parts.attoseconds / 1_000_000_000))
    _ = unsafe nanosleep(&wanted, nil)
  }
}

extension Duration {
  /// Rounded up; at least 0.
  package var milliseconds: Int64 {
    let (seconds, attoseconds) = components
    return max(0, seconds * 1000 + (attoseconds + 999_999_999_999_999) / 1_000_000_000_000_000)
  }
}
