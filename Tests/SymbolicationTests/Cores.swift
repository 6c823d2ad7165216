import Glibc
import Kernel
import Reports
import Symbolication
import Testing

/// The package's folders, found from this file.
enum Place {
  static let root: String = {
    let parts = #filePath.split(separator: "/").dropLast(3)
    return "/" + parts.joined(separator: "/")
  }()
  static func fixture(_ name: String) -> String { "\(root)/.build/fixtures/\(name)" }
  static func source(_ name: String) -> String { "\(root)/Tests/Fixtures/\(name)" }

  static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

  static func text(_ path: String) -> String? {
    guard let file = fopen(path, "r") else { return nil }
    defer { fclose(file) }
    var bytes: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 65_536)
    while case let count = fread(&piece, 1, piece.count, file), count > 0 {
      bytes += piece[..<count]
    }
    return String(decoding: bytes, as: UTF8.self)
  }

  /// The number of the line of a fixture that carries `mark: NAME`.
  static func line(_ fixture: String, _ mark: String) -> Int? {
    let lines = text(source(fixture))?.split(separator: "\n", omittingEmptySubsequences: false)
    return lines?.firstIndex { line in
      guard let found = line.firstRange(of: "mark: ") else { return false }
      return line[found.upperBound...].prefix { $0.isLetter || $0 == "-" } == mark
    }.map { $0 + 1 }
  }
}

/// A folder of one test, gone after it.
struct Scratch: ~Copyable {
  let path: String

  init() {
    var template = Array("/tmp/guardian-symbols.XXXXXX".utf8CString)
    path = mkdtemp(&template).map { String(cString: $0) } ?? "/tmp"
  }

  deinit {
    if path != "/tmp" { _ = Shell.run("rm -rf '\(path)'") }
  }
}

enum Shell {
  /// Runs a command; its output goes to `output`. Returns the wait status.
  @discardableResult
  static func run(_ command: String, output: String = "/dev/null") -> Int32 {
    var actions = posix_spawn_file_actions_t()
    posix_spawn_file_actions_init(&actions)
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
    posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY | O_CREAT | O_TRUNC, 0o600)
    posix_spawn_file_actions_adddup2(&actions, 1, 2)
    defer { posix_spawn_file_actions_destroy(&actions) }
    var arguments: [UnsafeMutablePointer<CChar>?] = []
    for word in ["/bin/sh", "-c", command] { arguments.append(strdup(word)) }
    arguments.append(nil)
    defer { arguments.forEach { free($0) } }
    // The worker threads of the test runner block most signals; a program must not inherit that (gdb,
    // for one, then waits for a SIGCHLD for ever).
    var attributes = posix_spawnattr_t()
    posix_spawnattr_init(&attributes)
    defer { posix_spawnattr_destroy(&attributes) }
    var none = sigset_t()
    sigemptyset(&none)
    posix_spawnattr_setsigmask(&attributes, &none)
    posix_spawnattr_setflags(&attributes, Int16(POSIX_SPAWN_SETSIGMASK))
    var pid: pid_t = 0
    guard posix_spawn(&pid, "/bin/sh", &actions, &attributes, &arguments, environ) == 0 else {
      return -1
    }
    var status: Int32 = 0
    while waitpid(pid, &status, 0) == -1 && errno == EINTR {}
    return status
  }

  static func output(_ command: String, in folder: String) -> String {
    let file = "\(folder)/output"
    run(command, output: file)
    return Place.text(file) ?? ""
  }

  static func has(_ program: String) -> Bool { run("command -v \(program)") == 0 }
}

enum Core {
  /// Lets a program die in `folder` and returns the kernel's core, or gdb's where the kernel gives
  /// its cores to another program.
  static func of(
    _ program: String, _ how: String, in folder: String, filter: String = "0x33"
  ) -> String? {
    let command = """
      cd '\(folder)' && export SWIFT_BACKTRACE=enable=no && ulimit -c unlimited \
      && echo \(filter) >/proc/self/coredump_filter && exec '\(program)' '\(how)'
      """
    Shell.run(command)
    let found = Shell.output("ls -d '\(folder)'/core*", in: folder)
      .split(separator: "\n").first.map(String.init)
    if let found, Place.exists(found) { return found }
    Shell.run(
      """
      cd '\(folder)' && export SWIFT_BACKTRACE=enable=no && gdb -batch -ex run \
      -ex 'generate-core-file core' --args '\(program)' '\(how)'
      """)
    return Place.exists("\(folder)/core") ? "\(folder)/core" : nil
  }

  static func snapshot(
    _ path: String, replaced: [ReplacedModule] = [], names: [Int32: String] = [:],
    addresses: [UInt64] = [], limits: SymbolicationLimits = SymbolicationLimits()
  ) throws -> Snapshot {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    try #require(descriptor >= 0)
    let file = FileDescriptor(owning: descriptor)
    return try Symbolicator.snapshot(
      core: file, replaced: replaced, threadNames: names, addresses: addresses, limits: limits)
  }

  /// The snapshot of a fixture that died; nil, with the reason printed, if something is missing.
  static func snapshot(
    fixture: String, _ how: String, _ kind: CoreKind = .kernel
  ) throws -> Snapshot? {
    let program = Place.fixture(fixture)
    guard Place.exists(program) else {
      print("skipped: \(fixture) is not built here (its compiler is missing, or run make fixtures)")
      return nil
    }
    let scratch = Scratch()
    switch kind {
    case .kernel:
      let core = try #require(of(program, how, in: scratch.path), "no core could be had")
      return try snapshot(core)
    case .minicore:
      guard Minicore.isBuilt else {
        print("skipped: guardian-capture or the handler is not built here (run make build)")
        return nil
      }
      let core = try #require(try Minicore.of(program, how, in: scratch.path))
      return try snapshot(core)
    }
  }
}

/// What a test expects of a frame.
struct Expected {
  let function: String
  let fixture: String
  let mark: String?
  let inlined: Bool

  init(_ function: String, _ fixture: String, _ mark: String?, inlined: Bool = false) {
    self.function = function
    self.fixture = fixture
    self.mark = mark
    self.inlined = inlined
  }
}

func expect(
  _ frames: some Sequence<Frame>, _ expected: [Expected],
  sourceLocation: SourceLocation = #_sourceLocation
) {
  let frames = Array(frames)
  for (index, wanted) in expected.enumerated() {
    guard index < frames.count else {
      Issue.record("frame \(index) is missing", sourceLocation: sourceLocation)
      return
    }
    let frame = frames[index]
    #expect(frame.function == wanted.function, sourceLocation: sourceLocation)
    #expect(frame.inlined == wanted.inlined, sourceLocation: sourceLocation)
    if let mark = wanted.mark {
      #expect(
        frame.file?.hasSuffix("/Tests/Fixtures/" + wanted.fixture) ?? false
          || frame.file == "Tests/Fixtures/" + wanted.fixture,
        "file: \(frame.file ?? "none")", sourceLocation: sourceLocation)
      #expect(
        frame.line == Place.line(wanted.fixture, mark), "line of \(mark)",
        sourceLocation: sourceLocation)
    }
  }
}
