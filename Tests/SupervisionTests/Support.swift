// Starts real guardians in folders of their own and waits for what they say and leave behind.
import Glibc
import Kernel

enum Root {
  static let path: String = {
    var parts = #filePath.split(separator: "/").dropLast(3)
    parts = parts[...]
    return "/" + parts.joined(separator: "/")
  }()
  static var guardian: String { path + "/.build/release/guardian" }
  static func fixture(_ name: String) -> String { path + "/.build/fixtures/" + name }
}

struct TimedOut: Error, CustomStringConvertible {
  let description: String
}

/// Generous: the machine may be busy.
let patience = Duration.seconds(60)

/// Looks every few milliseconds, where there is nothing that could be waited for.
@discardableResult
func eventually<T>(
  _ what: @autoclosure () -> String, within limit: Duration = patience, _ look: () throws -> T?
) throws -> T {
  let end = Clock.monotonic + limit
  while true {
    if let found = try look() { return found }
    if Clock.monotonic > end { throw TimedOut(description: "did not come: \(what())") }
    usleep(2000)
  }
}

/// A folder that vanishes with its owner.
final class Scratch {
  let path: String
  init() {
    path = "/tmp/gs-" + Randomness.hex(bytes: 6)
    try! Files.makeDirectory(path, mode: 0o755)
  }
  deinit { Scratch.remove(path) }

  static func remove(_ path: String) {
    guard let status = try? Files.status(path, follow: false) else { return }
    if status.isDirectory {
      for name in (try? Files.list(path)) ?? [] { remove(path + "/" + name) }
      try? Files.removeDirectory(path)
    } else {
      Files.remove(path)
    }
  }
}

enum Left: Equatable {
  case exited(Int32)
  case signaled(Int32)

  init(status: Int32) {
    let signal = status & 0x7f
    self = signal == 0 ? .exited(status >> 8 & 0xff) : .signaled(signal)
  }
}

/// A child of the test, its output in files.
final class Process {
  let pid: Int32
  let output: String
  let errors: String
  private let scratch: Scratch
  private var left: Left?

  /// - Parameter wrapper: put before the command: a shell script that ends in `exec "$@"`.
  init(
    _ command: [String], environment: [String] = [], wrapper: String? = nil,
    input: String = "/dev/null",
    errors: String? = nil
  ) throws {
    scratch = Scratch()
    output = scratch.path + "/out"
    self.errors = errors ?? scratch.path + "/err"
    let words = wrapper.map { ["/bin/sh", "-c", $0, "sh"] + command } ?? command
    var inherited: [String] = []
    var entry = unsafe environ
    while let text = unsafe entry.pointee {
      let variable = unsafe String(cString: text)
      // A test that runs under a guardian is not one of that guardian's programs.
      if !variable.hasPrefix("GUARDIAN_") && !variable.hasPrefix("LD_PRELOAD=") {
        inherited.append(variable)
      }
      unsafe entry += 1
    }
    let names = environment.map { $0.prefix { $0 != "=" } + "=" }
    inherited.removeAll { variable in names.contains { variable.hasPrefix($0) } }
    var argv = unsafe words.map { unsafe strdup($0) } + [nil]
    var envp = unsafe (inherited + environment).map { unsafe strdup($0) } + [nil]
    var actions = posix_spawn_file_actions_t()
    unsafe posix_spawn_file_actions_init(&actions)
    unsafe posix_spawn_file_actions_addopen(&actions, 0, input, O_RDONLY, 0)
    unsafe posix_spawn_file_actions_addopen(
      &actions, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    unsafe posix_spawn_file_actions_addopen(
      &actions, 2, self.errors, O_WRONLY | O_CREAT | O_APPEND, 0o600)
    var child: pid_t = 0
    // The test's own thread may have signals blocked, and a program gets what guardian got.
    var attributes = posix_spawnattr_t()
    unsafe posix_spawnattr_init(&attributes)
    var none = sigset_t()
    unsafe sigemptyset(&none)
    unsafe posix_spawnattr_setsigmask(&attributes, &none)
    unsafe posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    let outcome = unsafe posix_spawnp(&child, words[0], &actions, &attributes, &argv, &envp)
    for text in unsafe argv { unsafe free(text) }
    for text in unsafe envp { unsafe free(text) }
    if outcome != 0 { throw SystemError("start", words[0], errno: outcome) }
    pid = child
  }

  deinit {
    if left == nil {
      kill(pid, SIGKILL)
      var status: Int32 = 0
      _ = unsafe waitpid(pid, &status, 0)
    }
  }

  func wait(within limit: Duration = patience) throws -> Left {
    if let left { return left }
    return try eventually("the end of pid \(pid); it said: \(errorText)", within: limit) {
      var status: Int32 = 0
      guard unsafe waitpid(pid, &status, WNOHANG) == pid else { return nil }
      left = Left(status: status)
      return left
    }
  }

  func signal(_ number: Int32) { kill(pid, number) }

  var outputText: String { (try? Files.readText(output, limit: 64 << 20)) ?? "" }
  var errorText: String { (try? Files.readText(errors, limit: 64 << 20)) ?? "" }
  var outputLines: [Substring] { outputText.split(separator: "\n") }
}

/// One guardian with state and runtime folders of its own.
final class Guardian {
  let scratch: Scratch
  let process: Process
  var state: String { scratch.path + "/state" }
  var runtime: String { scratch.path + "/run" }

  init(
    _ options: [String] = [], _ command: [String], in scratch: Scratch = Scratch(),
    environment: [String] = [], wrapper: String? = nil, input: String = "/dev/null",
    errors: String? = nil
  ) throws {
    self.scratch = scratch
    process = try Process(
      [
        Root.guardian, "--state-directory", scratch.path + "/state", "--runtime-directory",
        scratch.path + "/run",
      ] + options + ["--"] + command, environment: environment, wrapper: wrapper, input: input,
      errors: errors)
  }

  /// Until the program has printed "pid N" so many times; the last of them.
  func programPID(_ count: Int = 1) throws -> Int32 {
    try eventually("\(count) lines 'pid N'; guardian said: \(process.errorText)") {
      let pids = process.outputLines.filter { $0.hasPrefix("pid ") }.compactMap {
        Int32($0.dropFirst(4))
      }
      return pids.count >= count ? pids[count - 1] : nil
    }
  }

  func run(within limit: Duration = patience) throws -> Left { try process.wait(within: limit) }

  func stop() throws -> Left {
    process.signal(SIGTERM)
    return try process.wait()
  }

  /// Stored reports, oldest first.
  var reports: [String] {
    ["partial", "new"].flatMap { folder -> [String] in
      let path = state + "/reports/" + folder
      return ((try? Files.list(path)) ?? []).map { path + "/" + $0 }
    }
  }

  func reportText(_ index: Int = 0, _ file: String = "report.json") throws -> String {
    try eventually("report \(index)") {
      let found = reports
      guard found.count > index else { return nil }
      return try? Files.readText(found[index] + "/" + file, limit: 4 << 20)
    }
  }
}

func isAlive(_ pid: Int32) -> Bool { Processes.look(pid)?.isAlive ?? false }

extension String {
  func occurrences(of part: String) -> Int { ranges(of: part).count }
}
