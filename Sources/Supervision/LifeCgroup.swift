// The cgroup of the lives, where the service manager has handed guardian a part of the tree
// (Delegate=yes): whoever is born there is found, frozen and killed with it, wherever it went and
// whatever it threw away. guardian itself stays where it was put: no controller is switched on
// below, so nothing forbids it, and systemd's own view of the unit (its main process, its memory
// events, its kill) stays what it is.
import CLinux
import Glibc
import Kernel

final class LifeCgroup {
  /// Below /sys/fs/cgroup.
  let path: String
  private let folder: FileDescriptor

  /// nil: nothing was delegated to us, or it cannot be used.
  init?() {
    guard let own = LifeCgroup.own, LifeCgroup.isDelegated(own) else { return nil }
    path = own + "/life"
    let full = Cgroup.root + path
    do {
      try? Files.makeDirectory(full, mode: 0o755)
      // Its kill came with Linux 5.14; without it the walk through /proc does as well.
      guard Files.exists(full + "/cgroup.kill") else { return nil }
      folder = try FileDescriptor.open(full, O_RDONLY | O_DIRECTORY)
    } catch { return nil }
  }

  var number: Int32 { folder.raw }

  func remove() { try? Files.removeDirectory(Cgroup.root + path) }

  private static var own: String? {
    ((try? Files.readText("/proc/self/cgroup", limit: 4096)) ?? "").split(separator: "\n")
      .first { $0.hasPrefix("0::/") }.map { String($0.dropFirst(3)) }
  }

  /// systemd marks what it hands over (systemd.resource-control(5), Delegate=).
  private static func isDelegated(_ path: String) -> Bool {
    ["trusted.delegate", "user.delegate"].contains { name in
      var value: UInt8 = 0
      return unsafe getxattr(Cgroup.root + path, name, &value, 1) == 1
        && value == UInt8(ascii: "1")
    }
  }
}
