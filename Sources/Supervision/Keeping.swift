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
    return mode.flatMap { words($0, unit: unit.name) }
  }

  /// nil: the program lives on.
  private static func words(_ mode: String, unit: String) -> String? {
    if mode == "process" || mode == "none" { return nil }
    return "'\(unit)' has KillMode=\(mode), so systemd ends the program when guardian dies; "
      + "set KillMode=process"
  }

  struct Obstacle: Error {
    let words: String
  }
  enum Foresight {
    case kept
    /// There is no systemd, no such unit, or it does not say.
    case unknown
  }

  /// The same of a service of the system that may not run yet.
  static func foresee(unit: String) -> Result<Foresight, Obstacle> {
    guard sd_booted() > 0, case .success(let bus) = Bus.open(isUsers: false) else {
      return .success(.unknown)
    }
    guard case .success(let state) = bus.text("LoadState", of: unit, .unit), state == "loaded",
      case .success(let mode) = bus.text("KillMode", of: unit, .service)
    else { return .success(.unknown) }
    return words(mode, unit: unit).map { .failure(Obstacle(words: $0)) } ?? .success(.kept)
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
    Bus.open(isUsers: unit.isUsers).flatMap { bus in
      bus.number("MainPID", of: unit.name).flatMap { main in
        // A shell that started guardian ends with it; a cron that did not, does not.
        if main != UInt32(getpid()) && main != UInt32(getppid()) { return .success(nil) }
        return bus.text("KillMode", of: unit.name, .service).map { $0 }
      }
    }
  }
}

/// The service manager's side of D-Bus, for questions only.
@safe private final class Bus {
  enum Interface: String {
    case unit = "org.freedesktop.systemd1.Unit"
    case service = "org.freedesktop.systemd1.Service"
  }
  private static let manager = "org.freedesktop.systemd1"
  private let bus: OpaquePointer

  private init(_ bus: OpaquePointer) {
    unsafe self.bus = bus
    // A manager that hangs must not hang us for its 25 s.
    _ = unsafe sd_bus_set_method_call_timeout(bus, 5_000_000)
  }

  deinit { _ = unsafe sd_bus_flush_close_unref(bus) }

  private static func failed(_ outcome: Int32) -> SystemError {
    SystemError("ask it", errno: -outcome)
  }

  /// - Parameter isUsers: the manager of this user, not the system's.
  static func open(isUsers: Bool) -> Result<Bus, SystemError> {
    var bus: OpaquePointer?
    // root reaches the manager also where there is no message bus yet.
    var outcome: Int32 = -1
    if !isUsers, geteuid() == 0 {
      outcome = unsafe sd_bus_new(&bus)
      if outcome >= 0 { outcome = unsafe sd_bus_set_address(bus, "unix:path=/run/systemd/private") }
      if outcome >= 0 { outcome = unsafe sd_bus_start(bus) }
      if outcome < 0, let open = unsafe bus {
        _ = unsafe sd_bus_flush_close_unref(open)
        unsafe bus = nil
      }
    }
    if outcome < 0 {
      outcome = unsafe isUsers ? sd_bus_open_user(&bus) : sd_bus_open_system(&bus)
    }
    guard outcome >= 0, let bus = unsafe bus else { return .failure(failed(outcome)) }
    return .success(unsafe Bus(bus))
  }

  /// Its object path is made of its name; the manager loads it, if it is not.
  private func withPath(
    _ unit: String, _ ask: (UnsafeMutablePointer<CChar>?) -> Int32
  ) -> Int32 {
    var path: UnsafeMutablePointer<CChar>?
    let outcome = unsafe sd_bus_path_encode("/org/freedesktop/systemd1/unit", unit, &path)
    if outcome < 0 { return outcome }
    defer { unsafe free(path) }
    return unsafe ask(path)
  }

  func text(_ property: String, of unit: String, _ interface: Interface) -> Result<
    String, SystemError
  > {
    var value: UnsafeMutablePointer<CChar>?
    let outcome = unsafe withPath(unit) { path in
      unsafe sd_bus_get_property_string(
        bus, Self.manager, path, interface.rawValue, property, nil, &value)
    }
    guard outcome >= 0, let text = unsafe value else { return .failure(Self.failed(outcome)) }
    defer { unsafe free(text) }
    return .success(unsafe String(cString: text))
  }

  func number(_ property: String, of unit: String) -> Result<UInt32, SystemError> {
    var value: UInt32 = 0
    let outcome = unsafe withPath(unit) { path in
      unsafe sd_bus_get_property_trivial(
        bus, Self.manager, path, Interface.service.rawValue, property, nil,
        CChar(UInt8(ascii: "u")), &value)
    }
    return outcome < 0 ? .failure(Self.failed(outcome)) : .success(value)
  }
}
