// How values are written.
import Policy
import Settings
import Testing

@Suite struct `how values are written` {
  @Test(arguments: [
    ("100ms", Duration.milliseconds(100)), ("10min", .seconds(600)), ("1h 30min", .seconds(5400)),
    ("1h30m", .seconds(5400)), ("90", .seconds(90)), ("0", .zero), ("1.5s", .milliseconds(1500)),
    ("0.25", .milliseconds(250)), ("2 d", .seconds(172_800)), ("1w", .seconds(604_800)),
    ("3650d", .seconds(315_360_000)), ("250us", .microseconds(250)), ("1.5h", .seconds(5400)),
  ])
  func `a time`(text: String, value: Duration) throws {
    #expect(try configuration(["--restart-delay", text]).restartDelay == value)
  }

  @Test(arguments: [
    "", "-1", "ms", "1x", "1 30", "1h 30", "1..5s", "1.s", "0x10", "1e3", "3651d", "1s,", "٣s",
    "99999999999999999999s", "9223372036854775807w", "infinity", "1.1234567891s",
  ])
  func `no time`(text: String) {
    #expect(failure(["--restart-delay", text]) != nil)
  }

  @Test(arguments: [
    ("0", UInt64(0)), ("1024", 1024), ("256MiB", 256 << 20), ("1G", 1 << 30),
    ("1GB", 1_000_000_000),
    ("2 KiB", 2048), ("1kB", 1000), ("5B", 5),
  ])
  func `a size`(text: String, value: UInt64) throws {
    #expect(try configuration(["--reports-bytes", text]).reportsBytes == value)
  }

  @Test(arguments: ["", "-1", "1.5G", "1XB", "16777216TiB", "99999999999999999999", "G"])
  func `no size`(text: String) {
    #expect(failure(["--reports-bytes", text]) != nil)
  }

