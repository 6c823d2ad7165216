// Where state and runtime folders lie when nobody says so: pure functions of user and environment.

/// The folders that hold one folder for each guarded program.
package struct Places: Hashable, Sendable {
  /// Survives a reboot.
  package let state: String
  /// Gone after a reboot.
  package let runtime: String

  package init(state: String, runtime: String) {
    self.state = state
    self.runtime = runtime
  }

  /// Where runtime folders go when the usual place cannot be written to: memory that even a
  /// container with a read-only root has. Whoever uses it must check that it is ours.
  package static func lastResort(uid: UInt32) -> String { "/dev/shm/guardian-\(uid)" }

  /// - Parameter uid: the effective user.
  /// - Parameter environment: guardian's own. A relative path in an XDG variable is invalid and is
  ///   ignored (XDG Base Directory Specification).
  /// - Parameter canBeMade: whether a folder is there or can be made; where the user's own state
  ///   folder cannot, it lies where it lies without HOME.
  package init(
    uid: UInt32, environment: [String: String], canBeMade: (String) -> Bool = { _ in true }
  ) {
    func absolute(_ variable: String) -> String? {
      guard var path = environment[variable], path.hasPrefix("/") else { return nil }
      while path.count > 1, path.hasSuffix("/") { path.removeLast() }
      return path == "/" ? "" : path
    }
    if uid == 0 {
      self.init(state: "/var/lib/guardian", runtime: "/run/guardian")
      return
    }
    // Whoever uses this folder must check that it is ours and closed to others: anybody may
    // create a folder of that name under /tmp first.
    let temporary = (absolute("TMPDIR") ?? "/tmp") + "/guardian-\(uid)"
    let own =
      absolute("XDG_STATE_HOME").map { $0 + "/guardian" }
      ?? absolute("HOME").map { $0 + "/.local/state/guardian" }
    let state = own.flatMap { canBeMade($0) ? $0 : nil } ?? temporary + "/state"
    let runtime =
      absolute("XDG_RUNTIME_DIR").map { $0 + "/guardian" }
      ?? temporary + "/run"
    self.init(state: state, runtime: runtime)
  }
}
