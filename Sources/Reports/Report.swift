/// The report, schema `guardian.report/1`. Keys are these names; what is unknown is left out.
/// Times are RFC 3339 with microseconds, addresses `"0x…"` strings.
package struct Report: Codable, Hashable, Sendable {
  package enum Kind: String, Codable, Sendable {
    case crash, hang, oom, killed, exit
    case execFailed = "exec-failed"
  }

  package var schema = "guardian.report/1"
  /// UUIDv7.
  package var id: String
  package var time: String
  package var kind: Kind
  package var program: Program
  package var ending: EndingFacts
  package var exception: ExceptionFacts?
  package var threads: [ThreadFacts] = []
  package var modules: [Module] = []
  package var breadcrumbs: [Breadcrumb] = []
  package var annotations: [String: String] = [:]
  package var stderrTail: [StderrLine] = []
  package var host: Host
  package var process: ProcessFacts
  /// Left out where nothing was decided: a descendant's crash, a snapshot of a hang.
  package var policy: PolicyFacts?
  /// 32 hex digits; the plain report has a provisional one, made without symbols.
  package var fingerprint: String = ""
  package var group: Group?
  package var capture: CaptureFacts
  package var attachments: [Attachment] = []

  package init(
    id: String, time: String, kind: Kind, program: Program, ending: EndingFacts, host: Host,
    process: ProcessFacts, policy: PolicyFacts?, capture: CaptureFacts
  ) {
    self.id = id
    self.time = time
    self.kind = kind
    self.program = program
    self.ending = ending
    self.host = host
    self.process = process
    self.policy = policy
    self.capture = capture
  }
}

extension Report {
  /// The thread that tells the cause: the one that crashed; of a program that hung the main one.
  package var telling: ThreadFacts? {
    threads.first { $0.crashed }
      ?? (kind == .hang ? threads.first { $0.id == program.pid } ?? threads.first : nil)
  }
}

package struct Program: Codable, Hashable, Sendable {
  package enum Role: String, Codable, Sendable { case main, descendant }
  package var name: String
  /// Redacted.
  package var command: [String]
  package var executable: String?
  package var buildID: String?
  package var pid: Int32
  package var uid: UInt32?
  package var gid: UInt32?
  package var workingDirectory: String?
  package var startedAt: String?
  package var uptimeSeconds: Double?
  package var life: UInt32
  package var role: Role
  package init(name: String, command: [String], pid: Int32, life: UInt32, role: Role) {
    self.name = name
    self.command = command
    self.pid = pid
    self.life = life
    self.role = role
  }
}

package struct EndingFacts: Codable, Hashable, Sendable {
  package struct SignalFacts: Codable, Hashable, Sendable {
    package var number: Int32
    /// "SIGSEGV"
    package var name: String
    package var code: Int32?
    /// "SEGV_MAPERR"
    package var codeName: String?
    package var address: String?
    package var senderPID: Int32?
    package var senderUID: UInt32?
    /// Only while the sender still lives.
    package var senderName: String?
    /// What a seccomp filter forbade; with SIGSYS only.
    package var systemCall: SystemCall?
    package struct SystemCall: Codable, Hashable, Sendable {
      package var number: Int32
      /// As AUDIT_ARCH_… of linux/audit.h: numbers mean other calls on other processors.
      package var architecture: UInt32
      /// The reporter's: guardian itself has no table of names.
      package var name: String?
      package init(number: Int32, architecture: UInt32) {
        self.number = number
        self.architecture = architecture
      }
    }
    package init(number: Int32, name: String) {
      self.number = number
      self.name = name
    }
  }
  package var signal: SignalFacts?
  package var exitStatus: Int32?
  package var coreDumped: Bool = false
  package var stopRequested: Bool = false
  /// Why the program could not be executed.
  package var startFailure: String?
  package init() {}
}

package struct ExceptionFacts: Codable, Hashable, Sendable {
  package enum Source: String, Codable, Sendable {
    case abortMessage = "abort-message"
    case stderr, api, signal, terminate, guardian
  }
  package var type: String
  package var reason: String
  package var language: String?
  package var source: Source
  package var frames: [Frame]?
  package var causes: [ExceptionFacts]?
  package init(type: String, reason: String, source: Source) {
    self.type = type
    self.reason = reason
    self.source = source
  }
}

