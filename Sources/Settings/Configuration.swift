// Every option's value after all sources were merged. Supervision takes this and nothing else; it
// never learns where a value came from.
import Policy

/// A variable of the program's environment.
package struct EnvironmentVariable: Hashable, Sendable {
  package let name: String
  package let value: String
  package init(name: String, value: String) {
    self.name = name
    self.value = value
  }
}

/// What else counts as a clean ending besides exit code 0.
package enum SuccessStatus: Hashable, Sendable {
  case code(Int32)
  case signal(Signal)
}

/// When guardian restarts a program that ended of its own (systemd.service(5), `Restart=`).
package typealias RestartCondition = RestartPolicy.Mode

/// Whom a stop signals and kills.
package enum KillMode: String, CaseIterable, Hashable, Sendable {
  /// Every descendant, wherever it went.
  case tree
  /// The program's process group.
  case group
  /// The main process alone.
  case process
}

/// Whom a signal that guardian passes on reaches.
package enum ForwardTarget: String, CaseIterable, Hashable, Sendable {
  /// The main process alone.
  case process
  /// The program's process group.
  case group
}

/// One signal instead of another.
package struct SignalRewrite: Hashable, Sendable {
  package let from: Signal
  /// nil: the program gets none.
  package let to: Signal?
}

/// What happens to the program when guardian itself is killed.
package enum OnGuardianDeath: String, CaseIterable, Hashable, Sendable {
  case kill
  case keep
}

/// When the program counts as ready.
package enum Readiness: Hashable, Sendable {
  /// As soon as exec succeeded.
  case exec
  /// When it says READY=1 on its NOTIFY_SOCKET.
  case notify
  /// When it writes a line to this descriptor.
  case descriptor(Int32)
}

/// Where the program's standard input comes from.
package enum InputSource: String, CaseIterable, Hashable, Sendable {
  case inherit
  case null
}

/// Where the program's standard output or error goes.
package enum OutputTarget: Hashable, Sendable {
  case inherit
  /// guardian's own, not through guardian; for standard output the same as `inherit`.
  case direct
  case null
  case journal
  case file(String)
}

/// Whether the kernel may write a core of its own for a program that crashed.
package enum KernelCore: String, CaseIterable, Hashable, Sendable {
  /// As without guardian.
  case keep
  case none
}

/// A resource limit, setrlimit(2). nil: infinity.
package struct ResourceLimit: Hashable, Sendable {
  /// As in `prlimit`, lower case: "nofile", "core", …
  package let name: String
  package let soft: UInt64?
  package let hard: UInt64?
}

/// How much guardian says of its own doings on standard error.
package enum Verbosity: Hashable, Sendable, Comparable {
  /// Errors only.
  case quiet
  /// Endings, verdicts and what was lost.
  case normal
  /// Every step.
  case verbose
}

