// The command and its surroundings: what is run, with which environment and descriptors. Made
// once from guardian's own; each life gets its own few variables.
import CLinux
import CSpawn
import Glibc
import Kernel
import Policy
import Settings

struct ProgramCommand {
  private let arguments: [[UInt8]]
  /// guardian's environment without what is guardian's own.
  private let foundation: Environment
  private var base: Environment
  /// guardian's own environment, for its helpers.
  let ownEnvironment: Environment
  /// What every life has in common.
  private(set) var launch = Launch()
  private let null: SharedDescriptor?
  private var input: Int32 = 0
  private let cache = Cache()

  private final class Cache {
    var key: (path: [UInt8], status: FileStatus)?
    var executable: Executable?
  }

  init(_ configuration: Configuration, arguments own: [[UInt8]], environment: [[UInt8]]) {
    // From the original vector: arguments need not be UTF-8.
    if let start = configuration.commandStart, start < own.count {
      arguments = Array(own[start...])
    } else {
      arguments = configuration.command.map { Array($0.utf8) }
    }
    var environment = Environment(environment)
    ownEnvironment = environment
    for name in Settings.inputVariables { environment[name] = nil }
    for name in [
      "GUARDIAN_CONFIG", Handover.variable, "GUARDIAN_CHANNEL", "GUARDIAN_PROGRAM_NAME",
      "GUARDIAN_LIFE",
      "GUARDIAN_CRASHED_LAST_RUN", "GUARDIAN_LAST_REPORT",
      // The service manager's words to guardian.
      "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS",
      "LISTEN_FDNAMES", "FDSTORE",
    ] { environment[name] = nil }
    // The unit's own lists of folders: guardian's are not the program's.
    for (name, own) in [
      ("STATE_DIRECTORY", configuration.stateDirectory),
      ("RUNTIME_DIRECTORY", configuration.runtimeDirectory),
    ] {
      if let list = environment.text(name) {
        environment[name] = FolderList.text(list, without: own).map { Array($0.utf8) }
      }
    }
    // An outer guardian's handler would ring the wrong bell.
    if let preload = environment.text("LD_PRELOAD") {
      let others = preload.split { $0 == ":" || $0 == " " }.filter {
        !$0.hasSuffix("/" + Toolbox.handlerName) && $0 != Toolbox.handlerName[...]
      }
      environment["LD_PRELOAD"] =
        others.isEmpty ? nil : Array(others.joined(separator: ":").utf8)
    }
    // The runtime's own backtrace would run for seconds inside a program that is to restart.
    if environment["SWIFT_BACKTRACE"] == nil { environment.set("SWIFT_BACKTRACE", "enable=no") }

    foundation = environment
    base = environment
    null = try? SharedDescriptor(FileDescriptor.open("/dev/null", O_RDWR))
    adopt(configuration)
  }

  /// What the configuration says of the next life.
  mutating func adopt(_ configuration: Configuration) {
    var environment = foundation
    if let uid = configuration.account.uid {
      Self.logIn(configuration.account.login, uid: uid, &environment)
    }
    for variable in configuration.fileEnvironment { environment[variable.name] = variable.value }
    for variable in configuration.environment { environment.set(variable.name, variable.value) }
    base = environment
    input = configuration.standardInput == .null ? nullDescriptor : 0

    var launch = Launch()
    launch.arguments = arguments
    launch.user = Self.change(to: configuration.account)
    launch.directory = configuration.workingDirectory
    launch.umask = configuration.umask
    launch.nice = configuration.nice.map { Int32(clamping: $0) }
    launch.oomScoreAdjust = configuration.oomScoreAdjust.map { Int32(clamping: $0) }
    // Of a name that comes twice the last holds: the first could have lowered what it may raise.
    let limits = configuration.limits
    launch.limits = limits.indices.compactMap { index in
      let limit = limits[index]
      if limits[(index + 1)...].contains(where: { $0.name == limit.name }) { return nil }
      guard let resource = ResourceNames.number(limit.name) else { return nil }
      return Launch.Limit(
        resource: resource, soft: limit.soft ?? .max, hard: limit.hard ?? .max)
    }
    if configuration.kernelCore == .none { Self.forbidCore(&launch) }
    self.launch = launch
    cache.key = nil
  }

