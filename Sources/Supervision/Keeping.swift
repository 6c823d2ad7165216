// Whether `--on-guardian-death keep` can be kept here: asked before anything is started, because a
// promise that breaks when it is needed is worse than none.
import CSystemd
import Glibc
import Kernel

enum Keeping {
  /// Why the program could not outlive guardian; nil: nothing stands against it.
  static func obstacle() -> String? {
    if getpid() == 1 {
      return "guardian is the first process here, and when it dies the kernel ends all others"
    }
    guard let unit = ownUnit() else { return nil }
    let mode: String?
    switch killMode(of: unit) {
    case .success(let text): mode = text
    case .failure(let error):
      return "systemd, which runs guardian as '\(unit.name)', does not say its KillMode (\(error))"
    }
    guard let mode, mode != "process", mode != "none" else { return nil }
    return "'\(unit.name)' has KillMode=\(mode), so systemd ends the program when guardian dies; "
      + "set KillMode=process"
  }

  private struct Unit {
    let name: String
    let isUsers: Bool
  }

  /// The service that guardian runs in.
  private static func ownUnit() -> Unit? {
    func name(_ call: (UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>) -> Int32) -> String? {
      var text: UnsafeMutablePointer<CChar>?
      guard unsafe call(&text) >= 0, let found = unsafe text else { return nil }
      defer { unsafe free(found) }
      return unsafe String(cString: found)
    }
    if sd_booted() <= 0 { return nil }
    // A unit of a user's own manager lies inside the unit of that manager.
    if let user = unsafe name({ unsafe sd_pid_get_user_unit(0, $0) }) {
      return user.hasSuffix(".service") ? Unit(name: user, isUsers: true) : nil
    }
    guard let unit = unsafe name({ unsafe sd_pid_get_unit(0, $0) }), unit.hasSuffix(".service")
    else {
      return nil
    }
    return Unit(name: unit, isUsers: false)
  }

  /// nil: the unit goes on without guardian, which is not its main process.
  private static func killMode(of unit: Unit) -> Result<String?, SystemError> {
    func failed(_ outcome: Int32) -> Result<String?, SystemError> {
      .failure(SystemError("ask it", errno: -outcome))
    }
    var bus: OpaquePointer?
    // root reaches the manager also where there is no message bus yet.
    var outcome: Int32 = -1
    if !unit.isUsers, geteuid() == 0 {
      outcome = unsafe sd_bus_new(&bus)
      if outcome >= 0 { outcome = unsafe sd_bus_set_address(bus, "unix:path=/run/systemd/private") }
      if outcome >= 0 { outcome = unsafe sd_bus_start(bus) }
      if outcome < 0, let open = unsafe bus {
        _ = unsafe sd_bus_flush_close_unref(open)
        unsafe bus = nil
      }
    }
    if outcome < 0 {
      outcome = unsafe unit.isUsers ? sd_bus_open_user(&bus) : sd_bus_open_system(&bus)
    }
    if outcome < 0 { return failed(outcome) }
    defer { _ = unsafe sd_bus_flush_close_unref(bus) }
    // A manager that hangs must not hang us for its 25 s.
    _ = unsafe sd_bus_set_method_call_timeout(bus, 5_000_000)
    var path: UnsafeMutablePointer<CChar>?
    outcome = unsafe sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit.name, &path)
    if outcome < 0 { return failed(outcome) }
    defer { unsafe free(path) }
    let manager = "org.freedesktop.systemd1"
    let service = "org.freedesktop.systemd1.Service"
    var main: UInt32 = 0
    outcome = unsafe sd_bus_get_property_trivial(
      bus, manager, path, service, "MainPID", nil, CChar(UInt8(ascii: "u")), &main)
    if outcome < 0 { return failed(outcome) }
    // A shell that started guardian ends with it; a cron that did not, does not.
    if main != UInt32(getpid()) && main != UInt32(getppid()) { return .success(nil) }
    var value: UnsafeMutablePointer<CChar>?
    outcome = unsafe sd_bus_get_property_string(
      bus, manager, path, service, "KillMode", nil, &value)
    guard outcome >= 0, let text = unsafe value else { return failed(outcome) }
    defer { unsafe free(text) }
    return .success(unsafe String(cString: text))
  }
}
