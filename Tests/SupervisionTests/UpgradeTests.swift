// `guardianctl upgrade` with real binaries: a copy of guardian in a folder of its own is replaced
// by another copy, which is another file.
import Control
import Glibc
import Kernel
import Policy
import Reports
import Settings
import Supervision
import Testing

/// A guardian that may be replaced.
private final class Copy {
  let scratch = Scratch()
  let process: Process
  var guardian: String { scratch.path + "/guardian" }
  var runtime: String { scratch.path + "/run" }
  var state: String { scratch.path + "/state" }

  init(_ options: [String] = [], _ command: [String], input: String = "/dev/null") throws {
    for name in ["guardian", "guardian-capture", "guardian-reporter", "guardian-sweep"] {
      let source = Root.path + "/.build/release/" + name
      if name == "guardian" {
        try Copy.copy(source, to: scratch.path + "/" + name)
      } else {
        _ = unsafe symlink(source, scratch.path + "/" + name)
      }
    }
    _ = unsafe symlink(
      Root.path + "/.build/release/libguardian-handler.so",
      scratch.path + "/libguardian-handler.so")
    process = try Process(
      [
        scratch.path + "/guardian", "--state-directory", scratch.path + "/state",
        "--runtime-directory", scratch.path + "/run", "--name", "upgraded",
      ] + options + ["--"] + command, input: input)
  }

  static func copy(_ source: String, to path: String) throws {
    let bytes = try Files.read(source, limit: 256 << 20)
    try Files.replace(path, with: bytes, mode: 0o755)
  }

  /// A new file in the place of the binary.
  func replace(with text: String? = nil) throws {
    if let text {
      try Files.replace(guardian, with: Array(text.utf8), mode: 0o755)
    } else {
      try Copy.copy(Root.guardian, to: guardian)
    }
  }

  var inode: UInt64? { (try? Files.status("/proc/\(process.pid)/exe"))?.inode }

  func upgrade() throws -> Process {
    let control = try Process([
      Root.path + "/.build/release/guardianctl", "--runtime-directory", runtime, "upgrade",
    ])
    _ = try control.wait()
    return control
  }

  func pid(_ count: Int = 1) throws -> Int32 {
    try eventually("\(count) lines 'pid N'; guardian said: \(process.errorText)") {
      let pids = process.outputLines.filter { $0.hasPrefix("pid ") || $0.hasPrefix("ready ") }
        .compactMap { $0.split(separator: " ").last.flatMap { Int32($0) } }
      return pids.count >= count ? pids[count - 1] : nil
    }
  }

  func stop() throws -> Left {
    process.signal(SIGTERM)
    return try process.wait()
  }
}

