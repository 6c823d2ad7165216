// Signals and their codes by name: signal(7), sigaction(2), asm-generic/siginfo.h. Pure. The
// numbers are those of x86-64 and AArch64, which are the same.

package enum SignalNames {
  package static func name(_ number: Int32) -> String {
    if let name = names[number] { return name }
    if number >= 34, number <= 64 { return number == 34 ? "SIGRTMIN" : "SIGRTMIN+\(number - 34)" }
    return "signal \(number)"
  }

  /// Default action "core", and what the handler owns beside: an ending by one of these is a
  /// crash of the program itself.
  package static func isCrash(_ number: Int32) -> Bool {
    switch number {
    case 3, 4, 5, 6, 7, 8, 11, 16, 24, 25, 31: true
    default: false
    }
  }

  /// SI_USER, SI_QUEUE, SI_TKILL, …: somebody sent it; `si_addr` is then not an address, and
  /// pid and uid of the sender are there. SI_KERNEL (128) is a fault whose address the
  /// processor did not tell.
  package static func wasSent(code: Int32) -> Bool { code <= 0 }

  package static func codeName(signal: Int32, code: Int32) -> String? {
    switch code {
    case 0: return "SI_USER"
    case 128: return "SI_KERNEL"
    case -1: return "SI_QUEUE"
    case -2: return "SI_TIMER"
    case -3: return "SI_MESGQ"
    case -4: return "SI_ASYNCIO"
    case -5: return "SI_SIGIO"
    case -6: return "SI_TKILL"
    case -60: return "SI_ASYNCNL"
    default: return code > 0 ? codes[signal].flatMap { $0.named(code) } : nil
    }
  }

  private struct Codes: Sendable {
    let prefix: String
    let words: [String]
    init(_ prefix: String, _ words: String...) {
      self.prefix = prefix
      self.words = words
    }
    func named(_ code: Int32) -> String? {
      Int(code) <= words.count ? prefix + words[Int(code) - 1] : nil
    }
  }

  private static let codes: [Int32: Codes] = [
    4: Codes(
      "ILL_", "ILLOPC", "ILLOPN", "ILLADR", "ILLTRP", "PRVOPC", "PRVREG", "COPROC", "BADSTK"),
    5: Codes("TRAP_", "BRKPT", "TRACE", "BRANCH", "HWBKPT", "UNK", "PERF"),
    7: Codes("BUS_", "ADRALN", "ADRERR", "OBJERR", "MCEERR_AR", "MCEERR_AO"),
    8: Codes(
      "FPE_", "INTDIV", "INTOVF", "FLTDIV", "FLTOVF", "FLTUND", "FLTRES", "FLTINV", "FLTSUB"),
    11: Codes(
      "SEGV_", "MAPERR", "ACCERR", "BNDERR", "PKUERR", "ACCADI", "ADIDERR", "ADIPERR", "MTEAERR",
      "MTESERR", "CPERR"),
    17: Codes("CLD_", "EXITED", "KILLED", "DUMPED", "TRAPPED", "STOPPED", "CONTINUED"),
    29: Codes("POLL_", "IN", "OUT", "MSG", "ERR", "PRI", "HUP"),
    31: Codes("SYS_", "SECCOMP", "USER_DISPATCH"),
  ]

  private static let names: [Int32: String] = [
    1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS",
    8: "SIGFPE", 9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE",
    14: "SIGALRM", 15: "SIGTERM", 16: "SIGSTKFLT", 17: "SIGCHLD", 18: "SIGCONT", 19: "SIGSTOP",
    20: "SIGTSTP", 21: "SIGTTIN", 22: "SIGTTOU", 23: "SIGURG", 24: "SIGXCPU", 25: "SIGXFSZ",
    26: "SIGVTALRM", 27: "SIGPROF", 28: "SIGWINCH", 29: "SIGIO", 30: "SIGPWR", 31: "SIGSYS",
  ]

  /// x86-64 exceptions by vector (Intel SDM volume 3, chapter 6).
  package static func trapName(_ number: UInt64) -> String? {
    switch number {
    case 0: "divide error"
    case 1: "debug"
    case 3: "breakpoint"
    case 4: "overflow"
    case 5: "bound range exceeded"
    case 6: "invalid opcode"
    case 7: "device not available"
    case 8: "double fault"
    case 11: "segment not present"
    case 12: "stack-segment fault"
    case 13: "general protection"
    case 14: "page fault"
    case 16: "x87 floating-point"
    case 17: "alignment check"
    case 18: "machine check"
    case 19: "SIMD floating-point"
    case 21: "control protection"
    default: nil
    }
  }
}
