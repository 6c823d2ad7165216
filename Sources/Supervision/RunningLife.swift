// What guardian holds of one life: the process, its channel, and the evidence as it comes in.
import Glibc
import Kernel
import Policy
import Reports

final class RunningLife {
  let number: Life
  /// What guardian started: its number is the process group's.
  let child: Child
  /// The main process: `child`, or another one of the life that MAINPID named since.
  private(set) var main: Child
  /// Watches a main process that is not guardian's own child.
  var mainSource: EventSource?
  let channel: Channel
  let handler: HandlerDecision
  /// Wall clock, nanoseconds since the epoch: for show.
  var startedWall: Int64
  var startedBoot: Duration
  let startedMonotonic = Clock.monotonic
  /// What it was started with, for a report of a process that is gone already.
  let environment: Environment
  var bell: EventSource?
  var notify: EventSource?
  /// The crash of the main process that was announced, or a snapshot of a hang.
  var incident: OpenIncident?
  /// The main process was seen dead; it may not have been reaped yet.
  var hasEnded = false
  var endedBoot: Duration?
  /// `child` was: its number may be somebody else's.
  var reaped = false
  /// An earlier guardian started it: it is not our child, and its orphans do not come to us.
  var isAdopted = false
  /// The process group of its number is its own.
  var hasGroup = true
  /// Its ending, if it is not our child.
  var ending: EventSource?
  /// Its cgroup below /sys/fs/cgroup; nil: none of its own.
  var cgroup: String?
  var cgroupHold: LifeCgroup?
  /// KILL was sent to all of it: whoever turns up after that gets it too.
  var isKilled = false
  /// Those that it reached, and their names.
  var killed: [TreeProcess.Identity: String] = [:]
  /// What was found out about the machine's processes, where it was adopted.
  let scan = TreeScan()
  /// When its process started, in clock ticks since boot; nil: not known.
  var startTicks: UInt64?
  /// Its memory could not be read in time: it is not tried again.
  var holdsReaders = false
  /// The rest of it is looked at again after so long.
  var treePause = Duration.milliseconds(5)
  var stopAsked = false
  /// guardian gave it the terminal's foreground and did not take it back.
  var hasTerminal = false
  /// Bells that were let go without a capture.
  var bellsRefused = 0
  var bells = 0
  var statusText: String?
  /// It has a NOTIFY_SOCKET.
  let notifies: Bool
  /// It said RELOADING=1, and that was passed on.
  var isReloading = false
  /// It said STOPPING=1: its health is asked for no more.
  var saysStopping = false
  /// The ring's heartbeat as it was last seen, and when.
  var heartbeats: UInt64 = 0
  var heartbeatLook: Duration
  /// It sends WATCHDOG=1: its counter need not be looked at.
  var beatsByMessage = false
  /// It said WATCHDOG=trigger.
  var triggered = false
  var health: HealthMonitor?
  /// Why it was found to hang, for people.
  var hangWords: String?
  /// Its main process exited with 0.
  var leftCleanly = false
  /// When it was started there was no journal to write to.
  var outputIsLost = false
  /// The limit for which the kernel killed it, in words.
  var limitWords: String?

  init(
    _ number: Life, child: Child, channel: Channel, handler: HandlerDecision,
    environment: Environment, notifies: Bool
  ) {
    self.number = number
    self.child = child
    self.main = child
    self.notifies = notifies
    heartbeatLook = Clock.monotonic
    self.channel = channel
    self.handler = handler
    self.environment = environment
    startedWall = Clock.wall
    startedBoot = Clock.boot
  }

  var pid: Int32 { main.pid }
  /// The process group that guardian made for it.
  var group: Int32 { child.pid }
  /// MAINPID named another one than guardian started.
  var hasOtherMain: Bool { main !== child }

  func setMain(_ process: Child) {
    mainSource = nil
    main = process
  }

  /// Until now, or until it ended.
  var uptime: Duration { (endedBoot ?? Clock.boot) - startedBoot }
}

/// One report in the making: evidence is added until the ending is known and the capture is over.
final class OpenIncident {
  let id: ReportID
  /// Let go of once the report is written: its channel is wanted no more.
  var life: RunningLife?
  let role: Program.Role
  let pid: Int32
  /// The crash record that the bell named.
  let slot: Int?
  /// nil: the store could not be written to.
  var folder: IncidentFolder<KernelStoreCalls>?
  var process = ProcessTexts()
  var senderName: String?
  var isCapturing = false
  /// When that was over, on CLOCK_MONOTONIC.
  var capturedAt: Duration?
  /// Promised and not begun: whoever comes first must not write it.
  var isOwed = false
  /// The snapshot of a program that hangs: what its ABRT brings adds nothing to it.
  var isHang = false
  var summary: CaptureSummary?
  var replaced: [(descriptor: SharedDescriptor, path: String)] = []
  var defects: [String] = []
  /// Why the program could not be executed.
  var startFailure: String?
  /// Of a start that failed there is no life.
  var lifeNumber: Life
  /// Of a life that no guardian has any more.
  var ring: [UInt8]?
  /// Of a life that an earlier guardian started.
  var earlier: StateFile.Unfinished?
  var ending: (ending: Ending, verdict: Verdict?, time: WallTime)?
  var tail: [Incident.StderrLine] = []

  init(
    _ id: ReportID, life: RunningLife?, number: Life, role: Program.Role, pid: Int32, slot: Int?
  ) {
    self.id = id
    self.life = life
    self.lifeNumber = number
    self.role = role
    self.pid = pid
    self.slot = slot
  }
}

/// A process of guardian's own that is not the program.
final class Helper {
  enum Work {
    case capture(OpenIncident, RunningLife)
    case reporter(OpenIncident)
    case giveUp
    case probe(ExecProbe)
    /// guardian-sweep.
    case sweep
    /// A new guardian is asked whether it could take over.
    case check
  }
  let child: Child
  let work: Work
  /// The capture's result comes here; it has a time limit.
  var result: SharedDescriptor?
  var limit: EventLoop.Timer?
  /// KILL was sent.
  var isOverdue = false
  /// It hangs in the kernel: nobody waits for it any more.
  var isAbandoned = false

  init(_ child: Child, _ work: Work) {
    self.child = child
    self.work = work
  }
}

/// A descendant that crashed and is watched until it dies.
final class WatchedDescendant {
  let incident: OpenIncident
  let life: RunningLife
  let pidfd: FileDescriptor
  let signal: Int32
  var source: EventSource?
  var isDead: Bool {
    var poller = pollfd(fd: pidfd.raw, events: Int16(POLLIN), revents: 0)
    return unsafe poll(&poller, 1, 0) == 1
  }
  init(
    _ incident: OpenIncident, _ life: RunningLife, pidfd: consuming FileDescriptor, signal: Int32
  ) {
    self.incident = incident
    self.life = life
    self.pidfd = pidfd
    self.signal = signal
  }
}
