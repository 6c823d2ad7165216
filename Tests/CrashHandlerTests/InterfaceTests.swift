// The program's own words: breadcrumbs, annotations, heartbeat, readiness, exceptions.
import Glibc
import Guardian
import Testing

/// With the handler linked into the program, preloaded too, or both.
enum Linkage: CaseIterable {
  case linked
  case linkedAndPreloaded

  var guardian: MiniGuardian {
    var guardian = MiniGuardian()
    guardian.preload = self == .linkedAndPreloaded
    return guardian
  }
}

@Suite struct `the program's own interface` {
  static let program = Places.fixture("handler_linked")

  @Test(arguments: Linkage.allCases)
  func `writes breadcrumbs, annotations and heartbeats into the ring`(linkage: Linkage) throws {
    let outcome = try linkage.guardian.run(Self.program, "speak")
    #expect(outcome.output == "present 1 ready 1 crashed 0 last none errno 1\n")
    #expect(outcome.exitCode == 0)
    let crumbs = outcome.ring.crumbs
    try #require(crumbs.count == 4)
    #expect(crumbs.map(\.sequence) == [2, 4, 6, 8])
    #expect(crumbs.map(\.level) == [1, 4, 0, 3])
    #expect(crumbs.map(\.category) == ["category", "", "number", "a category that is far t"])
    #expect(crumbs[0].message == "message")
    #expect(crumbs[1].message == "")
    #expect(crumbs[2].message == "42 is it")
    // Cut at the border of a character.
    #expect(crumbs[3].message == String(repeating: "x", count: 191))
    #expect(crumbs.allSatisfy { $0.pid == outcome.ring.mainPID && $0.tid == $0.pid })
    #expect(outcome.ring.annotations == ["tenant": "eight"])
    #expect(outcome.ring.heartbeat == 2)
    #expect(outcome.ring.handlerFlags & 0b100000 != 0)
    #expect(outcome.notified == ["READY=1"])
  }

  @Test func `tells the program how its last life ended`() throws {
    var guardian = MiniGuardian()
    guardian.environment["GUARDIAN_CRASHED_LAST_RUN"] = "1"
    guardian.environment["GUARDIAN_LAST_REPORT"] = "0192-example"
    let outcome = try guardian.run(Self.program, "speak")
    #expect(outcome.output.contains("crashed 1 last 0192-example"))
  }

  @Test func `speaks to the socket that NOTIFY_SOCKET names`() throws {
    var guardian = MiniGuardian()
    guardian.environment["NOTIFY_SOCKET"] = "/nonexistent/socket"
    let outcome = try guardian.run(Self.program, "speak")
    #expect(outcome.output.contains("ready 0"))
    #expect(outcome.notified == [])
  }

  @Test func `does nothing without guardian`() throws {
    var guardian = MiniGuardian()
    guardian.channel = false
    guardian.preload = false
    let outcome = try guardian.run(Self.program, "speak")
    #expect(outcome.output == "present 0 ready 0 crashed 0 last none errno 1\n")
    #expect(outcome.exitCode == 0)
  }

  @Test func `does nothing without guardian in Swift either`() {
    Guardian.breadcrumb("message", category: "category", level: .error)
    Guardian.heartbeat()
    Guardian.setException(type: "Type", reason: "reason", frames: [1, 2])
    Guardian.clearException()
    #expect(!Guardian.isPresent)
    #expect(!Guardian.annotate("key", "value"))
    #expect(!Guardian.crashedLastRun)
    #expect(Guardian.lastReport == nil)
  }

  @Test(arguments: Linkage.allCases)
  func `reports a crash once, with the exception it was told`(linkage: Linkage) throws {
    let outcome = try linkage.guardian.run(Self.program, "crash")
    #expect(outcome.signal == SIGSEGV)
    #expect(outcome.bells.count == 1)
    let record = try #require(outcome.ring.records.first)
    #expect(outcome.ring.records.count == 1)
    #expect(record.parts == 0b111111)
    #expect(record.exceptionLanguage == 3)
    #expect(record.exceptionType == "ParseError")
    #expect(record.exceptionReason == "line 7: no such thing")
    #expect(record.exceptionFrames == [0x1111, 0x2222])
  }