  @Test(arguments: [
    ("TERM", Int32(15)), ("SIGTERM", 15), ("sigterm", 15), ("15", 15), ("HUP", 1), ("USR2", 12),
    ("RTMIN", 34), ("RTMIN+3", 37), ("64", 64), ("IOT", 6), ("STKFLT", 16),
  ])
  func `a signal`(text: String, number: Int32) throws {
    let signal = try configuration(["--stop-signal", text]).stopSignal
    #expect(signal == Signal(rawValue: number))
    #expect(
      try configuration(["--stop-signal", signalName(signal)]).stopSignal.rawValue == number)
  }

  @Test(arguments: ["", "0", "65", "-1", "TREM", "SIG", "RTMIN+31", "15 "])
  func `no signal`(text: String) {
    #expect(failure(["--stop-signal", text]) != nil)
  }

  @Test(arguments: [
    ("HUP:USR1", Int32(1), Int32(10)), ("SIGHUP:sigusr1", 1, 10), ("1:10", 1, 10), ("15:3", 15, 3),
    ("RTMIN+1:TERM", 35, 15), ("TSTP:STOP", 20, 19), ("TERM:KILL", 15, 9), ("PIPE:0", 13, 0),
  ])
  func `one signal instead of another`(text: String, from: Int32, to: Int32) throws {
    let rewrites = try configuration(["--rewrite-signal", text]).signalRewrites
    #expect(rewrites.count == 1)
    #expect(rewrites.first?.from.rawValue == from)
    #expect(rewrites.first?.to?.rawValue ?? 0 == to)
  }

  @Test(arguments: [
    "", "HUP", "HUP:", ":HUP", "HUP:USR1:USR2", "HUP:65", "0:HUP", "HUP:-1", "KILL:TERM", "STOP:0",
    "SEGV:TERM", "CHLD:0", "HUP:32", "33:HUP", "HUP=USR1", "HUP: USR1",
  ])
  func `no rewriting of a signal`(text: String) {
    #expect(failure(["--rewrite-signal", text]) != nil)
  }

  @Test func `clean endings are codes and signals`() throws {
    let words = ["1", "255", "SIGUSR1"].flatMap { ["--success-exit-status", $0] }
    #expect(
      try configuration(words).successExitStatus
        == [.code(1), .code(255), .signal(Signal(rawValue: 10))])
    #expect(
      try configuration(environment: ["GUARDIAN_SUCCESS_EXIT_STATUS": "1, 255 USR1"])
        .successExitStatus == [.code(1), .code(255), .signal(Signal(rawValue: 10))])
  }

  @Test(arguments: [
    ("tcp:127.0.0.1:80", "tcp:127.0.0.1:80"), ("tcp:[::1]:8080", "tcp:[::1]:8080"),
    ("tcp:localhost:80", "tcp:127.0.0.1:80"),
    ("tcp:0.0.0.0:65535", "tcp:0.0.0.0:65535"), ("unix:/run/x", "unix:/run/x"),
  ])
  func `a listening address`(text: String, shown: String) throws {
    #expect(try configuration(["--listen", text]).listen.map(\.text) == [shown])
  }

  @Test(arguments: [
    "", "127.0.0.1:80", "tcp:80", "tcp::80", "tcp:[localhost]:80", "tcp:127.0.0.1",
    "tcp:127.0.0.1:",
    "tcp:127.0.0.1:0", "tcp:127.0.0.1:65536", "tcp:127.0.0.1:+80", "tcp:::1:80", "tcp:[::1:80",
    "tcp:[::1]80", "tcp:[127.0.0.1]:80", "tcp:1.2.3:80", "unix:", "udp:127.0.0.1:80",
    "unix:/" + String(repeating: "x", count: 107),
  ])
  func `no listening address`(text: String) {
    #expect(failure(["--listen", text]) != nil)
  }

  @Test func `a path to listen on is made absolute`() throws {
    guard case .unix(let path)? = try configuration(["--listen", "unix:here"]).listen.first else {
      Issue.record("no path")
      return
    }
    #expect(path.hasPrefix("/") && path.hasSuffix("/here"))
  }

  @Test(arguments: [
    ("http://127.0.0.1", "http://127.0.0.1/", UInt16(80)),
    ("http://localhost:8080/live", "http://localhost:8080/live", 8080),
    ("http://[::1]:1?x=1#part", "http://[::1]:1/?x=1", 1),
  ])
  func `where health is asked by HTTP`(text: String, shown: String, port: UInt16) throws {
    let url = try #require(try configuration(["--health-http", text]).healthHTTP)
    #expect(url.text == shown)
    #expect(url.address.port == port)
  }

  @Test(arguments: [
    "", "https://127.0.0.1/", "127.0.0.1/", "http://", "http:///", "http://example.org/",
    "http://127.0.0.1:0/", "http://127.0.0.1/a b", "http://127.0.0.1/\r\nX: y",
    "http://127.0.0.1/ä",
  ])
  func `not by HTTP`(text: String) {
    #expect(failure(["--health-http", text]) != nil)
  }

  @Test(arguments: ["fd:2", "fd:60", "fd:", "fd:-3", "fd:+3", "fd:3x", "Notify", ""])
  func `no readiness`(text: String) {
    #expect(failure(["--ready", text]) != nil)
  }

  @Test func `who has to say that it is ready has 90 s for it, if nothing else was said`() throws {
    #expect(try configuration().startTimeout == nil)
    #expect(try configuration(["--ready", "notify"]).startTimeout == .seconds(90))
    #expect(try configuration(["--ready", "fd:3"]).startTimeout == .seconds(90))
    #expect(
      try configuration(["--ready", "notify", "--start-timeout", "infinity"]).startTimeout == nil)
  }

  @Test func `readiness and listening sockets do not meet on one descriptor`() throws {
    let listen = ["--listen", "tcp:127.0.0.1:80", "--listen", "tcp:127.0.0.1:81"]
    #expect(failure(listen + ["--ready", "fd:4"])?.line.contains("from 5 on") == true)
    #expect(try configuration(listen + ["--ready", "fd:5"]).ready == .descriptor(5))
  }

  @Test func `there is one kind of health probe`() {
    #expect(
      failure(["--health-exec", "true", "--health-tcp", "127.0.0.1:80"])?.line
        .contains("health-exec and health-tcp exclude each other") == true)
  }

  @Test func `infinity is no cap`() throws {
    let endless = try configuration(["-m", "infinity", "-w", "infinity", "-t", "infinity"])
    #expect(endless.maxCrashes == nil)
    #expect(endless.crashWindow == nil)
    #expect(endless.stopTimeout == nil)
  }

  @Test func `masks and limits`() throws {
    #expect(try configuration(["--umask", "22"]).umask == 0o22)
    #expect(failure(["--umask", "8"]) != nil)
    #expect(failure(["--umask", "1777"]) != nil)
    #expect(failure(["--limit", "nofile=5:4"]) != nil)
    #expect(failure(["--limit", "nofil=5"]) != nil)
    #expect(try configuration(["--limit", "core=infinity"]).limits.first?.soft == .some(nil))
  }

  @Test func `users and groups by name and number`() throws {
    let root = try configuration(["--user", "root"]).account
    #expect(root.uid == 0 && root.gid == 0 && root.login?.name == "root")
    #expect(root.groups?.contains(0) == true)
    #expect(try configuration(["--user", "0"]).account == root)
    #expect(try configuration(["--user", "0", "--group", "7"]).account.gid == 7)
    #expect(try configuration().account.uid == nil)
    #expect(failure(["--user", "4294967295"]) != nil)
    #expect(failure(["--group", "99999999999999999999"]) != nil)
  }
}
