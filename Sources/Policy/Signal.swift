/// A signal by its number on Linux, x86-64 and AArch64 (signal(7)). This target imports no
/// libc, so the numbers and names stand here; a test elsewhere may compare them with libc's.
package struct Signal: RawRepresentable, Hashable, Sendable {
  package let rawValue: Int32
  package init(rawValue: Int32) { self.rawValue = rawValue }

  package static let hup = Signal(rawValue: 1)
  package static let int = Signal(rawValue: 2)
  package static let quit = Signal(rawValue: 3)
  package static let ill = Signal(rawValue: 4)
  package static let trap = Signal(rawValue: 5)
  package static let abrt = Signal(rawValue: 6)
  package static let bus = Signal(rawValue: 7)
  package static let fpe = Signal(rawValue: 8)
  package static let kill = Signal(rawValue: 9)
  package static let usr1 = Signal(rawValue: 10)
  package static let segv = Signal(rawValue: 11)
  package static let usr2 = Signal(rawValue: 12)
  package static let pipe = Signal(rawValue: 13)
  package static let alrm = Signal(rawValue: 14)
  package static let term = Signal(rawValue: 15)
  package static let stkflt = Signal(rawValue: 16)
  package static let cont = Signal(rawValue: 18)
  package static let stop = Signal(rawValue: 19)
  package static let xcpu = Signal(rawValue: 24)
  package static let xfsz = Signal(rawValue: 25)
  package static let sys = Signal(rawValue: 31)

  private static let names = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
  ]

  /// "SIGSEGV"; "SIGRTMIN+3" for real-time signals (glibc's SIGRTMIN is 34); else "signal 99".
  package var name: String {
    if rawValue >= 1, rawValue <= 31 { return "SIG" + Signal.names[Int(rawValue) - 1] }
    if rawValue == 34 { return "SIGRTMIN" }
    if rawValue > 34, rawValue <= 64 { return "SIGRTMIN+\(rawValue - 34)" }
    return "signal \(rawValue)"
  }

  /// From "SEGV", "SIGSEGV", "sigsegv", "RTMIN+3" or "11"; nil for anything else.
  package init?(name: String) {
    var text = name.uppercased()
    if let number = Int32(text) {
      guard number >= 1, number <= 64 else { return nil }
      self.init(rawValue: number)
      return
    }
    if text.hasPrefix("SIG") { text.removeFirst(3) }
    if let index = Signal.names.firstIndex(of: text) {
      self.init(rawValue: Int32(index) + 1)
      return
    }
    guard text.hasPrefix("RTMIN") else { return nil }
    text.removeFirst(5)
    if text.isEmpty {
      self.init(rawValue: 34)
      return
    }
    guard text.hasPrefix("+"), let plus = Int32(text.dropFirst()), plus >= 1, plus <= 30 else {
      return nil
    }
    self.init(rawValue: 34 + plus)
  }

  /// Nobody who ends a program on purpose sends one of these: it tells of a fault in the
  /// program, or of a limit that it hit. Their default action is a core dump (signal(7)).
  package var tellsOfCrash: Bool {
    switch self {
    case .quit, .ill, .trap, .abrt, .bus, .fpe, .segv, .stkflt, .xcpu, .xfsz, .sys: true
    default: false
    }
  }
}
