// The processes of a program, wherever they went: below it, or known again by what it gave them.
// Found by two means, because each has a hole: descent ends where a parent died first, and a mark
// can be thrown away by who wants to be rid of it.
import CLinux
import Glibc

/// What a program's processes have from guardian and keep through fork, exec, sessions and users.
package struct LifeMarks: Hashable, Sendable {
  /// The runtime folder. Marked is who has a channel below it: in the environment it was
  /// executed with, as its standard error, or mapped (the ring, through every fork).
  package var folder: String
  /// The main process's group, if that number cannot be somebody else's by now.
  package var group: Group?
  /// A cgroup that holds nothing else; a path below /sys/fs/cgroup.
  package var cgroup: String?

  /// A process group with the session it belongs to: no other session can enter it.
  package struct Group: Hashable, Sendable {
    package let number: Int32
    package let session: Int32
    package init(number: Int32, session: Int32) {
      self.number = number
      self.session = session
    }
  }

  package init(folder: String, group: Group? = nil, cgroup: String? = nil) {
    self.folder = folder
    self.group = group
    self.cgroup = cgroup
  }

  /// The variable that names the channel.
  package static let variable = "GUARDIAN_CHANNEL"
  /// A channel's folder is named by so many hexadecimal digits.
  package static let channelDigits = 32

  /// Whether `text` names something in a channel below the folder.
  package func isChannel(_ text: String) -> Bool {
    guard text.hasPrefix(folder + "/") else { return false }
    let name = text.dropFirst(folder.utf8.count + 1).prefix { $0 != "/" }
    return name.utf8.count == Self.channelDigits
      && name.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
  }
}

/// One process as /proc told of it.
package struct TreeProcess: Hashable, Sendable {
  package let pid: Int32
  package let parent: Int32
  package let group: Int32
  package let session: Int32
  /// Clock ticks since boot: with the pid it names a process for good.
  package let start: UInt64
  package let state: Character

  package struct Identity: Hashable, Sendable {
    package let pid: Int32
    package let start: UInt64
  }
  package var identity: Identity { Identity(pid: pid, start: start) }
  package var isAlive: Bool { state != "Z" && state != "X" }
}

