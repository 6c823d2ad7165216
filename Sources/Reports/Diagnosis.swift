// What a signal means, in one sentence. Pure: from siginfo, registers and the processor's own
// error code.

package struct Diagnosis: Sendable {
  package var signal: Int32
  package var code: Int32
  package var address: UInt64
  package var pc: UInt64
  package var sp: UInt64
  /// x86-64 only.
  package var trapNumber: UInt64?
  package var errorCode: UInt64?
  /// Name → value, for the register that held a bad address.
  package var registers: [(name: String, value: UInt64)] = []
  package var siginfo: [UInt8] = []
  package var ownPID: Int32
  package var senderPID: Int32?
  package var senderUID: UInt32?
  package var senderName: String?

  package init(signal: Int32, code: Int32, ownPID: Int32) {
    self.signal = signal
    self.code = code
    self.ownPID = ownPID
    address = 0
    pc = 0
    sp = 0
  }

  /// Below this an address is a null pointer and a field's offset (vm.mmap_min_addr).
  private static let nullBytes: UInt64 = 64 << 10
  /// How far from the stack pointer a fault still is the stack's own growth.
  private static let stackReach: UInt64 = 64 << 10

  private var isFault: Bool { !SignalNames.wasSent(code: code) }
  private var isPageFault: Bool { trapNumber == nil || trapNumber == 14 }
  /// Page-fault error code, Intel SDM volume 3, 4.7: bit 1 write, bit 4 instruction fetch.
  private var wasWrite: Bool? { isPageFault ? errorCode.map { $0 & 2 != 0 } : nil }

  /// May `ending.signal.address` be shown? Not for a signal that was sent, nor where the
  /// processor tells none.
  package var hasAddress: Bool {
    isFault && code != 128 && [4, 5, 7, 8, 11].contains(signal)
  }

  package var sentence: String {
    if !isFault, signal != 25 { return sent }
    switch signal {
    case 11: return segmentation
    case 7: return bus
    case 8: return arithmetic
    case 4:
      return
        "illegal instruction at \(SafeText.hex(pc)): a trap that the compiler placed, or code of another processor"
    case 5: return "breakpoint or trap instruction at \(SafeText.hex(pc))"
    case 31: return seccomp
    case 24: return "the limit of CPU time was reached"
    case 25:
      // The kernel sends it as if the program had done so itself.
      return !isFault && senderPID != nil && senderPID != ownPID
        ? sent : "the limit of a file's size was reached"
    case 13: return "write to a pipe or socket that nobody reads any more"
    default: return "\(SignalNames.name(signal)) from the kernel"
    }
  }

  private var sent: String {
    let name = SignalNames.name(signal)
    guard let senderPID, senderPID != 0 else {
      return code == -2 ? "\(name) from a timer" : "\(name) was sent"
    }
    if senderPID == ownPID {
      return signal == 6 ? "the program called abort()" : "the program sent \(name) to itself"
    }
    var sender = "pid \(senderPID)"
    if let senderName { sender += " (\(senderName))" }
    if let senderUID { sender += ", uid \(senderUID)" }
    return "\(name) was sent by \(sender)"
  }

  private var segmentation: String {
    let at = SafeText.hex(address)
    if code == 128 { return generalProtection }
    if sp < Self.nullBytes, address < Self.nullBytes, sp &- address < Self.nullBytes, pc != address
    {
      return "the stack pointer is \(SafeText.hex(sp)): no stack"
    }
    if pc == address || (errorCode.map { $0 & 16 != 0 } ?? false) && isPageFault {
      if address < Self.nullBytes {
        return address == 0
          ? "call of a null function pointer" : "call of a null function pointer (\(at))"
      }
      return code == 2
        ? "execution of non-executable memory at \(at)" : "jump to unmapped memory at \(at)"
    }
    let access = wasWrite.map { $0 ? "write to" : "read of" } ?? "access to"
    if address < Self.nullBytes { return "null pointer dereference: \(access) address \(at)" }
    if sp >= Self.nullBytes,
      address >= sp &- min(sp, Self.stackReach), address <= sp &+ Self.stackReach
    {
      return "stack overflow: \(access) \(at), the stack pointer is \(SafeText.hex(sp))"
    }
    switch code {
    case 2:
      return wasWrite == true
        ? "write to read-only memory at \(at)" : "\(access) protected memory at \(at)"
    case 3: return "\(access) memory beyond its bounds at \(at)"
    case 4: return "\(access) memory that a protection key forbids at \(at)"
    case 8, 9: return "\(access) memory of another tag at \(at)"
    case 10: return "a return address was changed (shadow stack)"
    default: return "\(access) unmapped memory at \(at)"
    }
  }

  /// The kernel has no address then: it stands in the register of the faulting instruction.
  private var generalProtection: String {
    let bad = registers.filter { register in
      guard register.name != "eflags", register.name != "rip" else { return false }
      // Canonical: bits 63…47 are equal.
      let top = register.value >> 47
      return top != 0 && top != 0x1ffff
    }
    if let first = bad.first {
      return
        "access to a non-canonical address (\(first.name) = \(SafeText.hex(first.value)))"
    }
    return trapNumber == 13
      ? "general protection fault: misaligned vector access or privileged instruction"
      : "fault without an address"
  }

  private var bus: String {
    switch code {
    case 1: "misaligned memory access"
    case 2: "access beyond the end of a mapped file at \(SafeText.hex(address))"
    case 4, 5: "the memory itself is broken (machine check) at \(SafeText.hex(address))"
    default: "bus error at \(SafeText.hex(address))"
    }
  }

  private var arithmetic: String {
    switch code {
    case 1: "integer division by zero, or its result does not fit"
    case 2: "integer overflow"
    case 3: "floating-point division by zero"
    case 4: "floating-point overflow"
    case 5: "floating-point underflow"
    case 6: "inexact floating-point result"
    case 7: "invalid floating-point operation"
    default: "arithmetic error"
    }
  }

  private var seccomp: String { Self.seccomp(systemCall?.number, name: nil) }

  /// The call that was forbidden; nil for any other signal.
  package var systemCall: (number: Int32, architecture: UInt32)? {
    // struct { void *call_addr; int syscall; unsigned arch; } at offset 16 of siginfo.
    guard signal == 31, isFault, siginfo.count >= 32 else { return nil }
    func word(_ offset: Int) -> UInt32 {
      (offset..<offset + 4).reversed().reduce(UInt32(0)) { $0 << 8 | UInt32(siginfo[$1]) }
    }
    return (Int32(bitPattern: word(24)), word(28))
  }

  /// The sentence, once without and once with the call's name.
  package static func seccomp(_ number: Int32?, name: String?) -> String {
    let call = name.map { " \($0)" + (number.map { " (\($0))" } ?? "") }
    return "a seccomp filter forbade "
      + (call.map { "the system call" + $0 } ?? number.map { "system call \($0)" }
        ?? "a system call")
  }
}

/// Registers of a crash record by name.
package enum RegisterNames {
  /// In the order of ucontext's gregs, sys/ucontext.h.
  private static let x86_64 = [
    "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "rdi", "rsi", "rbp", "rbx", "rdx",
    "rax", "rcx", "rsp", "rip", "eflags",
  ]
  private static let aarch64 = (0...30).map { "x\($0)" } + ["sp", "pc", "pstate"]

  package static let x86_64Machine: UInt32 = 62
  package static let aarch64Machine: UInt32 = 183

  package static func named(
    _ values: [UInt64], architecture: UInt32
  ) -> [(name: String, value: UInt64)] {
    switch architecture {
    case x86_64Machine: Array(zip(x86_64, values).map { (name: $0, value: $1) })
    case aarch64Machine: Array(zip(aarch64, values).map { (name: $0, value: $1) })
    default: []
    }
  }
}
