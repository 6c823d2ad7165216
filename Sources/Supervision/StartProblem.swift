// What of a start can be known only by looking into files and at guardian's own rights, for --check.
import Glibc
import Kernel
import Settings

package enum StartProblem {
  /// Why the program would not start, or not as it is configured; nil: nothing speaks against it.
  /// Asked once the names themselves are right (`StartCheck`).
  package static func find(_ configuration: Configuration, searchPath: String?) -> String? {
    if let uid = configuration.account.uid, uid != geteuid(), geteuid() != 0 {
      return "only root may run it as user '\(configuration.user ?? String(uid))'"
    }
    if configuration.onGuardianDeath == .keep, let instance = configuration.instance,
      case .failure(let obstacle) = Keeping.foresee(unit: "guardian@\(instance).service")
    {
      return "on-guardian-death=keep: \(obstacle.words)"
    }
    return unfitExecutable(configuration, searchPath)
      ?? [configuration.standardOutput, configuration.standardError].lazy
      .compactMap(unfitFile).first
  }

  /// What could not be found out.
  package static func remarks(_ configuration: Configuration) -> [String] {
    guard configuration.onGuardianDeath == .keep, let instance = configuration.instance,
      case .success(.unknown) = Keeping.foresee(unit: "guardian@\(instance).service")
    else { return [] }
    return [
      "on-guardian-death=keep needs KillMode=process in guardian@\(instance).service, and there is no "
        + "systemd here that could be asked"
    ]
  }

  private static func unfitExecutable(
    _ configuration: Configuration, _ searchPath: String?
  ) -> String? {
    guard
      case .success(let path) = ExecutableLookup.find(
        Array(configuration.command[0].utf8), searchPath: searchPath)
    else { return nil }
    return ExecFailure.foreseen(path, directory: configuration.workingDirectory).map {
      "'\(Printable.text(path))': \($0)"
    }
  }

  private static func unfitFile(_ target: OutputTarget) -> String? {
    guard case .file(let path) = target else { return nil }
    if let status = try? Files.look(at: Array(path.utf8)).status(), !status.isRegular {
      return "'\(path)' is no plain file\(LogFile.hint(path))"
    }
    let folder = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? ""
    return StartCheck.canBeMade(folder.isEmpty ? "/" : folder) && Files.exists(folder)
      ? nil : "the folder of '\(path)' is not there, or cannot be written to"
  }
}
