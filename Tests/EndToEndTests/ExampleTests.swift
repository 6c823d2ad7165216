// The example configurations, each started by --config with a real program of this machine; what
// differs here (ports, folders) stands in a drop-in, as people do it.
import Foundation
import Testing

/// One example under guardian, from a folder like /etc/guardian.
private final class Example {
  let folder: Folder
  let file: String
  private let process = Process()
  private var ended = false
  var pid: Int32 { process.processIdentifier }
  var log: String { text(folder.path + "/log") }

  static let all = ((try? FileManager.default.contentsOfDirectory(atPath: place)) ?? [])
    .filter { $0.hasSuffix(".toml") }.sorted()
  static let place = Place.root + "/Units/examples"

  /// - Parameter dropIns: by file name.
  init(_ name: String, dropIns: [String: String]) throws {
    folder = try Folder()
    file = try folder.write(name, text(Example.place + "/" + name))
    try FileManager.default.createDirectory(
      atPath: file + ".d", withIntermediateDirectories: true)
    for (name, content) in dropIns { try folder.write(file.lastPart + ".d/" + name, content) }
  }

  func start() throws {
    let log = try folder.write("log", "")
    process.executableURL = URL(fileURLWithPath: Place.release + "/guardian")
    process.arguments = [
      "--config", file, "--state-directory", folder.path + "/state", "--runtime-directory",
      folder.path + "/run",
    ]
    process.currentDirectoryURL = URL(fileURLWithPath: folder.path)
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = FileHandle(forWritingAtPath: log)
    process.standardError = process.standardOutput
    try process.runUnblocked()
  }

  func end(seconds: Double = 90) throws -> Int32 {
    try wait(for: "guardian's end; so far:\n\(log)", seconds: seconds) { !process.isRunning }
    ended = true
    return process.terminationReason == .uncaughtSignal
      ? 128 + process.terminationStatus : process.terminationStatus
  }

  func stop() throws -> Int32 {
    kill(pid, SIGTERM)
    return try end()
  }

  func says(_ words: String) throws {
    try wait(for: "'\(words)' in:\n\(log)", seconds: 60) { log.contains(words) }
  }

  /// Lines of the log that are exactly this.
  func count(_ line: String) -> Int {
    log.split(separator: "\n").filter { $0 == line[...] }.count
  }

  var reports: [String] {
    let place = folder.path + "/state/reports/new"
    return ((try? FileManager.default.contentsOfDirectory(atPath: place)) ?? []).sorted()
      .map { text("\(place)/\($0)/report.json") }
  }

  deinit {
    guard process.isRunning, !ended else { return }
    // With its death signal the program goes too; its folder is removed by its own owner.
    kill(pid, SIGTERM)
    try? wait(for: "guardian's end", seconds: 15) { !process.isRunning }
    if process.isRunning { kill(pid, SIGKILL) }
  }
}

extension String {
  fileprivate var lastPart: String { String(split(separator: "/").last ?? "") }
  /// As TOML's basic string.
  fileprivate var quoted: String {
    "\""
      + replacingOccurrences(of: "\\", with: "\\\\")
      .replacingOccurrences(of: "\"", with: "\\\"") + "\""
  }
}

private func command(_ words: [String]) -> String {
  "command = [" + words.map(\.quoted).joined(separator: ", ") + "]\n"
}

@Suite struct `An example configuration` {
  @Test(arguments: Example.all)
  func `is right as it stands`(name: String) throws {
    let checked = try run([
      Place.release + "/guardian", "--check", "--config", Example.place + "/" + name,
    ])
    #expect(checked.status == 0, "\(checked.err)")
    #expect((checked.out + checked.err).contains("is right"))
  }

