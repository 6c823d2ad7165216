// A thread's general registers in the order of the core file (NT_PRSTATUS), and the three of
// them that mean something to us.
import CLinux
import Glibc

struct Registers {
  var words: [UInt64]

  static var count: Int { LINUX_REGISTERS_SIZE / 8 }

  init(words: [UInt64]) { self.words = words }

  /// nil if the kernel gave fewer registers than this machine has (a 32-bit program).
  init?(bytes: [UInt8]) {
    guard bytes.count >= Self.count * 8 else { return nil }
    words = (0..<Self.count).map { bytes.number(at: $0 * 8) ?? 0 }
  }

  #if arch(x86_64)
    private static let pcIndex = 16
    private static let spIndex = 19
    private static let systemCallIndex = 15
    private static let threadPointerIndex = 21
    /// Where a ucontext's gregs (REG_R8 … REG_EFL) go in the core file's order.
    private static let fromContext = [9, 8, 7, 6, 3, 2, 1, 0, 14, 13, 4, 5, 12, 10, 11, 19, 16, 18]
    static let contextRegisterCount = 23
    /// Of the general registers in ucontext_t, and of the pointer to the vector registers.
    static let contextOffset = 40
    static let contextVectorPointer = 224
  #elseif arch(arm64)
    private static let pcIndex = 32
    private static let spIndex = 31
    static let contextRegisterCount = 34
    static let contextOffset = 184
  #endif

  var pc: UInt64 { words[Self.pcIndex] }
  var sp: UInt64 { words[Self.spIndex] }

  /// Base of thread-local storage; nil where it is no general register.
  var threadPointer: UInt64? {
    #if arch(x86_64)
      words[Self.threadPointerIndex]
    #else
      nil
    #endif
  }

  /// Machine architecture as an ELF header and a crash record name it.
  static var machine: UInt16 {
    #if arch(x86_64)
      62
    #else
      183
    #endif
  }

  /// These registers with those of an interrupted context in their place. `context` holds
  /// them in the order of a ucontext; what it does not hold (segments, thread pointer) is the
  /// thread's own.
  func interrupted(at context: [UInt64]) -> Registers {
    var result = self
    #if arch(x86_64)
      guard context.count >= Self.fromContext.count else { return self }
      for (index, place) in Self.fromContext.enumerated() {
        result.words[place] = context[index]
      }
      // Not inside a system call: a debugger must not try to restart one.
      result.words[Self.systemCallIndex] = .max
      if context.count > 18, context[18] & 0xFFFF != 0 { result.words[17] = context[18] & 0xFFFF }
    #else
      guard context.count >= Self.contextRegisterCount else { return self }
      for index in 0..<Self.contextRegisterCount { result.words[index] = context[index] }
    #endif
    return result
  }

  /// A thread that could not be stopped: /proc tells pc and sp of its system call.
  init(pc: UInt64, sp: UInt64) {
    words = Array(repeating: 0, count: Self.count)
    words[Self.pcIndex] = pc
    words[Self.spIndex] = sp
  }
}

/// Vector registers as NT_X86_XSTATE has them: XSAVE's standard layout with the machine's
/// feature mask in the room that the hardware leaves to software.
enum ExtendedState {
  static let legacyBytes = 512
  private static let maskOffset = 464
  private static let headerOffset = 512
  /// x87, SSE, AVX end at 832; the three AVX-512 parts at 2688. AMX tiles (8 KiB a thread)
  /// and protection keys follow and are left out.
  private static let avxMask: UInt64 = 0x7
  private static let avxEnd = 832
  private static let avx512Mask: UInt64 = 0xE7
  private static let avx512End = 2688

  /// Cut to the parts a debugger shows; nil if there is nothing beyond SSE or the bytes are
  /// not what they should be. `mask`: the machine's features, if the bytes do not tell.
  static func trimmed(_ bytes: [UInt8], mask: UInt64? = nil) -> [UInt8]? {
    guard let mask = mask ?? bytes.number(at: maskOffset) else { return nil }
    let kept: UInt64
    let end: Int
    if mask & avx512Mask == avx512Mask, bytes.count >= avx512End {
      (kept, end) = (avx512Mask, avx512End)
    } else if mask & avxMask == avxMask, bytes.count >= avxEnd {
      (kept, end) = (avxMask, avxEnd)
    } else {
      return nil
    }
    var result = Array(bytes[..<end])
    result.store(kept, at: maskOffset)
    let present: UInt64 = result.number(at: headerOffset) ?? 0
    result.store(present & kept, at: headerOffset)
    // XCOMP_BV: the kernel gives the standard layout, where it is 0.
    result.store(UInt64(0), at: headerOffset + 8)
    return result
  }

  static func mask(_ bytes: [UInt8]) -> UInt64? { bytes.number(at: maskOffset) }
}
