// guardianctl: what people type. The command line is the table in Settings; each command is one
// function here.
import FoundationEssentials
import Glibc
import Reports
import Settings

let environment = ProcessInfo.processInfo.environment
let command = ControlCommand.parse(
  arguments: CommandLine.arguments, environment: environment)

do {
  let library = try Library(command, environment: environment)
  switch command.verb {
  case "reports": try ReportsCommand.list(library, json: command.json)
  case "show": try ReportsCommand.show(library, command.arguments.first, json: command.json)
  case "debug": try DebugCommand.run(library, command.arguments)
  default: throw ControlError("'\(command.verb)' is not there yet", status: 69)
  }
} catch let error as ControlError {
  Output.error(error.text)
  exit(error.status)
} catch {
  Output.error("\(error)")
  exit(74)
}
exit(Output.flush() ? 0 : 74)
