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
  let sweep: String?

  static func find() -> Toolbox {
    guard let own = try? Files.readLink("/proc/self/exe"), let slash = own.lastIndex(of: "/")
    else { return Toolbox(handler: nil, capture: nil, reporter: nil, sweep: nil) }
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
      reporter: first("guardian-reporter", "libexec"),
      sweep: first("guardian-sweep", "libexec"))
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
    !faults.contains($0) && ![SIGKILL, SIGSTOP, SIGCHLD, 32, 33].contains($0)
  }

  static func blockAll() {
    var set = sigset_t()
    unsafe sigfillset(&set)
    for signal in faults { unsafe sigdelset(&set, signal) }
    unsafe sigprocmask(SIG_SETMASK, &set, nil)
    // An inherited SIG_IGN would have the kernel reap our children itself (waitpid(2)). The others
    // need no care: a blocked signal is queued, also an ignored one, also for PID 1.
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

/// How often the kernel killed for lack of memory in guardian's own control group: version 2, or
/// the memory controller of version 1.
package final class CgroupMemory {
  /// The file with the count; nil: there is none here.
  package let path: String?
  /// The kernel tells when it changes (version 2).
  package let isTold: Bool
  /// nil: it cannot be known here.
  package private(set) var kills: UInt64?
  /// When the count was seen to have grown, on CLOCK_MONOTONIC, until that is used up.
  private var grewAt: Duration?
  private let folders: [String]

  /// - Parameter membership: /proc/self/cgroup. `root`: where the control groups are mounted.
  package init(membership: String? = nil, root: String = "/sys/fs/cgroup") {
    let text = membership ?? (try? Files.readText("/proc/self/cgroup", limit: 8192)) ?? ""
    var candidates: [String] = []
    var own: String?
    for line in text.split(separator: "\n") {
      let parts = line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false)
      guard parts.count == 3 else { continue }
      let group = parts[2] == "/" ? "" : String(parts[2])
      if parts[0] == "0", parts[1].isEmpty {
        own = group
        candidates.insert(root + group + "/memory.events", at: 0)
      } else if parts[1].split(separator: ",").contains("memory") {
        candidates += ["\(root)/memory\(group)", "\(root)/memory"].map {
          $0 + "/memory.oom_control"
        }
      }
    }
    // A container may see its own group as the root, under the name that it has outside.
    candidates.append(root + "/memory.events")
    path = candidates.first { Files.exists($0) }
    isTold = path?.hasSuffix("/memory.events") ?? false
    // From guardian's own group up.
    var folders: [String] = []
    while let group = own {
      folders.append(root + group)
      own = group.lastIndex(of: "/").map { String(group[..<$0]) }
    }
    self.folders = folders
    kills = read()
  }

  private func read() -> UInt64? {
    guard let path, let text = try? Files.readText(path, limit: 4096) else { return nil }
    for line in text.split(separator: "\n") where line.hasPrefix("oom_kill ") {
      return UInt64(line.dropFirst(9))
    }
    return nil
  }

  /// The count may have changed.
  package func look(at now: Duration) {
    guard let count = read() else { return }
    if count > kills ?? count { grewAt = now }
    kills = count
  }

  /// Whether a KILL that was seen now was one of those counted: the count grew a short time ago, and
  /// no other ending was put down to it. Of version 1 nobody knows when it grew.
  package func sawKill(at now: Duration) -> Bool {
    look(at: now)
    defer { grewAt = nil }
    guard let grewAt else { return false }
    return !isTold || now - grewAt < Limit.memoryKill
  }

  /// The group that is killed as a whole when memory runs out, guardian with it; nil: none.
  package var groupKilledTogether: String? {
    folders.last {
      ((try? Files.readText($0 + "/memory.oom.group", limit: 16)) ?? "").hasPrefix("1")
    }
  }
}
