import Ring
import Testing

@Suite struct `A ring is read` {
  @Test func `a new ring is empty and has no defect`() {
    let contents = RingDecoder.decode(SampleRing(life: 9).bytes)
    #expect(contents.header.life == 9)
    #expect(contents.header.handlerFlags == 7)
    #expect(contents.header.handlerRuns == 1)
    #expect(contents.header.heartbeat == 41)
    #expect(contents.header.replacedSignals == 1 << 10)
    #expect(contents.crashes.isEmpty)
    #expect(contents.crumbs.isEmpty)
    #expect(contents.annotations.isEmpty)
    #expect(contents.defects.isEmpty)
  }

  @Test func `a whole crash record is read field by field`() throws {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    let contents = ring.decoded
    #expect(contents.defects.isEmpty)
    let record = try #require(contents.crashes.first)
    #expect(record.complete)
    #expect(record.parts == 0x3f)
    #expect(record.architecture == 62)
    #expect(record.pid == 100)
    #expect(record.tid == 200)
    #expect(record.signal == 11)
    #expect(record.code == 1)
    #expect(record.senderPID == 55)
    #expect(record.senderUID == 1000)
    #expect(record.address == 0xdead_beef)
    #expect(record.realtimeNanoseconds == 9_000)
    #expect(record.monotonicNanoseconds == 5_000)
    #expect(record.pc == 0x5555_0000_1234)
    #expect(record.sp == 0x7ffe_0000_1000)
    #expect(record.contextAddress == 0x7ffd_0000_0000)
    #expect(record.altstackAddress == 0x7ffc_0000_0000)
    #expect(record.altstackSize == 65_536)
    #expect(record.trapNumber == 14)
    #expect(record.errorCode == 6)
    #expect(record.registers == (1...23).map(UInt64.init))
    #expect(record.siginfo == (0..<128).map(UInt8.init))
    #expect(record.threadName == "worker-7")
    #expect(record.abortMessage == "free(): invalid pointer")
    #expect(record.exceptionLanguage == 3)
    #expect(record.exceptionType == "BadThings")
    #expect(record.exceptionReason == "it broke")
    #expect(record.exceptionFrames == [0x111, 0x222])
    #expect(record.stackAddress == 0x7ffe_0000_1000)
    #expect(record.stack == [UInt8](repeating: 0xa0, count: 64))
  }

  @Test func `one slot alone reads as it does in the whole ring`() throws {
    var ring = SampleRing()
    ring.addCrash(slot: 2)
    let start = SampleRing.slot(2)
    let alone = try #require(
      RingDecoder.crash(
        slot: 2, slotBytes: Array(ring.bytes[start..<(start + RingLayout.slotSize)])))
    #expect(alone.record == ring.decoded.crashes.first)
    #expect(alone.defects.isEmpty)
    #expect(
      RingDecoder.crash(slot: 0, slotBytes: [UInt8](repeating: 0, count: RingLayout.slotSize))
        == nil)
    #expect(
      RingDecoder.header(Array(ring.bytes[..<RingLayout.Header.size])) == ring.decoded.header)
  }

  @Test func `crashes come in the order of their time`() {
    var ring = SampleRing()
    ring.addCrash(slot: 0, signal: 6, monotonic: 900)
    ring.addCrash(slot: 1, signal: 11, monotonic: 100)
    #expect(ring.decoded.crashes.map(\.signal) == [11, 6])
  }

  @Test func `breadcrumbs come oldest first, also when they went round`() {
    var ring = SampleRing()
    for n in 0..<1500 { ring.addCrumb(n, "step \(n)") }
    let contents = ring.decoded
    #expect(contents.defects.isEmpty)
    #expect(contents.crumbs.map(\.index) == (476..<1500).map(UInt64.init))
    #expect(contents.crumbs.first?.message == "step 476")
    #expect(contents.crumbs.last?.message == "step 1499")
    #expect(contents.crumbs.last?.category == "net")
  }

  @Test func `annotations are read, removed ones are not`() {
    var ring = SampleRing()
    ring.addAnnotation(0, "version", "1.2")
    ring.addAnnotation(9, "gone", "")
    #expect(ring.decoded.annotations == ["version": "1.2"])
  }

  @Test func `the release word of a slot lies where the handler waits`() {
    #expect(RingLayout.releaseOffset(slot: 0) == 4096 + 8)
    #expect(RingLayout.releaseOffset(slot: 3) == 4096 + 3 * 40960 + 8)
  }
}

