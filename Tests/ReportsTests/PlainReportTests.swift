import Glibc
import Kernel
import Policy
import Reports
import Ring
import Testing

@Suite struct PlainReportTests {
  /// A crash record as the handler writes it on x86-64.
  static func record(signal: Int32, code: Int32) -> RingContents.CrashRecord {
    var record = RingContents.CrashRecord(slot: 0, complete: true)
    record.parts = 0x1f
    record.architecture = 62
    record.pid = 4242
    record.tid = 4243
    record.signal = signal
    record.code = code
    record.pc = 0x401136
    record.sp = 0x7ffd_0000_1000
    record.trapNumber = 14
    record.errorCode = 4
    record.registers = (0..<18).map { UInt64($0) }
    record.threadName = "worker\n\u{1b}[31m"
    return record
  }

  static func ring(_ record: RingContents.CrashRecord) -> RingContents {
    var ring = RingContents()
    ring.crashes = [record]
    return ring
  }

  static func report(_ record: RingContents.CrashRecord) -> Report {
    var incident = Samples.incident(
      .signaled(Signal(rawValue: record.signal), coreDumped: false))
    incident.ring = ring(record)
    incident.slot = 0
    return PlainReport.make(from: incident)
  }

  struct Kind: Sendable {
    var signal: Int32
    var code: Int32
    var address: UInt64 = 0
    var pc: UInt64?
    var error: UInt64 = 4
    var trap: UInt64 = 14
    var sender: Int32 = 0
    var codeName: String?
    var shown: String?
    var says: String
  }

  @Test(arguments: [
    Kind(
      signal: 11, code: 1, address: 0x10, codeName: "SEGV_MAPERR", shown: "0x10",
      says: "null pointer dereference: read of address 0x10"),
    Kind(
      signal: 11, code: 1, address: 0, error: 6, codeName: "SEGV_MAPERR", shown: "0x0",
      says: "null pointer dereference: write to address 0x0"),
    Kind(
      signal: 11, code: 2, address: 0x402000, error: 7, codeName: "SEGV_ACCERR",
      shown: "0x402000", says: "write to read-only memory at 0x402000"),
    Kind(
      signal: 11, code: 2, address: 0x7f00_0000_0000, pc: 0x7f00_0000_0000, error: 0x15,
      codeName: "SEGV_ACCERR", shown: "0x7f0000000000",
      says: "execution of non-executable memory at 0x7f0000000000"),
    Kind(
      signal: 11, code: 1, address: 0, pc: 0, error: 0x14, codeName: "SEGV_MAPERR", shown: "0x0",
      says: "call of a null function pointer"),
    Kind(
      signal: 11, code: 1, address: 0x7ffd_0000_0ff8, error: 6, codeName: "SEGV_MAPERR",
      shown: "0x7ffd00000ff8",
      says: "stack overflow: write to 0x7ffd00000ff8, the stack pointer is 0x7ffd00001000"),
    Kind(
      signal: 11, code: 1, address: 0xdead_beef, codeName: "SEGV_MAPERR", shown: "0xdeadbeef",
      says: "read of unmapped memory at 0xdeadbeef"),
    Kind(
      signal: 11, code: 128, trap: 13, codeName: "SI_KERNEL",
      says: "general protection fault: misaligned vector access or privileged instruction"),
    Kind(
      signal: 11, code: 0, sender: 99, codeName: "SI_USER",
      says: "SIGSEGV was sent by pid 99 (kill), uid 1000"),
    Kind(
      signal: 6, code: -6, sender: 4242, codeName: "SI_TKILL", says: "the program called abort()"),
    Kind(
      signal: 7, code: 2, address: 0x7f00_0000_1000, codeName: "BUS_ADRERR",
      shown: "0x7f0000001000",
      says: "access beyond the end of a mapped file at 0x7f0000001000"),
    Kind(
      signal: 7, code: 1, trap: 17, codeName: "BUS_ADRALN", shown: "0x0",
      says: "misaligned memory access"),
    Kind(
      signal: 8, code: 1, address: 0x401136, trap: 0, codeName: "FPE_INTDIV", shown: "0x401136",
      says: "integer division by zero, or its result does not fit"),
    Kind(
      signal: 24, code: 128, codeName: "SI_KERNEL", says: "the limit of CPU time was reached"),
    Kind(
      signal: 25, code: 0, sender: 4242, codeName: "SI_USER",
      says: "the limit of a file's size was reached"),
    Kind(
      signal: 31, code: 1, codeName: "SYS_SECCOMP",
      says: "a seccomp filter forbade system call 59"),
  ])
  func `a signal is explained in one sentence`(kind: Kind) {
    var record = Self.record(signal: kind.signal, code: kind.code)
    record.address = kind.address
    record.pc = kind.pc ?? record.pc
    record.errorCode = kind.error
    record.trapNumber = kind.trap
    record.senderPID = kind.sender
    record.senderUID = 1000
    record.siginfo = [UInt8](repeating: 0, count: 24) + [59] + [UInt8](repeating: 0, count: 103)
    var incident = Samples.incident(.signaled(Signal(rawValue: kind.signal), coreDumped: false))
    incident.ring = Self.ring(record)
    incident.senderName = kind.sender == 99 ? "kill" : nil
    let report = PlainReport.make(from: incident)
    #expect(report.exception?.reason == kind.says)
    #expect(report.ending.signal?.codeName == kind.codeName)
    #expect(report.ending.signal?.address == kind.shown)
    #expect(report.ending.signal?.senderPID == (kind.sender == 0 ? nil : kind.sender))
    #expect(report.kind == .crash)
  }

