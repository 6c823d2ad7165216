// A cgroup for each life, where the service manager has handed guardian a part of the tree
// (Delegate=yes): whoever is born there is found and killed with it, wherever it went and whatever
// it threw away. guardian itself stays where it was put: no controller is switched on below, so
// nothing forbids it, and systemd's own view of the unit (its main process, its memory events, its
// kill) stays what it is.
//
// One for each life, because Linux (seen on 6.18) ends at once whatever is cloned into a cgroup
// that was ever killed by cgroup.kill, unless its parent's was killed as often.
import CLinux
import CSpawn
import Glibc
import Kernel

/// Removed with its owner, if nobody is left in it.
final class LifeCgroup {
  /// Below /sys/fs/cgroup.
  let path: String
  private let folder: FileDescriptor

  fileprivate init(_ path: String) throws(SystemError) {
    self.path = path
    try Files.makeDirectory(Cgroup.root + path, mode: 0o755)
    folder = try FileDescriptor.open(Cgroup.root + path, O_RDONLY | O_DIRECTORY)
  }

  deinit { try? Files.removeDirectory(Cgroup.root + path) }

  var number: Int32 { folder.raw }
}

final class LifeCgroups {
  private let own: String
  private var next: LifeCgroup?
  private var count = 0
  private static let prefix = "life-"

  /// nil: nothing was delegated to us, or it cannot be used.
  init?() {
    guard let own = LifeCgroups.ownPath, LifeCgroups.isDelegated(own),
      // Linux 5.14; without it the walk through /proc does as well.
      Files.exists(Cgroup.root + own + "/cgroup.kill")
    else { return nil }
    self.own = own
    prepare()
    guard let next, guardian_spawn_may_enter(next.number) else { return nil }
  }

  /// Made ahead, while there is time; those that are empty go.
  func prepare() {
    if next != nil { return }
    let names = ((try? Files.list(Cgroup.root + own)) ?? []).filter {
      $0.hasPrefix(LifeCgroups.prefix)
    }
    // One that is in use refuses.
    for name in names { try? Files.removeDirectory(Cgroup.root + own + "/" + name) }
    for _ in 0..<Limit.nameAttempts where next == nil {
      count += 1
      next = try? LifeCgroup(own + "/" + LifeCgroups.prefix + "\(count)")
    }
  }

  /// For the next life.
  func take() -> LifeCgroup? {
    prepare()
    defer { next = nil }
    return next
  }

  private static var ownPath: String? {
    ((try? Files.readText("/proc/self/cgroup", limit: 4096)) ?? "").split(separator: "\n")
      .first { $0.hasPrefix("0::/") }.map { String($0.dropFirst(3)) }
  }

  /// systemd marks what it hands over (systemd.resource-control(5), Delegate=). Whoever is not root may
  /// not see the mark, and a user's own manager may not make it; there the folder and the list of its
  /// processes are ours exactly if they were handed over, or belong to that manager's part of the tree.
  private static func isDelegated(_ path: String) -> Bool {
    let isMarked = ["trusted.delegate", "user.delegate"].contains { name in
      var value: UInt8 = 0
      return unsafe getxattr(Cgroup.root + path, name, &value, 1) == 1
        && value == UInt8(ascii: "1")
    }
    if isMarked || geteuid() == 0 { return isMarked }
    return ["", "/cgroup.procs"].allSatisfy { name in
      (try? Files.status(Cgroup.root + path + name))?.user == geteuid()
    }
  }
}