@Suite struct `What is torn is named` {
  @Test func `a record that was being written keeps its whole parts only`() throws {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    let at = SampleRing.slot(0)
    ring.put(RingLayout.SlotState.writing, at: at + RingLayout.Record.state)
    ring.put(
      RingLayout.Part.signal | RingLayout.Part.registers, at: at + RingLayout.Record.parts)
    let contents = ring.decoded
    #expect(contents.defects == [.tornCrashRecord(slot: 0)])
    let record = try #require(contents.crashes.first)
    #expect(!record.complete)
    #expect(record.signal == 11)
    #expect(record.registers.count == 23)
    #expect(record.threadName == "")
    #expect(record.abortMessage == "")
    #expect(record.exceptionType == "")
    #expect(record.stack.isEmpty)
  }

  @Test func `a slot that was claimed and never begun`() {
    var ring = SampleRing()
    ring.put(RingLayout.SlotState.writing, at: RingLayout.slotsOffset + RingLayout.Record.state)
    #expect(ring.decoded.defects == [.tornCrashRecord(slot: 0)])
    #expect(ring.decoded.crashes.map(\.complete) == [false])
  }

  @Test func `a breadcrumb that was taken over while it was copied`() {
    var ring = SampleRing()
    for n in 0..<3 { ring.addCrumb(n, "step") }
    ring.put(UInt64(0), at: SampleRing.crumb(1) + RingLayout.Crumb.end)
    #expect(ring.decoded.crumbs.map(\.index) == [0, 2])
    #expect(ring.decoded.defects == [.tornBreadcrumbs(count: 1)])
  }

  @Test func `more crashes than slots is no defect`() {
    var ring = SampleRing()
    for slot in 0..<4 { ring.addCrash(slot: slot) }
    ring.put(UInt32(900), at: RingLayout.Header.slotNext)
    #expect(ring.decoded.defects.isEmpty)
    #expect(ring.decoded.crashes.count == 4)
  }

  @Test func `breadcrumbs that were being written are counted`() {
    var ring = SampleRing()
    for n in 0..<4 { ring.addCrumb(n, "step") }
    for n in 1..<3 { ring.put(UInt64(2 * n + 1), at: SampleRing.crumb(n)) }
    #expect(ring.decoded.crumbs.map(\.index) == [0, 3])
    #expect(ring.decoded.defects == [.tornBreadcrumbs(count: 2)])
  }

  @Test func `an annotation that was being written`() {
    var ring = SampleRing()
    ring.addAnnotation(0, "a", "1")
    ring.addAnnotation(1, "b", "2")
    ring.put(UInt64(3), at: SampleRing.annotation(1))
    #expect(ring.decoded.annotations == ["a": "1"])
    #expect(ring.decoded.defects == [.tornAnnotations(count: 1)])
  }
}

@Suite struct `What cannot be is named and clamped` {
  static let lengths: [(Int, Int, String)] = [
    (RingLayout.Record.registerCount, 40, "register count"),
    (RingLayout.Record.abortMessageLength, 1024, "abort message"),
    (RingLayout.Record.exceptionTypeLength, 256, "exception type"),
    (RingLayout.Record.exceptionReasonLength, 1024, "exception reason"),
    (RingLayout.Record.exceptionFrameCount, 64, "exception frame count"),
    (RingLayout.Record.stackLength, 32768, "stack"),
  ]