  /// As systemd does it for User=: what says nothing about the new user is taken away, as it
  /// would speak of guardian's.
  private static func logIn(
    _ login: Account.Login?, uid: UInt32, _ environment: inout Environment
  ) {
    environment["USER"] = login.map { Array($0.name.utf8) }
    environment["LOGNAME"] = login.map { Array($0.name.utf8) }
    environment["HOME"] = login.flatMap { $0.home.isEmpty || $0.home == "/" ? nil : $0.home }
      .map { Array($0.utf8) }
    let placeholders = ["", "nologin", "false", "true", "sync"]
    environment["SHELL"] = login.map(\.shell)
      .flatMap { shell in
        placeholders.contains(String(shell.split(separator: "/").last ?? "")) ? nil : shell
      }
      .map { Array($0.utf8) }
  }

  /// Only what differs: a guardian that is not root may be told its own user, and a namespace may
  /// forbid setgroups where there is nothing to set.
  private static func change(to account: Account) -> Launch.User {
    var user = Launch.User(uid: account.uid, gid: account.gid, groups: account.groups)
    let ownUser = account.uid == geteuid() && account.uid == getuid()
    if ownUser {
      user.uid = nil
      // Groups given since its login would need a right that it does not have.
      if geteuid() != 0 { user.groups = nil }
    }
    if account.gid == getegid() && account.gid == getgid() { user.gid = nil }
    if let groups = user.groups {
      var own = [gid_t](repeating: 0, count: 65536)
      let count = unsafe getgroups(Int32(own.count), &own)
      if count >= 0, Set(own.prefix(Int(count))) == Set(groups) { user.groups = nil }
    }
    return user
  }

  /// A soft limit of 1 byte is too little for a file, and with a pipe in core_pattern, where every
  /// other limit is without effect, the kernel dumps nothing for it (core(5)). Where the hard limit
  /// is 0 already there can be no file, and a pipe gets headers without memory.
  private static func forbidCore(_ launch: inout Launch) {
    var limit = rlimit()
    _ = unsafe getrlimit(__rlimit_resource_t(RLIMIT_CORE.rawValue), &limit)
    if limit.rlim_max > 0 {
      launch.limits.append(
        Launch.Limit(resource: 4, soft: 1, hard: UInt64(limit.rlim_max)))
    } else if let filter = try? FileDescriptor.open("/proc/self/coredump_filter", O_WRONLY) {
      // Inherited through fork and exec.
      try? filter.writeAll(Array("0".utf8))
    }
  }

  /// Whom the program runs as.
  private var user: UInt32 { launch.user.uid ?? geteuid() }

  var nullDescriptor: Int32 { null?.raw ?? 0 }
  /// Absolute, as far as that can be told.
  var shownPath: String? {
    guard let path = cache.executable.map({ Printable.text($0.path) }) else { return nil }
    if path.hasPrefix("/") { return path }
    guard let folder = launch.directory ?? (try? Files.readLink("/proc/self/cwd")) else {
      return path
    }
    return folder + "/" + (path.hasPrefix("./") ? String(path.dropFirst(2)) : path)
  }

  /// - Parameter output: nil: guardian's own.
  func descriptors(
    output: Int32?, error: Int32?, passed: ArraySlice<PassedDescriptor>
  ) -> [(from: Int32, to: Int32)] {
    [(input, 0), (output ?? 1, 1), (error ?? 2, 2)]
      + passed.enumerated().map { ($0.element.descriptor.raw, 3 + Int32($0.offset)) }
  }

  /// Looked up anew for every life: a deploy may have replaced it. Unchanged files are not read
  /// again.
  func executable() -> Result<Executable, SystemError> {
    let path: [UInt8]
    switch ExecutableLookup.find(arguments[0], searchPath: base.text("PATH")) {
    case .success(let found): path = found
    case .failure(let error): return .failure(error)
    }
    let text = String(decoding: path, as: UTF8.self)
    let status = try? Files.status(text)
    if let status, let key = cache.key, key.path == path, key.status == status,
      let known = cache.executable
    {
      return .success(known)
    }
    let executable = Executable(
      path: path, handler: ExecutableLookup.decide(text, user: user))
    cache.key = status.map { (path, $0) }
    cache.executable = executable
    return .success(executable)
  }