package enum ProcessTree {
  /// Longer environments are not looked through to their end.
  private static let environmentBytes = 2 << 20
  private static let mapsBytes = 4 << 20

  /// Every process there is.
  package static func all() -> [TreeProcess] {
    ((try? Files.list("/proc", limit: 1 << 22)) ?? []).compactMap { name in
      Int32(name).flatMap(Processes.look)
    }
  }

  /// The living ones that have a mark, and whatever stands below them or below `roots`.
  /// Never the caller, who stands above it, or `sparing`.
  package static func find(
    _ marks: LifeMarks?, below roots: Set<Int32> = [], sparing: Set<Int32> = []
  ) -> [TreeProcess] {
    let all = all()
    var parents: [Int32: Int32] = [:]
    for process in all { parents[process.pid] = process.parent }
    var spared = sparing
    var above = getpid()
    while above > 0, spared.insert(above).inserted || above == getpid() {
      guard let next = parents[above], next != above else { break }
      above = next
    }
    let inGroup = Set(marks?.cgroup.map(Cgroup.processes) ?? [])
    var members = roots
    for process in all where !spared.contains(process.pid) && process.isAlive {
      if inGroup.contains(process.pid) || marks.map({ isMarked(process, $0) }) ?? false {
        members.insert(process.pid)
      }
    }
    // Downwards until nothing is added: a parent may come after its child in the list.
    var grew = true
    while grew {
      grew = false
      for process in all
      where members.contains(process.parent) && !spared.contains(process.pid)
        && members.insert(process.pid).inserted
      {
        grew = true
      }
    }
    return all.filter { members.contains($0.pid) && $0.isAlive && !spared.contains($0.pid) }
  }

  private static func isMarked(_ process: TreeProcess, _ marks: LifeMarks) -> Bool {
    if let group = marks.group, process.group == group.number, process.session == group.session {
      return true
    }
    // A process of the kernel has no memory to look into.
    if process.pid == 2 || process.parent == 2 { return false }
    let folder = "/proc/\(process.pid)"
    if let error = try? Files.readLink(folder + "/fd/2"), marks.isChannel(error) { return true }
    if let environment = try? Files.read(folder + "/environ", limit: environmentBytes),
      contains(environment, "\(LifeMarks.variable)=\(marks.folder)/")
    {
      return true
    }
    guard let maps = try? Files.read(folder + "/maps", limit: mapsBytes),
      contains(maps, " \(marks.folder)/")
    else { return false }
    return String(decoding: maps, as: UTF8.self).split(separator: "\n").contains { line in
      guard let slash = line.firstIndex(of: "/") else { return false }
      return marks.isChannel(String(line[slash...])) && line.contains("/ring")
    }
  }

  private static func contains(_ bytes: [UInt8], _ text: String) -> Bool {
    let pattern = Array(text.utf8)
    return unsafe bytes.withUnsafeBytes { bytes in
      unsafe pattern.withUnsafeBytes { pattern in
        unsafe guardian_contains(
          bytes.baseAddress, bytes.count, pattern.baseAddress, pattern.count)
      }
    }
  }

  // MARK: ending them

  /// Stops all of them first, until a pass finds nobody new: who stands still forks no more, and
  /// keeps its place in the tree. Bounded: whoever forks faster than it is stopped is killed in
  /// the passes that follow.
  package static func freeze(
    within limit: Duration, _ find: () -> [TreeProcess]
  ) -> [TreeProcess] {
    let end = Clock.monotonic + limit
    var stopped: [TreeProcess] = []
    var known: Set<TreeProcess.Identity> = []
    while true {
      var isNew = false
      for process in find() where known.insert(process.identity).inserted {
        isNew = true
        stopped.append(process)
        signal(process, SIGSTOP)
      }
      if !isNew || Clock.monotonic >= end { return stopped }
    }
  }

  /// To exactly this process; false: it is gone, or may not be signalled.
  @discardableResult
  package static func signal(_ process: TreeProcess, _ number: Int32) -> Bool {
    guard let pidfd = try? Processes.open(process.pid),
      // Between the look and the open the number may have become another's.
      Processes.startTime(of: process.pid) == process.start
    else { return false }
    return (try? Processes.signal(pidfd, number)) != nil
  }

  package struct Outcome {
    /// Those that KILL was sent to, and their names while they lived.
    package var killed: [TreeProcess.Identity: String] = [:]
    /// Those that are still there.
    package var left: [TreeProcess] = []
  }

  /// Freezes, kills, and waits until nobody is left or the time is up. Blocks.
  package static func end(
    within limit: Duration, cgroup: String? = nil, _ find: () -> [TreeProcess]
  ) -> Outcome {
    let end = Clock.monotonic + limit
    var outcome = Outcome()
    func note(_ processes: [TreeProcess]) {
      for process in processes where outcome.killed[process.identity] == nil {
        outcome.killed[process.identity] = Processes.name(of: process.pid) ?? "?"
      }
    }
    note(freeze(within: min(limit, .seconds(1)), find))
    var pause = Duration.milliseconds(1)
    while true {
      let found = find()
      if found.isEmpty { return outcome }
      note(found)
      if let cgroup { Cgroup.kill(cgroup) }
      var watched: [SharedDescriptor] = []
      for process in found {
        signal(process, SIGKILL)
        if watched.count < 256, let pidfd = try? Processes.open(process.pid) {
          watched.append(SharedDescriptor(pidfd))
        }
      }
      if Clock.monotonic >= end {
        outcome.left = find()
        return outcome
      }
      waitForEnds(watched, until: min(end, Clock.monotonic + pause))
      pause = min(pause * 2, .milliseconds(100))
    }
  }

  /// Until all of these processes ended, or until then.
  private static func waitForEnds(_ watched: [SharedDescriptor], until end: Duration) {
    for process in watched {
      let left = end - Clock.monotonic
      if left <= .zero { return }
      var ready = pollfd(fd: process.raw, events: Int16(POLLIN), revents: 0)
      let milliseconds = left.components.attoseconds / 1_000_000_000_000_000
      _ = unsafe poll(&ready, 1, Int32(clamping: left.components.seconds * 1000 + milliseconds + 1))
    }
  }

  /// "server (pid 12), sh (pid 14) and 3 more", the oldest first.
  package static func words(_ processes: [TreeProcess.Identity: String]) -> String {
    let sorted = processes.sorted { ($0.key.start, $0.key.pid) < ($1.key.start, $1.key.pid) }
    let more = sorted.count - 8
    return sorted.prefix(8).map { "\($0.value) (pid \($0.key.pid))" }.joined(separator: ", ")
      + (more > 0 ? " and \(more) more" : "")
  }

  /// The same of processes that are there.
  package static func words(_ processes: [TreeProcess]) -> String {
    var named: [TreeProcess.Identity: String] = [:]
    for process in processes { named[process.identity] = Processes.name(of: process.pid) ?? "?" }
    return words(named)
  }
}

/// A cgroup of version 2 by its path below /sys/fs/cgroup: "/system.slice/x.service/life".
package enum Cgroup {
  package static let root = "/sys/fs/cgroup"

  package static func processes(_ path: String) -> [Int32] {
    let text = (try? Files.readText(root + path + "/cgroup.procs", limit: 8 << 20)) ?? ""
    return text.split(separator: "\n").compactMap { Int32($0) }
  }

  /// KILL to every process in it at once, also to those being forked (Linux 5.14).
  @discardableResult
  package static func kill(_ path: String) -> Bool { write(path, "cgroup.kill", "1") }

  @discardableResult
  package static func freeze(_ path: String, _ on: Bool) -> Bool {
    write(path, "cgroup.freeze", on ? "1" : "0")
  }

  @discardableResult
  package static func write(_ path: String, _ file: String, _ text: String) -> Bool {
    guard let file = try? FileDescriptor.open(root + path + "/" + file, O_WRONLY) else {
      return false
    }
    return (try? file.writeAll(Array(text.utf8))) != nil
  }
}
