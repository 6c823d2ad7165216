/// Ring bytes into typed records and named defects. The program could write what it liked:
/// every length is clamped, every number is checked before it is used, and nothing here can
/// trap or grow beyond the ring's own fixed counts. Take a copy of the ring first: bytes that
/// change while they are read would be checked in one state and used in another.
package enum RingDecoder {
  /// Everything. `bytes` beyond the ring's size are ignored; what is missing reads as unused.
  package static func decode(_ bytes: [UInt8]) -> RingContents { decode(bytes.span) }

  package static func decode(_ bytes: Span<UInt8>) -> RingContents {
    var contents = RingContents()
    if bytes.count < RingLayout.size { contents.note(.shortRing(bytes: bytes.count)) }
    if u64(bytes, RingLayout.Header.magic) != RingLayout.magic {
      // The layout is known all the same, for guardian made this ring: a wild write of the
      // program hit the head, and the crash record is worth more than the head.
      contents.note(.wrongMagic)
    } else {
      let version = u32(bytes, RingLayout.Header.version)
      if version != RingLayout.version {
        contents.note(.unknownVersion(version))
        return contents
      }
      if u32(bytes, RingLayout.Header.ringSize) != UInt32(RingLayout.size) {
        contents.note(.badLength(field: "size"))
      }
    }
    contents.header = header(bytes)
    decodeCrashes(bytes, into: &contents)
    decodeCrumbs(bytes, into: &contents)
    decodeAnnotations(bytes, into: &contents)
    return contents
  }

  /// The head alone: the first `RingLayout.Header.size` bytes are enough.
  package static func header(_ bytes: [UInt8]) -> RingContents.Header { header(bytes.span) }

  static func header(_ bytes: Span<UInt8>) -> RingContents.Header {
    var header = RingContents.Header()
    header.life = u32(bytes, RingLayout.Header.life)
    header.handlerFlags = u32(bytes, RingLayout.Header.handlerFlags)
    header.handlerRuns = u32(bytes, RingLayout.Header.handlerRuns)
    header.heartbeat = u64(bytes, RingLayout.Header.heartbeat)
    header.replacedSignals = u64(bytes, RingLayout.Header.replacedSignals)
    return header
  }

  /// The crash record of one slot alone, out of the slot's own `RingLayout.slotSize` bytes
  /// (from `RingLayout.slotsOffset + slot * RingLayout.slotSize`): what is wanted while the
  /// program is held. nil: the slot is unused.
  package static func crash(
    slot: Int, slotBytes bytes: [UInt8]
  ) -> (record: RingContents.CrashRecord, defects: [RingContents.Defect])? {
    var contents = RingContents()
    guard let record = crash(bytes.span, at: 0, slot: slot, into: &contents) else { return nil }
    return (record, contents.defects)
  }

  // MARK: crash records

  private static func decodeCrashes(_ bytes: Span<UInt8>, into contents: inout RingContents) {
    for slot in 0..<RingLayout.slotCount {
      let start = RingLayout.slotsOffset + slot * RingLayout.slotSize
      if let record = crash(bytes, at: start, slot: slot, into: &contents) {
        contents.crashes.append(record)
      }
    }
    contents.crashes.sort {
      ($0.monotonicNanoseconds, $0.slot) < ($1.monotonicNanoseconds, $1.slot)
    }
  }

  /// Only parts that are whole are believed; the rest of the record stays empty.
  private static func crash(
    _ bytes: Span<UInt8>, at start: Int, slot: Int, into contents: inout RingContents
  ) -> RingContents.CrashRecord? {
    typealias Field = RingLayout.Record
    typealias Part = RingLayout.Part
    let state = u32(bytes, start + Field.state)
    if state == RingLayout.SlotState.free { return nil }
    let complete = state == RingLayout.SlotState.complete
    if !complete {
      contents.note(.tornCrashRecord(slot: slot))
      if state != RingLayout.SlotState.writing {
        contents.note(.badValue(field: "crash record \(slot), state"))
      }
    }
    func clamp(_ value: UInt32, _ limit: Int, _ field: String) -> Int {
      if value <= UInt32(limit) { return Int(value) }
      contents.note(.badLength(field: "crash record \(slot), \(field)"))
      return limit
    }

    var record = RingContents.CrashRecord(slot: slot, complete: complete)
    let parts = u32(bytes, start + Field.parts)
    if parts & ~Part.all != 0 { contents.note(.badValue(field: "crash record \(slot), parts")) }
    record.parts = parts & Part.all

    if record.parts & Part.signal != 0 {
      record.pid = i32(bytes, start + Field.pid)
      record.tid = i32(bytes, start + Field.tid)
      record.signal = i32(bytes, start + Field.signal)
      record.code = i32(bytes, start + Field.code)
      record.error = i32(bytes, start + Field.error)
      record.senderPID = i32(bytes, start + Field.senderPID)
      record.senderUID = u32(bytes, start + Field.senderUID)
      record.address = u64(bytes, start + Field.address)
      record.realtimeNanoseconds = u64(bytes, start + Field.realtime)
      record.monotonicNanoseconds = u64(bytes, start + Field.monotonic)
      record.siginfo = slice(bytes, start + Field.siginfo, Field.siginfoSize)
      if !(1...64).contains(record.signal) {
        contents.note(.badValue(field: "crash record \(slot), signal"))
      }
    }
    if record.parts & Part.registers != 0 {
      record.architecture = u32(bytes, start + Field.architecture)
      record.pc = u64(bytes, start + Field.pc)
      record.sp = u64(bytes, start + Field.sp)
      record.contextAddress = u64(bytes, start + Field.contextAddress)
      record.altstackAddress = u64(bytes, start + Field.altstackAddress)
      record.altstackSize = u64(bytes, start + Field.altstackSize)
      record.trapNumber = u64(bytes, start + Field.trapNumber)
      record.errorCode = u64(bytes, start + Field.errorCode)
      if record.altstackAddress.addingReportingOverflow(record.altstackSize).overflow {
        contents.note(.badValue(field: "crash record \(slot), alternate stack"))
        record.altstackAddress = 0
        record.altstackSize = 0
      }
      let count = clamp(
        u32(bytes, start + Field.registerCount), Field.registerLimit, "register count")
      record.registers = words(bytes, start + Field.registers, count)
    }
    if record.parts & Part.thread != 0 {
      record.threadName = RingText.terminated(
        bytes, at: start + Field.threadName, count: Field.threadNameSize)
    }
    if record.parts & Part.abortMessage != 0 {
      let count = clamp(
        u32(bytes, start + Field.abortMessageLength), Field.abortMessageSize, "abort message")
      record.abortMessage = message(bytes, start + Field.abortMessage, count)
    }
    if record.parts & Part.exception != 0 {
      record.exceptionLanguage = u32(bytes, start + Field.exceptionLanguage)
      let type = clamp(
        u32(bytes, start + Field.exceptionTypeLength), Field.exceptionTypeSize,
        "exception type")
      record.exceptionType = message(bytes, start + Field.exceptionType, type)
      let reason = clamp(
        u32(bytes, start + Field.exceptionReasonLength), Field.exceptionReasonSize,
        "exception reason")
      record.exceptionReason = message(bytes, start + Field.exceptionReason, reason)
      let frames = clamp(
        u32(bytes, start + Field.exceptionFrameCount), Field.exceptionFrameLimit,
        "exception frame count")
      record.exceptionFrames = words(bytes, start + Field.exceptionFrames, frames)
    }
    if record.parts & Part.stack != 0 {
      let count = clamp(u32(bytes, start + Field.stackLength), Field.stackSize, "stack")
      record.stackAddress = u64(bytes, start + Field.stackAddress)
      record.stack = slice(bytes, start + Field.stack, count)
      if record.stackAddress.addingReportingOverflow(UInt64(count)).overflow {
        contents.note(.badValue(field: "crash record \(slot), stack address"))
        record.stackAddress = 0
        record.stack = []
      }
    }
    return record
  }

  // MARK: breadcrumbs and annotations

  private static func decodeCrumbs(_ bytes: Span<UInt8>, into contents: inout RingContents) {
    typealias Field = RingLayout.Crumb
    let begun = u64(bytes, RingLayout.Header.crumbNext)
    var torn = 0
    for place in 0..<RingLayout.crumbCount {
      let start = RingLayout.crumbsOffset + place * RingLayout.crumbSize
      let sequence = u64(bytes, start + Field.sequence)
      if sequence == 0 { continue }
      // 2n+2: breadcrumb n, whole; it can only lie in its own place, and must have been begun.
      guard sequence % 2 == 0, u64(bytes, start + Field.end) == sequence else {
        torn += 1
        continue
      }
      let index = sequence / 2 - 1
      guard index % UInt64(RingLayout.crumbCount) == UInt64(place), index < begun else {
        contents.note(.badValue(field: "breadcrumb sequence"))
        continue
      }
      var crumb = RingContents.Crumb(index: index)
      crumb.realtimeNanoseconds = u64(bytes, start + Field.realtime)
      crumb.pid = i32(bytes, start + Field.pid)
      crumb.tid = i32(bytes, start + Field.tid)
      crumb.level = u8(bytes, start + Field.level)
      if crumb.level > Field.levelMax {
        contents.note(.badValue(field: "breadcrumb level"))
        crumb.level = Field.levelMax
      }
      var category = Int(u8(bytes, start + Field.categoryLength))
      if category > Field.categorySize {
        contents.note(.badLength(field: "breadcrumb category"))
        category = Field.categorySize
      }
      var message = Int(u16(bytes, start + Field.messageLength))
      if message > Field.messageSize {
        contents.note(.badLength(field: "breadcrumb message"))
        message = Field.messageSize
      }
      crumb.category = RingText.text(bytes, at: start + Field.category, count: category)
      crumb.message = RingText.text(bytes, at: start + Field.message, count: message)
      contents.crumbs.append(crumb)
    }
    contents.crumbs.sort { $0.index < $1.index }
    if torn > 0 { contents.note(.tornBreadcrumbs(count: torn)) }
  }

  private static func decodeAnnotations(
    _ bytes: Span<UInt8>, into contents: inout RingContents
  ) {
    typealias Field = RingLayout.Annotation
    var torn = 0
    for place in 0..<RingLayout.annotationCount {
      let start = RingLayout.annotationsOffset + place * RingLayout.annotationSize
      let sequence = u64(bytes, start + Field.sequence)
      if sequence == 0 { continue }
      guard sequence % 2 == 0 else {
        torn += 1
        continue
      }
      var key = Int(u16(bytes, start + Field.keyLength))
      if key > Field.keySize {
        contents.note(.badLength(field: "annotation key"))
        key = Field.keySize
      }
      var value = Int(u16(bytes, start + Field.valueLength))
      if value > Field.valueSize {
        contents.note(.badLength(field: "annotation value"))
        value = Field.valueSize
      }
      if value == 0 { continue }
      let name = RingText.text(bytes, at: start + Field.key, count: key)
      if name.isEmpty {
        contents.note(.badLength(field: "annotation key"))
        continue
      }
      contents.annotations[name] = RingText.text(bytes, at: start + Field.value, count: value)
    }
    if torn > 0 { contents.note(.tornAnnotations(count: torn)) }
  }

  // MARK: bytes; what lies outside reads as zero

  private static func u8(_ bytes: Span<UInt8>, _ offset: Int) -> UInt8 {
    offset < bytes.count ? bytes[offset] : 0
  }

  private static func u16(_ bytes: Span<UInt8>, _ offset: Int) -> UInt16 {
    UInt16(u8(bytes, offset)) | UInt16(u8(bytes, offset + 1)) << 8
  }

  private static func u32(_ bytes: Span<UInt8>, _ offset: Int) -> UInt32 {
    UInt32(u16(bytes, offset)) | UInt32(u16(bytes, offset + 2)) << 16
  }

  private static func u64(_ bytes: Span<UInt8>, _ offset: Int) -> UInt64 {
    UInt64(u32(bytes, offset)) | UInt64(u32(bytes, offset + 4)) << 32
  }

  private static func i32(_ bytes: Span<UInt8>, _ offset: Int) -> Int32 {
    Int32(bitPattern: u32(bytes, offset))
  }

  private static func slice(_ bytes: Span<UInt8>, _ offset: Int, _ count: Int) -> [UInt8] {
    let end = min(offset + count, bytes.count)
    guard offset < end else { return [] }
    var out: [UInt8] = []
    out.reserveCapacity(end - offset)
    for index in offset..<end { out.append(bytes[index]) }
    return out
  }

  private static func words(_ bytes: Span<UInt8>, _ offset: Int, _ count: Int) -> [UInt64] {
    (0..<count).map { u64(bytes, offset + 8 * $0) }
  }

  /// Text that libc and runtimes end with a line feed, which is none of the message.
  private static func message(_ bytes: Span<UInt8>, _ offset: Int, _ count: Int) -> String {
    var count = count
    while count > 0, u8(bytes, offset + count - 1) == 0x0a { count -= 1 }
    return RingText.text(bytes, at: offset, count: count)
  }
}
