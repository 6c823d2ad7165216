// The one libdwfl session of a snapshot: tells it the modules, and lends it registers and memory
// of the core. It unwinds from any register state it is given, not only from a thread's own:
// that is how a frame without unwind information is stepped over.
import CDwarf
import Glibc

/// Where unwinding starts or continues. Indexed by DWARF's register numbers; nil: not known.
struct RegisterState {
  var registers: [UInt64?]
  var pc: UInt64

  init(_ thread: CoreFile.ThreadState, _ machine: Machine) {
    registers = Array(repeating: nil, count: machine.dwarfCount)
    for (index, register) in machine.registers.enumerated() where register.dwarf >= 0 {
      registers[register.dwarf] = thread.values[index]
    }
    pc = thread.values[machine.pcIndex]
  }

  /// After a step that knows no more than these.
  init(pc: UInt64, sp: UInt64, fp: UInt64?, _ machine: Machine) {
    registers = Array(repeating: nil, count: machine.dwarfCount)
    registers[machine.stackPointer] = sp
    registers[machine.framePointer] = fp
    self.pc = pc
  }
}

/// A module that libdwfl knows.
@safe final class LoadedModule {
  let mapped: MappedModule
  let handle: OpaquePointer?
  let index: Int
  lazy var symbols = unsafe SymbolTable(module: handle, range: mapped.start..<mapped.end)
  lazy var debug = unsafe DebugInfo(module: handle)

  init(_ mapped: MappedModule, handle: OpaquePointer?, index: Int) {
    self.mapped = mapped
    unsafe self.handle = unsafe handle
    self.index = index
  }
}

/// Time, on the monotonic clock, after which no more is looked up.
struct Deadline {
  private let nanoseconds: UInt64

  init(milliseconds: UInt64) { nanoseconds = Deadline.now() &+ milliseconds &* 1_000_000 }

  var passed: Bool { Deadline.now() > nanoseconds }

  private static func now() -> UInt64 {
    var time = timespec()
    unsafe clock_gettime(CLOCK_MONOTONIC, &time)
    return UInt64(time.tv_sec) &* 1_000_000_000 &+ UInt64(time.tv_nsec)
  }
}

/// What the callbacks that find a module's files need.
@safe final class ModuleFiles {
  unowned let session: Session
  /// Of a module without a file.
  var image: OpaquePointer?

  init(_ session: Session, image: OpaquePointer? = nil) {
    self.session = session
    unsafe self.image = unsafe image
  }
}

@safe final class Session {
  let core: CoreFile
  private(set) var modules: [LoadedModule] = []
  private(set) var defects: [String] = []
  private var session: OpaquePointer?
  private var elf: OpaquePointer?
  private var attached = false
  private let callbacks: UnsafeMutablePointer<Dwfl_Callbacks>
  private let threadCallbacks: UnsafeMutablePointer<Dwfl_Thread_Callbacks>
  /// ELF images put together from memory; libelf reads them where they lie.
  private var images: [UnsafeMutableRawBufferPointer] = unsafe []
  private var described: [UInt64: Bool] = [:]

  // What the callbacks of the run in progress work on.
  private var state: RegisterState?
  private var visit: ((Step) -> Bool)?
  /// Since the last frame memory was asked for that the core does not have. libdwfl takes a return
  /// address that it cannot read for the outermost frame's.
  private var lacksMemory = false

  /// One frame as libdwfl found it.
  struct Step {
    let pc: UInt64
    /// The instruction at `pc` was about to run: a fault or a signal, not a call.
    let interrupted: Bool
    let sp: UInt64?
    let fp: UInt64?
  }

  enum Outcome {
    /// The unwind information says that this is the outermost frame.
    case complete
    /// `visit` said so.
    case stopped
    /// The next frame could not be found.
    case failed
  }

  /// What compressed sections may still take.
  private var unpackedLeft: UInt64
  private var files: [ModuleFiles] = []

