// The life file in the runtime folder: which process the running life is, for whoever comes after
// a guardian that died. One fact a line, replaced in one step, read as strictly as it is written.
import Glibc

package struct LifeRecord: Hashable, Sendable {
  package static let name = "life"
  private static let head = "guardian.life/1"
  package static let maximumBytes = 16 * 1024

  /// The kernel's boot id: pids and clocks of another boot mean nothing.
  package var boot: String
  package var life: UInt32
  package var pid: Int32
  /// Clock ticks since boot: with the pid it names the process for good.
  package var start: UInt64
  package var session: Int32
  /// The name of the channel's folder.
  package var channel: String
  /// When it was started: wall clock, CLOCK_BOOTTIME and CLOCK_MONOTONIC, in nanoseconds.
  package var wall: Int64
  package var sinceBoot: Int64
  package var monotonic: Int64
  /// What was run, hashed.
  package var command: String
  /// Why the handler was not preloaded; empty: it was.
  package var handler: String
  /// Its own cgroup below /sys/fs/cgroup; empty: none.
  package var cgroup: String

  package init(
    boot: String, life: UInt32, pid: Int32, start: UInt64, session: Int32, channel: String,
    wall: Int64, sinceBoot: Int64, monotonic: Int64, command: String, handler: String,
    cgroup: String
  ) {
    self.boot = boot
    self.life = life
    self.pid = pid
    self.start = start
    self.session = session
    self.channel = channel
    self.wall = wall
    self.sinceBoot = sinceBoot
    self.monotonic = monotonic
    self.command = command
    self.handler = handler
    self.cgroup = cgroup
  }

  package static var currentBoot: String {
    ((try? Files.readText("/proc/sys/kernel/random/boot_id", limit: 64)) ?? "")
      .filter { !$0.isWhitespace }
  }

  package var bytes: [UInt8] {
    func line(_ key: String, _ value: String) -> String {
      key + " " + value.filter { !$0.isNewline } + "\n"
    }
    return Array(
      (Self.head + "\n" + line("boot", boot) + line("life", "\(life)") + line("pid", "\(pid)")
        + line("start", "\(start)") + line("session", "\(session)") + line("channel", channel)
        + line("wall", "\(wall)") + line("since-boot", "\(sinceBoot)")
        + line("monotonic", "\(monotonic)") + line("command", command)
        + line("handler", handler) + line("cgroup", cgroup) + "end\n").utf8)
  }

  /// nil: not a life file, or a damaged one.
  package init?(_ bytes: [UInt8]) {
    guard bytes.count < Self.maximumBytes, let text = String(validating: bytes, as: UTF8.self)
    else { return nil }
    var lines = text.split(separator: "\n", omittingEmptySubsequences: false)[...]
    guard lines.popFirst() == Self.head[...], lines.popLast() == "", lines.popLast() == "end"
    else { return nil }
    var facts: [Substring: String] = [:]
    for line in lines {
      guard let space = line.firstIndex(of: " "),
        facts.updateValue(String(line[line.index(after: space)...]), forKey: line[..<space]) == nil
      else { return nil }
    }
    guard facts.count == 12, let boot = facts["boot"],
      let life = facts["life"].flatMap({ UInt32($0) }),
      let pid = facts["pid"].flatMap({ Int32($0) }), pid > 0,
      let start = facts["start"].flatMap({ UInt64($0) }),
      let session = facts["session"].flatMap({ Int32($0) }), let channel = facts["channel"],
      channel.utf8.count == LifeMarks.channelDigits, !channel.contains("/"),
      let wall = facts["wall"].flatMap({ Int64($0) }), wall >= 0,
      let sinceBoot = facts["since-boot"].flatMap({ Int64($0) }), sinceBoot >= 0,
      let monotonic = facts["monotonic"].flatMap({ Int64($0) }), monotonic >= 0,
      let command = facts["command"], let handler = facts["handler"],
      let cgroup = facts["cgroup"], !cgroup.contains("..")
    else { return nil }
    self.init(
      boot: boot, life: life, pid: pid, start: start, session: session, channel: channel,
      wall: wall, sinceBoot: sinceBoot, monotonic: monotonic, command: command, handler: handler,
      cgroup: cgroup)
  }

  package static func read(in folder: String) -> LifeRecord? {
    (try? Files.read(folder + "/" + name, limit: maximumBytes)).flatMap(LifeRecord.init)
  }

  /// The main process itself, if it still is that one and lives.
  package var process: TreeProcess? {
    guard boot == Self.currentBoot, let found = Processes.look(pid), found.start == start,
      found.isAlive
    else { return nil }
    return found
  }

  /// What its processes are known by, in this runtime folder. The group is left out when another
  /// process has the number by now.
  package func marks(in folder: String) -> LifeMarks {
    var marks = LifeMarks(folder: folder)
    guard boot == Self.currentBoot else { return marks }
    marks.since = start
    let holder = Processes.look(pid)
    if holder == nil || holder?.start == start {
      marks.group = LifeMarks.Group(number: pid, session: session)
    }
    if !cgroup.isEmpty { marks.cgroup = cgroup }
    return marks
  }
}
