// Listening sockets that outlive a program, and probes that ask it whether it is well.
import Glibc
import Kernel
import Testing

/// A client's end.
struct Connection {
  private let socket: SharedDescriptor

  init?(port: UInt16) {
    let raw = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    socket = SharedDescriptor(FileDescriptor(owning: raw))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    let outcome = unsafe withUnsafePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe connect(raw, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    if outcome != 0 { return nil }
  }

  init?(path: String) {
    let raw = Glibc.socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
    socket = SharedDescriptor(FileDescriptor(owning: raw))
    var address = sockaddr_un()
    address.sun_family = sa_family_t(AF_UNIX)
    unsafe withUnsafeMutableBytes(of: &address.sun_path) { unsafe $0.copyBytes(from: path.utf8) }
    let outcome = unsafe withUnsafePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe connect(raw, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
      }
    }
    if outcome != 0 { return nil }
  }

  /// Asks, and waits for all of the answer.
  func ask() -> String {
    guard (try? socket.descriptor.writeAll(Array("?".utf8))) != nil,
      let bytes = try? socket.descriptor.readToEnd(limit: 1024)
    else { return "" }
    return String(decoding: bytes, as: UTF8.self)
  }
}

/// Below the range that connections take theirs from.
func freePort() throws -> UInt16 {
  for _ in 0..<200 {
    let port = UInt16.random(in: 20_000..<32_000)
    if Connection(port: port) == nil { return port }
  }
  throw TimedOut(description: "no free port")
}

@Suite struct `A listening socket` {
  @Test func `stays open through a hundred crashes: no connection is refused, all are answered`()
    throws
  {
    let port = try freePort()
    let guardian = try Guardian(
      [
        "--listen", "tcp:127.0.0.1:\(port)", "--max-crashes", "infinity", "--restart-delay", "0",
        "--reports-keep", "2", "--report-timeout", "0",
      ], [lively, "serve", "3"])
    _ = try guardian.programPID()
    var lives: Set<String> = []
    var refused = 0
    var unanswered = 0
    while lives.count <= 100 {
      guard let connection = Connection(port: port) else {
        refused += 1
        break
      }
      let answer = connection.ask()
      if answer.hasPrefix("life ") { lives.insert(answer) } else { unanswered += 1 }
      if unanswered > 0 { break }
    }
    #expect(refused == 0)
    #expect(unanswered == 0)
    #expect(lives.count == 101)
    guardian.process.signal(SIGTERM)
    _ = try guardian.run()
  }

  @Test func `comes with its variables, those that were passed first`() throws {
    let port = try freePort()
    let guardian = try Guardian(
      ["--name", "shop", "--listen", "tcp:127.0.0.1:\(port)"],
      [Root.fixture("spawn_probe"), "env", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"],
      wrapper: "exec 3</dev/null 4</dev/null; export LISTEN_PID=$$ LISTEN_FDS=2 "
        + "LISTEN_FDNAMES=first:; exec \"$@\"")
    #expect(try guardian.run() == .exited(0))
    let pid = try guardian.programPID()
    let lines = guardian.process.outputLines
    #expect(lines.contains("LISTEN_PID=\(pid)"))
    #expect(lines.contains("LISTEN_FDS=3"))
    #expect(lines.contains("LISTEN_FDNAMES=first:unknown:shop"))
  }

  @Test func `in the file system replaces a stale one and goes with guardian`() throws {
    let scratch = Scratch()
    let path = scratch.path + "/socket"
    // A dead guardian's.
    let dead = try Guardian(["--listen", "unix:\(path)"], [lively, "serve", "1000"], in: scratch)
    _ = try dead.programPID()
    dead.process.signal(SIGKILL)
    _ = try dead.run()
    #expect(Files.exists(path))
    try eventually("the end of its program") { Connection(path: path) == nil ? true : nil }
    let guardian = try Guardian(
      ["--listen", "unix:\(path)"], [lively, "serve", "1000"], in: scratch)
    _ = try guardian.programPID(1)
    #expect(Connection(path: path)?.ask().hasPrefix("life ") == true)
    // In use: not to be taken away from its owner.
    let second = try Guardian(["--listen", "unix:\(path)"], ["/bin/true"])
    #expect(try second.run() == .exited(71))
    #expect(second.process.errorText.contains("cannot listen on 'unix:\(path)'"))
    #expect(Connection(path: path)?.ask().hasPrefix("life ") == true)
    #expect(try guardian.stop() == .exited(143))
    #expect(!Files.exists(path))
    // A file of somebody.
    try Files.replace(path, with: Array("precious".utf8))
    let third = try Guardian(["--listen", "unix:\(path)"], ["/bin/true"])
    #expect(try third.run() == .exited(71))
    #expect(try Files.readText(path, limit: 64) == "precious")
  }

  @Test(arguments: ["tcp", "unix"])
  func `is listened on again when a program shut it down`(kind: String) throws {
    let scratch = Scratch()
    let path = scratch.path + "/socket"
    let port = try freePort()
    let guardian = try Guardian(
      ["--listen", kind == "tcp" ? "tcp:127.0.0.1:\(port)" : "unix:\(path)"],
      [
        "python3", "-c",
        """
        import os, socket
        listener = socket.socket(fileno=3)
        if os.environ['GUARDIAN_LIFE'] == '1':
          listener.shutdown(socket.SHUT_RDWR)
          os._exit(1)
        print('pid', os.getpid(), flush=True)
        client, _ = listener.accept()
        client.recv(1)
        client.sendall(b'here')
        client.close()
        listener.accept()
        """,
      ], in: scratch)
    _ = try guardian.programPID()
    let connection = kind == "tcp" ? Connection(port: port) : Connection(path: path)
    #expect(connection?.ask() == "here")
    #expect(guardian.process.errorText.contains("down: it is listened on again"))
    #expect(try guardian.stop() == .exited(143))
    #expect(!Files.exists(path))
  }

  @Test func `that cannot be had is one clear line, and nothing is started`() throws {
    let port = try freePort()
    let address = "tcp:127.0.0.1:\(port)"
    let first = try Guardian(["--listen", address], [lively, "serve", "1"])
    _ = try first.programPID()
    let second = try Guardian(["--listen", address], ["/bin/sh", "-c", "echo started"])
    #expect(try second.run() == .exited(71))
    #expect(
      second.process.errorText
        == "guardian: cannot listen on '\(address)': Address already in use: nothing was started\n")
    #expect(second.process.outputText.isEmpty)
    #expect(try first.stop() == .exited(143))
  }

