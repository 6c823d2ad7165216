// Finds the context that a signal interrupted, so that our own handler's frames never show:
// from the crash record, or from the signal frame on the stack of a thread that waits in the
// handler.
import CLinux
import Glibc

enum HandlerFrames {
  /// Registers of the record; the vector registers from the signal frame, if it is that frame.
  static func apply(
    _ record: CrashSlots.Record, to thread: inout ThreadImage, memory: ProcessMemory
  ) {
    if record.registers.isEmpty {
      if record.contextAddress != 0 {
        apply(contextAt: record.contextAddress, to: &thread, memory: memory)
      }
      return
    }
    thread.registers = thread.registers.interrupted(at: record.registers)
    guard let context = registers(at: record.contextAddress, memory: memory),
      thread.registers.interrupted(at: context).pc == thread.registers.pc
    else {
      // The handler's own vector registers would be wrong.
      thread.floating = nil
      thread.extended = nil
      return
    }
    applyVectors(contextAt: record.contextAddress, to: &thread, memory: memory)
  }

  /// The ucontext_t at `address`.
  static func apply(
    contextAt address: UInt64, to thread: inout ThreadImage, memory: ProcessMemory
  ) {
    guard let context = registers(at: address, memory: memory) else { return }
    thread.registers = thread.registers.interrupted(at: context)
    applyVectors(contextAt: address, to: &thread, memory: memory)
  }

  private static func registers(at address: UInt64, memory: ProcessMemory) -> [UInt64]? {
    guard address != 0,
      let bytes = memory.bytes(
        at: address.saturatingAdding(UInt64(Registers.contextOffset)),
        count: Registers.contextRegisterCount * 8)
    else { return nil }
    return (0..<Registers.contextRegisterCount).map { bytes.number(at: $0 * 8) ?? 0 }
  }

  private static func applyVectors(
    contextAt address: UInt64, to thread: inout ThreadImage, memory: ProcessMemory
  ) {
    let mask = thread.extended.flatMap(ExtendedState.mask)
    thread.floating = nil
    thread.extended = nil
    #if arch(x86_64)
      let place = address.saturatingAdding(UInt64(Registers.contextVectorPointer))
      guard let pointer: UInt64 = memory.bytes(at: place, count: 8)?.number(at: 0), pointer != 0,
        var legacy = memory.bytes(at: pointer, count: ExtendedState.legacyBytes)
      else { return }
      // FP_XSTATE_MAGIC1 and the size of what follows, in the bytes left to software.
      let magic: UInt32 = legacy.number(at: 464) ?? 0
      let size: UInt32 = legacy.number(at: 480) ?? 0
      if magic == 0x4650_5853, let mask, size >= 576, size <= 16 << 10,
        var whole = memory.bytes(at: pointer, count: Int(size))
      {
        if whole.count < 2688 { whole += repeatElement(0, count: 2688 - whole.count) }
        thread.extended = ExtendedState.trimmed(whole, mask: mask)
      }
      for index in 464..<512 { legacy[index] = 0 }
      thread.floating = legacy
    #endif
  }

  /// Address of the ucontext_t that a thread in our handler was interrupted with; nil if the
  /// thread is not in our handler or it cannot be told.
  static func context(
    of registers: Registers, map: MemoryMap, memory: ProcessMemory
  ) -> UInt64? {
    #if arch(x86_64)
      guard let top = memory.bytes(at: registers.sp, count: 512),
        let here = map.mapping(
          containing: registers.pc)
      else { return nil }
      func isHandler(_ address: UInt64) -> Bool {
        guard let mapping = map.mapping(containing: address), mapping.executable else {
          return false
        }
        let name = mapping.path.split(separator: UInt8(ascii: "/")).last.map(Array.init) ?? []
        return name.hasPrefix("libguardian-handler.so")
      }
      var inside = isHandler(registers.pc)
      if !inside, here.path.isEmpty == false {
        var at = 0
        while !inside, let word: UInt64 = top.number(at: at) {
          inside = isHandler(word)
          at += 8
        }
      }
      guard inside else { return nil }
      // The frame begins with the address of the C library's restorer
      // (mov $15,%rax; syscall), and the ucontext_t follows it.
      let stack =
        memory.bytes(at: registers.sp, count: 16 << 10)
        ?? memory.bytes(at: registers.sp, count: 4 << 10) ?? top
      var at = 0
      while let word: UInt64 = stack.number(at: at) {
        if let mapping = map.mapping(containing: word), mapping.executable,
          let code = memory.bytes(at: word, count: 9),
          code == [0x48, 0xC7, 0xC0, 0x0F, 0, 0, 0, 0x0F, 0x05]
        {
          return registers.sp + UInt64(at) + 8
        }
        at += 8
      }
    #endif
    return nil
  }
}
