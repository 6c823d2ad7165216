// Every limit of the supervisor, with its reason.

enum Limit {
  /// Kept of what the program wrote to standard error: enough for the longest traces seen (a Java
  /// stack with causes), small enough to read.
  static let tailBytes = 64 * 1024
  static let tailLines = 200
  /// A longer line is cut: one line must not push out all others.
  static let lineBytes = 8 * 1024
  /// One read of output: large enough that a flood costs few calls, small enough to stay in the
  /// processor's cache until it is written.
  static let readBytes = 64 * 1024
  /// So much is given to a pipe as pages; less is written, and shares pages there.
  static let copyBytes = 16 * 1024
  /// Moved at one wake-up, so that a flood cannot starve the loop.
  static let outputBytesPerTurn = 1 << 20
  /// Asked for as the FIFO's size; the kernel allows an unprivileged user 1 MiB.
  static let pipeBytes: Int32 = 1 << 20
  /// Output waiting for a sink that does not take it: above this guardian stops reading, and the
  /// program feels the back-pressure as it would without guardian.
  static let backlogBytes = 256 * 1024
  /// What an ending may add to it when its last lines are drained.
  static let backlogDrainBytes = 8 << 20
  /// After so long without progress a sink counts as stuck: the oldest output is dropped and
  /// counted, so that a broken log never stops the program.
  static let sinkPatience = Duration.seconds(5)
  /// Between two attempts to open a file or a journal that is not there; made when there is
  /// something to write, so that nothing wakes up for it.
  static let sinkRetry = Duration.seconds(1)
  /// At the end: until the journal has read guardian's last entry.
  static let journalPatience = Duration.milliseconds(100)
  /// At the end: until the helper that waits for guardian's death is gone.
  static let sweepPatience = Duration.milliseconds(100)
  /// Between two complaints about the same file: a disk may be full again and again.
  static let sinkComplaintPause = Duration.seconds(10)
  /// Output pipes of earlier lives that descendants still hold open. The oldest is let go.
  static let earlierOutputs = 8
  /// Datagrams read at one wake-up, so that a flood of bells cannot starve the loop.
  static let datagramsPerTurn = 64
  /// Captures at one time, and those waiting: a prefork server's workers may all crash at once.
  static let capturesAtOnce = 2
  static let capturesWaiting = 16
  /// Reports being worked on at one time, at the lowest priority.
  static let reportersAtOnce = 2
  /// Reports waiting for a reporter; more are stored plain.
  static let reportersWaiting = 64
  /// Crashed descendants watched until they die.
  static let descendantsWatched = 64
  /// Of those with descriptors: each costs a process.
  static let errandsPerTurn = 32
  /// For looking into the memory of the machine's processes, in one pass: meanwhile nothing else
  /// happens.
  static let scanPatience = Duration.milliseconds(500)
  /// What KILL may take for a helper of guardian's own until it is left to itself.
  static let killPatience = Duration.seconds(1)
  /// A notify message; systemd's own limit is a page.
  static let notifyBytes = 4096
  /// STATUS= text that is passed on.
  static let statusBytes = 512
  /// Between two STATUS= to the service manager that only repeat the program's own words.
  static let statusPause = Duration.milliseconds(250)
  /// Of other words of the program that are passed on (RELOADING, EXTEND_TIMEOUT_USEC): so many
  /// a second, more are dropped. A service manager that is slow must not be made to hold us.
  static let forwardedPerSecond = 10
  /// Of descriptors that the service manager is to store as well, or to let go of: all that there can be,
  /// exchanged once.
  static let storedPerSecond = 2 * storedDescriptors
  /// A program that floods its notify socket is heard again after so long.
  static let notifyPause = Duration.milliseconds(20)
  /// Descriptors kept for the next life.
  static let storedDescriptors = 16
  /// Connections that wait for the next life; the kernel cuts it to net.core.somaxconn.
  static let listenBacklog: Int32 = 4096
  /// Looks at the heartbeat's counter within one watchdog time: a hang is seen at most a quarter
  /// of it too late.
  static let looksPerWatchdog = 4
  /// Of a health probe's output, and of an HTTP answer's first line, kept for its words.
  static let probeTailBytes = 1024
  /// Of an HTTP answer read in all.
  static let probeAnswerBytes = 64 * 1024
  /// The state file: 10 000 failures of some 100 bytes.
  static let stateBytes = 4 << 20
  /// Further runs of the handler in one life do nothing but die.
  static let handlerRuns: UInt32 = 64
  /// Clients of the control socket at one time; more are turned away.
  static let controlClients = 16
  static let controlBacklog: Int32 = 16
  /// How long a client may take to ask, or to take the next part of an answer.
  static let controlPatience = Duration.seconds(5)
  /// Answers waiting for one client: all the tail, each byte of it escaped.
  static let controlQueueBytes = 1 << 20
  /// Shown of one read of output to who follows it.
  static let controlFollowBytes = 16 * 1024
  /// Failures that are listed, the newest.
  static let controlFailures = 100
  /// Between two writes of the metrics when lives are short, after a change, and when nothing
  /// happens.
  static let metricsPause = Duration.milliseconds(200)
  static let metricsSoon = Duration.seconds(1)
  static let metricsInterval = Duration.seconds(15)
  /// From the kernel's decision to kill for lack of memory until the process is seen dead: large
  /// ones take their time.
  static let memoryKill = Duration.seconds(30)
  /// Processes of one life that are looked at in one pass.
  static let strays = 100_000
  /// What stopping all of them before the kill may take: it lies between an ending and the next
  /// life, and the passes that follow reach whoever forks faster.
  static let freezePatience = Duration.milliseconds(50)
  /// Between two looks at what is left of a life, at most.
  static let treePause = Duration.milliseconds(100)
  /// How long a guardian that starts waits for what a dead one left, once KILL was sent.
  static let leftoverPatience = Duration.seconds(5)
  /// A deadline seen so much too late: guardian itself did not run (stopped, frozen, a paused
  /// machine), and that time is not held against the program.
  static let lateness = Duration.milliseconds(250)
  /// After an exit with 0 at once: how long those it left behind may take to begin a session of their
  /// own.
  static let detaching = Duration.milliseconds(100)
  /// A helper that waits for guardian's death is started anew so often.
  static let sweepStarts = 10
  /// What a new binary may take to say whether it could take over.
  static let checkPatience = Duration.seconds(10)
  /// How long an upgrade waits for reports when they have all the time of the world.
  static let upgradePatience = Duration.seconds(30)
  /// What guardian needs after its last deadline: to write its state and empty its output.
  static let leaving = Duration.seconds(10)
  /// Numbers tried behind a name that was not given.
  static let nameAttempts = 99
}
