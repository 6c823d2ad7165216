// guardian-capture --pid P --tid T [--slot S] --timeout-ms N
//
// Started by guardian while a dying program waits, with the result socket as descriptor 3, the
// minicore's file as 4 and the ring as 5. It must stay small and start at once.
import Capture
import Glibc

func usage() -> Never {
  let text = "usage: guardian-capture --pid P --tid T [--slot S] --timeout-ms N\n"
  unsafe _ = write(2, text, text.utf8.count)
  exit(64)
}

var values: [String: Int64] = [:]
var words = CommandLine.arguments.dropFirst()
while let name = words.popFirst() {
  guard ["--pid", "--tid", "--slot", "--timeout-ms"].contains(name),
    let text = words.popFirst(), let value = Int64(text), value >= 0, value <= Int64(Int32.max)
  else { usage() }
  values[name] = value
}
guard let pid = values["--pid"], pid > 0, let timeout = values["--timeout-ms"] else { usage() }

var capture = Capture(
  CaptureRequest(
    pid: Int32(pid), thread: Int32(values["--tid"] ?? 0), slot: values["--slot"].map { Int($0) },
    timeoutMilliseconds: timeout))
exit(capture.run())