  @Test(arguments: lengths, [UInt32(1), 0x8000_0000, .max])
  func `every length of a crash record`(_ length: (Int, Int, String), _ over: UInt32) {
    var ring = SampleRing()
    ring.addCrash(slot: 1)
    // The first slot was never claimed: no other defect.
    ring.addCrash(slot: 0)
    let (offset, limit, field) = length
    ring.put(
      UInt32(limit).addingReportingOverflow(over).overflow ? .max : UInt32(limit) &+ over,
      at: SampleRing.slot(1) + offset)
    let contents = ring.decoded
    #expect(contents.defects == [.badLength(field: "crash record 1, \(field)")])
    #expect(contents.crashes.count == 2)
    #expect(contents.crashes.allSatisfy { $0.stack.count <= 32768 && $0.registers.count <= 40 })
  }

  @Test func `the lengths of breadcrumbs and annotations`() {
    var ring = SampleRing()
    ring.addCrumb(0, "x")
    ring.put(UInt8(255), at: SampleRing.crumb(0) + RingLayout.Crumb.categoryLength)
    ring.put(UInt16.max, at: SampleRing.crumb(0) + RingLayout.Crumb.messageLength)
    ring.addAnnotation(0, "k", "v")
    ring.put(UInt16.max, at: SampleRing.annotation(0) + RingLayout.Annotation.valueLength)
    let contents = ring.decoded
    #expect(
      contents.defects == [
        .badLength(field: "breadcrumb category"), .badLength(field: "breadcrumb message"),
        .badLength(field: "annotation value"),
      ])
    #expect(contents.crumbs.count == 1)
  }

  @Test func `a breadcrumb in a place that is not its own, or never begun`() {
    var ring = SampleRing()
    ring.addCrumb(0, "x")
    ring.number(crumb: 0, 4)
    #expect(ring.decoded.crumbs.isEmpty)
    #expect(ring.decoded.defects == [.badValue(field: "breadcrumb sequence")])
    ring.addCrumb(0, "x")
    ring.number(crumb: 0, 2 * 1024 * 1000 + 2)
    #expect(ring.decoded.crumbs.isEmpty)
    #expect(ring.decoded.defects == [.badValue(field: "breadcrumb sequence")])
  }

  @Test func `addresses that would run over the end of memory`() {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    ring.put(UInt64.max - 3, at: SampleRing.slot(0) + RingLayout.Record.stackAddress)
    ring.put(UInt64.max - 3, at: SampleRing.slot(0) + RingLayout.Record.altstackAddress)
    let contents = ring.decoded
    #expect(contents.crashes.first?.stack == [])
    #expect(contents.crashes.first?.altstackSize == 0)
    #expect(
      contents.defects == [
        .badValue(field: "crash record 0, alternate stack"),
        .badValue(field: "crash record 0, stack address"),
      ])
  }

  @Test func `an unknown state of a slot is a torn record`() {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    ring.put(UInt32(77), at: SampleRing.slot(0) + RingLayout.Record.state)
    #expect(
      ring.decoded.defects == [
        .tornCrashRecord(slot: 0), .badValue(field: "crash record 0, state"),
      ])
    #expect(ring.decoded.crashes.first?.complete == false)
  }

  @Test func `a head that was overwritten does not lose the crash`() {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    ring.put(UInt64.max, at: 0)
    #expect(ring.decoded.defects == [.wrongMagic])
    #expect(ring.decoded.crashes.count == 1)
  }

  @Test func `a version from elsewhere is not guessed at`() {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    ring.put(UInt32(3), at: RingLayout.Header.version)
    #expect(ring.decoded.defects == [.unknownVersion(3)])
    #expect(ring.decoded.crashes.isEmpty)
  }

  @Test func `a short ring gives what it has`() {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    ring.addCrumb(0, "x")
    let cut = Array(ring.bytes[..<RingLayout.crumbsOffset])
    let contents = RingDecoder.decode(cut)
    #expect(contents.defects == [.shortRing(bytes: cut.count)])
    #expect(contents.crashes.count == 1)
    #expect(contents.crumbs.isEmpty)
    let empty = RingDecoder.decode([] as [UInt8])
    #expect(empty.defects == [.shortRing(bytes: 0), .wrongMagic])
  }
}

