// Servers that nobody here wrote, each under guardian, each killed by a real crash signal while it
// serves, each serving again, with a report that is compared with what the kernel showed before.
import Foundation
import Testing

struct Server: CustomTestStringConvertible, Sendable {
  let name: String
  /// Everything that must be installed.
  let tools: [String]
  /// What a crash of the main process is seen as.
  var ending = "SIGSEGV"
  /// It has a handler of its own that ends in sending the signal to itself.
  var sendsItself = false
  /// Threads that its own handler ends before that.
  var threadsEnded: Set<String> = []
  /// Makes configuration and data in the folder; returns the command.
  let prepare: @Sendable (_ folder: String, _ port: UInt16) throws -> [String]
  /// Whether it serves one request.
  let serves: @Sendable (_ port: UInt16) -> Bool
  var testDescription: String { name }

  var isHere: Bool { tools.allSatisfy { Place.tool($0) != nil } }

  static let nginx = Server(
    name: "nginx", tools: ["nginx"],
    prepare: { folder, port in
      let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map { "\($0)_temp_path \(folder)/\($0);" }.joined(separator: " ")
      let configuration = """
        daemon off; worker_processes 2; pid \(folder)/pid; error_log stderr;
        \(getuid() == 0 ? "user www-data;" : "")
        events { }
        http {
          access_log off; \(temporary)
          server { listen 127.0.0.1:\(port); location / { return 200 "hello"; } }
        }
        """
      try configuration.write(toFile: folder + "/conf", atomically: false, encoding: .utf8)
      return [Place.tool("nginx")!, "-c", folder + "/conf", "-p", folder]
    },
    serves: { get($0) != nil })

  static let redis = Server(
    name: "redis", tools: ["redis-server"], sendsItself: true,
    threadsEnded: [
      "bio_close_file", "bio_aof", "bio_aof_fsync", "bio_lazy_free", "jemalloc_bg_thd",
    ],
    prepare: { folder, port in
      [
        Place.tool("redis-server")!, "--port", "\(port)", "--bind", "127.0.0.1", "--save", "",
        "--dir", folder, "--daemonize", "no",
      ]
    },
    serves: { ask($0, "PING\r\n", until: { $0.contains("\n") })?.hasPrefix("+PONG") == true })

  static let postgresBinary =
    Place.tool("postgres")
    ?? (try? FileManager.default.contentsOfDirectory(atPath: "/usr/lib/postgresql"))?.sorted()
    .map { "/usr/lib/postgresql/\($0)/bin/postgres" }.last { access($0, X_OK) == 0 }

  /// As `gosu` would in a container: started as root, it becomes another user, then executes.
  static let postgres = Server(
    name: "postgres", tools: ["setpriv"],
    prepare: { folder, port in
      guard let server = postgresBinary, let user = getpwnam("postgres")?.pointee else {
        throw Failure("no PostgreSQL, or no user postgres")
      }
      let binary = URL(fileURLWithPath: server).resolvingSymlinksInPath().path
      let initdb = (binary as NSString).deletingLastPathComponent + "/initdb"
      let change =
        [
          Place.tool("setpriv")!, "--reuid=\(user.pw_uid)", "--regid=\(user.pw_gid)",
          "--clear-groups", "--",
        ]
      for place in ["data", "socket"] {
        mkdir("\(folder)/\(place)", 0o700)
        chown("\(folder)/\(place)", user.pw_uid, user.pw_gid)
      }
      let made = try run(
        change + [
          initdb, "--no-sync", "-A", "trust", "-U", "postgres", "-D", folder + "/data",
          "--locale=C", "-E", "UTF8",
        ])
      guard made.status == 0 else { throw Failure("initdb: \(made.err)\(made.out)") }
      return change + [
        binary, "-D", folder + "/data", "-p", "\(port)", "-h", "127.0.0.1", "-k",
        folder + "/socket", "-F",
      ]
    },
    serves: { Server.sql($0, "select 6 * 7") == "42" })

  static let python = Server(
    name: "python", tools: ["python3"],
    prepare: { folder, port in
      [
        Place.tool("python3")!, "-m", "http.server", "\(port)", "--bind", "127.0.0.1",
        "--directory", folder,
      ]
    },
    serves: { get($0) != nil })

  static let node = Server(
    name: "node", tools: ["node"], sendsItself: true,
    prepare: { _, port in
      [Place.tool("node")!, Place.source(ofFixture: "servers/server.js"), "\(port)"]
    },
    serves: { get($0) != nil })

