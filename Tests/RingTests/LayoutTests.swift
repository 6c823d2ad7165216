// The layout that this target mirrors is the header's, number by number.
import CrashHandler
import Ring
import Testing

@Suite struct `The mirrored layout is the header's` {
  @Test func `sizes and counts`() {
    #expect(RingLayout.headerSize == GUARDIAN_RING_HEADER_SIZE)
    #expect(RingLayout.slotCount == GUARDIAN_RING_SLOT_COUNT)
    #expect(RingLayout.slotSize == GUARDIAN_RING_SLOT_SIZE)
    #expect(RingLayout.crumbCount == GUARDIAN_RING_CRUMB_COUNT)
    #expect(RingLayout.crumbSize == GUARDIAN_RING_CRUMB_SIZE)
    #expect(RingLayout.annotationCount == GUARDIAN_RING_ANNOTATION_COUNT)
    #expect(RingLayout.annotationSize == GUARDIAN_RING_ANNOTATION_SIZE)
    #expect(RingLayout.slotsOffset == GUARDIAN_RING_SLOT_OFFSET)
    #expect(RingLayout.crumbsOffset == GUARDIAN_RING_CRUMB_OFFSET)
    #expect(RingLayout.annotationsOffset == GUARDIAN_RING_ANNOTATION_OFFSET)
    #expect(RingLayout.size == GUARDIAN_RING_SIZE)
    #expect(RingLayout.version == GUARDIAN_RING_VERSION)
    #expect(RingLayout.Bell.magic == GUARDIAN_BELL_MAGIC)
    // The macro cannot be imported; its comment says what it spells.
    let spelled = (0..<8).map { UInt8(truncatingIfNeeded: RingLayout.magic >> UInt64(8 * $0)) }
    #expect(String(decoding: spelled, as: UTF8.self) == "GRDRING1")
  }

  @Test func `the header`() {
    typealias C = guardian_ring_header
    typealias Field = RingLayout.Header
    #expect(Field.size == MemoryLayout<C>.size)
    #expect(Field.magic == MemoryLayout<C>.offset(of: \.magic))
    #expect(Field.version == MemoryLayout<C>.offset(of: \.version))
    #expect(Field.ringSize == MemoryLayout<C>.offset(of: \.size))
    #expect(Field.life == MemoryLayout<C>.offset(of: \.life))
    #expect(Field.guardianPID == MemoryLayout<C>.offset(of: \.guardian_pid))
    #expect(Field.captureTimeout == MemoryLayout<C>.offset(of: \.capture_timeout_ms))
    #expect(Field.handlerRunsMax == MemoryLayout<C>.offset(of: \.handler_runs_max))
    #expect(Field.handlerFlags == MemoryLayout<C>.offset(of: \.handler_flags))
    #expect(Field.handlerRuns == MemoryLayout<C>.offset(of: \.handler_runs))
    #expect(Field.slotNext == MemoryLayout<C>.offset(of: \.slot_next))
    #expect(Field.crumbNext == MemoryLayout<C>.offset(of: \.crumb_next))
    #expect(Field.heartbeat == MemoryLayout<C>.offset(of: \.heartbeat))
    #expect(Field.replacedSignals == MemoryLayout<C>.offset(of: \.replaced_signals))
  }