  @Test func `a signal that was sent names its sender in the headline`() {
    var record = Self.record(signal: 11, code: 0)
    record.senderPID = 99
    var incident = Samples.incident()
    incident.ring = Self.ring(record)
    incident.senderName = "bash"
    var report = PlainReport.make(from: incident)
    report.threads = Samples.report().threads
    #expect(
      ReportText.headline(report) == "SIGSEGV sent by bash (pid 99), life 3 of api, up 2 h")
    incident.senderName = nil
    #expect(
      ReportText.headline(PlainReport.make(from: incident))
        == "SIGSEGV sent by pid 99, life 3 of api, up 2 h")
  }

  @Test func `who is killed by guardian is told so, and of others nothing is claimed`() {
    let killed = Ending.Status.signaled(Signal(rawValue: 9), coreDumped: false)
    var incident = Samples.incident(killed)
    #expect(
      PlainReport.make(from: incident).exception?.reason
        == "killed: by another process, by itself, or by the kernel for lack of memory")
    incident.ending = Ending(status: killed, cause: .stopTimeout)
    incident.stopTimeout = .seconds(3)
    #expect(
      PlainReport.make(from: incident).exception?.reason
        == "killed by guardian: it did not stop within 3 s of SIGTERM")
  }

  @Test func `a non-canonical address is found in its register`() {
    var record = Self.record(signal: 11, code: 128)
    record.registers[13] = 0xdead_beef_dead_beef
    record.trapNumber = 13
    #expect(
      Self.report(record).exception?.reason
        == "access to a non-canonical address (rax = 0xdeadbeefdeadbeef)")
  }

  @Test func `a ring alone gives the crashing thread with registers and one frame`() {
    var incident = Samples.incident()
    incident.ring = Self.ring(Self.record(signal: 11, code: 1))
    incident.process.maps = Array(
      """
      00400000-00401000 r--p 00000000 08:01 77                         /usr/bin/api
      00401000-00402000 r-xp 00001000 08:01 77                         /usr/bin/api
      7f0000000000-7f0000010000 rw-p 00000000 00:00 0
      7f0000020000-7f0000030000 r--p 00000000 08:01 78                 /usr/share/data
      7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                  [stack]
      """.utf8)
    let report = PlainReport.make(from: incident)
    #expect(report.modules.map(\.path) == ["/usr/bin/api"])
    #expect(report.threads.count == 1)
    #expect(report.threads[0].registers?["rip"] == "0x10")
    let frame = report.threads[0].frames[0]
    #expect(frame.trust == .context)
    #expect(frame.module == "api")
    #expect(frame.moduleOffset == "0x1136")
    #expect(report.capture.threads == .crashing)
  }

  @Test func `hostile names never reach a terminal`() {
    var record = Self.record(signal: 11, code: 1)
    record.threadName = "\u{1b}]0;owned\u{7}\n\u{202e}"
    var incident = Samples.incident()
    incident.ring = Self.ring(record)
    incident.ring?.annotations = ["a\u{9b}31m": "b\r\nx"]
    incident.stderr = [
      .init(
        time: incident.time, bytes: Array("\u{1b}[2J\u{0}".utf8) + [0xff, 0xfe], life: 3)
    ]
    incident.program.command = ["./a\u{1b}[1m"]
    let text = ReportText.render(PlainReport.make(from: incident))
    #expect(text.unicodeScalars.allSatisfy { $0 == "\n" || !$0.isUnsafeToShow })
    #expect(text.contains("\\x1b]0;owned\\x07\\n\\u{202e}"))
  }

  @Test func `only the last life's lines explain the ending`() {
    var incident = Samples.incident(.exited(1))
    let lines = ["Traceback (most recent call last):", "  File \"/a.py\", line 1, in f", "E: x"]
    incident.stderr = lines.map { .init(time: incident.time, bytes: Array($0.utf8), life: 2) }
    #expect(PlainReport.make(from: incident).kind == .exit)
    incident.stderr = lines.map { .init(time: incident.time, bytes: Array($0.utf8), life: 3) }
    let report = PlainReport.make(from: incident)
    #expect(report.kind == .crash)
    #expect(ReportText.headline(report) == "E: x, in f at a.py:1, life 3 of api, up 2 h")
  }

  @Test func `a fault that was survived is not blamed for a later exit`() {
    var incident = Samples.incident(.exited(0))
    incident.ring = Self.ring(Self.record(signal: 11, code: 1))
    let report = PlainReport.make(from: incident)
    #expect(report.kind == .exit)
    #expect(report.threads.isEmpty)
    #expect(report.exception == nil)
  }

  @Test func `an abort message is the reason`() {
    var record = Self.record(signal: 6, code: -6)
    record.abortMessage = "api: a.c:2: check: Assertion `x > 0' failed.\n"
    let report = Self.report(record)
    #expect(report.exception?.type == "assertion failed")
    #expect(report.exception?.source == .abortMessage)
  }

  @Test func `what the runtime told the handler comes first`() {
    var record = Self.record(signal: 6, code: -6)
    record.exceptionLanguage = 1
    record.exceptionType = "std::runtime_error"
    record.exceptionReason = "no card"
    record.exceptionFrames = [0x401200, 0x401300]
    let report = Self.report(record)
    #expect(report.exception?.type == "std::runtime_error")
    #expect(report.exception?.source == .terminate)
    #expect(report.exception?.frames?.count == 2)
  }

  @Test(arguments: [
    (Ending(status: .signaled(Signal(rawValue: 9), coreDumped: false)), Report.Kind.killed),
    (Ending(status: .signaled(Signal(rawValue: 15), coreDumped: false)), .killed),
    (
      Ending(
        status: .signaled(Signal(rawValue: 9), coreDumped: false), cause: .outOfMemory), .oom
    ),
    (Ending(status: .signaled(Signal(rawValue: 6), coreDumped: true), cause: .watchdog), .hang),
    (Ending(status: .signaled(Signal(rawValue: 11), coreDumped: true)), .crash),
    (Ending(status: .exited(3)), .exit), (Ending(status: .execFailed(errno: 2)), .execFailed),
    (Ending(status: .unknown), .exit),
  ])
  func `each ending has its kind and a report without a ring`(ending: Ending, kind: Report.Kind) {
    var incident = Samples.incident()
    incident.ending = ending
    let report = PlainReport.make(from: incident)
    #expect(report.kind == kind)
    #expect(Fingerprint.isValid(report.fingerprint))
    #expect(!ReportText.render(report).isEmpty)
  }

  @Test func `the verdict is told with its numbers`() {
    var incident = Samples.incident()
    incident.verdict = Verdict(
      decision: .restart(after: .milliseconds(250)), failures: 2, maxCrashes: 10,
      window: .seconds(600), reason: "2 of 10 failures within 10 min")
    let policy = PlainReport.make(from: incident).policy
    #expect(policy?.verdict == .restart)
    #expect(policy?.delayMilliseconds == 250)
    #expect(policy?.maxCrashes == 10)
    #expect(policy?.windowSeconds == 600)
  }

  @Test func `this process's own texts make sense`() {
    let texts = ProcessTexts.read(pid: getpid())
    let facts = texts.facts(redaction: Redaction())
    #expect((facts.residentBytes ?? 0) > 1 << 20)
    #expect((facts.threads ?? 0) >= 1)
    #expect((facts.openFiles ?? 0) >= 3)
    #expect(facts.limits?["Max open files"] != nil)
    #expect(facts.environment?["PATH"] != nil)
    #expect(texts.uid == getuid())
    #expect(texts.modules.contains { $0.path.contains("libc.so") })
    let host = Host.read(machineID: nil)
    #expect(host.kernel != nil && host.bootID != nil && (host.memoryBytes ?? 0) > 0)
  }

  @Test func `a record of another signal than the ending's is named`() {
    var incident = Samples.incident(.signaled(Signal(rawValue: 9), coreDumped: false))
    incident.ring = Self.ring(Self.record(signal: 11, code: 1))
    incident.slot = 0
    let report = PlainReport.make(from: incident)
    #expect(report.kind == .crash)
    #expect(
      report.capture.defects.contains(
        "the crash record is of SIGSEGV, the program ended by SIGKILL"))
  }
}
