/// What a ring holds, as far as it can be believed: typed records and named defects.
package struct RingContents: Hashable, Sendable {
  package struct Header: Hashable, Sendable {
    package var life: UInt32 = 0
    package var handlerFlags: UInt32 = 0
    package var handlerRuns: UInt32 = 0
    package var heartbeat: UInt64 = 0
    package var replacedSignals: UInt64 = 0
    package init() {}
  }

  package struct CrashRecord: Hashable, Sendable {
    package var slot: Int
    /// false: the writer was cut off; `parts` says what is whole.
    package var complete: Bool
    /// Bits of `guardian_slot_part`.
    package var parts: UInt32 = 0
    package var architecture: UInt32 = 0
    /// In the program's own pid namespace.
    package var pid: Int32 = 0
    package var tid: Int32 = 0
    package var signal: Int32 = 0
    package var code: Int32 = 0
    package var error: Int32 = 0
    package var senderPID: Int32 = 0
    package var senderUID: UInt32 = 0
    package var address: UInt64 = 0
    package var realtimeNanoseconds: UInt64 = 0
    package var monotonicNanoseconds: UInt64 = 0
    package var pc: UInt64 = 0
    package var sp: UInt64 = 0
    package var contextAddress: UInt64 = 0
    package var altstackAddress: UInt64 = 0
    package var altstackSize: UInt64 = 0
    package var trapNumber: UInt64 = 0
    package var errorCode: UInt64 = 0
    package var registers: [UInt64] = []
    package var siginfo: [UInt8] = []
    package var threadName: String = ""
    package var abortMessage: String = ""
    package var exceptionLanguage: UInt32 = 0
    package var exceptionType: String = ""
    package var exceptionReason: String = ""
    package var exceptionFrames: [UInt64] = []
    package var stackAddress: UInt64 = 0
    package var stack: [UInt8] = []

    package init(slot: Int, complete: Bool) {
      self.slot = slot
      self.complete = complete
    }
  }

  package struct Crumb: Hashable, Sendable {
    package var index: UInt64
    package var realtimeNanoseconds: UInt64 = 0
    package var pid: Int32 = 0
    package var tid: Int32 = 0
    package var level: UInt8 = 0
    package var category: String = ""
    package var message: String = ""

    package init(index: UInt64) { self.index = index }
  }

  package var header = Header()
  package var crashes: [CrashRecord] = []
  /// Oldest first.
  package var crumbs: [Crumb] = []
  package var annotations: [String: String] = [:]
  package var defects: [Defect] = []
  package init() {}

  /// What is wrong with the bytes. Its description goes into the report.
  package enum Defect: Hashable, Sendable {
    case shortRing(bytes: Int)
    case wrongMagic
    case unknownVersion(UInt32)
    case tornCrashRecord(slot: Int)
    case tornBreadcrumbs(count: Int)
    case tornAnnotations(count: Int)
    case badLength(field: String)
    case badValue(field: String)
  }
}

extension RingContents {
  /// Each defect once: a hostile ring must not make a long list.
  mutating func note(_ defect: Defect) {
    if !defects.contains(defect) { defects.append(defect) }
  }
}

extension RingContents.Defect: CustomStringConvertible {
  package var description: String {
    switch self {
    case .shortRing(let bytes): "the ring has only \(bytes) bytes"
    case .wrongMagic: "the head of the ring was overwritten"
    case .unknownVersion(let version): "the ring is of the unknown version \(version)"
    case .tornCrashRecord(let slot): "crash record \(slot) was cut off while it was written"
    case .tornBreadcrumbs(let count):
      "\(count) breadcrumb\(count == 1 ? " was" : "s were") cut off while being written"
    case .tornAnnotations(let count):
      "\(count) annotation\(count == 1 ? " was" : "s were") cut off while being written"
    case .badLength(let field): "the ring's \(field) has an impossible length"
    case .badValue(let field): "the ring's \(field) has an impossible value"
    }
  }
}
