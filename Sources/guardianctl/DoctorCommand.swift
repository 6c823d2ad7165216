// `doctor`: what this machine lets guardian do. Each check says what follows from it.
import CLinux
import Glibc
import Kernel
import Reports
import Settings

struct Doctor {
  enum Result: String, Encodable { case ok, note, problem }

  struct Check: Encodable {
    var check: String
    var result: Result
    var text: String
  }

  private(set) var checks: [Check] = []

  private mutating func add(_ check: String, _ result: Result, _ text: String) {
    checks.append(Check(check: check, result: result, text: text))
  }

  /// - Returns: 0, or 1 when there is a problem.
  static func run(_ command: ControlCommand, environment: [String: String], json: Bool) throws
    -> Int32
  {
    var doctor = Doctor()
    doctor.kernel()
    doctor.preload()
    doctor.helpers()
    doctor.tracing()
    doctor.kernelCores()
    doctor.debugInformation(environment)
    doctor.sandbox()
    let places = Places(uid: geteuid(), environment: environment, canBeMade: StartCheck.canBeMade)
    doctor.folder(
      "state folder", command.stateDirectory ?? places.state,
      "reports and counts would be lost: give --state-directory")
    doctor.folder(
      "runtime folder", command.runtimeDirectory ?? places.runtime,
      "guardian would not start: give --runtime-directory")
    doctor.memoryEvents()
    if json {
      Output.print(bytes: try JSONText.encode(doctor.checks))
    } else {
      let marks: [Result: String] = [.ok: "ok", .note: "note", .problem: "PROBLEM"]
      let rows = doctor.checks.map { [marks[$0.result] ?? "?", $0.check, $0.text] }
      Table.print(rows)
    }
    return doctor.checks.contains { $0.result == .problem } ? 1 : 0
  }

  private static func text(_ path: String) -> String? {
    guard let text = try? Files.readText(path, limit: 4096) else { return nil }
    return String(text.prefix { $0 != "\n" })
  }

  private mutating func kernel() {
    let release = Self.text("/proc/sys/kernel/osrelease") ?? "unknown"
    do {
      _ = try Processes.open(getpid())
      add("kernel", .ok, "Linux \(release), process descriptors work")
    } catch {
      add("kernel", .problem, "Linux \(release): \(error)")
    }
  }

  // MARK: guardian's own parts

  private static func part(_ name: String, _ installed: String) -> String? {
    guard let own = try? Files.readLink("/proc/self/exe"), let slash = own.lastIndex(of: "/")
    else { return nil }
    let beside = String(own[..<slash])
    return [beside, beside + "/../" + installed + "/guardian"].map { $0 + "/" + name }
      .first { (try? Files.status($0))?.isRegular ?? false }
  }

  private mutating func preload() {
    guard let path = Self.part("libguardian-handler.so", "lib") else {
      add(
        "crash handler", .problem,
        "libguardian-handler.so was not found: reports will have no snapshot and no stack")
      return
    }
    if path.contains(where: { $0 == ":" || $0 == " " }) {
      add("crash handler", .problem, "ld.so cannot preload '\(path)': a blank or colon in its path")
      return
    }
    // ld.so says on standard error what it cannot preload, and goes on.
    guard let (status, said) = Self.run(["/bin/true"], environment: ["LD_PRELOAD=" + path]) else {
      add("crash handler", .note, "'/bin/true' cannot be started to try the preload")
      return
    }
    if status == 0, said.isEmpty {
      add("crash handler", .ok, "can be preloaded: \(path)")
    } else {
      add("crash handler", .problem, "cannot be preloaded: \(SafeText.cut(said, limit: 200))")
    }
  }

  private mutating func helpers() {
    for (name, loss) in [
      ("guardian-capture", "reports will have no snapshot"),
      ("guardian-reporter", "reports will have no stack"),
      ("guardian-sweep", "descendants would outlive a guardian that is killed"),
    ] {
      if let path = Self.part(name, "libexec") {
        add(name, .ok, path)
      } else {
        add(name, .problem, "was not found: \(loss)")
      }
    }
  }

