// The two ends of the process: what it was given, and how it leaves.
import CLinux
import CSpawn
import Glibc
import Kernel
import Policy

/// Signal dispositions and mask as guardian was started with them.
package struct StartConditions {
  let signals: guardian_signal_state
  /// To be called before anything could change them.
  package static func save() -> StartConditions {
    // A descriptor below 3 that is closed would be the next file that guardian opens, and the
    // program's standard input.
    while true {
      let number = unsafe guardian_open("/dev/null", O_RDWR)
      if number > 2 { close(number) }
      if number > 2 || number < 0 { break }
    }
    return StartConditions(signals: guardian_signal_state_save())
  }
}

package enum ProcessVectors {
  /// Bytes: they need not be UTF-8. Of the kernel: the Swift runtime looks for them before the
  /// environment, which a preloaded library that sets a variable (libfaketime) has moved.
  package static var arguments: [[UInt8]] {
    if let bytes = try? Files.read("/proc/self/cmdline", limit: 8 << 20), bytes.last == 0 {
      return bytes.dropLast().split(separator: 0, omittingEmptySubsequences: false).map(Array.init)
    }
    return unsafe CStrings.bytes(of: CommandLine.unsafeArgv)
  }
  package static var environment: [[UInt8]] { unsafe CStrings.bytes(of: environ) }

  package static func texts(_ environment: [[UInt8]]) -> [String: String] {
    var result: [String: String] = [:]
    for entry in environment {
      guard let equals = entry.firstIndex(of: UInt8(ascii: "=")) else { continue }
      let name = String(decoding: entry[..<equals], as: UTF8.self)
      // getenv(3) finds the first.
      if result[name] == nil {
        result[name] = String(decoding: entry[(equals + 1)...], as: UTF8.self)
      }
    }
    return result
  }

  package static func complain(_ text: String) {
    let bytes = Array(text.utf8)
    _ = unsafe bytes.withUnsafeBytes { unsafe write(2, $0.baseAddress, $0.count) }
  }
}

package enum Departure {
  package static func leave(_ how: Leave) -> Never {
    switch how {
    case .exit(let code): exit(code)
    case .signal(let number):
      // Its own core would be guardian's, not the program's.
      var limit = rlimit()
      unsafe setrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
      _ = signal(number.rawValue, SIG_DFL)
      var set = sigset_t()
      unsafe sigemptyset(&set)
      unsafe sigaddset(&set, number.rawValue)
      unsafe sigprocmask(SIG_UNBLOCK, &set, nil)
      kill(getpid(), number.rawValue)
      exit(128 + number.rawValue)
    }
  }
}