  @Test(arguments: Linkage.allCases)
  func `reports another thread's stack overflow without this one's exception`(linkage: Linkage)
    throws
  {
    let outcome = try linkage.guardian.run(Self.program, "crash-thread")
    #expect(outcome.signal == SIGSEGV)
    #expect(outcome.bells.count == 1)
    let record = try #require(outcome.ring.records.first)
    #expect(record.tid != record.pid)
    #expect(record.parts == 0b011111)
    #expect(record.exceptionType == "")
  }

  @Test func `knows a forked process by its own name`() throws {
    let crumbs = try MiniGuardian().run(Self.program, "forked").ring.crumbs
    #expect(crumbs.map(\.message) == ["parent", "fork", "clone"])
    #expect(Set(crumbs.map(\.pid)).count == 3)
    #expect(crumbs.allSatisfy { $0.pid == $0.tid })
  }

  @Test func `leaves a torn breadcrumb that says so when its writer dies in it`() throws {
    let outcome = try MiniGuardian().run(Self.program, "torn", "3")
    #expect(outcome.bells.count == 1)
    let crumbs = outcome.ring.crumbs
    #expect(crumbs.map(\.sequence) == [2, 3, 6, 8, 10])
    #expect(outcome.ring.crumbNext == 5)
    #expect(
      crumbs.filter { $0.sequence % 2 == 0 }.map(\.message) == [
        "before", "after", "after", "after",
      ])
  }

  @Test func `takes the place of a torn breadcrumb in the next round`() throws {
    let outcome = try MiniGuardian().run(Self.program, "torn", "2000")
    let crumbs = outcome.ring.crumbs
    #expect(crumbs.count == 1024)
    #expect(crumbs.allSatisfy { $0.sequence % 2 == 0 && $0.message == "after" })
    // A crash record lies beside them, untouched.
    #expect(outcome.ring.records.map(\.state) == [2])
    #expect(outcome.ring.records.map(\.signal) == [SIGSEGV])
  }

  @Test func `keeps breadcrumbs whole with many processes, threads and a killed writer`() throws {
    let outcome = try MiniGuardian().run(Self.program, "crowd", "3", "4", "4000")
    #expect(outcome.exitCode == 0)
    #expect(outcome.bells.isEmpty)
    let ring = outcome.ring
    #expect(ring.crumbNext >= 48_000)
    let crumbs = ring.crumbs
    #expect(crumbs.count == 1024)
    let whole = crumbs.filter { $0.sequence % 2 == 0 }
    // A writer that was overtaken or killed leaves at most the one place it was at.
    #expect(whole.count >= 1024 - 13)
    for crumb in whole {
      #expect(crumb.category == "crowd" && crumb.level == 2)
      #expect(crumb.message.hasPrefix("\(crumb.pid)/\(crumb.tid) says "))
      let words = crumb.message.split(separator: " ")
      let number = Int(words.count > 2 ? words[2] : "") ?? -1
      #expect(number >= 0)
      #expect((words.count > 3 ? words[3].count : 0) == number % 100)
    }
    #expect(Set(whole.map(\.sequence)).count == whole.count)
  }

  @Test func `keeps one annotation a key with many processes at once`() throws {
    let outcome = try MiniGuardian().run(Self.program, "annotate", "5")
    let annotations = outcome.ring.annotations
    #expect(
      annotations.keys.sorted() == ["other", "own-0", "own-1", "own-2", "own-3", "own-4", "shared"])
    for process in 0..<5 { #expect(annotations["own-\(process)"] == "\(process)-999") }
    #expect(annotations["shared"]?.hasSuffix("-999") == true)
    #expect(annotations["other"]?.hasSuffix("-999") == true)
  }

  @Test func `has room for 64 annotations and says so`() throws {
    let outcome = try MiniGuardian().run(Self.program, "full")
    #expect(outcome.output == "accepted 64\n")
    #expect(outcome.ring.annotations.count == 64)
  }
}