@Suite struct `guardianctl upgrade` {
  @Test func `of a program that is not ready yet leaves its readiness pipe open`() throws {
    let copy = try Copy(["--ready", "fd:7"], [Root.fixture("lively"), "fd", "7"])
    let pid = try copy.pid()
    try copy.replace()
    #expect(try copy.upgrade().wait() == .exited(0))
    kill(pid, SIGUSR1)
    try eventually("that it is ready") {
      let control = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", copy.runtime, "status",
      ])
      _ = try control.wait()
      return control.outputText.contains("State: running") ? true : nil
    }
    #expect(try copy.pid() == pid)
    #expect(try copy.stop() == .exited(143))
  }

  @Test func `keeps whoever follows the program's output`() throws {
    let copy = try Copy(
      [],
      [
        "/bin/sh", "-c",
        "echo pid $$; trap 'echo heard >&2' USR1; while :; do sleep 1 & wait; done",
      ])
    let pid = try copy.pid()
    let follower = try Process([
      Root.path + "/.build/release/guardianctl", "--runtime-directory", copy.runtime, "logs", "-f",
    ])
    func hears(_ count: Int) throws {
      kill(pid, SIGUSR1)
      try eventually("\(count) lines; \(follower.errorText)") {
        follower.outputText.occurrences(of: "heard") >= count ? true : nil
      }
    }
    try eventually("that it follows") {
      kill(pid, SIGUSR1)
      return follower.outputText.contains("heard") ? true : nil
    }
    try copy.replace()
    #expect(try copy.upgrade().wait() == .exited(0))
    try hears(follower.outputText.occurrences(of: "heard") + 1)
    #expect(try copy.stop() == .exited(143))
    _ = try follower.wait()
  }

  @Test func `loses no stop that comes at the last moment`() throws {
    let copy = try Copy([], ["/bin/sh", "-c", "echo pid $$; exec sleep 1000"])
    _ = try copy.pid()
    let (asked, go) = (copy.scratch.path + "/asked", copy.scratch.path + "/go")
    try Files.makeFIFO(go, mode: 0o600)
    // A new binary that takes its time with the last question.
    try copy.replace(
      with: """
        #!/bin/sh
        case "$*" in *--check*) : >'\(asked)'; read word <'\(go)';; esac
        exec '\(Root.guardian)' "$@"

        """)
    let control = try Process([
      Root.path + "/.build/release/guardianctl", "--runtime-directory", copy.runtime, "upgrade",
    ])
    try eventually("the question") { Files.exists(asked) ? true : nil }
    copy.process.signal(SIGSTOP)
    try eventually("that it stands") { Processes.state(of: copy.process.pid) == "T" ? true : nil }
    let writer = try FileDescriptor.open(go, O_RDWR)
    #expect(try writer.write(Array("go\n".utf8)[...]) == 3)
    // The answer and the stop wait together.
    try eventually("the answer") {
      ((try? Files.list("/proc", limit: 1 << 22)) ?? []).compactMap { Int32($0) }.contains {
        Processes.parent(of: $0) == copy.process.pid && Processes.state(of: $0) == "Z"
      } ? true : nil
    }
    copy.process.signal(SIGTERM)
    copy.process.signal(SIGCONT)
    #expect(try copy.process.wait() == .exited(143), "\(copy.process.errorText)")
    _ = try control.wait()
  }

  @Test func `leaves the program and its connections alone, under load`() throws {
    let copy = try Copy([], [Root.fixture("tree_probe"), "echo"])
    let pid = try copy.pid()
    let port = try eventually("its port") {
      copy.process.outputLines.first { $0.hasPrefix("port ") }.flatMap { UInt16($0.dropFirst(5)) }
    }
    let client = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(client) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    let connected = unsafe withUnsafePointer(to: &address) {
      unsafe $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        unsafe connect(client, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
      }
    }
    #expect(connected == 0)
    func ask() -> Bool {
      var byte = UInt8(ascii: "x")
      return unsafe write(client, &byte, 1) == 1 && read(client, &byte, 1) == 1
    }
    #expect(ask())
    for round in 0..<3 {
      let before = copy.inode
      try copy.replace()
      let control = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", copy.runtime, "upgrade",
      ])
      // The client goes on asking while guardian is exchanged.
      var answers = 0
      try eventually("the upgrade") {
        #expect(ask(), "round \(round)")
        answers += 1
        return copy.inode != before ? true : nil
      }
      #expect(answers > 0)
      #expect(try control.wait() == .exited(0), "\(control.errorText)")
      #expect(control.outputText.contains("pid \(pid) is running"))
      #expect(ask())
    }
    #expect(copy.process.outputLines.filter { $0.hasPrefix("pid ") }.count == 1)
    #expect(try copy.stop() == .exited(143))
    #expect(try Files.list(copy.runtime) == ["lock"])
  }

  @Test func `keeps the exit status, the last lines and the counts`() throws {
    let scratch = Scratch()
    let input = try Input(in: scratch)
    let copy = try Copy(
      ["--max-crashes", "2", "--restart-delay", "0"],
      [
        Root.fixture("dies"), "--threads", "3", "--say", "words of the dying", "--wait",
        "null-read",
      ], input: input.path)
    _ = try copy.pid(1)
    try input.send("\n")
    _ = try copy.pid(2)
    try copy.replace()
    let control = try copy.upgrade()
    #expect(try control.wait() == .exited(0), "\(control.errorText)")
    try input.send("\n")
    _ = try copy.pid(3)
    let folder = copy.state + "/reports/new"
    let reports = try eventually("two reports") {
      let found = (try? Files.list(folder)) ?? []
      return found.count == 2 ? found : nil
    }
    let text = try Files.readText(folder + "/" + reports[1] + "/report.json", limit: 4 << 20)
    #expect(text.contains("\"threads\": \"all\""))
    #expect(text.contains("waiter-2"))
    #expect(text.contains("\"life\": 2"))
    #expect(text.contains("\"failures\": 2"))
    #expect(text.contains("words of the dying"))
    // The third failure is one too many, and guardian leaves with the program's status.
    try input.send("\n")
    #expect(try copy.process.wait() == .exited(139), "\(copy.process.errorText)")
  }

  @Test func `leaves a stopped program stopped and a waiting one waiting`() throws {
    let copy = try Copy(
      ["--restart-delay", "1h", "--restart-delay-max", "1h", "--stable-after", "1h"],
      ["/bin/sh", "-c", "echo pid $$; exit 3"])
    _ = try copy.pid(2)
    let waiting = try eventually("that it waits") {
      let control = try Process([
        Root.path + "/.build/release/guardianctl", "--runtime-directory", copy.runtime, "status",
      ])
      _ = try control.wait()
      return control.outputText.contains("State: waiting") ? true : nil
    }
    #expect(waiting)
    try copy.replace()
    let control = try copy.upgrade()
    #expect(
      control.outputText.contains("starts in 1 h"), "\(control.outputText)\(control.errorText)")
    #expect(try copy.stop() == .exited(143))
    #expect(copy.process.outputLines.count == 2)
  }

  @Test(arguments: [
    ("#!/bin/sh\nexit 1\n", "does not know how to take over"),
    ("#!/bin/sh\necho guardian.handover/0\n", "does not know how to take over"),
    ("not a program", "cannot execute"),
    (
      "#!/bin/sh\n[ \"$1\" = --print ] && exec echo guardian.handover/1\necho it is wrong; exit 78\n",
      "does not accept guardian's options: it is wrong"
    ),
  ])
  func `refuses a binary that could not take over, and goes on`(text: String, words: String) throws
  {
    let copy = try Copy([], [Root.fixture("spawn_probe"), "wait"])
    let pid = try copy.pid()
    let before = copy.inode
    try copy.replace(with: text)
    let control = try copy.upgrade()
    #expect(try control.wait() == .exited(1))
    #expect(control.errorText.contains(words), "\(control.errorText)")
    #expect(copy.inode == before)
    #expect(isAlive(pid))
    #expect(try copy.stop() == .exited(143))
  }

  @Test func `falls back into the old one when the exec itself fails`() throws {
    let copy = try Copy([], [Root.fixture("spawn_probe"), "wait"])
    let pid = try copy.pid()
    // It answers both questions and then is not there any more.
    try copy.replace(
      with: """
        #!/bin/sh
        [ "$1" = --print ] && exec echo guardian.handover/1
        rm "$0"
        """)
    let control = try copy.upgrade()
    #expect(try control.wait() == .exited(1))
    #expect(control.errorText.contains("cannot execute"), "\(control.errorText)")
    #expect(isAlive(pid))
    try copy.replace()
    #expect(try copy.upgrade().wait() == .exited(0))
    #expect(isAlive(pid))
    #expect(try copy.stop() == .exited(143))
  }

  @Test func `is followed by kill and keep as before`() throws {
    let copy = try Copy([], [Root.fixture("spawn_probe"), "wait"])
    let pid = try copy.pid()
    try copy.replace()
    #expect(try copy.upgrade().wait() == .exited(0))
    copy.process.signal(SIGKILL)
    _ = try copy.process.wait()
    try eventually("the end of the program") { isAlive(pid) ? nil : true }
  }
}