  /// More about a command that `executable` did not find.
  func whyNotFound(_ error: SystemError) -> String? {
    error.errno == ENOENT
      ? ExecFailure.notFound(arguments[0], directory: launch.directory) : nil
  }

  func environment(
    life: Life, channel: String, preload: String?, name: String, crashedLastRun: Bool,
    lastReport: String?, notify: Bool, watchdog: Duration?, passed: ArraySlice<PassedDescriptor>
  ) -> Environment {
    var environment = base
    environment.set("GUARDIAN_PROGRAM_NAME", name)
    environment.set("GUARDIAN_LIFE", "\(life.rawValue)")
    environment.set("GUARDIAN_CRASHED_LAST_RUN", crashedLastRun ? "1" : "0")
    if let lastReport { environment.set("GUARDIAN_LAST_REPORT", lastReport) }
    if !channel.isEmpty { environment.set("GUARDIAN_CHANNEL", channel) }
    if notify, !channel.isEmpty { environment.set("NOTIFY_SOCKET", channel + "/notify") }
    if let watchdog {
      environment.set("WATCHDOG_USEC", "\(watchdog.nanoseconds / 1000)")
    }
    if !passed.isEmpty {
      environment.set("LISTEN_FDS", "\(passed.count)")
      environment.set("LISTEN_FDNAMES", passed.map(\.name).joined(separator: ":"))
    }
    if let preload {
      // Behind the user's own: theirs come first in every lookup, as without guardian.
      let own = environment.text("LD_PRELOAD").map { $0 + ":" } ?? ""
      environment.set("LD_PRELOAD", own + preload)
    }
    return environment
  }

  /// A probe has the program's environment, and its number.
  func probeEnvironment(life: Life, pid: Int32) -> Environment {
    var environment = base
    environment.set("GUARDIAN_LIFE", "\(life.rawValue)")
    environment.set("GUARDIAN_PROGRAM_PID", "\(pid)")
    return environment
  }

  /// For the identity of a failure count.
  func hash(into hash: inout StableHash) {
    for argument in arguments { hash.add(argument) }
    hash.add((launch.directory ?? "").utf8)
  }

  func hashBinary(into hash: inout StableHash) {
    guard
      case .success(let path) = ExecutableLookup.find(
        arguments[0], searchPath: base.text("PATH"))
    else { return }
    hash.add(path)
    guard let status = try? Files.status(String(decoding: path, as: UTF8.self)) else { return }
    hash.add(status.device)
    hash.add(status.inode)
    hash.add(status.size)
    hash.add(status.modifiedNanoseconds)
  }
}

package enum FolderList {
  /// A list of folders as systemd.exec(5) has it without `own`, which may be named by another path
  /// (with DynamicUser= by that behind a link); nil: nothing is left.
  package static func text(_ folders: String, without own: String) -> String? {
    let status = try? Files.status(own)
    let others = folders.split(separator: ":").filter { folder in
      if folder == own[...] { return false }
      guard let status, let other = try? Files.status(String(folder)) else { return true }
      return other.device != status.device || other.inode != status.inode
    }
    return others.isEmpty ? nil : others.joined(separator: ":")
  }
}

/// setrlimit(2) by the names that prlimit(1) uses.
enum ResourceNames {
  private static let numbers: [String: Int32] = [
    "cpu": 0, "fsize": 1, "data": 2, "stack": 3, "core": 4, "rss": 5, "nproc": 6, "nofile": 7,
    "memlock": 8, "as": 9, "locks": 10, "sigpending": 11, "msgqueue": 12, "nice": 13,
    "rtprio": 14, "rttime": 15,
  ]
  static func number(_ name: String) -> Int32? { numbers[name] }
  static func name(_ number: Int32) -> String? { numbers.first { $0.value == number }?.key }
}