package struct ThreadFacts: Codable, Hashable, Sendable {
  package var id: Int32
  package var name: String?
  package var crashed: Bool
  package var registers: [String: String]?
  package var frames: [Frame]
  package init(id: Int32, crashed: Bool, frames: [Frame]) {
    self.id = id
    self.crashed = crashed
    self.frames = frames
  }
}

package struct Frame: Codable, Hashable, Sendable {
  package enum Trust: String, Codable, Sendable {
    case context, cfi, scan
    case framePointer = "frame-pointer"
  }
  package var index: Int
  /// Left out in frames that a runtime's own text names (a Python traceback).
  package var address: String?
  /// Demangled.
  package var function: String?
  package var rawFunction: String?
  /// From the function's start, bytes.
  package var offset: UInt64?
  /// Base name of the module.
  package var module: String?
  package var modulePath: String?
  package var moduleOffset: String?
  package var file: String?
  package var line: Int?
  package var column: Int?
  package var inlined: Bool = false
  /// How the frame was found; left out as `address` is.
  package var trust: Trust?
  package var inApp: Bool = true
  package init(index: Int, address: String?, trust: Trust?) {
    self.index = index
    self.address = address
    self.trust = trust
  }
}

package struct Module: Codable, Hashable, Sendable {
  package var path: String
  package var buildID: String?
  package var base: String
  package var end: String
  package init(path: String, buildID: String?, base: String, end: String) {
    self.path = path
    self.buildID = buildID
    self.base = base
    self.end = end
  }
}

package struct Breadcrumb: Codable, Hashable, Sendable {
  package var time: String
  package var level: String
  package var category: String
  package var message: String
  package var pid: Int32
  package var thread: Int32
  package init(
    time: String, level: String, category: String, message: String, pid: Int32, thread: Int32
  ) {
    self.time = time
    self.level = level
    self.category = category
    self.message = message
    self.pid = pid
    self.thread = thread
  }
}

package struct StderrLine: Codable, Hashable, Sendable {
  package var time: String
  package var text: String
  package init(time: String, text: String) {
    self.time = time
    self.text = text
  }
}

package struct Host: Codable, Hashable, Sendable {
  package var hostname: String?
  /// Hashed for this application: not the machine's id itself.
  package var machineID: String?
  package var os: String?
  package var kernel: String?
  package var architecture: String?
  package var bootID: String?
  package var cpus: Int?
  package var memoryBytes: UInt64?
  package init() {}
}

package struct ProcessFacts: Codable, Hashable, Sendable {
  package var residentBytes: UInt64?
  package var threads: Int?
  package var openFiles: Int?
  package var limits: [String: String]?
  /// Redacted.
  package var environment: [String: String]?
  package var cgroup: String?
  package var oomKills: UInt64?
  package var pressure: [String: String]?
  package init() {}
}

package struct PolicyFacts: Codable, Hashable, Sendable {
  package enum Decision: String, Codable, Sendable {
    case restart, stop
    case giveUp = "give-up"
  }
  package var verdict: Decision
  package var delayMilliseconds: Int?
  package var failures: Int
  package var maxCrashes: Int?
  package var windowSeconds: Double?
  package var reason: String
  package init(verdict: Decision, failures: Int, reason: String) {
    self.verdict = verdict
    self.failures = failures
    self.reason = reason
  }
}

package struct Group: Codable, Hashable, Sendable {
  package var count: Int
  package var firstSeen: String
  package var lastSeen: String
  package init(count: Int, firstSeen: String, lastSeen: String) {
    self.count = count
    self.firstSeen = firstSeen
    self.lastSeen = lastSeen
  }
}

package struct CaptureFacts: Codable, Hashable, Sendable {
  package enum Threads: String, Codable, Sendable { case all, crashing, none }
  /// "preloaded", "linked", "none: static executable", …
  package var handler: String
  package var threads: Threads
  /// How long the dying program was held.
  package var milliseconds: Double?
  package var defects: [String] = []
  package init(handler: String, threads: Threads) {
    self.handler = handler
    self.threads = threads
  }
}

package struct Attachment: Codable, Hashable, Sendable {
  package var name: String
  package var bytes: UInt64
  package init(name: String, bytes: UInt64) {
    self.name = name
    self.bytes = bytes
  }
}