@Suite struct `What is handed over` {
  private func round(_ handover: Handover) throws -> Handover {
    try #require(Handover(handover.bytes))
  }

  @Test func `comes out as it went in`() throws {
    var handover = Handover()
    handover.set("text", "a\nb\0c")
    handover.set("number", Int32(-7))
    handover.set("time", Duration.milliseconds(1500))
    handover.set("yes", true)
    handover.set("no", false)
    handover["bytes"] = Array(0...255)
    let copy = try round(handover)
    #expect(copy.text("text") == "a\nb\0c")
    #expect(copy.number("number") == -7)
    #expect(copy.time("time") == .milliseconds(1500))
    #expect(copy.flag("yes") && !copy.flag("no"))
    #expect(copy["bytes"] == Array(0...255))
    let bytes = handover.bytes
    for length in 0..<bytes.count { #expect(Handover(Array(bytes[..<length])) == nil) }
  }

  @Test(arguments: [
    ServiceMachine.Standing.living(
      Life(rawValue: 3), started: Now(boot: .seconds(5), monotonic: .seconds(4)), isReady: true,
      until: nil, watchdog: .seconds(9)),
    .living(
      Life(rawValue: 3), started: Now(boot: .seconds(5), monotonic: .seconds(4)), isReady: false,
      until: .seconds(60), watchdog: nil),
    .waiting(until: .seconds(7)), .stopped,
  ])
  func `every standing`(standing: ServiceMachine.Standing) throws {
    var handover = Handover()
    handover.set(standing)
    #expect(try round(handover).standing == standing)
  }

  @Test func `endings, verdicts and the last lines`() throws {
    let endings = [
      Ending(status: .exited(3)),
      Ending(status: .signaled(Signal(rawValue: 11), coreDumped: true), cause: .outOfMemory),
      Ending(status: .execFailed(errno: 2)), Ending(status: .unknown, cause: .health),
      Ending(status: .exited(0), cause: .detached),
    ]
    for ending in endings {
      var handover = Handover()
      handover.set(ending)
      #expect(try round(handover).ending == ending)
    }
    let verdict = Verdict(
      decision: .restart(after: .milliseconds(100)), failures: 2, maxCrashes: nil,
      window: .seconds(600), reason: "because")
    var handover = Handover()
    handover.set(verdict)
    var tail = OutputTail()
    tail.append(Array("one\ntwo\n\nthree".utf8)[...], at: 17)
    handover.set("tail", tail)
    let copy = try round(handover)
    #expect(copy.verdict == verdict)
    #expect(copy.tail("tail")?.all.map(\.bytes) == tail.all.map(\.bytes))
    #expect(copy.tail("tail")?.all.map(\.time) == [17, 17, 17, 17])
  }
}
