// Where guardian's own parts are: beside its binary in a build folder, under lib and libexec when
// installed. The signals it takes. The group's memory. Who stands below us.
import CLinux
import CSpawn
import Glibc
import Kernel

struct Toolbox {
  static let handlerName = "libguardian-handler.so"
  let handler: String?
  let capture: String?
  let reporter: String?

  static func find() -> Toolbox {
    guard let own = try? Files.readLink("/proc/self/exe"), let slash = own.lastIndex(of: "/")
    else { return Toolbox(handler: nil, capture: nil, reporter: nil) }
    let beside = String(own[..<slash])
    func first(_ name: String, _ installed: String) -> String? {
      for folder in [beside, beside + "/../" + installed + "/guardian"] {
        let path = folder + "/" + name
        if let status = try? Files.status(path), status.isRegular { return path }
      }
      return nil
    }
    var handler = first(handlerName, "lib")
    // LD_PRELOAD knows no way to write these (ld.so(8)).
    if handler?.contains(where: { $0 == ":" || $0 == " " }) ?? false { handler = nil }
    return Toolbox(
      handler: handler, capture: first("guardian-capture", "libexec"),
      reporter: first("guardian-reporter", "libexec"))
  }
}

enum SignalPlan {
  /// Those that tell of a fault of guardian itself stay as they are; the C library keeps 32 and
  /// 33 for itself.
  private static let faults: Set<Int32> = [
    SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS,
  ]

  /// What guardian acts on or passes on.
  static let handled: [Int32] = (1...64).filter {
    !faults.contains($0)
      && ![SIGKILL, SIGSTOP, SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU, 32, 33].contains($0)
  }

  static func blockAll() {
    var set = sigset_t()
    unsafe sigfillset(&set)
    for signal in faults { unsafe sigdelset(&set, signal) }
    unsafe sigprocmask(SIG_SETMASK, &set, nil)
    // An inherited SIG_IGN would have the kernel reap our children itself (waitpid(2)).
    _ = signal(SIGCHLD, SIG_DFL)
  }
}

enum Descendants {
  /// /proc/PID/task/TID/children of all threads: quick, and complete for children that live on.
  static func children(of pid: Int32) -> [Int32] {
    var found: [Int32] = []
    for thread in (try? Files.list("/proc/\(pid)/task", limit: 4096)) ?? [] {
      found += children("/proc/\(pid)/task/\(thread)/children")
    }
    return found
  }

  /// guardian has one thread, whose id is the process's.
  static func ofThisProcess() -> [Int32] { children("/proc/self/task/\(getpid())/children") }

  private static func children(_ path: String) -> [Int32] {
    let text = (try? Files.readText(path, limit: 1 << 20)) ?? ""
    return text.split(separator: " ").compactMap { Int32($0) }
  }

  static func groupExists(_ group: Int32) -> Bool { kill(-group, 0) == 0 || errno == EPERM }
}

/// How often the kernel killed for memory in guardian's own cgroup (version 2).
final class CgroupMemory {
  private let path: String?
  private(set) var kills: UInt64?

  init() {
    let lines = ((try? Files.readText("/proc/self/cgroup", limit: 4096)) ?? "").split(
      separator: "\n")
    path = lines.first { $0.hasPrefix("0::") }.map {
      "/sys/fs/cgroup" + $0.dropFirst(3) + "/memory.events"
    }
    kills = read()
  }

  private func read() -> UInt64? {
    guard let path, let text = try? Files.readText(path, limit: 4096) else { return nil }
    for line in text.split(separator: "\n") where line.hasPrefix("oom_kill ") {
      return UInt64(line.dropFirst(9))
    }
    return nil
  }

  /// Whether the count grew since it was last looked at.
  func sawKill() -> Bool {
    guard let count = read() else { return false }
    defer { kills = count }
    return count > kills ?? count
  }
}
