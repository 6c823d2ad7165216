// What /proc says of one process, and what of it goes into a report. Text of /proc is partly
// made by the program (its name, its environment, the paths it maps): bounded and decoded as
// hostile bytes.
import Glibc

/// The raw texts, read while the process is still there (it may be held, so this is quick:
/// some ten small files).
package struct ProcessTexts: Hashable, Sendable {
  package var status: [UInt8] = []
  package var limits: [UInt8] = []
  package var environ: [UInt8] = []
  package var cgroup: [UInt8] = []
  package var maps: [UInt8] = []
  /// Thread id, in guardian's namespace → the name the program gave it.
  package var threadNames: [Int32: [UInt8]] = [:]
  package var openFiles: Int?
  package var executable: String?
  package var workingDirectory: String?
  /// `oom_kill` of the cgroup's memory.events; guardian counts it, /proc does not have it.
  package var oomKills: UInt64?
  /// "memory", "cpu", "io" → the text of the pressure file.
  package var pressure: [String: [UInt8]] = [:]
  package init() {}

  /// The files that the kernel reads from the process's own memory: that may take as long as the
  /// process likes.
  package static let ofMemory: [(name: String, limit: Int)] = [
    ("environ", 256 << 10), ("maps", ReportLimits.procTextBytes),
  ]

  /// Reads what can be read; what cannot is left empty. `pid` in guardian's own namespace.
  /// - Parameter readMemory: how those of `ofMemory` are read: their path, and at most so many bytes.
  package static func read(
    pid: Int32, memory readMemory: (String, Int) -> [UInt8] = { ProcessTexts.file($0, limit: $1) }
  ) -> ProcessTexts {
    var texts = ProcessTexts()
    let folder = "/proc/\(pid)/"
    texts.status = file(folder + "status", limit: 16 << 10)
    texts.limits = file(folder + "limits", limit: 8 << 10)
    texts.cgroup = file(folder + "cgroup", limit: 8 << 10)
    let memory = ofMemory.map { readMemory(folder + $0.name, $0.limit) }
    texts.environ = memory[0]
    texts.maps = memory[1]
    texts.openFiles = entries(folder + "fd").count
    for thread in entries(folder + "task").prefix(ReportLimits.namedThreads) {
      guard let id = Int32(thread) else { continue }
      texts.threadNames[id] = file(folder + "task/\(thread)/comm", limit: 64)
    }
    texts.executable = link(folder + "exe")
    texts.workingDirectory = link(folder + "cwd")
    return texts
  }

  /// At most `limit` bytes of a file, none if it cannot be read.
  package static func file(_ path: String, limit: Int) -> [UInt8] {
    let descriptor = unsafe open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
    guard descriptor >= 0 else { return [] }
    defer { _ = close(descriptor) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 16 << 10)
    while bytes.count < limit {
      let count = unsafe buffer.withUnsafeMutableBytes {
        unsafe Glibc.read(descriptor, $0.baseAddress, min($0.count, limit - bytes.count))
      }
      if count < 0, errno == EINTR { continue }
      guard count > 0 else { break }
      bytes.append(contentsOf: buffer[..<count])
    }
    return bytes
  }

  package static func link(_ path: String) -> String? {
    var buffer = [UInt8](repeating: 0, count: Int(PATH_MAX))
    let count = unsafe buffer.withUnsafeMutableBytes {
      unsafe readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
    }
    guard count > 0 else { return nil }
    return SafeText.decode(buffer[..<count])
  }

  private static func entries(_ path: String) -> [String] {
    (try? KernelStoreCalls().list(path)) ?? []
  }
}

extension ProcessTexts {
  private static func lines(_ bytes: [UInt8]) -> [Substring] {
    SafeText.decode(bytes, limit: ReportLimits.procTextBytes)
      .split(separator: "\n", omittingEmptySubsequences: true)
  }

