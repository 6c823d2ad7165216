// What a guardian answers: JSON objects, one a packet. The same values are what `--json` prints,
// so their keys stay. Times are milliseconds unless the key says otherwise.

/// One packet. Exactly one of the parts is there.
package struct ControlAnswer: Codable, Sendable {
  package var status: ControlStatus?
  package var why: ControlWhy?
  package var reload: ControlReload?
  package var lines: [ControlLine]?
  /// Bytes that were left out because they were not taken in time.
  package var dropped: UInt64?
  package var event: ControlEvent?
  package var error: String?
  /// What guardianctl is to leave with; only beside `error` and `status`.
  package var exit: Int32?

  package init(
    status: ControlStatus? = nil, why: ControlWhy? = nil, reload: ControlReload? = nil,
    lines: [ControlLine]? = nil,
    dropped: UInt64? = nil, event: ControlEvent? = nil, error: String? = nil, exit: Int32? = nil
  ) {
    self.status = status
    self.why = why
    self.reload = reload
    self.lines = lines
    self.dropped = dropped
    self.event = event
    self.error = error
    self.exit = exit
  }
}

package struct ControlStatus: Codable, Sendable {
  package var name: String
  /// "starting", "running", "captured", "stopping", "hanging", "killed", "ended", "waiting",
  /// "stopped", "leaving"; without a guardian "dead", "unguarded" (the program outlived it) and
  /// "unreachable".
  package var state: String
  /// One line for people.
  package var sentence: String
  package var guardianPID: Int32?
  package var life: UInt32?
  package var pid: Int32?
  /// RFC 3339.
  package var started: String?
  package var uptime: Int64?
  /// Of the main process: resident memory, and the time it had on a processor.
  package var memoryBytes: UInt64?
  package var cpu: Int64?
  /// Since this guardian began.
  package var restarts: UInt32?
  package var failures: Int?
  /// Absent: no cap.
  package var maxCrashes: Int?
  /// Absent: the whole life of guardian.
  package var crashWindow: Int64?
  package var lastEnding: String?
  package var lastEndingTime: String?
  package var lastVerdict: String?
  package var lastReport: String?
  package var nextRestart: Int64?
  /// The program's own words (STATUS=).
  package var programStatus: String?
  /// What the health probes find.
  package var health: String?
  package var handler: String?
  package var command: [String]?
  package var stateDirectory: String?
  package var runtimeDirectory: String?
  /// Whose guardian it is, as the kernel says; guardianctl's addition, where it is another user's.
  package var user: String?
  /// Without a guardian: a command line that starts one.
  package var startAgain: String?
  /// What guardianctl leaves with, where the state does not tell; not part of the answer.
  package var exit: Int32?

  package init(name: String, state: String, sentence: String) {
    self.name = name
    self.state = state
    self.sentence = sentence
  }

  /// As systemctl: 0 while it runs, else 3.
  package var exitStatus: Int32 {
    if let exit { return exit }
    return switch state {
    case "running", "starting", "captured", "hanging", "stopping": 0
    default: 3
    }
  }

  private enum CodingKeys: String, CodingKey {
    case name, state, sentence
    case guardianPID = "guardian_pid"
    case life, pid, started
    case uptime = "uptime_ms"
    case memoryBytes = "memory_bytes"
    case cpu = "cpu_ms"
    case restarts, failures
    case maxCrashes = "max_crashes"
    case crashWindow = "crash_window_ms"
    case lastEnding = "last_ending"
    case lastEndingTime = "last_ending_time"
    case lastVerdict = "last_verdict"
    case lastReport = "last_report"
    case nextRestart = "next_restart_ms"
    case programStatus = "program_status"
    case health, handler, command
    case stateDirectory = "state_directory"
    case runtimeDirectory = "runtime_directory"
    case user
    case startAgain = "start_again"
  }
}

package struct ControlWhy: Codable, Sendable {
  package struct Failure: Codable, Sendable {
    package var life: UInt32
    package var ending: String
    package var ago: Int64
    /// Absent: never.
    package var forgottenIn: Int64?

    package init(life: UInt32, ending: String, ago: Int64, forgottenIn: Int64?) {
      self.life = life
      self.ending = ending
      self.ago = ago
      self.forgottenIn = forgottenIn
    }
    private enum CodingKeys: String, CodingKey {
      case life, ending
      case ago = "ago_ms"
      case forgottenIn = "forgotten_in_ms"
    }
  }

  package var name: String
  /// How many count now.
  package var failures: Int
  package var maxCrashes: Int?
  package var crashWindow: Int64?
  /// Restarts in a row without a stable life between.
  package var row: Int
  /// Before the restart after a further failure.
  package var nextDelay: Int64
  package var lastVerdict: String?
  /// Oldest first, the last ones.
  package var list: [Failure]
  /// What would make the count smaller: sentences.
  package var resets: [String]

  package init(
    name: String, failures: Int, maxCrashes: Int?, crashWindow: Int64?, row: Int,
    nextDelay: Int64, lastVerdict: String?, list: [Failure], resets: [String]
  ) {
    self.name = name
    self.failures = failures
    self.maxCrashes = maxCrashes
    self.crashWindow = crashWindow
    self.row = row
    self.nextDelay = nextDelay
    self.lastVerdict = lastVerdict
    self.list = list
    self.resets = resets
  }

  private enum CodingKeys: String, CodingKey {
    case name, failures
    case maxCrashes = "max_crashes"
    case crashWindow = "crash_window_ms"
    case row = "restarts_in_a_row"
    case nextDelay = "next_delay_ms"
    case lastVerdict = "last_verdict"
    case list, resets
  }
}

package struct ControlReload: Codable, Sendable {
  package var name: String
  /// Names of options whose new values hold from now on.
  package var applied: [String]
  /// Names of those that need a new guardian.
  package var pending: [String]
  package init(name: String, applied: [String], pending: [String]) {
    self.name = name
    self.applied = applied
    self.pending = pending
  }
}

/// A line that the program wrote to standard error.
package struct ControlLine: Codable, Sendable {
  /// RFC 3339: when it came.
  package var time: String
  package var text: String
  package init(time: String, text: String) {
    self.time = time
    self.text = text
  }
}

package struct ControlEvent: Codable, Sendable {
  /// RFC 3339.
  package var time: String
  package var name: String
  /// "now" (the first one), "state", "ended".
  package var event: String
  package var state: String
  package var text: String
  package var life: UInt32
  package var pid: Int32?
  package init(
    time: String, name: String, event: String, state: String, text: String, life: UInt32,
    pid: Int32?
  ) {
    self.time = time
    self.name = name
    self.event = event
    self.state = state
    self.text = text
    self.life = life
    self.pid = pid
  }
}