  /// Runs a small program for at most ten seconds; its wait status and what it wrote to standard
  /// error.
  private static func run(_ words: [String], environment: [String]) -> (Int32, String)? {
    var ends: [Int32] = [-1, -1]
    guard unsafe pipe(&ends) == 0 else { return nil }
    // One thread: nobody forks in between.
    for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
    let reading = FileDescriptor(owning: ends[0])
    guard let child = spawn(words, environment: environment, errors: ends[1]) else {
      close(ends[1])
      return nil
    }
    close(ends[1])
    let end = Clock.monotonic + .seconds(10)
    var said: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 4096)
    while said.count < 4096 {
      var poller = pollfd(fd: reading.raw, events: Int16(POLLIN), revents: 0)
      let left = max(0, Int32((end - Clock.monotonic) / .milliseconds(1)))
      if unsafe poll(&poller, 1, left) != 1 { break }
      guard let count = try? reading.read(into: &piece), count > 0 else { break }
      said += piece[..<count]
    }
    // Who closed standard error is about to leave, or stuck.
    var status: Int32 = 0
    while Clock.monotonic < end {
      if unsafe waitpid(child, &status, WNOHANG) != 0 { return (status, SafeText.decode(said)) }
      usleep(1000)
    }
    kill(child, SIGKILL)
    _ = unsafe waitpid(child, &status, 0)
    return (status, SafeText.decode(said))
  }

  private static func spawn(_ words: [String], environment: [String], errors: Int32) -> pid_t? {
    var argv = unsafe words.map { unsafe strdup($0) } + [nil]
    var envp = unsafe environment.map { unsafe strdup($0) } + [nil]
    defer {
      unsafe argv.forEach { unsafe free($0) }
      unsafe envp.forEach { unsafe free($0) }
    }
    var actions = unsafe posix_spawn_file_actions_t()
    unsafe posix_spawn_file_actions_init(&actions)
    defer { unsafe posix_spawn_file_actions_destroy(&actions) }
    unsafe posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    unsafe posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
    if errors >= 0 { unsafe posix_spawn_file_actions_adddup2(&actions, errors, 2) }
    var child: pid_t = 0
    return unsafe posix_spawn(&child, words[0], &actions, nil, &argv, &envp) == 0 ? child : nil
  }

  // MARK: tracing

  private mutating func tracing() {
    let scope = Self.text("/proc/sys/kernel/yama/ptrace_scope")
    let yama = scope.map { "Yama's ptrace_scope is \($0)" } ?? "no Yama"
    guard let child = Self.spawn(["/bin/sleep", "30"], environment: [], errors: -1) else {
      add("ptrace", .note, "'/bin/sleep' cannot be started to try it; \(yama)")
      return
    }
    let outcome = linux_ptrace_seize(child)
    let cause = errno
    kill(child, SIGKILL)
    var status: Int32 = 0
    _ = unsafe waitpid(child, &status, 0)
    if outcome == 0 {
      add("ptrace", .ok, "a child can be traced; \(yama)")
    } else {
      add(
        "ptrace", .problem,
        "a child cannot be traced (\(SystemError.text(cause)); \(yama)): no snapshots. In a "
          + "container allow the system call ptrace; with ptrace_scope 2 or 3 CAP_SYS_PTRACE is "
          + "needed or nothing helps")
    }
  }

  // MARK: the kernel's own core dumps

  private mutating func kernelCores() {
    guard let pattern = Self.text("/proc/sys/kernel/core_pattern") else {
      add("core_pattern", .note, "cannot be read")
      return
    }
    var limit = rlimit()
    _ = unsafe getrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
    if pattern.hasPrefix("|") {
      add(
        "core_pattern", .note,
        "pipes to '\(pattern.dropFirst().prefix { $0 != " " })': the kernel holds a crashed "
          + "program until that has read its whole memory, and so its restart, and a core limit of "
          + "0 is without effect; guardian's reports do not need it: '--kernel-core none' saves that"
      )
    } else if limit.rlim_cur == 0 || pattern.isEmpty {
      add("core_pattern", .ok, "'\(pattern)', and the core limit is 0: the kernel writes none")
    } else {
      add(
        "core_pattern", .note,
        "'\(pattern)': the kernel writes a whole core before a restart; '--kernel-core none' saves "
          + "that")
    }
  }

  // MARK: names for stacks

  private mutating func debugInformation(_ environment: [String: String]) {
    var sources: [String] = []
    let folder = "/usr/lib/debug/.build-id"
    if let names = try? Files.list(folder), !names.isEmpty { sources.append(folder) }
    if let servers = environment["DEBUGINFOD_URLS"], !servers.isEmpty {
      sources.append("debuginfod: \(servers)")
    } else {
      for name in (try? Files.list("/etc/debuginfod")) ?? [] where name.hasSuffix(".urls") {
        let text = Self.text("/etc/debuginfod/" + name) ?? ""
        sources.append("/etc/debuginfod/\(name)" + (text.isEmpty ? "" : ": \(text)"))
      }
    }
    if sources.isEmpty {
      add(
        "debug information", .note,
        "none of the system's own libraries; programs built with -g have theirs inside")
    } else {
      add("debug information", .ok, sources.joined(separator: ", "))
    }
  }

  // MARK: the reporter's sandbox

  private mutating func sandbox() {
    guard let actions = Self.text("/proc/sys/kernel/seccomp/actions_avail") else {
      add("sandbox", .problem, "this kernel has no seccomp: reports stay plain, without a stack")
      return
    }
    // Tried, not guessed: rights and filters differ between two services of one machine.
    guard let reporter = Self.part("guardian-reporter", "libexec") else { return }
    guard let (status, said) = Self.run([reporter, "check"], environment: []) else {
      add("sandbox", .problem, "'\(reporter)' cannot be started: reports will have no stack")
      return
    }
    let line = said.drop { $0 != " " }.dropFirst().prefix { $0 != "\n" }
    if status != 0 {
      add(
        "sandbox", .problem,
        "\(line.isEmpty ? "it does not answer" : String(line)): reports will have no stack")
    } else if actions.split(separator: " ").contains("kill_process") {
      add("sandbox", .ok, String(line))
    } else {
      add("sandbox", .note, "\(line); seccomp cannot end a whole process: '\(actions)'")
    }
  }

  // MARK: folders

  private mutating func folder(_ name: String, _ path: String, _ loss: String) {
    // What is missing would be made in the nearest folder that is there.
    var existing = path
    while unsafe access(existing, F_OK) != 0, let slash = existing.lastIndex(of: "/") {
      existing = slash == existing.startIndex ? "/" : String(existing[..<slash])
      if existing == "/" { break }
    }
    if unsafe faccessat(AT_FDCWD, existing, W_OK | X_OK, AT_EACCESS) == 0 {
      add(name, .ok, path + (existing == path ? "" : " can be made"))
    } else {
      let cause = SystemError.text(errno)
      add(name, .problem, "cannot write to '\(existing)' (\(cause)): \(loss)")
    }
  }

  private mutating func memoryEvents() {
    let line = Self.text("/proc/self/cgroup") ?? ""
    let path = "/sys/fs/cgroup" + line.dropFirst(3) + "/memory.events"
    if line.hasPrefix("0::"), (try? Files.readText(path, limit: 4096)) != nil {
      add("memory events", .ok, path)
    } else {
      add(
        "memory events", .note,
        "this cgroup has none to read: a kill for lack of memory looks like any SIGKILL")
    }
  }
}