  /// The words behind "Key:" in /proc/PID/status.
  private func status(_ key: String) -> [Substring] {
    for line in Self.lines(status) where line.hasPrefix(key + ":") {
      return line.dropFirst(key.utf8.count + 1).split(whereSeparator: { $0 == " " || $0 == "\t" })
    }
    return []
  }

  /// Real user and group.
  package var uid: UInt32? { status("Uid").first.flatMap { UInt32($0) } }
  package var gid: UInt32? { status("Gid").first.flatMap { UInt32($0) } }

  package func facts(redaction: Redaction) -> ProcessFacts {
    var facts = ProcessFacts()
    facts.residentBytes = status("VmRSS").first.flatMap { UInt64($0) }.map { $0 &* 1024 }
    facts.threads = status("Threads").first.flatMap { Int($0) }
    facts.openFiles = openFiles
    let limits = limitFacts
    facts.limits = limits.isEmpty ? nil : limits
    let variables = environ.split(separator: 0).prefix(ReportLimits.environmentVariables)
      .compactMap { bytes -> (name: String, value: String)? in
        guard let equals = bytes.firstIndex(of: UInt8(ascii: "=")) else { return nil }
        return (
          SafeText.decode(bytes[..<equals], limit: 256), SafeText.decode(bytes[(equals + 1)...])
        )
      }
    facts.environment = variables.isEmpty ? nil : redaction.environment(variables)
    // "0::/system.slice/api.service"; of the old hierarchy the first line.
    let cgroups = Self.lines(cgroup)
    facts.cgroup = (cgroups.first { $0.hasPrefix("0::") } ?? cgroups.first).flatMap { line in
      line.split(separator: ":", maxSplits: 2, omittingEmptySubsequences: false).last
        .map { SafeText.cut(String($0)) }
    }
    facts.oomKills = oomKills
    let pressures = pressure.mapValues {
      Self.lines($0).map(String.init).joined(separator: "; ")
    }.filter { !$0.value.isEmpty }
    facts.pressure = pressures.isEmpty ? nil : pressures
    return facts
  }

  /// "Max open files" → "1024 of 524288 files": what holds now, and what it may be raised to.
  private var limitFacts: [String: String] {
    // Columns are aligned under the head line: "Limit   Soft Limit   Hard Limit   Units".
    let lines = Self.lines(limits)
    guard let head = lines.first, head.hasPrefix("Limit") else { return [:] }
    var result: [String: String] = [:]
    for line in lines.dropFirst().prefix(32) {
      let name = line.prefix(26).trimmingSpaces
      let words = line.dropFirst(26).split(separator: " ")
      guard !name.isEmpty, words.count >= 2 else { continue }
      let isFree = words[0] == "unlimited" && words[1] == "unlimited"
      let unit = words.count > 2 && !isFree ? " \(words[2])" : ""
      result[String(name)] =
        words[0] == words[1] ? words[0] + unit : "\(words[0]) of \(words[1])\(unit)"
    }
    return result
  }

  /// Files that are mapped with a right to execute, lowest first, and the vDSO.
  package var modules: [Module] { mappedModules.map(\.module) }

  package struct MappedModule: Hashable, Sendable {
    package var module: Module
    package var device: UInt64
    package var inode: UInt64
  }

