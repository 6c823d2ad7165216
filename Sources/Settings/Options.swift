// The one table of options. To add one: a field in Configuration, an entry here. To switch a
// planned one on: take the word `.planned` away.
import Policy

extension Option {
  /// What people see.
  package static let available = all.filter { $0.status == .available }

  /// In the order of the manual; grouped by section.
  package static let all: [Option] = [
    // MARK: General
    .one(
      "name", short: "n", .general, .programName, \.name,
      defaultText: "the program's base name; for an interpreter, the script's",
      help: "Name of the guarded program, for folders, messages and guardianctl",
      details: """
        Two guardians of one user cannot have the same name: if NAME is taken, guardian says by \
        whom and starts nothing; a derived name gets a number instead.
        """),
    .one(
      "config", short: "c", .general, Kind<String>.file.optional, \.configurationFile,
      sources: [.flag, .variable], defaultText: "none",
      help: "Read options from the TOML file FILE",
      details: """
        The files FILE.d/*.toml are read after it, in the order of their names. Flags and \
        variables go over what files say.
        """),
    .yes(
      "check", .general, \.check, sources: .flag,
      help: "Check the options and files, say whether they are right, and start nothing"),
    .yes("quiet", short: "q", .general, \.quiet, help: "Print errors only"),
    .yes("verbose", short: "v", .general, \.verbose, help: "Say each step on standard error"),

    // MARK: Restart policy
    .one(
      "restart", short: "r", .restart, .choice, \.restart,
      help: "After which endings the program is started again",
      details: """
        on-success: after a clean ending. on-failure: after any other. on-abnormal: after a \
        signal, a timeout or a missed watchdog. on-abort: after a signal. on-watchdog: after a \
        missed watchdog. Clean are exit code 0, the signals HUP, INT and TERM, and what \
        success-exit-status adds. A stop that was asked for is never a failure.
        """),
    .one(
      "max-crashes", short: "m", .restart,
      Kind<Int>.integer(0...CrashHistory.maxCrashesLimit).or("infinity", " for no cap"),
      \.maxCrashes,
      help: "Give up after more than N failures within the crash window",
      details: "N gives at most N restarts in any window; 0 gives one life."),
    .one(
      "crash-window", short: "w", .restart,
      Kind<Duration>.time(.seconds(1), Kind<Duration>.longest)
        .or("infinity", " for the whole life of guardian"), \.crashWindow,
      help: "The sliding time within which failures are counted"),
    .one(
      "restart-delay", .restart, Kind<Duration>.time, \.restartDelay,
      help: "Delay before the second restart in a row, give or take 10 %; the first comes at once",
      details: """
        Every delay, also a longer one, is made up to 10 % shorter or longer, so that many guardians \
        of one broken backend do not come back together. By how much is a fixed function of the \
        program's name and the number of the life: guardianctl plan shows the delays beforehand.
        """),
    .one(
      "restart-backoff", .restart, Kind<Double>.factor(1...100), \.restartBackoff,
      help: "By what the delay is multiplied for each further restart in a row"),
    .one(
      "restart-delay-max", .restart, Kind<Duration>.time, \.restartDelayMax,
      help: "The longest delay between two lives"),
    .one(
      "stable-after", .restart, Kind<Duration>.time, \.stableAfter,
      help: "A life of this length ends a row of restarts: the next delay is 0 again"),
    .one(
      "max-identical", .restart, Kind<Int>.integer(0...CrashHistory.maxCrashesLimit),
      \.maxIdentical,
      help: "Give up after N crashes of the same cause in a row, each before stable-after; 0: off"),
    .list(
      "success-exit-status", .restart, .status, \.successExitStatus, defaultText: "none",
      help: "Count this exit code or signal as a clean ending, besides 0, HUP, INT and TERM"),
    .yes(
      "exit-as-signal", .restart, \.exitAsSignal,
      help: "When the program died of a signal, guardian dies of the same one",
      details: "Else guardian leaves with 128 plus the number of the signal."),
    .one(
      "on-give-up", .restart,
      Kind<String>.text("COMMAND", "a command line for /bin/sh")
        .example("logger -p crit $GUARDIAN_NAME gave up").optional,
      \.onGiveUp, defaultText: "none",
      help: "Run this with /bin/sh when guardian gives up",
      details: """
        It sees GUARDIAN_NAME, GUARDIAN_REASON (the failures that were counted), GUARDIAN_ENDING \
        (how the last life ended), GUARDIAN_FAILURES (how many) and GUARDIAN_LAST_REPORT (its id; \
        unset if there is none).
        """),

    // MARK: Start
    .one(
      "working-directory", short: "C", .start, Kind<String>.directory.optional, \.workingDirectory,
      defaultText: "guardian's own", help: "Start the program in this folder"),
    .variables(
      "env", short: "e", .start, \.environment,
      help: "Add a variable to the program's environment",
      details: "In a file this is the table [env] with one key for each variable."),
    .list(
      "env-file", .start, .file, \.environmentFiles, defaultText: "none",
      help: "Read variables for the program from FILE, a NAME=VALUE on each line",
      details: """
        A line that begins with # or ; is a comment. A value may stand in single or double quotes \
        and then go over lines; a backslash makes the next character plain, in double quotes only \
        before a quote, $, ` and another backslash. Nothing is expanded. Later files go over \
        earlier ones, and env goes over all. With a - before it FILE may be missing. The files are \
        read when guardian starts and at guardianctl reload; the next life gets what they said.
        """),
    .one(
      "user", short: "u", .start, Kind<String>.user.optional, \.user,
      defaultText: "guardian's own", help: "Start the program as this user",
      details: """
        With the user's group and supplementary groups, and with HOME, USER, LOGNAME and SHELL of \
        the account; env and env-file go over those. HOME is left out if it is /, SHELL if it is \
        no login shell. A number without an account needs group. The account is looked up when \
        guardian starts and at guardianctl reload. Without the right to change the user the start \
        fails.
        """),
    .one(
      "group", short: "g", .start, Kind<String>.group.optional, \.group,
      defaultText: "the user's", help: "Start the program with this group",
      details: "Without user the supplementary groups stay guardian's own."),
    .one(
      "umask", .start, Kind<UInt32>.umask.optional, \.umask,
      defaultText: "guardian's own", help: "File mode creation mask of the program"),
    .one(
      "nice", .start, Kind<Int>.integer(-20...19).example("5").optional, \.nice,
      defaultText: "guardian's own", help: "Scheduling priority of the program; 19 is the lowest"),
    .one(
      "oom-score-adjust", .start, Kind<Int>.integer(-1000...1000).example("500").optional,
      \.oomScoreAdjust, defaultText: "guardian's own",
      help: "How readily the kernel kills the program when memory is short; -1000: never",
      details: "Less than guardian's own needs the capability CAP_SYS_RESOURCE."),
    .list(
      "limit", .start, .limit, \.limits, defaultText: "guardian's own",
      help: "Resource limit of the program, named as in prlimit(1)",
      details: """
        Without HARD both limits are SOFT. The units are those of setrlimit(2): bytes, seconds, \
        or a count. Of a name that is given twice the last holds. A hard limit above guardian's own needs the capability CAP_SYS_RESOURCE; a \
        limit that cannot be set is a start that failed.
        """),
    .one(
      "stdin", .start, .choice, \.standardInput,
      help: "Where the program's standard input comes from",
      details: "null is /dev/null: reading ends at once."),
    .one(
      "stdout", .start, .output, \.standardOutput,
      help: "Where the program's standard output goes",
      details: """
        inherit, direct: to guardian's own, without a way through guardian. null: nowhere. file: through \
        guardian to the end of this file, which is made with mode 0640 if it is not there, and \
        rotated: see log-bytes. It must be a plain file, not a symbolic link. journal: through \
        guardian to systemd's journal, with the name as identifier; where there is no journal, as \
        inherit. A file or journal that takes nothing never stops the program: that is said once, \
        and what is lost is counted.
        """),
    .one(
      "stderr", .start, .output, \.standardError,
      help: "Where the program's standard error goes; its tail is kept for reports",
      details: """
        As for stdout, but inherit goes through guardian, which keeps the last lines for reports and \
        guardianctl logs; on a terminal the program sees a terminal of guardian's. direct: the \
        program has guardian's own, nothing of it is kept: for what is used at a terminal (a shell, \
        an editor, less), and where the order of both streams counts. guardian's own messages stay \
        on guardian's standard error. If stdout and stderr are the same file, their order in it is \
        that of whole pieces, not of single lines.
        """),
    .one(
      "log-bytes", .start, Kind<UInt64>.size.or("infinity", " for no limit"), \.logBytes,
      help: "Rotate a file of stdout or stderr before it is larger than this",
      details: """
        PATH becomes PATH.1, PATH.1 becomes PATH.2 and so on; lines are not torn, so that a file \
        may be larger by one. HUP to guardian opens the files anew and goes on to the program: for \
        logrotate set infinity here, or leave logrotate out.
        """),
    .one(
      "log-keep", .start, Kind<Int>.integer(0...1000), \.logKeep,
      help: "How many rotated files are kept"),
    .list(
      "listen", .start, .listen, \.listen, defaultText: "none",
      help: "Open a listening socket and hand it to every life",
      details: """
        The program gets it as systemd passes sockets (sd_listen_fds(3)): descriptor 3 and on, \
        LISTEN_FDS, LISTEN_PID, LISTEN_FDNAMES. It stays open while the program is down, so \
        that no connection is refused during a restart. Sockets that systemd passed to guardian \
        are handed on in the same way, before these.
        """),

    // MARK: Readiness and health
    .one(
      "ready", .ready, .readiness, \.ready,
      help: "When the program counts as ready",
      details: """
        exec: as soon as it was executed. notify: when it sends READY=1 to its NOTIFY_SOCKET \
        (sd_notify(3)). fd:N: when it writes a newline to its descriptor N, as s6 has it. systemd \
        learns of it then.
        """),
    .one(
      "start-timeout", .ready, Kind<Duration>.time.or("infinity", ""), \.startTimeout,
      defaultText: "90s if the program has to say that it is ready, else infinity",
      help: "The longest time from start to readiness",
      details: """
        A program that takes longer hangs: its threads are captured, then it is ended. It may \
        ask for more time with EXTEND_TIMEOUT_USEC.
        """),
    .one(
      "watchdog", .ready,
      Kind<Duration>.time(.milliseconds(10), Kind<Duration>.longest).or("infinity", " for none"),
      \.watchdog, help: "The longest time between two heartbeats of the program",
      details: """
        A heartbeat is WATCHDOG=1 on its NOTIFY_SOCKET (sd_notify(3)), or guardian_heartbeat() of \
        guardian.h, which costs no system call. The program finds the time in WATCHDOG_USEC. One \
        that is silent for longer hangs: its threads are captured, then it is ended with ABRT.
        """),
    .one(
      "health-exec", .ready,
      Kind<String>.text("COMMAND", "a command line for /bin/sh")
        .example("curl -fsS http://127.0.0.1:8080/health").optional,
      \.healthExec, defaultText: "none",
      help: "Probe the program by this command: exit code 0 is healthy",
      details: "One kind of probe a guardian. Its last line of output is what a report quotes."),
    .one(
      "health-tcp", .ready, Kind<NetworkAddress>.address.example("127.0.0.1:8080").optional,
      \.healthTCP,
      defaultText: "none", help: "Probe the program by connecting to this address"),
    .one(
      "health-http", .ready,
      Kind<HealthURL>.httpURL.example("http://127.0.0.1:8080/health").optional, \.healthHTTP,
      defaultText: "none", help: "Probe the program by GET: a status from 200 to 399 is healthy"),
    .one(
      "health-interval", .ready, Kind<Duration>.time(.milliseconds(10), Kind<Duration>.longest),
      \.healthInterval, help: "Time to the first probe, and between two"),
    .one(
      "health-timeout", .ready, Kind<Duration>.time(.milliseconds(10), Kind<Duration>.longest),
      \.healthTimeout, help: "The longest time one probe may take"),
    .one(
      "health-retries", .ready, Kind<Int>.integer(1...1000), \.healthRetries,
      help: "So many failed probes in a row are a hang"),
    .one(
      "health-start-period", .ready, Kind<Duration>.time, \.healthStartPeriod,
      help: "Time from the start in which a failed probe does not count",
      details: "The first success ends it."),

    // MARK: Stop
    .one(
      "stop-signal", short: "s", .stop, .signal, \.stopSignal,
      help: "The signal that asks the program to stop; CONT follows it"),
    .one(
      "stop-timeout", short: "t", .stop, Kind<Duration>.time.or("infinity", " to wait for ever"),
      \.stopTimeout,
      help: "How long the program may take to stop before it is killed",
      details: "The default is less than the 10 s that container runtimes give."),
    .one(
      "kill-mode", .stop, .choice, \.killMode,
      help: "Whom a stop signals and kills",
      details: """
        tree: every descendant, also in sessions of its own. group: the program's process group. \
        process: the main process alone.
        """),
    .list(
      "rewrite-signal", .stop, .rewrite, \.signalRewrites, defaultText: "none",
      help: "Give the program another signal than the one guardian got; to 0: none",
      details: """
        FROM is what arrives at guardian, TO what the program gets: HUP:USR1. The last one for a \
        signal holds. A TERM or INT to guardian stays a request to stop, and TO is the stop signal \
        then; TERM:0 has guardian not heed it. What is rewritten to TERM only reaches the program: \
        guardian goes on by its restart policy.
        """),
    .one(
      "forward-to", .stop, .choice, \.forwardTo,
      help: "Whom the other signals reach that guardian passes on",
      details: """
        process: the main process. group: its process group. Passed on is every signal that can be \
        caught, real-time ones too, but CHLD and those that tell of a fault (SEGV, BUS, FPE, ILL, \
        TRAP, ABRT, SYS): these would be guardian's own.
        """),
    .one(
      "on-guardian-death", .stop, .choice, \.onGuardianDeath,
      help: "What happens to the program when guardian itself is killed",
      details: """
        kill: the kernel ends the main process at once, by its death signal; a helper that sleeps \
        until then, guardian-sweep, ends what that signal does not reach: descendants, as far as \
        kill-mode names them, and a program that changed its user. It knows them by descent, by \
        process group, standard error, the variable GUARDIAN_CHANNEL, and the shared ring; \
        one that left its session and threw all of these away is not found. If helper and guardian \
        are killed together, the next guardian of the name does it before it starts anything. \
        keep: the program lives on, and the next guardian of the name and command takes it over, \
        with its counts. Meanwhile its standard error waits in a pipe of 1 MiB. Before Linux 6.15 \
        the exit status of a program that was taken over may be unknown, which counts as a \
        failure. As a systemd service this needs KillMode=process.
        """),

    // MARK: Reports
    .one(
      "capture-timeout", .reports, Kind<Duration>.time(.zero, .seconds(600)), \.captureTimeout,
      help: "The longest time a dying program is held for a snapshot of its threads"),
    .one(
      "report-timeout", .reports, Kind<Duration>.time.or("infinity", ""), \.reportTimeout,
      help: "The longest time guardian waits for unfinished reports before it leaves"),
    .one(
      "handler", .reports, .yesNo, \.handler,
      help: "Preload the crash handler into the program",
      details: """
        Without it a report has the ending and the last lines of standard error, but no snapshot, \
        no stack and no breadcrumbs.
        """),
    .one(
      "kernel-core", .reports, .choice, \.kernelCore,
      help: "Whether the kernel may write a core of its own when the program crashes",
      details: """
        keep: as without guardian. none: the program starts with a soft core limit of 1 byte, \
        which writes no file and no pipe (core(5)); a program that raises its own limit gets its \
        core. guardian's reports need no core, and a restart waits until one is written.
        """),
    .one(
      "reports-keep", .reports, Kind<Int>.integer(1...1_000_000).or("infinity", " for all"),
      \.reportsKeep, help: "How many reports are kept",
      details: "The first and the last of each cause are kept longest, the rest is counted."),
    .one(
      "reports-bytes", .reports, Kind<UInt64>.size.or("infinity", " for no limit"), \.reportsBytes,
      help: "How much space reports may take"),
    .list(
      "redact", .reports, .text("PATTERN", "a name, in which * stands for any letters"), \.redact,
      adds: true, defaultText: "none",
      help: "Mask the values of variables and arguments of this name in reports",
      details: """
        Besides the names that look like passwords, tokens, keys or DSNs. Upper and lower case \
        are the same. All sources add to the list.
        """),

    // MARK: Places
    .one(
      "state-directory", .places,
      Kind<String>.directory.example("/var/lib/guardian/api").optional, \.givenStateDirectory,
      defaultText: "/var/lib/guardian/NAME; without root ~/.local/state/guardian/NAME",
      help: "Where reports and counts are kept",
      details: "XDG_STATE_HOME is obeyed."),
    .one(
      "runtime-directory", .places,
      Kind<String>.directory.example("/run/guardian/api").optional, \.givenRuntimeDirectory,
      defaultText: "/run/guardian/NAME; without root $XDG_RUNTIME_DIR/guardian/NAME",
      help: "Where sockets and shared memory lie while guardian runs",
      details: "Without XDG_RUNTIME_DIR: a private folder under TMPDIR or /tmp."),
    .one(
      "metrics-file", .places, Kind<String>.file.example("/run/guardian/api.prom").optional,
      \.metricsFile, defaultText: "none",
      help: "Write numbers for Prometheus to this file at each change",
      details: """
        For the node exporter's textfile collector: give it a name that ends in .prom in the \
        collector's folder. The file is replaced in one step, at each change and every 15 \
        seconds, and says guardian_up 0 when guardian has left. One that was killed cannot say so: \
        its file grows older (node_textfile_mtime_seconds).
        """),
  ]
}