  init(
    core: CoreFile, modules map: [MappedModule], limits: SymbolicationLimits
  ) throws(SymbolicationError) {
    self.core = core
    unpackedLeft = limits.unpackedBytes
    unsafe callbacks = .allocate(capacity: 1)
    unsafe threadCallbacks = .allocate(capacity: 1)
    unsafe callbacks.initialize(
      to: Dwfl_Callbacks(
        find_elf: { _, userData, _, _, _, elf in
          // Only modules without a file come here; their image was prepared.
          guard let files = unsafe Session.files(userData) else { return -1 }
          unsafe elf?.pointee = unsafe files.image
          unsafe files.image = nil
          return -1
        },
        find_debuginfo: { module, userData, name, base, file, link, checksum, found in
          guard let files = unsafe Session.files(userData),
            unsafe DebugLink.isSafe(file: HostileText.copy(file), link: HostileText.copy(link))
          else { return -1 }
          let descriptor = unsafe dwfl_standard_find_debuginfo(
            module, userData, name, base, file, link, checksum, found)
          if descriptor < 0 || files.session.takes(FileBytes(descriptor: descriptor)) {
            return descriptor
          }
          _ = close(descriptor)
          unsafe free(found?.pointee)
          unsafe found?.pointee = nil
          return -1
        }, section_address: nil, debuginfo_path: nil))
    unsafe threadCallbacks.initialize(to: Session.makeThreadCallbacks())
    _ = elf_version(UInt32(EV_CURRENT))
    guard let session = unsafe dwfl_begin(callbacks) else { throw .library(Session.cause()) }
    unsafe self.session = unsafe session
    unsafe report(map, session)
    unsafe elf = unsafe elf_begin(core.file.descriptor, ELF_C_READ, nil)
    let this = unsafe Unmanaged.passUnretained(self).toOpaque()
    attached = unsafe dwfl_attach_state(
      session, elf, max(core.process, 1), threadCallbacks, this)
    if !attached { defects.append("stacks cannot be unwound: \(Session.cause())") }
  }

  deinit {
    if let session = unsafe session { unsafe dwfl_end(session) }
    if let elf = unsafe elf { _ = unsafe elf_end(elf) }
    unsafe images.forEach { unsafe $0.deallocate() }
    unsafe callbacks.deallocate()
    unsafe threadCallbacks.deallocate()
  }

  private static func files(
    _ userData: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
  ) -> ModuleFiles? {
    unsafe userData?.pointee.map {
      unsafe Unmanaged<ModuleFiles>.fromOpaque($0).takeUnretainedValue()
    }
  }

  private func give(_ files: ModuleFiles, to module: OpaquePointer) {
    self.files.append(files)
    var userData: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
    _ = unsafe dwfl_module_info(module, &userData, nil, nil, nil, nil, nil, nil)
    unsafe userData?.pointee = Unmanaged.passUnretained(files).toOpaque()
  }

  /// Counts what a file takes unpacked; false if that is too much.
  private func takes(_ source: some ByteSource) -> Bool {
    guard let size = CompressedSections.unpackedBytes(source), size <= unpackedLeft else {
      return false
    }
    unpackedLeft -= size
    return true
  }

  private static func cause() -> String {
    unsafe dwfl_errmsg(-1).map { unsafe String(cString: $0) } ?? "unknown error"
  }

  private func report(_ map: [MappedModule], _ session: OpaquePointer) {
    unsafe dwfl_report_begin(session)
    for module in map {
      var handle: OpaquePointer?
      switch module.source {
      case .file(let descriptor):
        guard takes(FileBytes(descriptor: descriptor)) else {
          refuse(module)
          _ = close(descriptor)
          break
        }
        unsafe handle = unsafe dwfl_report_elf(
          session, module.path, module.path, descriptor, module.bias, true)
        if unsafe handle == nil {
          defects.append("'\(module.path)': \(Session.cause())")
          _ = close(descriptor)
        }
        if let handle = unsafe handle { unsafe give(ModuleFiles(self), to: handle) }
      case .image(let bytes):
        guard takes(ImageBytes(image: bytes)) else {
          refuse(module)
          break
        }
        let image = UnsafeMutableRawBufferPointer.allocate(byteCount: bytes.count, alignment: 16)
        unsafe image.copyBytes(from: bytes)
        unsafe images.append(image)
        let elf = unsafe elf_memory(
          image.baseAddress!.assumingMemoryBound(to: CChar.self), image.count)
        unsafe handle = unsafe dwfl_report_module(
          session, module.path, module.start, module.end)
        if let handle = unsafe handle, let elf = unsafe elf {
          unsafe give(ModuleFiles(self, image: elf), to: handle)
        }
      case .copy, .none: break
      }
      unsafe modules.append(LoadedModule(module, handle: handle, index: modules.count))
    }
    unsafe dwfl_report_end(session, nil, nil)
  }