@Suite struct `Text of a hostile program is made harmless` {
  func message(_ raw: [UInt8]) -> String {
    var ring = SampleRing()
    ring.addCrumb(0, "")
    ring.put(UInt16(raw.count), at: SampleRing.crumb(0) + RingLayout.Crumb.messageLength)
    ring.put(raw, at: SampleRing.crumb(0) + RingLayout.Crumb.message)
    return ring.decoded.crumbs.first?.message ?? "?"
  }

  @Test func `controls are made visible`() {
    #expect(message(Array("a\u{1b}[2Jb\n\r\tc\0".utf8)) == "a\\u{1b}[2Jb\\n\\r\\tc\\u{0}")
    #expect(message([0x41, 0x7f]) == "A\\u{7f}")
    #expect(message(Array("\u{85}".utf8)) == "\\u{85}")
  }

  @Test func `directions and line separators are made visible`() {
    #expect(message(Array("a\u{202e}b\u{2028}c\u{feff}".utf8)) == "a\\u{202e}b\\u{2028}c\\u{feff}")
  }

  @Test func `letters of all languages stay`() {
    let text = "größe 名前 नमस्ते 👩‍👧 ∑"
    #expect(message(Array(text.utf8)) == text)
  }

  @Test func `what is no UTF-8 is replaced`() {
    #expect(message([0x61, 0xff, 0xc3, 0x28, 0x62]) == "a\u{fffd}\u{fffd}(b")
    #expect(message([0xed, 0xa0, 0x80]).unicodeScalars.allSatisfy { $0 == "\u{fffd}" })
  }

  @Test func `a thread's name ends before its NUL, or at its size`() {
    var ring = SampleRing()
    ring.addCrash(slot: 0)
    ring.put(
      Array("0123456789abcdefX".utf8), at: SampleRing.slot(0) + RingLayout.Record.threadName)
    #expect(ring.decoded.crashes.first?.threadName == "0123456789abcdef")
    ring.put(Array("ab\0cd".utf8), at: SampleRing.slot(0) + RingLayout.Record.threadName)
    #expect(ring.decoded.crashes.first?.threadName == "ab")
  }
}

@Suite struct `The bell is read` {
  static func bell(
    magic: UInt32 = 0x4c4c_4542, version: UInt32 = 2, slot: UInt32 = 2, tid: UInt32 = 4711,
    signal: UInt32 = 11
  ) -> [UInt8] {
    [magic, version, slot, tid, signal, 0].flatMap { word in
      (0..<4).map { UInt8(truncatingIfNeeded: word >> (8 * UInt32($0))) }
    }
  }

  @Test func `a whole one`() throws {
    let bell = try #require(RingBell(Self.bell()))
    #expect(bell.slot == 2)
    #expect(bell.tid == 4711)
    #expect(bell.signal == 11)
  }

  @Test func `anything else is none`() {
    #expect(RingBell([]) == nil)
    #expect(RingBell(Array(Self.bell().dropLast())) == nil)
    #expect(RingBell(Self.bell() + [0]) == nil)
    #expect(RingBell(Self.bell(magic: 1)) == nil)
    #expect(RingBell(Self.bell(version: 3)) == nil)
    #expect(RingBell(Self.bell(slot: 4)) == nil)
    #expect(RingBell(Self.bell(slot: .max)) == nil)
    #expect(RingBell(Self.bell(tid: 0)) == nil)
    #expect(RingBell(Self.bell(tid: .max)) == nil)
    #expect(RingBell(Self.bell(signal: 0)) == nil)
    #expect(RingBell(Self.bell(signal: 65)) == nil)
  }
}
