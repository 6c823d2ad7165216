// A plan in Swift for the C code between clone and exec.
import CSpawn
import Glibc
import Kernel

/// Where a start failed and why.
package struct LaunchFailure: Error {
  let step: guardian_spawn_step
  package let errno: Int32
  /// As `guardian_spawn_result.detail`.
  let detail: Int32

  /// The step as the system calls it, with what it was done to, and the cause: "cannot start
  /// './x': setrlimit nofile=1000000: Operation not permitted" without what follows from it.
  package func words(_ launch: Launch) -> String {
    let path = Printable.text(launch.path)
    // A number at or above the limit is an invalid argument (fcntl(2), F_DUPFD).
    let isLimit = step == GUARDIAN_SPAWN_DESCRIPTORS && errno == EINVAL
    let cause = SystemError.text(isLimit ? EMFILE : errno)
    let step: String? =
      switch step {
      case GUARDIAN_SPAWN_CLONE: "clone"
      case GUARDIAN_SPAWN_GROUP: "setpgid"
      case GUARDIAN_SPAWN_TERMINAL: "tcsetpgrp"
      case GUARDIAN_SPAWN_DESCRIPTORS: "descriptor \(detail)"
      case GUARDIAN_SPAWN_OOM_SCORE: "oom_score_adj=\(launch.oomScoreAdjust ?? 0)"
      case GUARDIAN_SPAWN_NICE: "setpriority nice=\(launch.nice ?? 0)"
      case GUARDIAN_SPAWN_LIMIT: "setrlimit " + limitWords(launch)
      case GUARDIAN_SPAWN_GROUPS:
        "setgroups " + (launch.user.groups ?? []).map { String($0) }.joined(separator: ",")
      case GUARDIAN_SPAWN_GID: "setgid \(launch.user.gid ?? 0)"
      case GUARDIAN_SPAWN_UID: "setuid \(launch.user.uid ?? 0)"
      case GUARDIAN_SPAWN_DIRECTORY: "chdir '\(Printable.text((launch.directory ?? "").utf8))'"
      case GUARDIAN_SPAWN_DEATH_SIGNAL: "prctl PR_SET_PDEATHSIG=\(launch.deathSignal)"
      default: nil
      }
    if let step { return "cannot start '\(path)': \(step): \(cause)" }
    let hint = ExecFailure.hint(launch.path, errno: errno, directory: launch.directory)
    return "cannot execute '\(path)': \(cause)" + (hint.map { ": " + $0 } ?? "")
  }

  private func limitWords(_ launch: Launch) -> String {
    guard launch.limits.indices.contains(Int(detail)) else { return "" }
    let limit = launch.limits[Int(detail)]
    func text(_ value: UInt64) -> String { value == .max ? "infinity" : String(value) }
    let hard = limit.hard == limit.soft ? "" : ":" + text(limit.hard)
    return (ResourceNames.name(limit.resource) ?? "\(limit.resource)") + "=" + text(limit.soft)
      + hard
  }

}

/// A child that runs what was asked for.
package final class Child {
  package let pid: Int32
  package let pidfd: FileDescriptor
  init(pid: Int32, pidfd: consuming FileDescriptor) {
    self.pid = pid
    self.pidfd = pidfd
  }
  func signal(_ number: Int32) { try? Processes.signal(pidfd, number) }
}