  private func refuse(_ module: MappedModule) {
    defects.append(
      "'\(module.path)': its compressed sections would take too much memory; its frames have no names"
    )
  }

  func module(_ address: UInt64) -> LoadedModule? {
    let index = modules.firstSorted { $0.mapped.start > address } - 1
    guard index >= 0, address < modules[index].mapped.end else { return nil }
    return modules[index]
  }

  /// Is there unwind information for this instruction?
  func isDescribed(_ address: UInt64) -> Bool {
    if let known = described[address] { return known }
    var found = false
    if let handle = unsafe module(address)?.handle {
      var bias: Dwarf_Addr = 0
      if let table = unsafe dwfl_module_eh_cfi(handle, &bias) {
        found = unsafe Session.covers(table, address &- bias)
      }
      if !found, let table = unsafe dwfl_module_dwarf_cfi(handle, &bias) {
        found = unsafe Session.covers(table, address &- bias)
      }
    }
    described[address] = found
    return found
  }

  private static func covers(_ table: OpaquePointer, _ address: UInt64) -> Bool {
    var frame: OpaquePointer?
    guard unsafe dwarf_cfi_addrframe(table, address, &frame) == 0 else { return false }
    unsafe free(UnsafeMutableRawPointer(frame))
    return true
  }

  // MARK: Unwinding

  /// Visits the frames from `state` on, the state's own first, until `visit` returns false.
  func unwind(from state: RegisterState, visit: @escaping (Step) -> Bool) -> Outcome {
    guard attached, let session = unsafe session else { return .failed }
    self.state = state
    self.visit = visit
    lacksMemory = false
    defer { self.visit = nil }
    let this = unsafe Unmanaged.passUnretained(self).toOpaque()
    let result = unsafe dwfl_getthread_frames(
      session, 1,
      { frame, argument in
        let session = unsafe Unmanaged<Session>.fromOpaque(argument!).takeUnretainedValue()
        return unsafe session.step(frame!) ? Int32(DWARF_CB_OK) : Int32(DWARF_CB_ABORT)
      }, this)
    switch result {
    case 0: return lacksMemory ? .failed : .complete
    case Int32(DWARF_CB_ABORT): return .stopped
    default: return .failed
    }
  }

  private func step(_ frame: OpaquePointer) -> Bool {
    lacksMemory = false
    var pc: Dwarf_Addr = 0
    var interrupted = false
    guard unsafe dwfl_frame_pc(frame, &pc, &interrupted), let visit else { return false }
    var sp: Dwarf_Word = 0
    var fp: Dwarf_Word = 0
    let hasSP = unsafe dwfl_frame_reg(frame, UInt32(core.machine.stackPointer), &sp) == 0
    let hasFP = unsafe dwfl_frame_reg(frame, UInt32(core.machine.framePointer), &fp) == 0
    return visit(
      Step(pc: pc, interrupted: interrupted, sp: hasSP ? sp : nil, fp: hasFP ? fp : nil))
  }

  private static func makeThreadCallbacks() -> Dwfl_Thread_Callbacks {
    unsafe Dwfl_Thread_Callbacks(
      next_thread: { _, argument, thread in
        // One pretended thread: whatever state is being unwound.
        if unsafe thread!.pointee != nil { return 0 }
        unsafe thread!.pointee = argument
        return 1
      },
      get_thread: { _, _, argument, thread in
        unsafe thread!.pointee = argument
        return true
      },
      memory_read: { _, address, result, argument in
        let session = unsafe Unmanaged<Session>.fromOpaque(argument!).takeUnretainedValue()
        guard let word = session.core.word(address) else {
          session.lacksMemory = true
          return false
        }
        unsafe result!.pointee = word
        return true
      },
      set_initial_registers: { thread, argument in
        let session = unsafe Unmanaged<Session>.fromOpaque(argument!).takeUnretainedValue()
        return unsafe session.lend(to: thread!)
      },
      detach: nil, thread_detach: nil)
  }

  private func lend(to thread: OpaquePointer) -> Bool {
    guard var state else { return false }
    if core.machine == .x86_64 { state.registers[16] = state.pc }
    for (number, value) in state.registers.enumerated() {
      guard var value else { continue }
      guard unsafe dwfl_thread_state_registers(thread, Int32(number), 1, &value) else {
        return false
      }
    }
    if core.machine == .aarch64 { unsafe dwfl_thread_state_register_pc(thread, state.pc) }
    return true
  }
}