  /// Its crash is the JVM's own abort, after it has written its hs_err log.
  static let java = Server(
    name: "java", tools: ["java"], ending: "SIGABRT", sendsItself: true,
    prepare: { folder, port in
      [
        Place.tool("java")!, "-Xmx128m", "-XX:ErrorFile=\(folder)/hs_err.log",
        Place.source(ofFixture: "servers/Server.java"), "\(port)",
      ]
    },
    serves: { get($0) != nil })

  static let all = [nginx, redis, postgres, python, node, java]

  /// One row of one column, asked by psql.
  static func sql(_ port: UInt16, _ query: String) -> String? {
    let answer = try? run(
      [
        "psql", "-h", "127.0.0.1", "-p", "\(port)", "-U", "postgres", "-XtAc", query,
      ], environment: ["PGCONNECT_TIMEOUT": "5"], seconds: 30)
    return answer?.status == 0
      ? answer?.out.trimmingCharacters(in: .whitespacesAndNewlines) : nil
  }
}

/// Requests without end, from a thread of its own, so that a server dies while it serves.
private final class Clients: @unchecked Sendable {
  private let lock = NSLock()
  private var stopped = false
  private var served = 0
  private let done = DispatchSemaphore(value: 0)

  init(_ server: Server, _ port: UInt16) {
    Thread { [self] in
      while !lock.withLock({ stopped }) {
        if server.serves(port) { lock.withLock { served += 1 } } else { usleep(2_000) }
      }
      done.signal()
    }.start()
  }
  var count: Int { lock.withLock { served } }
  /// Returns when no request is under way any more; may be called again.
  func stop() {
    lock.withLock { stopped = true }
    done.wait()
    done.signal()
  }
}

/// A fault of the process's own, as a bug would make it: the next instruction is at address 0. (A
/// signal that is sent from outside to a descendant is nobody's crash.)
private func fault(_ pid: Int32) throws {
  let gdb = try run([
    "gdb", "-batch", "-nx", "-p", "\(pid)", "-ex", "set var $orig_rax = -1", "-ex",
    "set var $rip = 0", "-ex", "detach",
  ])
  guard gdb.status == 0, !gdb.err.contains("ptrace: ") else { throw Failure(gdb.err + gdb.out) }
}

@Suite("Real servers under guardian", .serialized)
struct ServerTests {
  /// Starts the server and waits until it serves.
  private func start(_ server: Server) throws -> (Supervised, Folder, UInt16, KernelProcess) {
    let folder = try Folder()
    let port = try freePort()
    let command = try server.prepare(folder.path, port)
    let guardian = try Supervised(
      name: server.name, options: ["--max-crashes", "50", "--restart-delay-max", "1s"],
      command: command)
    do {
      try wait(for: "\(server.name) to serve", seconds: 120) { server.serves(port) }
    } catch {
      throw Failure("\(error)\n\(guardian.log)")
    }
    let program = try #require(guardian.program, "\(guardian.log)")
    return (guardian, folder, port, program)
  }

  @Test(arguments: Server.all)
  func `killed by a real crash signal while serving, it serves again and the report is right`(
    _ server: Server
  ) throws {
    guard server.isHere, server.name != "postgres" || Server.postgresBinary != nil else {
      Issue.record("not installed: \(server.tools) (make setup-test installs it)")
      return
    }
    let (guardian, folder, port, program) = try start(server)
    defer { withExtendedLifetime(folder) {} }
    let clients = Clients(server, port)
    defer { clients.stop() }
    try wait(for: "requests in a row") {
      clients.count >= 10 || server.name == "postgres" && clients.count >= 2
    }

    let modules = program.modules
    let threads = program.threads
    kill(program.pid, SIGSEGV)

    let (report, place) = try guardian.report("the report of \(server.name)") {
      $0.kind == .crash && $0.program.role == .main
    }
    let served = clients.count
    try wait(for: "\(server.name) to serve again; so far:\n\(guardian.log)", seconds: 120) {
      clients.count > served
    }
    let successor = try wait(forValue: "the new life") { guardian.program }
    #expect(successor.pid != program.pid)

    #expect(report.program.pid == program.pid)
    #expect(report.ending.signal?.name == server.ending)
    #expect(
      report.ending.signal?.senderPID == (server.sendsItself ? program.pid : getpid()),
      "\(report.ending)")
    #expect(report.capture.threads == .all, "\(report.capture)")

