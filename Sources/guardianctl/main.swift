// guardianctl: what people type. The command line is the table in Settings; each command is one
// function here.
import Control
import FoundationEssentials
import Glibc
import Reports
import Settings

let environment = ProcessInfo.processInfo.environment
let command = ControlCommand.parse(
  arguments: CommandLine.arguments, environment: environment)

/// Whether there is or was a guarded program of that name.
func isProgram(_ word: String) -> Bool {
  Library.programs(command, environment).contains(word)
}

/// What to leave with when nothing was thrown.
func perform() throws -> Int32 {
  let json = command.json
  func talk(_ request: ControlRequest, _ operand: Int = 0) throws -> Conversation {
    let name = command.arguments.dropFirst(operand).first
    return try Guardians(command, operand: name, environment: environment).one(request)
  }
  switch command.verb {
  case "status":
    return try StatusCommand.status(
      Guardians(command, operand: command.arguments.first, environment: environment), json: json)
  case "why":
    let answer = try talk(.why).next(within: .seconds(5))
    guard let why = answer?.why else { throw ControlError("guardian does not answer", status: 69) }
    try StatusCommand.why(why, json: json)
  case "start": return try ActionCommands.perform(talk(.start), json: json)
  case "stop": return try ActionCommands.perform(talk(.stop), json: json)
  case "restart": return try ActionCommands.perform(talk(.restart), json: json)
  case "reload":
    return try ActionCommands.reload(talk(.reload), json: json)
  case "upgrade": return try ActionCommands.perform(talk(.upgrade), json: json)
  case "signal":
    let signal = try ActionCommands.signal(command.arguments[0])
    return try ActionCommands.send(signal, talk(.signal(signal), 1), json: json)
  case "logs":
    try ActionCommands.logs(
      talk(.logs(follow: command.follow)), json: json, follow: command.follow)
  case "watch": try ActionCommands.watch(talk(.watch), json: json)
  case "plan":
    try PlanCommand.run(
      command.arguments, simulate: command.simulate, environment: environment, json: json)
  case ControlVerb.names.name:
    for name in Library.programs(command, environment) { Output.print(name) }
  case "doctor": return try Doctor.run(command, environment: environment, json: json)
  default:
    let command = command.takingName(isProgram: isProgram)
    let library =
      command.verb == "reports" || command.verb == "delete"
      ? try Library(command, environment: environment)
      : try Library.settled(command, environment: environment, word: command.arguments.first)
    switch command.verb {
    case "reports": try ReportsCommand.list(library, json: json)
    case "show": try ReportsCommand.show(library, command.arguments.first, json: json)
    case "delete":
      try DeleteCommand.run(library, command.arguments, all: command.all, json: json)
    case "debug": try DebugCommand.run(library, command.arguments)
    default: throw ControlError("'\(command.verb)' is not there yet", status: 69)
    }
  }
  return 0
}

let status: Int32
do {
  status = try perform()
} catch let error as ControlError {
  Output.error(error.text)
  exit(error.status)
} catch {
  Output.error("\(error)")
  exit(74)
}
exit(Output.flush() ? status : 74)
