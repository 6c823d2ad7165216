// Processes: waited for, pointed at by pidfd, looked at in /proc. Whatever /proc says in words
// was written by the process itself and is read as hostile, bounded text.
import CLinux
import Glibc

/// A child that ended, as waitid tells it.
package struct WaitResult: Hashable, Sendable {
  package enum How: Hashable, Sendable {
    case exited(Int32)
    case signaled(Int32, coreDumped: Bool)
    /// Somebody else's child, on a kernel that tells only its parent.
    case unknown
  }
  package let pid: Int32
  package let how: How

  package init(pid: Int32, how: How) {
    self.pid = pid
    self.how = how
  }

  init?(_ raw: guardian_wait) {
    if raw.pid == 0 { return nil }
    pid = raw.pid
    switch raw.code {
    case Int32(CLD_EXITED): how = .exited(raw.status)
    case Int32(CLD_DUMPED): how = .signaled(raw.status, coreDumped: true)
    default: how = .signaled(raw.status, coreDumped: false)
    }
  }
}

extension WaitResult.How {
  /// As wait(2) writes it.
  init(waitStatus status: Int32) {
    let signal = status & 0x7f
    self =
      signal == 0
      ? .exited((status >> 8) & 0xff) : .signaled(signal, coreDumped: status & 0x80 != 0)
  }
}

