// The crash records of the ring, as far as the capture needs them. The program can write any
// byte here: a record only ever says how its own threads are shown, and every address in it is
// followed with bounds.
import Glibc
import Ring

struct CrashSlots {
  private typealias Layout = RingLayout.Record

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

  static let count = RingLayout.slotCount

  init(ring: Int32) {
    self.ring = ring
    for slot in 0..<Self.count {
      if let record = Self.read(slot: slot, from: ring) { records.append(record) }
    }
  }

  static func offset(of slot: Int) -> Int {
    RingLayout.slotsOffset + slot * RingLayout.slotSize
  }

  private static func read(slot: Int, from ring: Int32) -> Record? {
    var bytes = [UInt8](repeating: 0, count: Layout.size)
    let size = bytes.count
    let count = unsafe bytes.withUnsafeMutableBytes {
      unsafe pread(ring, $0.baseAddress, size, off_t(offset(of: slot)))
    }
    guard count == size else { return nil }
    func field<T: FixedWidthInteger & BitwiseCopyable>(_ offset: Int, _ type: T.Type) -> T {
      bytes.number(at: offset) ?? 0
    }
    let state = field(Layout.state, UInt32.self)
    guard state != RingLayout.SlotState.free else { return nil }
    let parts = field(Layout.parts, UInt32.self)
    func has(_ part: UInt32) -> Bool { parts & part != 0 }
    var registers: [UInt64] = []
    if has(RingLayout.Part.registers),
      field(Layout.architecture, UInt32.self) == UInt32(Registers.machine)
    {
      let count = min(Int(field(Layout.registerCount, UInt32.self)), Layout.registerLimit)
      registers = (0..<count).map { field(Layout.registers + $0 * 8, UInt64.self) }
    }
    let low = field(Layout.altstackAddress, UInt64.self)
    let stackLength = min(Int(field(Layout.stackLength, UInt32.self)), Layout.stackSize)
    return Record(
      slot: slot, tid: field(Layout.tid, Int32.self), signal: field(Layout.signal, Int32.self),
      registers: registers,
      contextAddress: has(RingLayout.Part.registers)
        ? field(Layout.contextAddress, UInt64.self) : 0,
      altstack: AddressRange(
        start: low, end: low.saturatingAdding(field(Layout.altstackSize, UInt64.self))),
      siginfo: has(RingLayout.Part.signal)
        ? Array(bytes[Layout.siginfo..<Layout.siginfo + Layout.siginfoSize]) : nil,
      stack: has(RingLayout.Part.stack)
        ? Array(bytes[Layout.stack..<Layout.stack + stackLength]) : [],
      stackAddress: field(Layout.stackAddress, UInt64.self),
      released: field(Layout.release, UInt32.self) != 0)
  }

  /// The handler in that slot goes on as soon as its thread runs again.
  /// - Returns: errno, 0 if it was written.
  static func release(slot: Int, ring: Int32) -> Int32 {
    var one: UInt32 = 1
    let count = unsafe pwrite(ring, &one, 4, off_t(offset(of: slot) + Layout.release))
    return count == 4 ? 0 : count < 0 ? errno : EIO
  }
}