package struct Configuration: Hashable, Sendable {
  // Which program.

  /// From --name, else from the file, else derived from the command. Always valid
  /// (`ProgramName.isValid`).
  package internal(set) var name = ""
  /// false: derived from the command; when it is taken, a number may be put behind it.
  package internal(set) var nameIsGiven = false
  package var command: [String] = []
  /// Where in guardian's own argument vector the command starts; nil: it came from the file.
  /// Arguments need not be UTF-8: exec from the original vector, and show `command`.
  package var commandStart: Int?
  /// Absolute path; nil: none was given.
  package var configurationFile: String?
  /// Only look whether the configuration is right; start nothing.
  package var check = false

  // Restart policy.

  package var restart = RestartCondition.onFailure
  /// nil: no cap.
  package var maxCrashes: Int? = 10
  /// nil: the whole life of guardian.
  package var crashWindow: Duration? = .seconds(600)
  package var restartDelay = Duration.milliseconds(100)
  package var restartBackoff = 2.0
  package var restartDelayMax = Duration.seconds(30)
  package var stableAfter = Duration.seconds(10)
  /// 0: off.
  package var maxIdentical = 0
  package var successExitStatus: [SuccessStatus] = []
  package var exitAsSignal = false
  /// A command line for /bin/sh.
  package var onGiveUp: String?

  // Start.

  package var workingDirectory: String?
  /// Added to guardian's own environment, in order, names unique.
  package var environment: [EnvironmentVariable] = []
  /// Absolute; with a `-` before it the file may be missing. Later ones are stronger.
  package var environmentFiles: [String] = []
  /// What the files said when they were last read; `environment` is stronger.
  package internal(set) var fileEnvironment: [FileVariable] = []
  package var user: String?
  package var group: String?
  /// What `user` and `group` stood for when they were last looked up.
  package internal(set) var account = Account()
  package var umask: UInt32?
  package var nice: Int?
  package var oomScoreAdjust: Int?
  package var limits: [ResourceLimit] = []
  package var standardInput = InputSource.inherit
  package var standardOutput = OutputTarget.inherit
  package var standardError = OutputTarget.inherit
  /// Bytes at which a file of output is rotated; nil: never.
  package var logBytes: UInt64? = 16 << 20
  /// Rotated files that are kept.
  package var logKeep = 4
  /// Opened by guardian and handed to every life.
  package var listen: [ListenAddress] = []
  /// Sockets in all, with those that the service manager passed.
  package static let listenLimit = 32

  // Readiness and health.

  package var ready = Readiness.exec
  /// nil: infinity.
  package var startTimeout: Duration?
  /// What holds when nobody sets it and the program has to say that it is ready: systemd's own.
  package static let startTimeoutOfReadiness = Duration.seconds(90)
  /// nil: no watchdog.
  package var watchdog: Duration?
  /// A command line for /bin/sh. At most one of the three is set.
  package var healthExec: String?
  package var healthTCP: NetworkAddress?
  package var healthHTTP: HealthURL?
  /// From the start to the first probe, and from the end of one to the next.
  package var healthInterval = Duration.seconds(30)
  /// Of one probe.
  package var healthTimeout = Duration.seconds(30)
  /// So many failures in a row are a hang.
  package var healthRetries = 3
  /// From the start of a life: failures within it do not count, until a probe succeeds.
  package var healthStartPeriod = Duration.zero

  // Stop.

  package var stopSignal = Signal(rawValue: 15)
  /// nil: infinity.
  package var stopTimeout: Duration? = .seconds(8)
  package var killMode = KillMode.tree
  package var signalRewrites: [SignalRewrite] = []
  package var forwardTo = ForwardTarget.process
  package var onGuardianDeath = OnGuardianDeath.kill

  // Reports.

  package var captureTimeout = Duration.seconds(2)
  /// nil: infinity.
  package var reportTimeout: Duration? = .seconds(30)
  package var handler = true
  package var kernelCore = KernelCore.keep
  /// nil: all.
  package var reportsKeep: Int? = 100
  /// nil: no limit.
  package var reportsBytes: UInt64? = 256 << 20
  /// Further names whose values are secret, besides the built-in ones.
  package var redact: [String] = []

  // Places.

  /// As given with --state-directory, made absolute; nil: the default of `places`.
  package var givenStateDirectory: String?
  /// As given with --runtime-directory, made absolute; nil: the default of `places`.
  package var givenRuntimeDirectory: String?
  /// Absolute; nil: no metrics.
  package var metricsFile: String?
  package internal(set) var places = Places(state: "", runtime: "")

  /// The tables [[deliver]] of the file, unread: whoever delivers reads them.
  package internal(set) var deliveries: [TomlTable] = []

  /// Lines for people about what is odd and not wrong.
  package internal(set) var warnings: [String] = []

  package var quiet = false
  package var verbose = false

  package init() {}

  /// The folder of reports and of the state file; absolute.
  package var stateDirectory: String { givenStateDirectory ?? places.state + "/" + name }
  /// The folder of channels, sockets and locks; absolute.
  package var runtimeDirectory: String { givenRuntimeDirectory ?? places.runtime + "/" + name }
  /// The program says on a descriptor of its own that it is ready.
  package var readyByPipe: Bool { if case .descriptor = ready { true } else { false } }
  package var verbosity: Verbosity { quiet ? .quiet : verbose ? .verbose : .normal }

  /// Another name for a derived one that is taken: "api" becomes "api-2".
  package mutating func number(_ number: Int) {
    precondition(!nameIsGiven, "a given name is kept or refused")
    name = ProgramName.numbered(name, number)
  }

  /// The usual place of runtime folders cannot be written to.
  package mutating func takeLastResort(uid: UInt32) {
    places = Places(state: places.state, runtime: Places.lastResort(uid: uid))
  }

  /// What --check says when all is well.
  var summary: String {
    let shown = command.map { quoted($0, limit: 200) }.joined(separator: " ")
    let unit = nameOfUnit
    return "guardian: the configuration of '\(unit ?? name)' is right"
      + (unit.map { " (as the unit guardian@\($0))" } ?? "") + "; it would start \(shown)\n"
  }

  /// What is right and may still not be what was meant, for --check.
  package var remarks: [String] {
    guard let instance, nameIsGiven, name != instance else { return [] }
    return [
      "the name is \(quoted(name)), but the unit guardian@\(instance) gives its own, "
        + "\(quoted(instance)): leave name out of the file"
    ]
  }

  /// The unit of this file gives its name; nil: a name is given, or no unit reads this file.
  private var nameOfUnit: String? { nameIsGiven ? nil : instance }

  /// NAME of the unit guardian@NAME.service, which reads this file; nil: none does.
  package var instance: String? {
    let (start, end) = ("/etc/guardian/", ".toml")
    guard let path = configurationFile, path.hasPrefix(start), path.hasSuffix(end) else {
      return nil
    }
    let stem = String(path.dropFirst(start.count).dropLast(end.count))
    return ProgramName.isValid(stem) ? stem : nil
  }
}
