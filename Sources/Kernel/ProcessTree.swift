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
  /// The names of the channels that count; nil: all.
  package var channels: Set<String>?
  /// The main process's group, if that number cannot be somebody else's by now.
  package var group: Group?
  /// A cgroup that holds nothing else; a path below /sys/fs/cgroup.
  package var cgroup: String?
  /// When its main process started, in clock ticks since boot: who is older is looked into last.
  package var since: UInt64?

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
    let name = String(text.dropFirst(folder.utf8.count + 1).prefix { $0 != "/" })
    return Self.isChannelName(name) && channels?.contains(name) ?? true
  }

  package static func isChannelName(_ name: String) -> Bool {
    name.utf8.count == channelDigits
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
  /// Of its main thread.
  package let state: Character
  /// Those that did not end, and the main one.
  package let threads: Int32

  package struct Identity: Hashable, Sendable {
    package let pid: Int32
    package let start: UInt64
  }
  package var identity: Identity { Identity(pid: pid, start: start) }
  /// A main thread that has ended is a zombie as long as others go on.
  package var isAlive: Bool { state != "X" && (state != "Z" || threads > 1) }
}

package enum ProcessTree {
  /// Every process there is.
  package static func all() -> [TreeProcess] {
    ((try? Files.list("/proc", limit: 1 << 22)) ?? []).compactMap { name in
      Int32(name).flatMap(Processes.look)
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
  /// - Parameter findQuickly: whom a look at no process's memory shows: they are ended before
  ///   anybody's is looked into.
  package static func end(
    within limit: Duration, cgroup: String? = nil, quickly findQuickly: () -> [TreeProcess],
    _ find: () -> [TreeProcess]
  ) -> Outcome {
    let end = Clock.monotonic + limit
    var outcome = Outcome()
    func note(_ processes: [TreeProcess]) {
      for process in processes where outcome.killed[process.identity] == nil {
        outcome.killed[process.identity] = Processes.name(of: process.pid) ?? "?"
      }
    }
    let first = freeze(within: min(limit, .seconds(1)), findQuickly)
    note(first)
    if let cgroup { Cgroup.kill(cgroup) }
    for process in first { signal(process, SIGKILL) }
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
