// What the tests of settings share.
import Glibc
import Policy
import Settings

/// A folder that goes away with its owner.
final class Folder {
  let path: String
  init() {
    var template = Array("/tmp/guardian-settings-XXXXXX".utf8CString)
    path = template.withUnsafeMutableBufferPointer { String(cString: mkdtemp($0.baseAddress!)) }
  }
  deinit { _ = remove(path) }

  func file(_ name: String, _ text: String) -> String { file(name, Array(text.utf8)) }

  func file(_ name: String, _ bytes: [UInt8]) -> String {
    let path = self.path + "/" + name
    let stream = fopen(path, "w")!
    fwrite(bytes, 1, bytes.count, stream)
    fclose(stream)
    return path
  }

  func folder(_ name: String) -> String {
    let path = self.path + "/" + name
    mkdir(path, 0o700)
    return path
  }

  private func remove(_ path: String) -> Int32 {
    if let stream = opendir(path) {
      while let entry = readdir(stream) {
        let name = withUnsafeBytes(of: &entry.pointee.d_name) {
          String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
        }
        if name != ".", name != ".." { _ = remove(path + "/" + name) }
      }
      closedir(stream)
    }
    return Glibc.remove(path)
  }
}

/// Flags and variables to a configuration; the command is `server` unless the words have one.
func configuration(
  _ words: [String] = [], command: [String] = ["--", "server"],
  environment: [String: String] = ["HOME": "/home/u"], uid: UInt32 = 1000,
  options: [Option] = Option.available
) throws(SettingsError) -> Configuration {
  let request = try Settings.request(
    arguments: ["guardian"] + words + command, environment: environment, uid: uid, options: options)
  guard case .run(let configuration) = request else {
    throw SettingsError(.commandLine, "this does not run")
  }
  return configuration
}

/// The line of error, or nil if it is right.
func failure(
  _ words: [String] = [], command: [String] = ["--", "server"],
  environment: [String: String] = [:], options: [Option] = Option.available
) -> (line: String, status: Int32)? {
  do {
    _ = try configuration(
      words, command: command, environment: environment, options: options)
    return nil
  } catch {
    return (error.description, error.exitStatus)
  }
}

/// The package's root.
let root = #filePath.split(separator: "/").dropLast(3).map { "/" + $0 }.joined()

struct Run {
  let status: Int32
  let output: String
  let error: String
}

/// A program of this machine, run to its end with no standard input.
func run(_ words: [String], environment: [String] = ["PATH=/usr/bin:/bin"]) -> Run {
  let folder = Folder()
  let output = folder.file("out", "")
  let error = folder.file("err", "")
  var actions = posix_spawn_file_actions_t()
  posix_spawn_file_actions_init(&actions)
  defer { posix_spawn_file_actions_destroy(&actions) }
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0)
  posix_spawn_file_actions_addopen(&actions, 1, output, O_WRONLY, 0)
  posix_spawn_file_actions_addopen(&actions, 2, error, O_WRONLY, 0)
  var arguments = words.map { strdup($0) } + [nil]
  var variables = environment.map { strdup($0) } + [nil]
  defer { (arguments + variables).forEach { free($0) } }
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
  let failed = posix_spawn(&pid, words[0], &actions, &attributes, &arguments, &variables)
  guard failed == 0 else { return Run(status: -1, output: "", error: "spawn: \(failed)") }
  var status: Int32 = 0
  while waitpid(pid, &status, 0) < 0, errno == EINTR {}
  let code = status & 0x7f == 0 ? (status >> 8) & 0xff : 128 + (status & 0x7f)
  return Run(status: code, output: contents(output), error: contents(error))
}

func contents(_ path: String) -> String {
  guard let stream = fopen(path, "r") else { return "" }
  defer { fclose(stream) }
  var bytes: [UInt8] = []
  var buffer = [UInt8](repeating: 0, count: 65536)
  while true {
    let count = fread(&buffer, 1, buffer.count, stream)
    if count == 0 { break }
    bytes += buffer[..<count]
  }
  return String(decoding: bytes, as: UTF8.self)
}
