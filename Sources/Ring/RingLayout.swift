/// The byte layout of `guardian_ring.h`, mirrored: this target imports nothing, not even the
/// header. A test compares every number here with the C structs. Offsets are within their
/// record, sizes in bytes. Numbers are little-endian, as both machines we run on are.
package enum RingLayout {
  package static let magic: UInt64 = 0x3147_4e49_5244_5247
  package static let version: UInt32 = 2

  package static let headerSize = 4096
  package static let slotCount = 4
  package static let slotSize = 40960
  package static let crumbCount = 1024
  package static let crumbSize = 256
  package static let annotationCount = 64
  package static let annotationSize = 512

  package static let slotsOffset = headerSize
  package static let crumbsOffset = slotsOffset + slotCount * slotSize
  package static let annotationsOffset = crumbsOffset + crumbCount * crumbSize
  package static let size = annotationsOffset + annotationCount * annotationSize

  /// Where in the file the word lies that lets go of the handler that wrote slot `slot`.
  /// `slot` must be below `slotCount`.
  package static func releaseOffset(slot: Int) -> Int {
    precondition(slot >= 0 && slot < slotCount)
    return slotsOffset + slot * slotSize + Record.release
  }

  /// `struct guardian_ring_header`
  package enum Header {
    /// Of the struct; the rest of `headerSize` is unused.
    package static let size = 512
    package static let magic = 0
    package static let version = 8
    package static let ringSize = 12
    package static let life = 16
    package static let guardianPID = 20
    package static let captureTimeout = 24
    package static let handlerRunsMax = 28
    package static let handlerFlags = 256
    package static let handlerRuns = 260
    package static let slotNext = 264
    package static let crumbNext = 272
    package static let heartbeat = 280
    package static let replacedSignals = 288
  }

  /// `struct guardian_crash_record`
  package enum Record {
    package static let state = 0
    package static let parts = 4
    package static let release = 8
    package static let architecture = 12
    package static let pid = 16
    package static let tid = 20
    package static let signal = 24
    package static let code = 28
    package static let error = 32
    package static let senderPID = 36
    package static let senderUID = 40
    package static let registerCount = 44
    package static let address = 48
    package static let realtime = 56
    package static let monotonic = 64
    package static let pc = 72
    package static let sp = 80
    package static let contextAddress = 88
    package static let altstackAddress = 96
    package static let altstackSize = 104
    package static let trapNumber = 112
    package static let errorCode = 120
    package static let registers = 128
    package static let siginfo = registers + 8 * registerLimit
    package static let threadName = siginfo + siginfoSize
    package static let abortMessageLength = threadName + threadNameSize
    package static let exceptionLanguage = abortMessageLength + 4
    package static let exceptionTypeLength = abortMessageLength + 8
    package static let exceptionReasonLength = abortMessageLength + 12
    package static let exceptionFrameCount = abortMessageLength + 16
    package static let stackLength = abortMessageLength + 20
    package static let stackAddress = abortMessageLength + 24
    package static let abortMessage = stackAddress + 8
    package static let exceptionType = abortMessage + abortMessageSize
    package static let exceptionReason = exceptionType + exceptionTypeSize
    package static let exceptionFrames = exceptionReason + exceptionReasonSize
    package static let stack = exceptionFrames + 8 * exceptionFrameLimit
    package static let size = stack + stackSize

    package static let registerLimit = 40
    package static let siginfoSize = 128
    package static let threadNameSize = 16
    package static let abortMessageSize = 1024
    package static let exceptionTypeSize = 256
    package static let exceptionReasonSize = 1024
    package static let exceptionFrameLimit = 64
    package static let stackSize = 32768
  }

  /// `enum guardian_slot_state`
  package enum SlotState {
    package static let free: UInt32 = 0
    package static let writing: UInt32 = 1
    package static let complete: UInt32 = 2
  }

  /// `enum guardian_slot_part`
  package enum Part {
    package static let signal: UInt32 = 1 << 0
    package static let registers: UInt32 = 1 << 1
    package static let thread: UInt32 = 1 << 2
    package static let abortMessage: UInt32 = 1 << 3
    package static let stack: UInt32 = 1 << 4
    package static let exception: UInt32 = 1 << 5
    static let all: UInt32 = (1 << 6) - 1
  }

  /// `enum guardian_handler_flag`
  package enum HandlerFlag {
    package static let loaded: UInt32 = 1 << 0
    package static let installed: UInt32 = 1 << 1
    package static let bell: UInt32 = 1 << 2
    package static let altstack: UInt32 = 1 << 3
    package static let noMemory: UInt32 = 1 << 4
    package static let library: UInt32 = 1 << 5
  }

  /// `struct guardian_crumb`
  package enum Crumb {
    package static let sequence = 0
    package static let realtime = 8
    package static let pid = 16
    package static let tid = 20
    package static let level = 24
    package static let categoryLength = 25
    package static let messageLength = 26
    package static let category = 32
    package static let message = category + categorySize
    package static let end = message + messageSize
    package static let categorySize = 24
    package static let messageSize = 192
    package static let levelMax: UInt8 = 4
  }

  /// `struct guardian_annotation`
  package enum Annotation {
    package static let sequence = 0
    package static let keyLength = 8
    package static let valueLength = 10
    package static let key = 16
    package static let value = key + keySize
    package static let keySize = 64
    package static let valueSize = 432
  }

  /// `struct guardian_bell`
  package enum Bell {
    package static let magic: UInt32 = 0x4c4c_4542
    package static let size = 24
    package static let version = 4
    package static let slot = 8
    package static let tid = 12
    package static let signal = 16
  }
}
