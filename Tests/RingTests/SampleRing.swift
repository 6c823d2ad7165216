// A valid ring, built byte by byte at the layout's offsets (which `LayoutTests` holds to the
// header's).
import Ring

struct SampleRing {
  var bytes = [UInt8](repeating: 0, count: RingLayout.size)

  init(life: UInt32 = 3) {
    let head = RingHeaderEncoder.bytes(
      life: life, guardianPID: 77, captureTimeoutMilliseconds: 2000, handlerRunsMax: 32)
    bytes.replaceSubrange(0..<head.count, with: head)
    put(UInt32(7), at: RingLayout.Header.handlerFlags)
    put(UInt32(1), at: RingLayout.Header.handlerRuns)
    put(UInt64(41), at: RingLayout.Header.heartbeat)
    put(UInt64(1) << 10, at: RingLayout.Header.replacedSignals)
  }

  mutating func put<T: FixedWidthInteger>(_ value: T, at offset: Int) {
    for index in 0..<(T.bitWidth / 8) {
      bytes[offset + index] = UInt8(truncatingIfNeeded: value >> T(8 * index))
    }
  }

  mutating func put(_ text: String, at offset: Int) { put(Array(text.utf8), at: offset) }

  mutating func put(_ raw: [UInt8], at offset: Int) {
    for (index, byte) in raw.enumerated() { bytes[offset + index] = byte }
  }

  static func slot(_ slot: Int) -> Int { RingLayout.slotsOffset + slot * RingLayout.slotSize }
  static func crumb(_ n: Int) -> Int {
    RingLayout.crumbsOffset + n % RingLayout.crumbCount * RingLayout.crumbSize
  }
  static func annotation(_ place: Int) -> Int {
    RingLayout.annotationsOffset + place * RingLayout.annotationSize
  }

  mutating func addCrash(
    slot: Int, signal: Int32 = 11, monotonic: UInt64 = 5_000, stackLength: UInt32 = 64
  ) {
    typealias Field = RingLayout.Record
    let at = Self.slot(slot)
    put(UInt32(slot + 1), at: RingLayout.Header.slotNext)
    put(RingLayout.SlotState.complete, at: at + Field.state)
    put(UInt32(0x3f), at: at + Field.parts)
    put(UInt32(62), at: at + Field.architecture)
    put(Int32(100 + Int32(slot)), at: at + Field.pid)
    put(Int32(200 + Int32(slot)), at: at + Field.tid)
    put(signal, at: at + Field.signal)
    put(Int32(1), at: at + Field.code)
    put(Int32(0), at: at + Field.error)
    put(Int32(55), at: at + Field.senderPID)
    put(UInt32(1000), at: at + Field.senderUID)
    put(UInt32(23), at: at + Field.registerCount)
    put(UInt64(0xdead_beef), at: at + Field.address)
    put(UInt64(9_000), at: at + Field.realtime)
    put(monotonic, at: at + Field.monotonic)
    put(UInt64(0x5555_0000_1234), at: at + Field.pc)
    put(UInt64(0x7ffe_0000_1000), at: at + Field.sp)
    put(UInt64(0x7ffd_0000_0000), at: at + Field.contextAddress)
    put(UInt64(0x7ffc_0000_0000), at: at + Field.altstackAddress)
    put(UInt64(65_536), at: at + Field.altstackSize)
    put(UInt64(14), at: at + Field.trapNumber)
    put(UInt64(6), at: at + Field.errorCode)
    for index in 0..<23 { put(UInt64(index) + 1, at: at + Field.registers + 8 * index) }
    for index in 0..<Field.siginfoSize { bytes[at + Field.siginfo + index] = UInt8(index) }
    put("worker-7", at: at + Field.threadName)
    let abort = "free(): invalid pointer\n"
    put(UInt32(abort.utf8.count), at: at + Field.abortMessageLength)
    put(abort, at: at + Field.abortMessage)
    put(UInt32(3), at: at + Field.exceptionLanguage)
    put(UInt32(9), at: at + Field.exceptionTypeLength)
    put("BadThings", at: at + Field.exceptionType)
    put(UInt32(8), at: at + Field.exceptionReasonLength)
    put("it broke", at: at + Field.exceptionReason)
    put(UInt32(2), at: at + Field.exceptionFrameCount)
    put(UInt64(0x111), at: at + Field.exceptionFrames)
    put(UInt64(0x222), at: at + Field.exceptionFrames + 8)
    put(stackLength, at: at + Field.stackLength)
    put(UInt64(0x7ffe_0000_1000), at: at + Field.stackAddress)
    for index in 0..<Int(min(stackLength, 64)) { bytes[at + Field.stack + index] = 0xa0 }
  }

  /// Breadcrumb `n`, whole.
  mutating func number(crumb n: Int, _ sequence: UInt64) {
    put(sequence, at: Self.crumb(n) + RingLayout.Crumb.sequence)
    put(sequence, at: Self.crumb(n) + RingLayout.Crumb.end)
  }

  mutating func addCrumb(_ n: Int, _ message: String, category: String = "net") {
    typealias Field = RingLayout.Crumb
    let at = Self.crumb(n)
    put(UInt64(2 * n + 2), at: at + Field.sequence)
    put(UInt64(2 * n + 2), at: at + Field.end)
    put(UInt64(1_000 + n), at: at + Field.realtime)
    put(Int32(100), at: at + Field.pid)
    put(Int32(101), at: at + Field.tid)
    put(UInt8(1), at: at + Field.level)
    put(UInt8(category.utf8.count), at: at + Field.categoryLength)
    put(UInt16(message.utf8.count), at: at + Field.messageLength)
    put(category, at: at + Field.category)
    put(message, at: at + Field.message)
    put(UInt64(n + 1), at: RingLayout.Header.crumbNext)
  }

  mutating func addAnnotation(_ place: Int, _ key: String, _ value: String) {
    typealias Field = RingLayout.Annotation
    let at = Self.annotation(place)
    put(UInt64(2), at: at + Field.sequence)
    put(UInt16(key.utf8.count), at: at + Field.keyLength)
    put(UInt16(value.utf8.count), at: at + Field.valueLength)
    put(key, at: at + Field.key)
    put(value, at: at + Field.value)
  }

  var decoded: RingContents { RingDecoder.decode(bytes) }
}