  @Test func `the crash record`() {
    typealias C = guardian_crash_record
    typealias Field = RingLayout.Record
    #expect(Field.size == MemoryLayout<C>.size)
    #expect(Field.state == MemoryLayout<C>.offset(of: \.state))
    #expect(Field.parts == MemoryLayout<C>.offset(of: \.parts))
    #expect(Field.release == MemoryLayout<C>.offset(of: \.release))
    #expect(Field.architecture == MemoryLayout<C>.offset(of: \.architecture))
    #expect(Field.pid == MemoryLayout<C>.offset(of: \.pid))
    #expect(Field.tid == MemoryLayout<C>.offset(of: \.tid))
    #expect(Field.signal == MemoryLayout<C>.offset(of: \.signal))
    #expect(Field.code == MemoryLayout<C>.offset(of: \.code))
    #expect(Field.error == MemoryLayout<C>.offset(of: \.error))
    #expect(Field.senderPID == MemoryLayout<C>.offset(of: \.sender_pid))
    #expect(Field.senderUID == MemoryLayout<C>.offset(of: \.sender_uid))
    #expect(Field.registerCount == MemoryLayout<C>.offset(of: \.register_count))
    #expect(Field.address == MemoryLayout<C>.offset(of: \.address))
    #expect(Field.realtime == MemoryLayout<C>.offset(of: \.realtime_ns))
    #expect(Field.monotonic == MemoryLayout<C>.offset(of: \.monotonic_ns))
    #expect(Field.pc == MemoryLayout<C>.offset(of: \.pc))
    #expect(Field.sp == MemoryLayout<C>.offset(of: \.sp))
    #expect(Field.contextAddress == MemoryLayout<C>.offset(of: \.context_address))
    #expect(Field.altstackAddress == MemoryLayout<C>.offset(of: \.altstack_address))
    #expect(Field.altstackSize == MemoryLayout<C>.offset(of: \.altstack_size))
    #expect(Field.trapNumber == MemoryLayout<C>.offset(of: \.trap_number))
    #expect(Field.errorCode == MemoryLayout<C>.offset(of: \.error_code))
    #expect(Field.registers == MemoryLayout<C>.offset(of: \.registers))
    #expect(Field.siginfo == MemoryLayout<C>.offset(of: \.siginfo))
    #expect(Field.threadName == MemoryLayout<C>.offset(of: \.thread_name))
    #expect(Field.abortMessageLength == MemoryLayout<C>.offset(of: \.abort_message_length))
    #expect(Field.exceptionLanguage == MemoryLayout<C>.offset(of: \.exception_language))
    #expect(Field.exceptionTypeLength == MemoryLayout<C>.offset(of: \.exception_type_length))
    #expect(
      Field.exceptionReasonLength == MemoryLayout<C>.offset(of: \.exception_reason_length))
    #expect(Field.exceptionFrameCount == MemoryLayout<C>.offset(of: \.exception_frame_count))
    #expect(Field.stackLength == MemoryLayout<C>.offset(of: \.stack_length))
    #expect(Field.stackAddress == MemoryLayout<C>.offset(of: \.stack_address))
    #expect(Field.abortMessage == MemoryLayout<C>.offset(of: \.abort_message))
    #expect(Field.exceptionType == MemoryLayout<C>.offset(of: \.exception_type))
    #expect(Field.exceptionReason == MemoryLayout<C>.offset(of: \.exception_reason))
    #expect(Field.exceptionFrames == MemoryLayout<C>.offset(of: \.exception_frames))
    // An array this long is not imported; it is the last field.
    #expect(Field.stack == MemoryLayout<C>.size - Int(GUARDIAN_RING_STACK_SIZE))
    #expect(Field.registerLimit == GUARDIAN_RING_REGISTER_COUNT)
    #expect(Field.siginfoSize == GUARDIAN_RING_SIGINFO_SIZE)
    #expect(Field.threadNameSize == GUARDIAN_RING_THREAD_NAME_SIZE)
    #expect(Field.abortMessageSize == GUARDIAN_RING_ABORT_MESSAGE_SIZE)
    #expect(Field.exceptionTypeSize == GUARDIAN_RING_EXCEPTION_TYPE_SIZE)
    #expect(Field.exceptionReasonSize == GUARDIAN_RING_EXCEPTION_REASON_SIZE)
    #expect(Field.exceptionFrameLimit == GUARDIAN_RING_EXCEPTION_FRAME_COUNT)
    #expect(Field.stackSize == GUARDIAN_RING_STACK_SIZE)
  }

  @Test func `states, parts and flags`() {
    #expect(RingLayout.SlotState.free == GUARDIAN_SLOT_FREE.rawValue)
    #expect(RingLayout.SlotState.writing == GUARDIAN_SLOT_WRITING.rawValue)
    #expect(RingLayout.SlotState.complete == GUARDIAN_SLOT_COMPLETE.rawValue)
    #expect(RingLayout.Part.signal == GUARDIAN_PART_SIGNAL.rawValue)
    #expect(RingLayout.Part.registers == GUARDIAN_PART_REGISTERS.rawValue)
    #expect(RingLayout.Part.thread == GUARDIAN_PART_THREAD.rawValue)
    #expect(RingLayout.Part.abortMessage == GUARDIAN_PART_ABORT_MESSAGE.rawValue)
    #expect(RingLayout.Part.stack == GUARDIAN_PART_STACK.rawValue)
    #expect(RingLayout.Part.exception == GUARDIAN_PART_EXCEPTION.rawValue)
    #expect(RingLayout.HandlerFlag.loaded == GUARDIAN_HANDLER_LOADED.rawValue)
    #expect(RingLayout.HandlerFlag.installed == GUARDIAN_HANDLER_INSTALLED.rawValue)
    #expect(RingLayout.HandlerFlag.bell == GUARDIAN_HANDLER_BELL.rawValue)
    #expect(RingLayout.HandlerFlag.altstack == GUARDIAN_HANDLER_ALTSTACK.rawValue)
    #expect(RingLayout.HandlerFlag.noMemory == GUARDIAN_HANDLER_NO_MEMORY.rawValue)
    #expect(RingLayout.HandlerFlag.library == GUARDIAN_HANDLER_LIBRARY.rawValue)
    #expect(UInt32(RingLayout.Crumb.levelMax) == GUARDIAN_FATAL.rawValue)
  }

  @Test func `breadcrumb, annotation and bell`() {
    typealias Crumb = guardian_crumb
    #expect(RingLayout.crumbSize == MemoryLayout<Crumb>.size)
    #expect(RingLayout.Crumb.sequence == MemoryLayout<Crumb>.offset(of: \.sequence))
    #expect(RingLayout.Crumb.realtime == MemoryLayout<Crumb>.offset(of: \.realtime_ns))
    #expect(RingLayout.Crumb.pid == MemoryLayout<Crumb>.offset(of: \.pid))
    #expect(RingLayout.Crumb.tid == MemoryLayout<Crumb>.offset(of: \.tid))
    #expect(RingLayout.Crumb.level == MemoryLayout<Crumb>.offset(of: \.level))
    #expect(RingLayout.Crumb.categoryLength == MemoryLayout<Crumb>.offset(of: \.category_length))
    #expect(RingLayout.Crumb.messageLength == MemoryLayout<Crumb>.offset(of: \.message_length))
    #expect(RingLayout.Crumb.category == MemoryLayout<Crumb>.offset(of: \.category))
    #expect(RingLayout.Crumb.message == MemoryLayout<Crumb>.offset(of: \.message))
    #expect(RingLayout.Crumb.end == MemoryLayout<Crumb>.offset(of: \.end))
    #expect(RingLayout.Crumb.categorySize == GUARDIAN_RING_CRUMB_CATEGORY_SIZE)
    #expect(RingLayout.Crumb.messageSize == GUARDIAN_RING_CRUMB_MESSAGE_SIZE)

    typealias Annotation = guardian_annotation
    #expect(RingLayout.annotationSize == MemoryLayout<Annotation>.size)
    #expect(RingLayout.Annotation.sequence == MemoryLayout<Annotation>.offset(of: \.sequence))
    #expect(RingLayout.Annotation.keyLength == MemoryLayout<Annotation>.offset(of: \.key_length))
    #expect(
      RingLayout.Annotation.valueLength == MemoryLayout<Annotation>.offset(of: \.value_length))
    #expect(RingLayout.Annotation.key == MemoryLayout<Annotation>.offset(of: \.key))
    #expect(RingLayout.Annotation.value == MemoryLayout<Annotation>.offset(of: \.value))
    #expect(RingLayout.Annotation.keySize == GUARDIAN_RING_ANNOTATION_KEY_SIZE)
    #expect(RingLayout.Annotation.valueSize == GUARDIAN_RING_ANNOTATION_VALUE_SIZE)

    typealias Bell = guardian_bell
    #expect(RingLayout.Bell.size == MemoryLayout<Bell>.size)
    #expect(RingLayout.Bell.version == MemoryLayout<Bell>.offset(of: \.version))
    #expect(RingLayout.Bell.slot == MemoryLayout<Bell>.offset(of: \.slot))
    #expect(RingLayout.Bell.tid == MemoryLayout<Bell>.offset(of: \.tid))
    #expect(RingLayout.Bell.signal == MemoryLayout<Bell>.offset(of: \.signal))
  }
}