    // Threads: those that the kernel showed, by number and name. A pool may have grown or shrunk by
    // one between the look and the crash.
    let seen = Set(report.threads.map { KernelThread(id: $0.id, name: $0.name ?? "") })
    let missing = threads.subtracting(seen).filter { !server.threadsEnded.contains($0.name) }
    #expect(missing.count <= 1, "missing: \(missing)")
    #expect(report.threads.count <= threads.count + 4)
    #expect(report.threads.filter(\.crashed).count == 1)
    for thread in report.threads {
      #expect(!thread.frames.isEmpty, "thread \(thread.id) \(thread.name ?? "") has no frames")
    }
    let crashed = try #require(report.threads.first { $0.crashed })
    // A signal from outside may strike anywhere, also where little can be unwound.
    #expect(crashed.frames.count >= 2, "\(crashed)")

    // Modules: every file whose code was mapped, at least.
    let named = Set(report.modules.map(\.path))
    #expect(modules.isSubset(of: named), "missing: \(modules.subtracting(named))")
    #expect(
      report.modules.contains { $0.path == report.program.executable && $0.buildID != nil },
      "\(report.program), \(report.capture), \(report.modules)")

    // The minicore is whole for others, too.
    let executable = try #require(report.program.executable)
    let stack = try run(["eu-stack", "--core=\(place)/core", "--executable=\(executable)"])
    let listed = stack.out.split(separator: "\n").filter { $0.hasPrefix("TID ") }.count
    #expect(listed == report.threads.count, "\(stack.err)")
    if server.name == "java" {
      #expect(access(folder.path + "/hs_err.log", F_OK) == 0, "the JVM wrote its own log first")
    }
    clients.stop()
    let status = try guardian.stop()
    #expect([0, 143, 130].contains(status), "guardian left with \(status)\n\(guardian.log)")
  }

  @Test func `a crashed nginx worker is reported as a descendant and nginx itself is untouched`()
    throws
  {
    let server = Server.nginx
    guard server.isHere else {
      Issue.record("nginx is not installed (make setup-test installs it)")
      return
    }
    let (guardian, folder, port, program) = try start(server)
    defer { withExtendedLifetime(folder) {} }
    let worker = try wait(forValue: "a worker") { program.children.first }
    try fault(worker)
    let (report, _) = try guardian.report("the worker's report") { $0.program.role == .descendant }
    #expect(report.kind == .crash)
    #expect(report.program.pid == worker)
    #expect(report.ending.signal?.name == "SIGSEGV")
    #expect(report.threads.contains { $0.crashed && $0.id == worker })
    #expect(guardian.program?.pid == program.pid, "the server itself lives on")
    try wait(for: "nginx to serve on") { server.serves(port) }
    try wait(for: "the new worker") {
      program.children.count >= 2 && !program.children.contains(worker)
    }
    try guardian.stop()
  }

  @Test
  func `a crashed PostgreSQL backend is reported as a descendant and the postmaster is untouched`()
    throws
  {
    let server = Server.postgres
    guard server.isHere, Server.postgresBinary != nil else {
      Issue.record("PostgreSQL is not installed (make setup-test installs it)")
      return
    }
    let (guardian, folder, port, program) = try start(server)
    defer { withExtendedLifetime(folder) {} }
    let said = try folder.write("psql", "")
    let psql = Process()
    psql.executableURL = URL(fileURLWithPath: Place.tool("psql")!)
    psql.arguments = [
      "-h", "127.0.0.1", "-p", "\(port)", "-U", "postgres", "-XtAc", "select pg_sleep(600)",
    ]
    psql.standardInput = FileHandle.nullDevice
    psql.standardOutput = FileHandle.nullDevice
    psql.standardError = FileHandle(forWritingAtPath: said)
    try psql.runUnblocked()
    defer { if psql.isRunning { psql.terminate() } }
    // Nobody but us waits in pg_sleep. (A look by SQL sees itself, too.)
    let backend = try wait(
      forValue: "the sleeping backend; psql said: \(text(said)); \(guardian.log)"
    ) {
      Server.sql(port, "select pid from pg_stat_activity where query = 'select pg_sleep(600)'")
        .flatMap { Int32($0) }
    }
    try fault(backend)
    let (report, _) = try guardian.report("the backend's report") { $0.program.pid == backend }
    #expect(report.program.role == .descendant)
    #expect(report.ending.signal?.name == "SIGSEGV")
    #expect(report.program.uid == getpwnam("postgres")?.pointee.pw_uid)
    #expect(report.threads.contains { $0.crashed && $0.id == backend })
    try wait(for: "PostgreSQL to serve again", seconds: 120) { server.serves(port) }
    #expect(guardian.program?.pid == program.pid, "the postmaster lives on")
    try guardian.stop()
  }
}
