// What several suites share: a report, a scratch folder, python3 as the judge of our JSON.
import Glibc
import Kernel
import Policy
import Reports

enum Samples {
  static let id = ReportID("0198c0de-0001-7abc-8def-0123456789ab")!

  static func program(command: [String] = ["/usr/bin/api", "--port", "8080"]) -> Program {
    var program = Program(name: "api", command: command, pid: 4242, life: 3, role: .main)
    program.uptimeSeconds = 7200
    program.executable = "/usr/bin/api"
    return program
  }

  static func incident(
    _ status: Ending.Status = .signaled(Signal(rawValue: 11), coreDumped: false)
  ) -> Incident {
    Incident(
      id: id, time: WallTime(seconds: 1_796_000_000, nanoseconds: 123_456_789),
      program: program(), ending: Ending(status: status), handler: "preloaded")
  }

  static func report(
    id: ReportID = id, function: String = "billing::charge(int)", kind: Report.Kind = .crash
  ) -> Report {
    var report = PlainReport.make(from: incident())
    report.id = id.text
    report.time = TimeText.rfc3339(id.time)
    report.kind = kind
    var frame = Frame(index: 0, address: "0x401136", trust: .context)
    frame.function = function
    frame.module = "api"
    frame.modulePath = "/usr/bin/api"
    frame.file = "/src/invoice.cpp"
    frame.line = 42
    report.threads = [ThreadFacts(id: 4242, crashed: true, frames: [frame])]
    report.fingerprint = Fingerprint.of(report)
    return report
  }

  static func id(_ number: Int) -> ReportID {
    ReportID(milliseconds: 1_796_000_000_000 + Int64(number) * 1000, random: [UInt8(number & 255)])
  }
}

/// A folder of its own, gone with it.
final class Scratch {
  let path: String
  init() {
    var template = Array("/tmp/guardian-reports-XXXXXX".utf8CString)
    path = template.withUnsafeMutableBufferPointer { String(cString: mkdtemp($0.baseAddress!)) }
  }
  deinit { Self.remove(path) }

  static func remove(_ path: String) {
    let calls = KernelStoreCalls()
    for name in (try? calls.list(path)) ?? [] {
      let entry = path + "/" + name
      if unlink(entry) != 0 { remove(entry) }
    }
    rmdir(path)
  }
}

/// Starts a program with text as its standard input; its words go to files of the folder.
func start(_ command: [String], input: [UInt8] = [], folder: Scratch) throws -> Int32 {
  let calls = KernelStoreCalls()
  try calls.write(folder.path + "/.input", input, sync: false)
  var actions = posix_spawn_file_actions_t()
  posix_spawn_file_actions_init(&actions)
  defer { posix_spawn_file_actions_destroy(&actions) }
  posix_spawn_file_actions_addopen(&actions, 0, folder.path + "/.input", O_RDONLY, 0)
  posix_spawn_file_actions_addopen(
    &actions, 1, folder.path + "/.output", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
  posix_spawn_file_actions_addopen(
    &actions, 2, folder.path + "/.errors", O_WRONLY | O_CREAT | O_TRUNC, 0o600)
  // The threads of a test runner have signals blocked, and gdb waits for its own.
  var attributes = posix_spawnattr_t()
  posix_spawnattr_init(&attributes)
  defer { posix_spawnattr_destroy(&attributes) }
  var none = sigset_t()
  sigemptyset(&none)
  var all = sigset_t()
  sigfillset(&all)
  posix_spawnattr_setsigmask(&attributes, &none)
  posix_spawnattr_setsigdefault(&attributes, &all)
  posix_spawnattr_setflags(
    &attributes, Int16(POSIX_SPAWN_SETSIGMASK) | Int16(POSIX_SPAWN_SETSIGDEF))
  var arguments: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) }
  arguments.append(nil)
  defer { arguments.forEach { free($0) } }
  var pid: pid_t = 0
  let error = posix_spawnp(&pid, command[0], &actions, &attributes, arguments, environ)
  if error != 0 { throw SystemError("start", command[0], errno: error) }
  return pid
}

/// Runs a program to its end.
func run(_ command: [String], input: [UInt8] = [], folder: Scratch) throws -> (
  status: Int32, output: [UInt8]
) {
  let pid = try start(command, input: input, folder: folder)
  var status: Int32 = 0
  while waitpid(pid, &status, 0) < 0, errno == EINTR {}
  return (status, try KernelStoreCalls().read(folder.path + "/.output", limit: 64 << 20) ?? [])
}

/// What python3's json module makes of it, printed again in its own words.
func python(_ script: String, _ input: [UInt8]) throws -> String {
  let folder = Scratch()
  let result = try run(["python3", "-c", script], input: input, folder: folder)
  guard result.status == 0 else {
    let errors = try KernelStoreCalls().read(folder.path + "/.errors", limit: 4096) ?? []
    return "python3 failed: " + String(decoding: errors, as: UTF8.self)
  }
  return String(decoding: result.output, as: UTF8.self)
}
