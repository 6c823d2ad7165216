// guardian's reporter: one process a crash. `report` is the finisher, which keeps guardian's
// rights, reads nothing of the program but our own JSON and moves folders; it starts `worker`,
// which has no rights and reads the program's memory. `check` only looks whether that can be had.
import Glibc
import Reports

switch CommandLine.arguments.dropFirst().first {
case "report": exit(Finisher.run(Array(CommandLine.arguments.dropFirst(2))))
case "check": exit(Sandbox.check())
case "worker": exit(Worker.run(Array(CommandLine.arguments.dropFirst(2))))
default:
  complain(
    "usage: guardian-reporter report --folder DIR --store DIR [--replaced N:PATH]...; "
      + "guardian starts it")
  exit(64)
}

/// A line on stderr, which is guardian's own.
func complain(_ text: String) {
  let line = Array("guardian-reporter: \(SafeText.oneLine(text))\n".utf8)
  _ = unsafe line.withUnsafeBytes { unsafe write(2, $0.baseAddress, $0.count) }
}
