// guardian: arguments in, supervision, exit code out. Nothing is decided here.
import Glibc
import Policy
import Settings
import Supervision

// Before anything can change them: the program gets exactly these.
let inherited = StartConditions.save()

// Whether this is a new binary in the place of one that runs a program already.
let handover = Handover.received()

let arguments = ProcessVectors.arguments
let environment = ProcessVectors.environment
let configuration = Settings.parse(
  arguments: arguments.map { String(decoding: $0, as: UTF8.self) },
  environment: ProcessVectors.texts(environment),
  problem: {
    StartProblem.find($0, searchPath: ProcessVectors.texts(environment)["PATH"])
  }, remarks: StartProblem.remarks)

do throws(SupervisorError) {
  let supervisor = try Supervisor(
    configuration, arguments: arguments, environment: environment, inherited: inherited,
    handover: handover)
  Departure.leave(try supervisor.run())
} catch {
  ProcessVectors.complain("guardian: " + error.words + "\n")
  exit(error.exitCode)
}