package enum Processes {
  /// One child that ended and was not taken yet; it stays.
  package static func lookForEnded() -> WaitResult? {
    var result = guardian_wait()
    guard unsafe guardian_wait_look(&result) == 0 else { return nil }
    return WaitResult(result)
  }

  /// Takes this child if it has ended.
  package static func take(_ pid: Int32) -> WaitResult? {
    var result = guardian_wait()
    guard unsafe guardian_wait_take(pid, &result) == 0 else { return nil }
    return WaitResult(result)
  }

  /// The signal that stopped this child since it was last asked.
  package static func takeStop(_ pid: Int32) -> Int32? {
    let signal = guardian_wait_stopped(pid)
    return signal == 0 ? nil : signal
  }

  package static func open(_ pid: Int32) throws(SystemError) -> FileDescriptor {
    FileDescriptor(
      owning: try retrying("watch process", String(pid)) { guardian_pidfd_open(pid) })
  }

  package static func signal(_ pidfd: borrowing FileDescriptor, _ signal: Int32) throws(SystemError)
  {
    let raw = pidfd.raw
    _ = try retrying("signal a process") { guardian_pidfd_send_signal(raw, signal) }
  }

  /// How a process ended that is not our child; nil: not ended, or this kernel cannot say.
  package static func exitStatus(_ pidfd: borrowing FileDescriptor) -> WaitResult.How? {
    var status: Int32 = 0
    guard unsafe guardian_pidfd_exit_status(pidfd.raw, &status) == 0 else { return nil }
    return WaitResult.How(waitStatus: status)
  }

  /// How a process ended that its own parent has not taken yet; nil: taken, or not for us to see.
  package static func zombieStatus(of pid: Int32, start: UInt64) -> WaitResult.How? {
    // The status stands as 0 for those who may not look (proc(5)).
    guard let fields = statFields(pid), fields.count > 49, fields[0] == "Z",
      fields[17] == "1", UInt64(fields[19]) == start, let status = Int32(fields[49]),
      status != 0 || geteuid() == 0 || (try? Files.status("/proc/\(pid)"))?.user == geteuid()
    else { return nil }
    return WaitResult.How(waitStatus: status)
  }

  /// One process of the moment.
  package static func look(_ pid: Int32) -> TreeProcess? {
    guard let bytes = try? Files.read("/proc/\(pid)/stat", limit: 2048),
      let end = bytes.lastIndex(of: UInt8(ascii: ")"))
    else { return nil }
    // Every process of the machine is looked at in a row: without texts.
    var state: UInt8 = 0
    var numbers: (parent: Int32, group: Int32, session: Int32, threads: Int32) = (0, 0, 0, 0)
    var field = 0
    var value: UInt64 = 0
    for byte in bytes[min(end + 2, bytes.count)...] {
      if (48...57).contains(byte) {
        value = value &* 10 &+ UInt64(byte - 48)
        continue
      }
      if byte != UInt8(ascii: " ") {
        if field == 0 { state = byte }
        continue
      }
      switch field {
      case 1: numbers.parent = Int32(truncatingIfNeeded: value)
      case 2: numbers.group = Int32(truncatingIfNeeded: value)
      case 3: numbers.session = Int32(truncatingIfNeeded: value)
      case 17: numbers.threads = Int32(truncatingIfNeeded: value)
      case 19:
        return TreeProcess(
          pid: pid, parent: numbers.parent, group: numbers.group, session: numbers.session,
          start: value, state: Character(Unicode.Scalar(state)), threads: numbers.threads)
      default: break
      }
      field += 1
      value = 0
    }
    return nil
  }

  /// A thread of the process that has memory and descriptors: those of its main thread are gone once
  /// that has ended, although others go on.
  package static func livingThread(of process: TreeProcess) -> Int32 {
    if process.state != "Z" { return process.pid }
    let threads = ((try? Files.list("/proc/\(process.pid)/task", limit: 4096)) ?? [])
      .compactMap { Int32($0) }
    return threads.first { $0 != process.pid } ?? process.pid
  }

  /// Fields of /proc/PID/stat behind the name, from the process's state on.
  private static func statFields(_ pid: Int32) -> [Substring]? {
    guard let bytes = try? Files.read("/proc/\(pid)/stat", limit: 2048),
      // The name may hold anything, parentheses and line ends too: the last one ends it.
      let end = bytes.lastIndex(of: UInt8(ascii: ")"))
    else { return nil }
    return String(decoding: bytes[(end + 1)...], as: UTF8.self)
      .split { $0 == " " || $0 == "\n" }
  }

  package static func parent(of pid: Int32) -> Int32? {
    guard let fields = statFields(pid), fields.count > 1 else { return nil }
    return Int32(fields[1])
  }

  /// Clock ticks since boot: with the pid it names a process for good.
  package static func startTime(of pid: Int32) -> UInt64? {
    guard let fields = statFields(pid), fields.count > 19 else { return nil }
    return UInt64(fields[19])
  }

  package static func processGroup(of pid: Int32) -> Int32? {
    guard let fields = statFields(pid), fields.count > 2 else { return nil }
    return Int32(fields[2])
  }

  package static func session(of pid: Int32) -> Int32? {
    guard let fields = statFields(pid), fields.count > 3 else { return nil }
    return Int32(fields[3])
  }

  package static func state(of pid: Int32) -> Character? { statFields(pid)?.first?.first }

  /// Whether it has left or been killed, and is only not gone yet.
  package static func isEnding(_ pid: Int32) -> Bool {
    guard let fields = statFields(pid), fields.count > 6, let flags = UInt32(fields[6]) else {
      return false
    }
    // PF_EXITING
    return fields[0] == "Z" || fields[0] == "X" || flags & 4 != 0
  }

  /// Pages in memory, and clock ticks on a processor in user and kernel mode.
  package static func use(of pid: Int32) -> (residentPages: UInt64, ticks: UInt64)? {
    guard let fields = statFields(pid), fields.count > 21, let user = UInt64(fields[11]),
      let system = UInt64(fields[12]), let pages = UInt64(fields[21])
    else { return nil }
    return (pages, user &+ system)
  }

  /// A hard limit by its name in /proc/PID/limits, also of a process that is dead and not reaped;
  /// nil: unlimited, or not to be known.
  package static func hardLimit(_ name: String, of pid: Int32) -> UInt64? {
    let text = (try? Files.readText("/proc/\(pid)/limits", limit: 8192)) ?? ""
    for line in text.split(separator: "\n") where line.hasPrefix(name) {
      let words = line.dropFirst(name.utf8.count).split(separator: " ")
      return words.count > 1 ? UInt64(words[1]) : nil
    }
    return nil
  }

  /// The process's own name for itself, made printable.
  package static func name(of pid: Int32) -> String? {
    guard let bytes = try? Files.read("/proc/\(pid)/comm", limit: 64) else { return nil }
    return Printable.text(bytes.prefix { $0 != 10 })
  }

  /// Whether `pid` stands below `ancestor`, by at most `limit` steps.
  package static func isDescendant(_ pid: Int32, of ancestor: Int32, limit: Int = 64) -> Bool {
    var current = pid
    for _ in 0..<limit {
      guard let above = parent(of: current) else { return false }
      if above == ancestor { return true }
      if above <= 1 { return false }
      current = above
    }
    return false
  }
}
