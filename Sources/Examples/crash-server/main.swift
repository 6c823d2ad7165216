// A small HTTP server that really crashes: `GET /crash`, `/abort`, `/trap`, `/throw`, `/overflow`.
// It is what a program under guardian looks like: it knows nothing of guardian.
//
//   crash-server [PORT]      listens on 127.0.0.1; port 0, the default, takes a free one
import Glibc

let wanted = CommandLine.arguments.count > 1 ? UInt16(CommandLine.arguments[1]) : 0
guard let wanted else {
  complain("usage: crash-server [PORT]")
  exit(64)
}

let listener = Listener(port: wanted)
complain("listening on http://127.0.0.1:\(listener.port)/")
startThread(named: "stock-keeper") { keepStock() }
for number in 1...4 {
  startThread(named: "worker-\(number)") { listener.serve() }
}
while true { pause() }
