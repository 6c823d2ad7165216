// What the end-to-end tests need of the world outside: commands, places, waiting, HTTP.
import Foundation

/// Where things are, found from this file's own place.
enum Place {
  static let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent().path
  static let release = root + "/.build/release"
  static func fixture(_ name: String) -> String { root + "/.build/fixtures/" + name }
  static func source(ofFixture name: String) -> String { root + "/Tests/Fixtures/" + name }

  /// The program of that name in PATH or in the folders of administrators.
  static func tool(_ name: String) -> String? {
    let path = ProcessInfo.processInfo.environment["PATH"] ?? ""
    return
      (path.split(separator: ":").map(String.init) + ["/usr/sbin", "/usr/local/sbin", "/sbin"])
      .map { $0 + "/" + name }
      .first { access($0, X_OK) == 0 }
  }
}

struct Failure: Error, CustomStringConvertible {
  let description: String
  init(_ description: String) { self.description = description }
}

/// A value that one thread at a time may touch.
final class Locked<Value>: @unchecked Sendable {
  private let lock = NSLock()
  private var value: Value
  init(_ value: Value) { self.value = value }
  func change(_ body: (inout Value) -> Void) { lock.withLock { body(&value) } }
  func take(_ replacement: Value) -> Value {
    lock.withLock {
      defer { value = replacement }
      return value
    }
  }
}

/// A folder of its own that is gone when the test is.
final class Folder {
  let path: String
  /// What tests share lives as long as the process and is never let go of.
  private static let removedAtExit: Void = { _ = atexit { Folder.removeAll() } }()
  private static let living = Locked<Set<String>>([])
  private static func removeAll() {
    for path in living.take([]) { try? FileManager.default.removeItem(atPath: path) }
  }
  init(mode: mode_t = 0o755) throws {
    var template = Array("/tmp/guardian-test.XXXXXX\0".utf8CString)
    guard mkdtemp(&template) != nil else { throw Failure("mkdtemp: errno \(errno)") }
    path = template.withUnsafeBufferPointer { String(cString: $0.baseAddress!) }
    chmod(path, mode)
    _ = Folder.removedAtExit
    let path = path
    Folder.living.change { $0.insert(path) }
  }
  deinit {
    try? FileManager.default.removeItem(atPath: path)
    let path = path
    Folder.living.change { $0.remove(path) }
  }

  @discardableResult
  func write(_ name: String, _ text: String) throws -> String {
    let file = path + "/" + name
    try text.write(toFile: file, atomically: false, encoding: .utf8)
    return file
  }
}

extension Process {
  /// Starts with no signal blocked. The threads that tests run on block some, and guardian hands on
  /// to its program the mask that it was started with.
  func runUnblocked() throws {
    var none = sigset_t()
    var before = sigset_t()
    sigemptyset(&none)
    pthread_sigmask(SIG_SETMASK, &none, &before)
    defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
    try run()
  }
}

struct Output {
  let status: Int32
  let out: String
  let err: String
}

/// Runs a command to its end; past the deadline it is killed and that is an error.
@discardableResult
func run(
  _ command: [String], environment: [String: String]? = nil, seconds: Double = 60,
  sourceLine: Int = #line
) throws -> Output {
  let folder = try Folder()
  let process = Process()
  guard let executable = command[0].contains("/") ? command[0] : Place.tool(command[0]) else {
    throw Failure("there is no '\(command[0])' here")
  }
  process.executableURL = URL(fileURLWithPath: executable)
  process.arguments = Array(command.dropFirst())
  if let environment {
    process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
  }
  // Files, not pipes: a descendant that keeps one open cannot hold up the test.
  let files = try ["out", "err"].map { try folder.write($0, "") }
  process.standardInput = FileHandle.nullDevice
  process.standardOutput = FileHandle(forWritingAtPath: files[0])
  process.standardError = FileHandle(forWritingAtPath: files[1])
  try process.runUnblocked()
  do {
    try wait(for: "the end of \(command.joined(separator: " "))", seconds: seconds) {
      !process.isRunning
    }
  } catch {
    kill(process.processIdentifier, SIGKILL)
    throw Failure("\(error)\n\(text(files[0]))\n\(text(files[1]))")
  }
  process.waitUntilExit()
  let status = process.terminationStatus
  return Output(
    status: process.terminationReason == .uncaughtSignal ? 128 + status : status,
    out: text(files[0]), err: text(files[1]))
}