  /// With device (as `st_dev` has it) and inode, so that a file opened by its path later can
  /// be told from another one of the same name.
  package var mappedModules: [MappedModule] {
    struct Span {
      var base: UInt64
      var end: UInt64
      var executable: Bool
      var device: UInt64
      var inode: UInt64
    }
    var spans: [String: Span] = [:]
    for line in Self.lines(maps) {
      // 7f00-7f01 r-xp 00001000 08:01 1234   /usr/lib/libc.so.6
      let words = line.split(separator: " ", maxSplits: 5, omittingEmptySubsequences: true)
      guard words.count == 6 else { continue }
      let path = String(words[5].trimmingSpaces)
      guard path.hasPrefix("/") || path == "[vdso]" else { continue }
      let range = words[0].split(separator: "-")
      let device = words[3].split(separator: ":")
      guard range.count == 2, device.count == 2, let start = UInt64(range[0], radix: 16),
        let end = UInt64(range[1], radix: 16), start < end,
        let offset = UInt64(words[2], radix: 16), let inode = UInt64(words[4]),
        let major = UInt64(device[0], radix: 16), let minor = UInt64(device[1], radix: 16)
      else { continue }
      let executable = words[1].dropFirst(2).hasPrefix("x")
      // makedev(3)
      let number =
        (major & 0xffff_f000) << 32 | (major & 0xfff) << 8 | (minor & 0xffff_ff00) << 12
        | minor & 0xff
      if var span = spans[path] {
        // A file mapped twice far apart is data of its own, not one module.
        // Nor need the lines be in order: the program may map and unmap while they are read.
        guard start >= span.base, start < span.end || start - span.end < 1 << 32 else { continue }
        span.end = max(span.end, end)
        span.executable = span.executable || executable
        spans[path] = span
      } else if offset == 0 || executable {
        spans[path] = Span(
          base: start &- offset, end: end, executable: executable, device: number, inode: inode)
      }
    }
    return spans.filter(\.value.executable).sorted { $0.value.base < $1.value.base }
      .prefix(ReportLimits.modules)
      .map { path, span in
        MappedModule(
          module: Module(
            path: path.hasSuffix(" (deleted)") ? String(path.dropLast(10)) : path, buildID: nil,
            base: SafeText.hex(span.base), end: SafeText.hex(span.end)),
          device: span.device, inode: span.inode)
      }
  }
}

extension StringProtocol {
  fileprivate var trimmingSpaces: SubSequence {
    let front = drop { $0 == " " || $0 == "\t" }
    guard let last = front.lastIndex(where: { $0 != " " && $0 != "\t" }) else { return front }
    return front[...last]
  }
}

extension Host {
  /// This machine. `machineID`: hashed for this application by the caller
  /// (`sd_id128_get_machine_app_specific`), never the machine's own.
  package static func read(machineID: String?) -> Host {
    var host = Host()
    host.machineID = machineID
    var name = utsname()
    if unsafe uname(&name) == 0 {
      host.hostname = field(name.nodename)
      host.kernel = field(name.release)
      host.architecture = field(name.machine)
    }
    for path in ["/etc/os-release", "/usr/lib/os-release"] where host.os == nil {
      host.os = prettyName(ProcessTexts.file(path, limit: 16 << 10))
    }
    let boot = SafeText.decode(
      ProcessTexts.file("/proc/sys/kernel/random/boot_id", limit: 64).filter { $0 > 0x20 })
    host.bootID = boot.isEmpty ? nil : boot
    let cpus = sysconf(Int32(_SC_NPROCESSORS_ONLN))
    host.cpus = cpus > 0 ? cpus : nil
    let pages = sysconf(Int32(_SC_PHYS_PAGES))
    let size = sysconf(Int32(_SC_PAGESIZE))
    if pages > 0, size > 0 { host.memoryBytes = UInt64(pages) &* UInt64(size) }
    return host
  }

  /// A fixed array of C characters, which Swift sees as a tuple.
  private static func field<Characters>(_ characters: Characters) -> String {
    unsafe withUnsafeBytes(of: characters) { bytes in
      unsafe SafeText.decode(Array(bytes.prefix { $0 != 0 }), limit: 256)
    }
  }

  /// PRETTY_NAME of os-release(5).
  package static func prettyName(_ bytes: [UInt8]) -> String? {
    for line in SafeText.decode(bytes).split(separator: "\n") where line.hasPrefix("PRETTY_NAME=") {
      let value = line.dropFirst("PRETTY_NAME=".utf8.count).filter { $0 != "\"" && $0 != "'" }
      return value.isEmpty ? nil : value
    }
    return nil
  }
}
