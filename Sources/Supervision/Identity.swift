// What a failure count is bound to: another binary, command or configuration starts a new one.
import Policy
import Settings

enum Identity {
  static func of(command: ProgramCommand, configuration: Configuration) -> CrashHistory.Identity {
    var binary = StableHash()
    command.hashBinary(into: &binary)
    var words = StableHash()
    command.hash(into: &words)
    var settings = StableHash()
    settings.add(String(describing: configuration.policy).utf8)
    for variable in configuration.environment {
      settings.add(variable.name.utf8)
      settings.add(variable.value.utf8)
    }
    for variable in configuration.fileEnvironment {
      settings.add(variable.name.utf8)
      settings.add(variable.value)
    }
    for number in [configuration.account.uid, configuration.account.gid] {
      settings.add(number.map(UInt64.init) ?? .max)
    }
    return CrashHistory.Identity(
      binary: binary.text, command: words.text, configuration: settings.text)
  }
}