  @Test func `exists for each kind of program, and is named in the table beside it`() {
    #expect(Example.all.count == 5)
    let table = text(Example.place + "/README.md")
    for name in Example.all { #expect(table.contains("| `\(name)` |"), "\(name)") }
  }

  @Test(arguments: Example.all)
  func `gives a reason for its settings`(name: String) {
    let lines = text(Example.place + "/" + name).split(
      separator: "\n", omittingEmptySubsequences: false)
    let settings = lines.filter { $0.contains(" = ") && !$0.hasPrefix("#") }.count
    #expect(lines.filter { $0.hasPrefix("#") }.count >= settings / 2)
    #expect(settings >= 4)
  }

  @Test(.enabled(if: Server.nginx.isHere, "no nginx here"))
  func `of a web server serves, reloads at HUP, and stops gracefully`() throws {
    let port = try freePort()
    let example = try Example("web-server.toml", dropIns: [:])
    let place = example.folder.path
    let words = try Server.nginx.prepare(place, port)
    try example.folder.write(
      "web-server.toml.d/10-here.toml", command(words))
    // A later one goes over an earlier one, key by key.
    try example.folder.write("web-server.toml.d/20-name.toml", "name = \"web-here\"\n")
    try example.start()
    try wait(for: "an answer: \(example.log)") { get(port)?.contains("hello") ?? false }
    // Its configuration changes under it.
    let changed = text(place + "/conf").replacingOccurrences(of: "\"hello\"", with: "\"again\"")
    try changed.write(toFile: place + "/conf", atomically: false, encoding: .utf8)
    kill(example.pid, SIGHUP)
    try wait(for: "the new answer: \(example.log)") { get(port)?.contains("again") ?? false }
    #expect(try example.stop() == 0)
    #expect(!example.log.contains("web (life"), "the drop-in's name holds: \(example.log)")
    #expect(example.reports.isEmpty)
  }

  @Test func `of a worker gives up a job that crashes it in the same place`() throws {
    let example = try Example(
      "worker.toml",
      dropIns: [
        "10-here.toml": command([
          "/usr/bin/python3", "-u", "-c",
          "import os, ctypes; print('level', os.environ['LOG_LEVEL'], os.environ['QUEUE_URL'][:4]); "
            + "ctypes.string_at(0)",
        ])
          // Times of people are too long for a test.
          + "restart-delay = \"1ms\"\n[env]\nLOG_LEVEL = \"debug\"\n"
      ])
    try example.start()
    #expect(try example.end() == 139)
    // The drop-in changes one variable and leaves the other.
    #expect(example.count("level debug amqp") == 5)
    #expect(example.log.contains("the same crash 5 times in a row"))
    let report = try #require(example.reports.first)
    #expect(report.contains("\"SIGSEGV\""))
    #expect(!report.contains("shop:secret"))
  }

  @Test func `of a batch job tries three times more and calls for help`() throws {
    let example = try Example(
      "batch-job.toml",
      dropIns: [
        "10-here.toml": command(["/bin/sh", "-c", "echo try; exit 4"]) + "restart-delay = \"1ms\"\n"
      ])
    try example.start()
    #expect(try example.end() == 4)
    #expect(example.count("try") == 4)
    #expect(example.log.contains("import failed for good: 4 failures"))
  }

  @Test func `of a batch job knows when there was nothing to do`() throws {
    let example = try Example(
      "batch-job.toml", dropIns: ["10-here.toml": command(["/bin/sh", "-c", "echo try; exit 75"])])
    try example.start()
    #expect(try example.end() == 75)
    #expect(example.count("try") == 1)
    #expect(example.reports.isEmpty)
  }

  @Test(.enabled(if: Server.redis.isHere, "no redis here"))
  func `of a container serves and leaves with the program's status`() throws {
    let port = try freePort()
    let example = try Example("container.toml", dropIns: [:])
    let words = try Server.redis.prepare(example.folder.path, port)
    try example.folder.write("container.toml.d/10-here.toml", command(words))
    try example.start()
    try wait(for: "an answer: \(example.log)") { Server.redis.serves(port) }
    #expect(try example.stop() == 0)
    #expect(example.log.contains("cache") || example.reports.isEmpty)
  }

  @Test func `of a prefork server reports a worker's crash and leaves the server alone`() throws {
    let port = try freePort()
    let example = try Example(
      "prefork-server.toml",
      dropIns: [
        "10-here.toml": command([
          "/usr/bin/python3", "-u", Place.source(ofFixture: "servers/prefork.py"), "\(port)",
        ])
      ])
    try example.start()
    try example.says("serving")
    _ = ask(port, "GET /crash HTTP/1.0\r\n\r\n")
    try wait(for: "a report: \(example.log)") { !example.reports.isEmpty }
    #expect(example.reports[0].contains("\"descendant\""))
    try wait(for: "an answer") { get(port)?.contains("worker") ?? false }
    kill(example.pid, SIGHUP)
    try example.says("reload")
    #expect(example.count("serving") == 1)
    #expect(try example.stop() == 0)
  }

  @Test func `is not changed by a drop-in that is wrong: its line is named`() throws {
    let example = try Example(
      "batch-job.toml", dropIns: ["10-here.toml": "max-crashes = 3\nmax-crashs = 4\n"])
    let checked = try run([Place.release + "/guardian", "--check", "--config", example.file])
    #expect(checked.status == 78)
    #expect(checked.err.contains("10-here.toml:2:1"), "\(checked.err)")
    #expect(checked.err.contains("max-crashes"))
  }
}

@Suite struct `Conformance` {
  /// The whole suite, beside the peers, is `make conformance`.
  @Test(.enabled(if: Place.tool("python3") != nil, "no python3 here"))
  func `guardian passes every case that takes no second`() throws {
    let output = try run(
      [
        "python3", Place.root + "/Tests/Conformance/conformance.py", "--peer", "guardian",
        "--brief", "--jobs", "4",
      ], seconds: 240)
    #expect(output.status == 0, "\(output.out)\(output.err)")
    #expect(output.out.contains(" passed, 0 failed, 0 could not be asked here"), "\(output.out)")
  }
}