func text(_ path: String) -> String {
  guard let data = FileManager.default.contents(atPath: path) else { return "" }
  return String(decoding: data, as: UTF8.self)
}

/// Looks again and again until `condition` holds: for events that nothing announces.
func wait(
  for event: @autoclosure () -> String, seconds: Double = 60, until condition: () throws -> Bool
) throws {
  let end = ContinuousClock.now + .seconds(seconds)
  while try !condition() {
    guard ContinuousClock.now < end else {
      throw Failure("waited \(seconds) s in vain for \(event())")
    }
    usleep(5_000)
  }
}

/// The first value that is not nil.
func wait<Value>(
  forValue event: @autoclosure () -> String, seconds: Double = 60, _ look: () throws -> Value?
) throws -> Value {
  var found: Value?
  try wait(for: event(), seconds: seconds) {
    found = try look()
    return found != nil
  }
  return found!
}

/// A socket address on the loopback, as the C calls want it.
private func withLoopback<R>(
  _ port: UInt16, _ body: (UnsafeMutablePointer<sockaddr>, socklen_t) -> R
) -> R {
  var address = sockaddr_in()
  address.sin_family = sa_family_t(AF_INET)
  address.sin_port = port.bigEndian
  address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
  return withUnsafeMutablePointer(to: &address) {
    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
      body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
    }
  }
}

/// A port that nobody uses now. Below the range that connections take theirs from, so that none of
/// them takes it while a server restarts.
func freePort() throws -> UInt16 {
  for _ in 0..<200 {
    let port = UInt16.random(in: 20_000..<32_000)
    let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(descriptor) }
    if withLoopback(port, { bind(descriptor, $0, $1) }) == 0 { return port }
  }
  throw Failure("no free port")
}

/// Sends `request` and returns everything that comes back within two seconds; nil if nobody answers.
func ask(_ port: UInt16, _ request: String, until enough: (String) -> Bool = { _ in false })
  -> String?
{
  let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
  guard descriptor >= 0 else { return nil }
  defer { close(descriptor) }
  var limit = timeval(tv_sec: 2, tv_usec: 0)
  let size = socklen_t(MemoryLayout<timeval>.size)
  setsockopt(descriptor, SOL_SOCKET, SO_RCVTIMEO, &limit, size)
  setsockopt(descriptor, SOL_SOCKET, SO_SNDTIMEO, &limit, size)
  guard withLoopback(port, { connect(descriptor, $0, $1) }) == 0 else { return nil }
  guard request.withCString({ send(descriptor, $0, strlen($0), Int32(MSG_NOSIGNAL)) }) > 0
  else { return nil }
  var answer = ""
  var buffer = [UInt8](repeating: 0, count: 65_536)
  while !enough(answer) {
    let count = recv(descriptor, &buffer, buffer.count, 0)
    guard count > 0 else { break }
    answer += String(decoding: buffer[..<count], as: UTF8.self)
  }
  return answer.isEmpty ? nil : answer
}

/// The answer to an HTTP request if it was a good one.
func get(_ port: UInt16, _ path: String = "/") -> String? {
  let answer = ask(port, "GET \(path) HTTP/1.0\r\nHost: localhost\r\n\r\n")
  return answer.flatMap { $0.hasPrefix("HTTP/1.") && $0.contains(" 200 ") ? $0 : nil }
}
