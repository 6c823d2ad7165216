// guardian itself, run as people run it, on a real program.
import Foundation

/// One thread as the kernel shows it.
struct KernelThread: Hashable {
  let id: Int32
  let name: String
}

/// What the kernel knows of a process: the truth that a report is compared with.
struct KernelProcess {
  let pid: Int32
  var threads: Set<KernelThread> {
    let folder = "/proc/\(pid)/task"
    let ids = (try? FileManager.default.contentsOfDirectory(atPath: folder)) ?? []
    return Set(
      ids.compactMap { id in
        let name = text("\(folder)/\(id)/comm").dropLast()
        return Int32(id).map { KernelThread(id: $0, name: String(name)) }
      })
  }
  /// Files whose code is mapped.
  var modules: Set<String> {
    var found: Set<String> = []
    for line in text("/proc/\(pid)/maps").split(separator: "\n") {
      let fields = line.split(separator: " ", maxSplits: 5, omittingEmptySubsequences: true)
      if fields.count == 6, fields[1].contains("x"), fields[5].first == "/" {
        found.insert(String(fields[5]))
      }
    }
    return found
  }
  var children: [Int32] {
    text("/proc/\(pid)/task/\(pid)/children").split(separator: " ").compactMap { Int32($0) }
  }
  var name: String { String(text("/proc/\(pid)/comm").dropLast()) }
  var exists: Bool { access("/proc/\(pid)", F_OK) == 0 }
}

final class Supervised {
  let folder: Folder
  let name: String
  private let process = Process()
  private var ended = false
  var pid: Int32 { process.processIdentifier }
  /// Everything that guardian and the program wrote.
  var log: String { text(folder.path + "/log") }

  /// Starts guardian, by `launcher` if there is one. `options` go before the command.
  init(
    name: String, launcher: [String] = [], options: [String] = [], command: [String],
    environment: [String: String] = [:]
  ) throws {
    folder = try Folder()
    self.name = name
    let log = try folder.write("log", "")
    let start = launcher + [Place.release + "/guardian"]
    process.executableURL = URL(fileURLWithPath: start[0])
    process.arguments =
      start.dropFirst() + [
        "--name", name, "--state-directory", folder.path + "/state",
        "--runtime-directory", folder.path + "/run",
      ] + options + ["--"] + command
    process.environment = ProcessInfo.processInfo.environment.merging(environment) { $1 }
    process.currentDirectoryURL = URL(fileURLWithPath: folder.path)
    process.standardInput = FileHandle.nullDevice
    process.standardOutput = FileHandle(forWritingAtPath: log)
    // One open file for both, or the two would write over each other.
    process.standardError = process.standardOutput
    try process.runUnblocked()
  }

  deinit {
    guard !ended, process.isRunning else { return }
    kill(pid, SIGTERM)
    do {
      try wait(for: "guardian's end", seconds: 45) { !process.isRunning }
    } catch {
      // It must not be left behind, and neither must what it runs.
      let family = descendants
      for victim in [pid] + family { kill(victim, SIGKILL) }
    }
  }

  /// Everything below guardian.
  var descendants: [Int32] {
    var found: [Int32] = []
    var next = [pid]
    while let parent = next.popLast() {
      let children = KernelProcess(pid: parent).children
      found += children
      next += children
    }
    return found
  }

  /// The program's main process: guardian's only child that is none of its helpers.
  var program: KernelProcess? {
    KernelProcess(pid: pid).children.map(KernelProcess.init).first { child in
      let executable = try? FileManager.default.destinationOfSymbolicLink(
        atPath: "/proc/\(child.pid)/exe")
      let name = executable?.split(separator: "/").last ?? ""
      return !name.isEmpty && name != "guardian" && !name.hasPrefix("guardian-")
    }
  }

  /// Asks guardian to stop the program and waits for both; returns guardian's exit status.
  @discardableResult
  func stop() throws -> Int32 {
    ended = true
    let family = descendants
    kill(pid, SIGTERM)
    do {
      try wait(for: "guardian's end", seconds: 60) { !process.isRunning }
    } catch {
      for victim in [pid] + family { kill(victim, SIGKILL) }
      throw Failure("\(error)\n\(log)")
    }
    // Nothing that guardian ran may outlive it.
    try wait(for: "the end of everything below guardian", seconds: 10) {
      family.allSatisfy { !KernelProcess(pid: $0).exists }
    }
    return process.terminationReason == .uncaughtSignal
      ? 128 + process.terminationStatus : process.terminationStatus
  }

  /// Waits until guardian ends by itself.
  func end(seconds: Double = 120) throws -> Int32 {
    try wait(for: "guardian's end; so far:\n\(log)", seconds: seconds) { !process.isRunning }
    ended = true
    return process.terminationReason == .uncaughtSignal
      ? 128 + process.terminationStatus : process.terminationStatus
  }

  /// The finished reports, oldest first, with their folders.
  func reports() throws -> [(report: Report, folder: String)] {
    let place = folder.path + "/state/reports/new"
    let names = (try? FileManager.default.contentsOfDirectory(atPath: place)) ?? []
    return try names.sorted().compactMap { name in
      guard let data = FileManager.default.contents(atPath: "\(place)/\(name)/report.json") else {
        return nil
      }
      do {
        return (try JSONDecoder().decode(Report.self, from: data), "\(place)/\(name)")
      } catch {
        throw Failure("\(place)/\(name)/report.json does not read: \(error)")
      }
    }
  }

  /// The first report that fits.
  func report(
    _ what: String, seconds: Double = 120, where fits: (Report) -> Bool = { _ in true }
  ) throws -> (report: Report, folder: String) {
    do {
      return try wait(forValue: what, seconds: seconds) {
        try reports().first { fits($0.report) }
      }
    } catch {
      throw Failure("\(error)\nwhat guardian and the program wrote:\n\(log)")
    }
  }
}
