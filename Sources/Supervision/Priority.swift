// guardian goes before the program: beside 31 busy threads on two processors it would wait tens of
// milliseconds for each of its turns, and the program with it. It needs next to no time itself.
import CLinux
import Glibc

enum Priority {
  /// As guardian was started (getpriority(2)); everything it starts gets this back.
  static let inherited = getpriority(process, 0)

  /// The lowest nice value this process may have; 0 or more: it may not go below.
  static var lowest: Int32 { geteuid() == 0 ? -20 : linux_lowest_nice() }

  /// Whether guardian itself runs at another priority than it was started with.
  nonisolated(unsafe) private(set) static var isRaised = false

  /// Allowed to fail: root without CAP_SYS_NICE, or anybody without RLIMIT_NICE, goes on as it is.
  static func raise() {
    let wanted = lowest
    if wanted < inherited, setpriority(process, 0, wanted) == 0 { unsafe isRaised = true }
  }

  /// For a program that is executed in guardian's place, which begins with this again.
  static func restore() {
    if unsafe isRaised { _ = setpriority(process, 0, inherited) }
  }

  /// Allowed to fail.
  static func give(_ nice: Int32, to pid: Int32) { _ = setpriority(process, id_t(pid), nice) }

  private static var process: __priority_which_t { __priority_which_t(PRIO_PROCESS.rawValue) }
}
