// The crash records of the ring, as far as the capture needs them. The program can write any
// byte here: a record only ever says how its own threads are shown, and every address in it is
// followed with bounds.
import CLinux
import Glibc

struct CrashSlots {
  struct Record {
    var slot: Int
    var tid: Int32
    var signal: Int32
    /// As a ucontext orders them; empty if that part was not finished.
    var registers: [UInt64]
    var contextAddress: UInt64
    var altstack: AddressRange
    var siginfo: [UInt8]?
    /// A copy of the stack's top, for when the memory itself cannot be read.
    var stack: [UInt8]
    var stackAddress: UInt64
    var released: Bool
  }

  let ring: Int32
  private(set) var records: [Record] = []

  static let count = GUARDIAN_RING_SLOT_COUNT

  init(ring: Int32) {
    self.ring = ring
    for slot in 0..<Self.count {
      if let record = Self.read(slot: slot, from: ring) { records.append(record) }
    }
  }

  static func offset(of slot: Int) -> Int {
    GUARDIAN_RING_SLOT_OFFSET + slot * GUARDIAN_RING_SLOT_SIZE
  }

  private static func read(slot: Int, from ring: Int32) -> Record? {
    var bytes = [UInt8](repeating: 0, count: RECORD_SIZE)
    let size = bytes.count
    let count = unsafe bytes.withUnsafeMutableBytes {
      unsafe pread(ring, $0.baseAddress, size, off_t(offset(of: slot)))
    }
    guard count == size else { return nil }
    func field<T: FixedWidthInteger & BitwiseCopyable>(_ offset: Int, _ type: T.Type) -> T {
      bytes.number(at: offset) ?? 0
    }
    let state = field(RECORD_STATE, UInt32.self)
    guard state != GUARDIAN_SLOT_FREE.rawValue else { return nil }
    let parts = field(RECORD_PARTS, UInt32.self)
    func has(_ part: guardian_slot_part) -> Bool { parts & part.rawValue != 0 }
    var registers: [UInt64] = []
    if has(GUARDIAN_PART_REGISTERS),
      field(RECORD_ARCHITECTURE, UInt32.self) == UInt32(Registers.machine)
    {
      let count = min(Int(field(RECORD_REGISTER_COUNT, UInt32.self)), RECORD_REGISTER_MAXIMUM)
      registers = (0..<count).map { field(RECORD_REGISTERS + $0 * 8, UInt64.self) }
    }
    let low = field(RECORD_ALTSTACK_ADDRESS, UInt64.self)
    let stackLength = min(Int(field(RECORD_STACK_LENGTH, UInt32.self)), RECORD_STACK_MAXIMUM)
    return Record(
      slot: slot, tid: field(RECORD_TID, Int32.self), signal: field(RECORD_SIGNAL, Int32.self),
      registers: registers,
      contextAddress: has(GUARDIAN_PART_REGISTERS) ? field(RECORD_CONTEXT_ADDRESS, UInt64.self) : 0,
      altstack: AddressRange(
        start: low, end: low.saturatingAdding(field(RECORD_ALTSTACK_SIZE, UInt64.self))),
      siginfo: has(GUARDIAN_PART_SIGNAL)
        ? Array(bytes[RECORD_SIGINFO..<RECORD_SIGINFO + RECORD_SIGINFO_SIZE]) : nil,
      stack: has(GUARDIAN_PART_STACK)
        ? Array(bytes[RECORD_STACK..<RECORD_STACK + stackLength]) : [],
      stackAddress: field(RECORD_STACK_ADDRESS, UInt64.self),
      released: field(RECORD_RELEASE, UInt32.self) != 0)
  }

  /// The handler in that slot goes on as soon as its thread runs again.
  /// - Returns: errno, 0 if it was written.
  static func release(slot: Int, ring: Int32) -> Int32 {
    var one: UInt32 = 1
    let count = unsafe pwrite(ring, &one, 4, off_t(offset(of: slot) + RECORD_RELEASE))
    return count == 4 ? 0 : count < 0 ? errno : EIO
  }
}