package struct Launch {
  package struct Limit {
    package let resource: Int32
    package let soft: UInt64
    package let hard: UInt64
    package init(resource: Int32, soft: UInt64, hard: UInt64) {
      self.resource = resource
      self.soft = soft
      self.hard = hard
    }
  }
  /// Whom it runs as; nil: as guardian does.
  package struct User {
    package var uid: UInt32?
    package var gid: UInt32?
    /// Supplementary.
    package var groups: [UInt32]?
    package init(uid: UInt32? = nil, gid: UInt32? = nil, groups: [UInt32]? = nil) {
      self.uid = uid
      self.gid = gid
      self.groups = groups
    }
  }

  /// As execve takes it.
  package var path: [UInt8] = []
  package var arguments: [[UInt8]] = []
  var environment = Environment([])
  /// From our number to the child's; everything else is closed.
  package var descriptors: [(from: Int32, to: Int32)] = [(0, 0), (1, 1), (2, 2)]
  var signals = guardian_signal_state()
  package var ownGroup = false
  var terminal: Int32 = -1
  package var deathSignal: Int32 = 0
  package var directory: String?
  package var umask: UInt32?
  /// nil: as guardian itself was started.
  package var nice: Int32?
  package var oomScoreAdjust: Int32?
  package var limits: [Limit] = []
  package var user = User()
  /// Variables whose value becomes the child's own pid.
  var pidVariables: [String] = []
  /// Fork instead of sharing memory until exec.
  package var plainFork = false
  /// The folder of the cgroup it is born in; 0: guardian's own.
  package var cgroup: Int32 = 0

  package init() {}

  /// Starts it. A child whose set-up failed has been reaped when this throws.
  package func start() throws(LaunchFailure) -> Child {
    var environment = environment
    let room = String(repeating: "0", count: Int(GUARDIAN_SPAWN_PID_BYTES))
    for name in pidVariables { environment.set(name, room) }
    let argv = CStrings(arguments)
    let envp = CStrings(environment.entries)
    let pathVector = CStrings([path])
    let texts = CStrings(
      [Array((directory ?? "").utf8), Array(String(oomScoreAdjust ?? 0).utf8)])
    let placed = descriptors.sorted { $0.to < $1.to }.map {
      guardian_spawn_descriptor(from: $0.from, to: $0.to)
    }
    let limited = limits.map {
      guardian_spawn_limit(resource: $0.resource, soft: $0.soft, hard: $0.hard)
    }
    let groups = user.groups ?? []

    var plan = unsafe guardian_spawn_plan()
    unsafe plan.path = UnsafePointer(pathVector.vector[0])
    unsafe plan.argv = UnsafePointer(argv.vector)
    unsafe plan.envp = UnsafePointer(envp.vector)
    unsafe plan.terminal = terminal
    unsafe plan.signals = signals
    unsafe plan.death_signal = deathSignal
    unsafe plan.cgroup = cgroup
    var flags: UInt32 = 0
    if ownGroup { flags |= GUARDIAN_SPAWN_OWN_GROUP.rawValue }
    if plainFork { flags |= GUARDIAN_SPAWN_PLAIN_FORK.rawValue }
    if let umask {
      flags |= GUARDIAN_SPAWN_SET_UMASK.rawValue
      unsafe plan.umask = umask
    }
    if let nice = nice ?? (unsafe Priority.isRaised ? Priority.inherited : nil) {
      flags |= GUARDIAN_SPAWN_SET_NICE.rawValue
      unsafe plan.nice = nice
    }
    if oomScoreAdjust != nil { unsafe plan.oom_score_adjust = UnsafePointer(texts.vector[1]) }
    if directory != nil { unsafe plan.directory = UnsafePointer(texts.vector[0]) }
    if let uid = user.uid {
      flags |= GUARDIAN_SPAWN_SET_UID.rawValue
      unsafe plan.uid = uid
    }
    if let gid = user.gid {
      flags |= GUARDIAN_SPAWN_SET_GID.rawValue
      unsafe plan.gid = gid
    }
    if user.groups != nil { flags |= GUARDIAN_SPAWN_SET_GROUPS.rawValue }
    if !pidVariables.isEmpty {
      flags |= GUARDIAN_SPAWN_WRITE_PID.rawValue
      func place(_ index: Int) -> UnsafeMutablePointer<CChar>? {
        guard index < pidVariables.count,
          let position = environment.position(of: pidVariables[index]),
          let entry = unsafe envp.vector[position]
        else { return nil }
        return unsafe entry + pidVariables[index].utf8.count + 1
      }
      unsafe plan.pid_places = unsafe (place(0), place(1))
    }
    unsafe plan.flags = flags

    let result = unsafe placed.withUnsafeBufferPointer { placed in
      unsafe limited.withUnsafeBufferPointer { limited in
        unsafe groups.withUnsafeBufferPointer { groups in
          unsafe plan.descriptors = placed.baseAddress
          unsafe plan.descriptor_count = UInt32(placed.count)
          unsafe plan.limits = limited.baseAddress
          unsafe plan.limit_count = UInt32(limited.count)
          unsafe plan.groups = groups.baseAddress
          unsafe plan.group_count = UInt32(groups.count)
          return withExtendedLifetime((argv, envp, pathVector, texts)) {
            unsafe guardian_spawn(&plan)
          }
        }
      }
    }
    let step = guardian_spawn_step(UInt32(result.step))
    if step != GUARDIAN_SPAWN_NONE || result.pidfd < 0 {
      if result.pidfd >= 0 { close(result.pidfd) }
      if result.pid > 0 {
        // A child that runs but cannot be watched is none (only a kernel below 5.3 could).
        if step == GUARDIAN_SPAWN_NONE { kill(result.pid, SIGKILL) }
        var status: Int32 = 0
        while unsafe waitpid(result.pid, &status, 0) < 0 && errno == EINTR {}
      }
      throw LaunchFailure(
        step: step == GUARDIAN_SPAWN_NONE ? GUARDIAN_SPAWN_CLONE : step,
        errno: step == GUARDIAN_SPAWN_NONE ? ENOSYS : result.error, detail: result.detail)
    }
    return Child(pid: result.pid, pidfd: FileDescriptor(owning: result.pidfd))
  }
}