  @Test func `never has the number on which readiness is said`() throws {
    let guardian = try Guardian(
      ["--ready", "fd:4"], ["/bin/true"],
      wrapper: "exec 3</dev/null 4</dev/null; export LISTEN_PID=$$ LISTEN_FDS=2; exec \"$@\"")
    #expect(try guardian.run() == .exited(78))
    #expect(guardian.process.errorText.contains("take one from 5 on"))
  }
}

@Suite struct `A health probe` {
  func report(
    _ options: [String], _ command: [String], after act: (Int32) -> Void = { _ in }
  ) throws -> String {
    let guardian = try Guardian(
      ["--health-interval", "50ms", "--max-crashes", "0"] + options, command)
    act(try guardian.programPID())
    #expect(try guardian.run() == .exited(134))
    let report = try guardian.reportText()
    #expect(report.contains("\"kind\": \"hang\""))
    #expect(report.contains("health check failed"))
    #expect(report.contains("\"threads\": \"all\""))
    return report
  }

  @Test func `by HTTP quotes the status line that failed`() throws {
    let port = try freePort()
    let report = try report(
      ["--listen", "tcp:127.0.0.1:\(port)", "--health-http", "http://localhost:\(port)/live"],
      [lively, "http"]
    ) { pid in
      passes(.milliseconds(500))
      #expect(isAlive(pid))
      kill(pid, SIGUSR1)
    }
    #expect(
      report.contains(
        "3 probes in a row failed: GET http://localhost:\(port)/live: HTTP/1.1 503 Service Unavailable"
      ))
  }

  @Test func `by TCP quotes the error`() throws {
    let port = try freePort()
    let report = try report(
      ["--health-tcp", "127.0.0.1:\(port)", "--health-retries", "2"],
      [Root.fixture("spawn_probe"), "wait"])
    #expect(report.contains("2 probes in a row failed: tcp 127.0.0.1:\(port): Connection refused"))
  }

  @Test func `by command quotes exit code and last line`() throws {
    let report = try report(
      ["--health-exec", "echo first; echo \"no answer from $GUARDIAN_PROGRAM_PID\"; exit 3"],
      [Root.fixture("spawn_probe"), "wait"])
    #expect(report.contains("left with 3: 'no answer from "))
  }

  @Test func `that does not end is ended with all that it started`() throws {
    let scratch = Scratch()
    let report = try report(
      [
        "--health-exec", "echo $$ >>\(scratch.path)/pids; echo waiting; sleep 1000 & sleep 1000",
        "--health-timeout", "200ms", "--health-retries", "1",
      ], [Root.fixture("spawn_probe"), "wait"])
    #expect(report.contains("no end, its last words 'waiting', within 200 ms"))
    let pid = Int32(try Files.readText(scratch.path + "/pids", limit: 64).dropLast()) ?? 0
    try eventually("the end of the probe's group") { kill(-pid, 0) != 0 ? true : nil }
  }

  @Test func `that gets no answer says so`() throws {
    // It listens and never accepts.
    let port = try freePort()
    let report = try report(
      [
        "--listen", "tcp:127.0.0.1:\(port)", "--health-http", "http://127.0.0.1:\(port)/",
        "--health-timeout", "200ms", "--health-retries", "1",
      ], [Root.fixture("spawn_probe"), "wait"])
    #expect(report.contains("no answer within 200 ms"))
  }

  @Test func `that fails in the start period does not count`() throws {
    let scratch = Scratch()
    let log = scratch.path + "/asked"
    let guardian = try Guardian(
      [
        "--health-interval", "20ms", "--health-exec", "echo >>\(log); exit 1",
        "--health-start-period", "1h", "--health-retries", "1",
      ], [Root.fixture("spawn_probe"), "wait"])
    _ = try guardian.programPID()
    try eventually("ten probes") {
      ((try? Files.read(log, limit: 1000).count) ?? 0) >= 10 ? true : nil
    }
    #expect(!guardian.process.errorText.contains("hangs"))
    #expect(try guardian.stop() == .exited(143))
  }

  @Test func `shows in guardianctl's status`() throws {
    let guardian = try Guardian(
      ["--health-interval", "20ms", "--health-exec", "true"], [Root.fixture("spawn_probe"), "wait"])
    _ = try guardian.programPID()
    try eventually("its result") {
      let status = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", guardian.runtime,
        "status",
      ])
      _ = try status.wait()
      return status.outputText.contains("Health: healthy\n") ? true : nil
    }
    #expect(try guardian.stop() == .exited(143))
  }
}
