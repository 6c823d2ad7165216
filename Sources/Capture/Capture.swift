// The snapshot, from the first stop to the written minicore. The order is the design: stop all
// threads, read everything into memory, release the program, and only then write. Nothing that
// the program controls may keep it held beyond the deadline.
import CLinux
import Glibc
import Kernel
import Reports

/// What guardian asks for.
package struct CaptureRequest: Sendable {
  package var pid: Int32
  /// As the bell said it: in the program's own pid namespace. 0: none.
  package var thread: Int32
  /// Crash record in the ring; nil: a snapshot of a program that hangs.
  package var slot: Int?
  package var timeoutMilliseconds: Int64

  package init(pid: Int32, thread: Int32, slot: Int?, timeoutMilliseconds: Int64) {
    self.pid = pid
    self.thread = thread
    self.slot = slot
    self.timeoutMilliseconds = timeoutMilliseconds
  }
}

/// Descriptors that guardian hands over.
package struct CaptureChannels: Sendable {
  package var result: Int32 = 3
  package var core: Int32 = 4
  package var ring: Int32 = 5
  package init() {}
}

package struct Capture {
  private let request: CaptureRequest
  private let channels: CaptureChannels
  private let deadline: Int64
  private var summary = CaptureSummary()
  private var descriptors: [Int32] = []

  package init(_ request: CaptureRequest, channels: CaptureChannels = CaptureChannels()) {
    self.request = request
    self.channels = channels
    // Three quarters to stop and read; the rest to write.
    let milliseconds = max(1, min(request.timeoutMilliseconds, 600_000))
    deadline = monotonicNanoseconds() + milliseconds * 750_000
  }

  /// - Returns: the exit status: 0 if there is a minicore.
  package mutating func run() -> Int32 {
    raisePriority()
    let written = snapshot()
    sendSummary()
    return written ? 0 : 1
  }

  /// While the program waits, nobody else may run in our place: with 32 busy threads the
  /// program would be held for a second. Every step is allowed to fail.
  private func raisePriority() {
    if setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, -20) == -1 {
      _ = setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, linux_lowest_nice())
    }
  }

  private var expired: Bool { monotonicNanoseconds() > deadline }

  private mutating func snapshot() -> Bool {
    let pid = request.pid
    let slots = request.slot == nil ? nil : CrashSlots(ring: channels.ring)
    let record = slots?.records.first { $0.slot == request.slot }

    // 1. Stop.
    let began = monotonicNanoseconds()
    var stopper = ThreadStopper(pid: pid)
    stopper.stopAll(before: deadline)
    summary.threadsSeen = stopper.seen
    noteStops(stopper)

    // 2. Read.
    stopper.readNames()
    let memory = ProcessMemory(pid: pid)
    let map = MemoryMap(
      text: readFile("/proc/\(pid)/maps", limit: CaptureLimits.mapsBytes) ?? [])
    if map.truncated { summary.defects.append("more mappings than can be read") }
    if map.mappings.isEmpty {
      summary.defects.append("the memory map of process \(pid) cannot be read")
      release(stopper, began: began)
      return false
    }
    let auxiliary = readFile("/proc/\(pid)/auxv", limit: 4096) ?? []
    let process = processFacts()
    let crashing = record == nil && request.thread == 0 ? 0 : outerThread(stopper.threads)
    summary.crashingThread = crashing
    if record == nil, request.slot != nil {
      summary.defects.append("crash record \(request.slot ?? 0) of the ring cannot be read")
    }
    var threads = readThreads(stopper)
    // One call for what each thread's stack and control block are asked for below.
    memory.prefetch(
      threads.flatMap { thread -> [UInt64] in
        let top = thread.registers.sp
        return [top, top.saturatingAdding(512), thread.registers.threadPointer ?? top]
      })
    interrupt(&threads, crashing: crashing, slots: slots, record: record, map: map, memory: memory)
    if let first = threads.firstIndex(where: { $0.id == crashing }) {
      threads.insert(threads.remove(at: first), at: 0)
    }
    summary.threadsCaptured = threads.count
    if threads.isEmpty {
      summary.defects.append("no thread could be read")
      release(stopper, began: began)
      return false
    }

    var table = ModuleTable(map: map, memory: memory)
    if table.truncated { summary.defects.append("more modules than can be read") }
    let executable = executableModule(auxiliary, table: table, map: map)
    let modified = ModifiedPages(pid: pid)
    scan(modified, table: table, map: map)
    if !expired { table.findReplaced(pid: pid, map: map, memory: memory) }
    takeDescriptors(table, map: map)

    var plan = SnapshotPlan(
      map: map, ring: request.slot == nil ? nil : descriptorIdentity(channels.ring))
    addThreads(to: &plan, threads: threads, crashing: crashing, memory: memory)
    for mapping in map.mappings where mapping.path.hasPrefix("[vdso]") { plan.add(mapping.range) }
    plan.addModules(table, modified: modified, executable: executable)
    if let executable, let dynamic = table.modules[executable].dynamic {
      for range in LinkMapList.ranges(executable: dynamic, memory: memory) { plan.add(range) }
    }
    summary.defects += plan.defects

    var captured = CapturedMemory(ranges: plan.ranges())
    let total = captured.ranges.reduce(0) { $0 + Int($1.size) }
    captured.bytes = unsafe [UInt8](unsafeUninitializedCapacity: total) { buffer, count in
      unsafe captured.unreadable = memory.gather(
        captured.ranges, into: UnsafeMutableRawBufferPointer(buffer))
      count = total
    }
    addRingStack(&captured, record: record)
    leaveOutTexts(&captured, map: map, auxiliary: auxiliary)

    // 3. Release.
    release(stopper, began: began)

    // 4. Write.
    summary.signature = signature(threads, crashing: crashing, map: map, memory: memory)
    var core = CoreFile()
    core.addMemory(map: map, captured: captured, table: table, modified: modified)
    if core.truncated { summary.defects.append("more memory segments than a core file can hold") }
    guard
      let size = core.write(
        to: channels.core, threads: threads, process: process, auxiliary: auxiliary,
        memory: captured.bytes)
    else {
      summary.defects.append("cannot write the minicore: \(SystemError.text(errno))")
      return false
    }
    summary.coreBytes = size
    return true
  }

  // MARK: Steps

  private mutating func noteStops(_ stopper: ThreadStopper) {
    if stopper.tooMany {
      summary.defects.append("more than \(CaptureLimits.threads) threads: the rest was not stopped")
    }
    for thread in stopper.threads {
      if case .unstoppable(let letter) = stopper.states[thread] {
        let state = String(decoding: [letter], as: UTF8.self)
        summary.defects.append("thread \(thread) did not stop (state \(state))")
      }
    }
    if let cause = stopper.firstRefusal {
      let status = readFile("/proc/\(request.pid)/status", limit: 16 << 10) ?? []
      if let tracer = statusNumbers(status, key: "TracerPid:").first, tracer != 0 {
        summary.defects.append("process \(request.pid) is already traced by process \(tracer)")
      } else {
        summary.defects.append(
          "no right to trace process \(request.pid): \(SystemError.text(cause))")
      }
    }
  }

  private mutating func release(_ stopper: ThreadStopper, began: Int64) {
    // First the word, then the threads: the handler looks at it as soon as it runs.
    if let slot = request.slot, slot >= 0, slot < CrashSlots.count {
      let cause = CrashSlots.release(slot: slot, ring: channels.ring)
      if cause != 0 {
        summary.defects.append("cannot write the release: \(SystemError.text(cause))")
      }
    }
    stopper.detachAll()
    summary.heldMicroseconds = UInt64(max(0, (monotonicNanoseconds() - began) / 1000))
  }

  private func processFacts() -> ProcessFactsForCore {
    var facts = ProcessFactsForCore(pid: request.pid)
    if let stat = readFile("/proc/\(request.pid)/stat", limit: 2048) {
      let fields = statFields(stat)
      func field(_ index: Int) -> Int32 {
        index < fields.count ? Int32(truncatingIfNeeded: decimal(fields[index]) ?? 0) : 0
      }
      (facts.parent, facts.group, facts.session) = (field(1), field(2), field(3))
      if let open = stat.firstIndex(of: UInt8(ascii: "(")),
        let close = stat.lastIndex(of: UInt8(ascii: ")")), open < close
      {
        facts.name = Array(stat[(open + 1)..<close])
      }
    }
    var owner = stat()
    if unsafe stat("/proc/\(request.pid)", &owner) == 0 {
      (facts.uid, facts.gid) = (owner.st_uid, owner.st_gid)
    }
    let command = readFile("/proc/\(request.pid)/cmdline", limit: 512) ?? []
    facts.command = Array(command.prefix { $0 != 0 })
    return facts
  }

  /// The crashing thread as seen from here: the program may live in another pid namespace.
  private mutating func outerThread(_ threads: [Int32]) -> Int32 {
    let status = readFile("/proc/\(request.pid)/status", limit: 16 << 10) ?? []
    if statusNumbers(status, key: "NSpid:").count <= 1 {
      if threads.contains(request.thread) { return request.thread }
    } else {
      for thread in threads {
        guard
          let status = readFile(
            "/proc/\(request.pid)/task/\(thread)/status", limit: 16 << 10)
        else { continue }
        if statusNumbers(status, key: "NSpid:").last == request.thread { return thread }
      }
    }
    summary.defects.append("the crashing thread \(request.thread) is not there")
    return 0
  }

  private func readThreads(_ stopper: ThreadStopper) -> [ThreadImage] {
    var result: [ThreadImage] = []
    let stopped = stopper.stopped
    result.reserveCapacity(stopped.count)
    let withExtended = stopped.count <= CaptureLimits.extendedRegisterThreads
    for thread in stopper.threads {
      let name = stopper.names[thread] ?? []
      switch stopper.states[thread] {
      case .stopped:
        guard
          let bytes = stopper.registerSet(thread, note: 1, limit: 1024),
          let registers = Registers(bytes: bytes)
        else { continue }
        var image = ThreadImage(id: thread, name: name, registers: registers)
        #if arch(x86_64)
          // Its first 512 bytes are what NT_FPREGSET holds, but for the bytes left to software.
          if withExtended || thread == request.thread,
            var bytes = stopper.registerSet(
              thread, note: 0x202, limit: CaptureLimits.extendedRegisterBytes),
            bytes.count >= ExtendedState.legacyBytes
          {
            image.extended = ExtendedState.trimmed(bytes)
            bytes.removeLast(bytes.count - ExtendedState.legacyBytes)
            for index in 464..<512 { bytes[index] = 0 }
            image.floating = bytes
          }
        #endif
        if image.floating == nil {
          image.floating = stopper.registerSet(thread, note: 2, limit: 1024)
        }
        result.append(image)
      case .unstoppable, .refused:
        if let registers = blockedRegisters(thread) {
          result.append(ThreadImage(id: thread, name: name, registers: registers))
        }
      case .asked, .gone, nil: continue
      }
    }
    return result
  }

  /// pc and sp of a thread that sleeps in a system call, from /proc: enough to show where.
  private func blockedRegisters(_ thread: Int32) -> Registers? {
    guard let text = readFile("/proc/\(request.pid)/task/\(thread)/syscall", limit: 512) else {
      return nil
    }
    let words = text.split(whereSeparator: { $0 == 0x20 || $0 == 0x0A })
    guard words.count >= 3 else { return nil }
    let numbers = words.suffix(2).compactMap { word -> UInt64? in
      UInt64(String(decoding: word.dropFirst(2), as: UTF8.self), radix: 16)
    }
    return numbers.count == 2 ? Registers(pc: numbers[1], sp: numbers[0]) : nil
  }

  /// Puts the interrupted context in the place of our handler's frames.
  private func interrupt(
    _ threads: inout [ThreadImage], crashing: Int32, slots: CrashSlots?,
    record: CrashSlots.Record?, map: MemoryMap, memory: ProcessMemory
  ) {
    if let record, crashing != 0 {
      var index = threads.firstIndex { $0.id == crashing }
      if index == nil, record.registers.count > 0 {
        // It could not be stopped or read: the record alone tells its registers.
        threads.append(
          ThreadImage(id: crashing, name: [], registers: Registers(pc: 0, sp: 0)))
        index = threads.count - 1
      }
      if let index {
        if record.registers.isEmpty,
          let context = HandlerFrames.context(
            of: threads[index].registers, map: map, memory: memory)
        {
          HandlerFrames.apply(contextAt: context, to: &threads[index], memory: memory)
        } else {
          HandlerFrames.apply(record, to: &threads[index], memory: memory)
        }
        threads[index].signal = record.signal
        threads[index].siginfo = record.siginfo
      }
    }
    guard slots != nil else { return }
    for index in threads.indices where threads[index].id != crashing {
      if let context = HandlerFrames.context(
        of: threads[index].registers, map: map, memory: memory)
      {
        HandlerFrames.apply(contextAt: context, to: &threads[index], memory: memory)
      }
    }
  }

  private func executableModule(
    _ auxiliary: [UInt8], table: ModuleTable, map: MemoryMap
  ) -> Int? {
    var at = 0
    while let type: UInt64 = auxiliary.number(at: at), type != 0 {
      if type == 3, let address: UInt64 = auxiliary.number(at: at + 8),
        let index = map.index(containing: address), table.moduleOfMapping[index] >= 0
      {
        return table.moduleOfMapping[index]
      }
      at += 16
    }
    return nil
  }

  /// Variables first, code last: the budget may not reach.
  private mutating func scan(_ modified: ModifiedPages, table: ModuleTable, map: MemoryMap) {
    var unchecked = 0
    for pass in 0..<3 {
      for (index, mapping) in map.mappings.enumerated() {
        let module = table.moduleOfMapping[index]
        guard mapping.isPrivateFile || module >= 0 else { continue }
        let turn = module < 0 ? 2 : mapping.executable ? 1 : 0
        guard turn == pass else { continue }
        if pass == 2, mapping.range.size > CaptureLimits.otherFileMapping { continue }
        if !modified.scan(mapping.range) { unchecked += 1 }
      }
    }
    modified.finish()
    if unchecked > 0 {
      summary.defects.append("\(unchecked) mappings could not be checked for changes")
    }
  }

  private mutating func takeDescriptors(_ table: ModuleTable, map: MemoryMap) {
    for module in table.modules where module.replaced {
      let path = shown(map.mappings[module.mappings[0]].path)
      guard let descriptor = module.descriptor else {
        summary.defects.append("\(path) was replaced since the start and cannot be opened")
        continue
      }
      if CaptureSummary.canCarry(path: path) {
        summary.replacedModules.append(path)
        descriptors.append(descriptor)
      }
    }
  }

  private mutating func addThreads(
    to plan: inout SnapshotPlan, threads: [ThreadImage], crashing: Int32, memory: ProcessMemory
  ) {
    let mainStackEnd = startOfMainStack()
    var left = CaptureLimits.stacks
    var pending = UInt64(threads.count)
    for (index, thread) in threads.enumerated() {
      let registers = thread.registers
      let threadPointer = registers.threadPointer ?? 0
      let isFirst = thread.id == crashing || (crashing == 0 && index == 0)
      let share = max(CaptureLimits.stackLeast, left / pending)
      pending -= 1
      // glibc puts a thread's block at the end of its stack's mapping.
      var end: UInt64?
      if let main = mainStackEnd, main > registers.sp,
        plan.stack(sp: registers.sp, end: nil)?
          .contains(main) == true
      {
        end = main
      } else if threadPointer > registers.sp {
        end = threadPointer.saturatingAdding(CaptureLimits.threadLocalAbove)
      }
      if let stack = plan.stack(sp: registers.sp, end: end) {
        let near = min(
          share, isFirst ? CaptureLimits.stackNearCrashing : CaptureLimits.stackNear)
        let oldest = min(share, CaptureLimits.stackOldest)
        let before = plan.bytes
        plan.addStack(stack, near: near.pageCeiling, oldest: oldest.pageCeiling)
        left = left.saturatingSubtracting(plan.bytes - before)
        if isFirst {
          plan.addTargets(
            of: memory.bytes(
              at: max(stack.start, registers.sp),
              count: min(
                CaptureLimits.topFrames,
                Int(stack.end.saturatingSubtracting(max(stack.start, registers.sp))))) ?? [],
            stack: stack)
        }
      } else {
        summary.defects.append("thread \(thread.id): its stack pointer is in no stack")
      }
      if threadPointer != 0 {
        plan.addWindow(
          around: threadPointer, before: CaptureLimits.threadLocalBelow,
          after: CaptureLimits.threadLocalAbove)
        // The dynamic thread vector: thread_db finds variables by it.
        if let block = memory.bytes(at: threadPointer, count: 16),
          let vector: UInt64 = block.number(at: 8), vector != 0
        {
          plan.addWindow(around: vector, before: 16, after: 512)
        }
      }
      plan.addWindow(around: registers.pc, before: 64, after: 64)
      if isFirst {
        for word in registers.words {
          plan.addWindow(
            around: word, before: CaptureLimits.windowBefore, after: CaptureLimits.windowAfter)
        }
      }
      if expired {
        summary.defects.append("the time was up: some stacks are missing")
        return
      }
    }
  }

  /// Where the kernel put argc: above it lie arguments and environment, which may hold secrets
  /// and which no frame needs.
  private func startOfMainStack() -> UInt64? {
    guard let stat = readFile("/proc/\(request.pid)/stat", limit: 2048) else { return nil }
    let fields = statFields(stat)
    // proc(5) field 28.
    guard fields.count > 25, let start = decimal(fields[25]), start > 4096 else { return nil }
    return start
  }

  /// Takes the texts of arguments and environment out of what was read: they may hold secrets. The
  /// kernel puts them at the end of the main thread's stack, above AT_RANDOM's bytes
  /// (create_elf_tables() of Linux).
  private func leaveOutTexts(
    _ captured: inout CapturedMemory, map: MemoryMap, auxiliary: [UInt8]
  ) {
    var at = 0
    while let tag: UInt64 = auxiliary.number(at: at), tag != 0, tag != 25 { at += 16 }
    guard let texts: UInt64 = auxiliary.number(at: at + 8), texts != 0,
      let stack = map.mapping(containing: texts)
    else { return }
    let hidden = AddressRange(start: texts, end: stack.end)
    var offset = 0
    for range in captured.ranges {
      let part = range.clipped(to: hidden)
      if !part.isEmpty {
        let from = offset + Int(part.start - range.start)
        captured.bytes.replaceSubrange(
          from..<(from + Int(part.size)), with: repeatElement(0, count: Int(part.size)))
      }
      offset += Int(range.size)
    }
    // For a debugger it was not read: it must not see zeros that were none.
    captured.unreadable.append(hidden)
  }

  /// Where the program's memory cannot be read, the record holds a copy of the stack's top.
  private func addRingStack(_ captured: inout CapturedMemory, record: CrashSlots.Record?) {
    guard let record, !record.stack.isEmpty else { return }
    let copy = AddressRange(
      start: record.stackAddress.pageCeiling,
      end: record.stackAddress.saturatingAdding(UInt64(record.stack.count)).pageFloor)
    guard !copy.isEmpty else { return }
    var offset = 0
    for range in captured.ranges {
      let part = range.clipped(to: copy)
      if !part.isEmpty,
        captured.unreadable.contains(where: { $0.start <= part.start && $0.end >= part.end })
      {
        let from = Int(part.start - record.stackAddress)
        captured.bytes.store(
          record.stack[from...], at: offset + Int(part.start - range.start), room: Int(part.size))
        var rest: [AddressRange] = []
        for hole in captured.unreadable {
          let before = AddressRange(start: hole.start, end: min(hole.end, part.start))
          let after = AddressRange(start: max(hole.start, part.end), end: hole.end)
          if !before.isEmpty { rest.append(before) }
          if !after.isEmpty { rest.append(after) }
        }
        captured.unreadable = rest
      }
      offset += Int(range.size)
    }
  }

  /// Module path and offset of the faulting code. Inside the C library (abort, raise) that
  /// says nothing: then the first word up the stack that points into other code.
  private func signature(
    _ threads: [ThreadImage], crashing: Int32, map: MemoryMap, memory: ProcessMemory
  ) -> UInt64 {
    guard crashing != 0, let thread = threads.first, thread.id == crashing else { return 0 }
    func hash(_ address: UInt64) -> UInt64? {
      guard let mapping = map.mapping(containing: address), mapping.isPrivateFile else {
        return nil
      }
      var value: UInt64 = 0xCBF2_9CE4_8422_2325
      func mix(_ byte: UInt8) { value = (value ^ UInt64(byte)) &* 0x100_0000_01B3 }
      for byte in shown(mapping.path).utf8 { mix(byte) }
      let offset = mapping.offset &+ (address - mapping.start)
      for shift in stride(from: 0, to: 64, by: 8) {
        mix(UInt8(truncatingIfNeeded: offset >> shift))
      }
      return value == 0 ? 1 : value
    }
    func isPlain(_ address: UInt64) -> Bool {
      guard let mapping = map.mapping(containing: address) else { return false }
      let name = mapping.path.split(separator: UInt8(ascii: "/")).last.map(Array.init) ?? []
      return mapping.executable && mapping.isPrivateFile && !name.hasPrefix("libc.so")
        && !name.hasPrefix("libc-") && !name.hasPrefix("libpthread") && !name.hasPrefix("ld-")
    }
    if isPlain(thread.registers.pc), let own = hash(thread.registers.pc) { return own }
    // Still in the reader's cache: the program is already gone.
    if let top = memory.bytes(at: thread.registers.sp, count: 1024) {
      var at = 0
      while let word: UInt64 = top.number(at: at) {
        if isPlain(word), let caller = hash(word) { return caller }
        at += 8
      }
    }
    return hash(thread.registers.pc) ?? 0
  }

  private mutating func sendSummary() {
    let bytes = summary.encoded()
    let sent = unsafe bytes.withUnsafeBytes { message in
      unsafe descriptors.withUnsafeBufferPointer {
        unsafe linux_send_with_descriptors(
          channels.result, message.baseAddress, message.count, $0.baseAddress, $0.count)
      }
    }
    if sent == -1, !descriptors.isEmpty {
      // Without the descriptors rather than not at all.
      summary.replacedModules = []
      summary.defects.append("the replaced binaries could not be handed over")
      let bytes = summary.encoded()
      _ = unsafe bytes.withUnsafeBytes {
        unsafe linux_send_with_descriptors(channels.result, $0.baseAddress, $0.count, nil, 0)
      }
    }
  }
}
