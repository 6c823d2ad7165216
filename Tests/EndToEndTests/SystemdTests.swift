// guardian@.service under a real systemd, booted in a namespace (Tests/Systemd/boot). One boot leads
// the unit through its life and writes down what it saw; each test judges one part of it.
import Foundation
import Testing

/// What one boot wrote down.
struct UnitLife: Sendable {
  let folder: String

  /// Nil if a systemd can be booted here, else why not. Nothing of guardian takes part in this.
  static let obstacle: String? = {
    do {
      let folder = try Folder()
      let script = try folder.write("script", "exit 0\n")
      let output = try run(
        [Place.root + "/Tests/Systemd/boot", "--results", folder.path, "--timeout", "60", script],
        seconds: 90)
      return output.status == 0 ? nil : output.err + output.out + "(status \(output.status))"
    } catch {
      return "\(error)"
    }
  }()

  static let seen = Result { try UnitLife() }

  private init() throws {
    // Not removed: it is read by tests until the process ends; it lies in the build folder.
    folder = Place.root + "/.build/systemd-check"
    try? FileManager.default.removeItem(atPath: folder)
    try FileManager.default.createDirectory(
      atPath: folder + "/results", withIntermediateDirectories: true)
    let install = try run([
      "make", "-f", Place.root + "/Makefile", "install", "DESTDIR=\(folder)/stage", "PREFIX=/usr",
    ])
    guard install.status == 0 else { throw Failure("make install: \(install.err)\(install.out)") }
    let boot = try run(
      [
        Place.root + "/Tests/Systemd/boot", "--stage", folder + "/stage", "--results",
        folder + "/results", "--timeout", "300", Place.root + "/Tests/Systemd/unit-scenario",
        Place.fixture("systemd_service"), Place.fixture("lively"),
      ], seconds: 340)
    guard boot.status == 0 else {
      throw Failure(
        "the boot ended with \(boot.status): \(boot.err)\(text(folder + "/results/output"))")
    }
  }

  struct Step {
    let folder: String
    let systemd: [String: String]
    var status: String { systemd["StatusText"] ?? "" }
    func text(_ name: String) -> String { EndToEndTests.text(folder + "/" + name) }
    func has(_ name: String) -> Bool { access(folder + "/" + name, F_OK) == 0 }
  }

  /// The step, which must have come to its end.
  static func step(_ name: String) throws -> Step {
    let all = try seen.get().folder + "/results"
    let folder = all + "/" + name
    guard access(folder + "/done", F_OK) == 0 else {
      throw Failure(
        "step '\(name)' did not come to its end:\n" + text(all + "/output")
          + text(folder + "/unit") + text(all + "/journal/explained"))
    }
    var facts: [String: String] = [:]
    for line in text(folder + "/unit").split(separator: "\n") {
      let parts = line.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
      facts[String(parts[0])] = String(parts[1])
    }
    return Step(folder: folder, systemd: facts)
  }
}

@Suite(
  "The unit under a real systemd",
  .disabled(if: UnitLife.obstacle != nil, Comment(rawValue: UnitLife.obstacle ?? "")))
struct SystemdTests {
  @Test func `the unit is up when the program is ready, and its status names the life`() throws {
    let step = try UnitLife.step("started")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.status.contains("life 1"), "\(step.status)")
    #expect(!step.text("program").isEmpty)
  }

  @Test func `a crash inside is guardian's to answer: the unit and guardian stay as they were`()
    throws
  {
    let step = try UnitLife.step("crashed")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.systemd["NRestarts"] == "0")
    #expect(step.systemd["MainPID"].map { $0 + "\n" } == step.text("guardian"))
    #expect(step.status.contains("life 2"), "\(step.status)")
    #expect(step.status.contains("1"), "the status tells the count: \(step.status)")
  }

  @Test func `the crash inside left a report with the function that crashed`() throws {
    let step = try UnitLife.step("crashed")
    let report = try JSONDecoder().decode(Report.self, from: Data(step.text("report.json").utf8))
    #expect(report.kind == .crash)
    #expect(report.ending.signal?.name == "SIGSEGV")
    #expect(report.program.name == "live")
    let crashed = try #require(report.threads.first { $0.crashed })
    #expect(crashed.frames.first?.function == "lose_the_order", "\(report.capture)")
    #expect(report.policy?.failures == 1)
  }

  @Test func `a guardian that stands still is ended by systemd's watchdog and started again`()
    throws
  {
    let step = try UnitLife.step("hung")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.systemd["NRestarts"] == "1")
    let journal = try UnitLife.step("journal").text("explained")
    #expect(journal.contains("Watchdog timeout"))
  }

  @Test func `a killed guardian is started again and its count of failures goes on`() throws {
    let step = try UnitLife.step("killed")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.systemd["NRestarts"] == "2")
    let reports = try FileManager.default.contentsOfDirectory(atPath: step.folder)
      .filter { $0.hasSuffix(".report.json") }.sorted()
      .map { try JSONDecoder().decode(Report.self, from: Data(step.text($0).utf8)) }
      .filter { $0.kind == .crash && $0.program.role == .main }
    #expect(reports.last?.policy?.failures ?? 0 >= 2, "\(reports.map(\.policy))")
  }

  @Test func `a stop is in order, in time, and leaves nothing`() throws {
    let step = try UnitLife.step("stopped")
    #expect(step.systemd["ActiveState"] == "inactive")
    #expect(step.systemd["Result"] == "success")
    #expect(!step.has("survivor"))
    let milliseconds = Int(step.text("milliseconds").dropLast())
    #expect(milliseconds ?? .max < 20_000)
  }

  @Test func `an operator's start after a stop begins a new count`() throws {
    let step = try UnitLife.step("again")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.status.contains("life 1"), "\(step.status)")
  }

  @Test
  func `when guardian gives up the unit is down with the program's own status and stays down`()
    throws
  {
    let step = try UnitLife.step("doomed")
    #expect(step.systemd["ActiveState"] == "failed")
    #expect(step.systemd["Result"] == "exit-code")
    #expect(step.systemd["ExecMainStatus"] == "139")
    #expect(step.systemd["NRestarts"] == "0")
    #expect(
      step.status.hasPrefix("doomed gave up: SIGSEGV")
        && step.status.contains("4 failures within 10 min"), "\(step.status)")
    #expect(
      step.text("status.json").contains("systemctl start guardian@doomed.service"),
      "\(step.text("status.json"))\(step.text("status.error"))")
  }

  @Test func `the program's exit status is the unit's`() throws {
    let step = try UnitLife.step("seven")
    #expect(step.systemd["Result"] == "exit-code")
    #expect(step.systemd["ExecMainStatus"] == "7")
    #expect(step.systemd["NRestarts"] == "0")
  }

  @Test func `a drop-in beside the configuration goes over it`() throws {
    let step = try UnitLife.step("dropin")
    #expect(step.systemd["Result"] == "exit-code")
    #expect(step.systemd["ExecMainStatus"] == "9")
  }

  @Test
  func `a socket unit's connections are all answered, by one life after the other, across crashes`()
    throws
  {
    let step = try UnitLife.step("activated")
    #expect(step.text("before") == "inactive\n", "the first connection starts it")
    let answers = step.text("answers").split(separator: "\n")
    #expect(
      answers == ["life 1", "life 1", "life 2", "life 2", "life 3", "life 3", "life 4"],
      "\(answers) \(step.text("errors"))")
    #expect(step.systemd["NRestarts"] == "0")
    #expect(step.text("environment").contains("LISTEN_FDNAMES=counter\n"))
    #expect(step.text("environment").contains("LISTEN_PID=" + step.text("pid")))
  }

  @Test func `keeping the program is refused where systemd would end it with guardian`() throws {
    let step = try UnitLife.step("refused")
    #expect(step.systemd["ActiveState"] == "failed")
    #expect(step.systemd["ExecMainStatus"] == "78")
    #expect(step.text("said").contains("'guardian@refused.service' has KillMode=mixed"))
    #expect(step.text("said").contains("nothing was started"))
  }

  @Test func `with KillMode=process the next guardian takes the kept program over`() throws {
    let step = try UnitLife.step("kept")
    let before = step.text("before").filter(\.isNumber)
    #expect(!before.isEmpty)
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.systemd["NRestarts"] == "1")
    #expect(step.text("status.json").contains("\"pid\": \(before)"), "\(step.text("status.json"))")
    #expect(step.status.contains("life 1"), "\(step.status)")
    #expect(!step.has("survivor"))
  }

  @Test func `under the whole strict profile a report has the function that crashed`() throws {
    let step = try UnitLife.step("strict")
    let profile = step.text("strict.conf")
    for line in ["SystemCallFilter=", "CapabilityBoundingSet=", "ProtectSystem=strict"] {
      #expect(profile.contains("\n" + line), "\(profile)")
    }
    #expect(step.systemd["ExecMainStatus"] == "139")
    let report = try JSONDecoder().decode(Report.self, from: Data(step.text("report.json").utf8))
    let crashed = try #require(report.threads.first { $0.crashed })
    #expect(crashed.frames.first?.function == "lose_the_order", "\(report.capture)")
  }

  @Test func `a unit's own user reads its reports, and one that systemd makes up can run it`()
    throws
  {
    #expect(try UnitLife.step("user").text("shown").hasPrefix("SIGSEGV in lose_the_order at "))
    #expect(try UnitLife.step("dynamic").systemd["ActiveState"] == "active")
  }

  @Test func `what a stopped guardian of another user leaves is not listed`() throws {
    let listed = try UnitLife.step("dynamic").text("listed")
    #expect(!listed.contains("dynamic") && !listed.contains("unreachable"), "\(listed)")
    #expect(listed.contains("no guardian of this user runs"), "\(listed)")
  }

  @Test func `with User= alone set-user-ID programs work, and the program's folders are its own`()
    throws
  {
    let step = try UnitLife.step("rights")
    #expect(step.text("status") == "NoNewPrivs:\t0\n")
    let environment = step.text("environment").split(separator: "\n").sorted()
    #expect(environment.contains("STATE_DIRECTORY=/var/lib/own"), "\(environment)")
    #expect(environment.contains("RUNTIME_DIRECTORY=/run/own"), "\(environment)")
  }

  @Test func `a check knows what the unit will refuse`() throws {
    let step = try UnitLife.step("checked")
    let refused = step.text("refused")
    #expect(refused.contains("'guardian@refused.service' has KillMode=mixed"), "\(refused)")
    #expect(refused.hasSuffix("\n78\n"), "\(refused)")
    #expect(step.text("kept").hasSuffix("\n0\n"), "\(step.text("kept"))")
    #expect(!step.text("kept").contains("KillMode"), "\(step.text("kept"))")
  }

  @Test func `a reload reads the configuration, and the status forgets with the window`() throws {
    let step = try UnitLife.step("reloaded")
    #expect(step.text("counted").contains("failures: 1 of 10"), "\(step.text("counted"))")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.text("said").contains("stop-timeout"), "\(step.text("said"))")
  }

  @Test func `a unit that ends with its guardian is started again by its command`() throws {
    let again = try UnitLife.step("transient").text("again")
    #expect(again.hasPrefix("start-again /usr/bin/guardian --name tz "), "\(again)")
  }

  @Test func `what the program stored outlives a guardian that is killed`() throws {
    let step = try UnitLife.step("stored")
    #expect(step.text("got") == "1 orders order 4711\n")
    #expect(step.systemd["NRestarts"] == "1")
  }

  @Test func `the unit of a user's own manager starts, reloads and stops`() throws {
    let step = try UnitLife.step("personal")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.status.contains("api life 1"), "\(step.status)")
    #expect(step.text("status").contains("/home/tester/.local/state/guardian/api/reports"))
    #expect(step.text("result") == "success\n")
  }

  @Test func `a journal that was away costs the life that ran and no more`() throws {
    let step = try UnitLife.step("renewed")
    #expect(step.systemd["ActiveState"] == "active")
    #expect(step.systemd["NRestarts"] == "0")
    #expect(step.text("gap") == "/dev/null\n")
    #expect(step.status.contains("life 3") && step.status.contains("failures: 2"), "\(step.status)")
    #expect(step.text("said").contains("here is life 1\n"))
    #expect(step.text("said").contains("here is life 3\n"))
    #expect(step.text("said").contains("guardian: the journal is back: "))
  }

  @Test func `systemd finds nobody left to kill, and entries are found by their unit`() throws {
    let step = try UnitLife.step("journal")
    for unit in ["doomed", "seven", "dropin"] {
      #expect(
        !step.text("explained").contains(
          "guardian@\(unit).service: Killing process"), "\(unit)")
    }
    let entries = step.text("entries.json").split(separator: "\n").compactMap {
      try? JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]
    }
    let ended = entries.filter { $0["GUARDIAN_NAME"] as? String == "seven" }
    #expect(!ended.isEmpty)
    #expect(
      ended.allSatisfy { $0["OBJECT_SYSTEMD_UNIT"] as? String == "guardian@seven.service" })
    #expect(ended.allSatisfy { $0["CODE_LINE"] == nil })
  }

  @Test func `a stop may take as long as the program's configuration says`() throws {
    let step = try UnitLife.step("slow")
    // systemd would have killed guardian after a second, without a report.
    #expect(step.systemd["Result"] == "exit-code")
    #expect(step.systemd["ExecMainStatus"] == "137")
  }

  @Test func `each ending is one structured entry in the journal that the catalog explains`() throws
  {
    let step = try UnitLife.step("journal")
    let entries = step.text("entries.json").split(separator: "\n").compactMap {
      try? JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any]
    }
    // guardian's own entries are those that carry its fields.
    let endings = entries.filter { $0["GUARDIAN_NAME"] != nil && $0["MESSAGE_ID"] != nil }
    let live = endings.filter { $0["GUARDIAN_NAME"] as? String == "live" }
    let doomed = endings.filter { $0["GUARDIAN_NAME"] as? String == "doomed" }
    #expect(live.count >= 2, "\(live)")
    #expect(doomed.count >= 4, "four lives of doomed ended: \(doomed)")
    // Under the unit's own identifier, and each once: not on standard error as well.
    #expect(doomed.allSatisfy { $0["SYSLOG_IDENTIFIER"] as? String == "doomed" })
    let told = entries.compactMap { $0["MESSAGE"] as? String }.filter {
      $0.contains("doomed (life 1,") && $0.contains("died of SIGSEGV")
    }
    #expect(told.count == 1, "\(told)")
    #expect(Set(live.compactMap { $0["MESSAGE_ID"] as? String }).allSatisfy { $0.count == 32 })
    #expect(step.text("explained").contains("Subject: live ended and is started again"))
    #expect(step.text("explained").contains("Subject: guardian gave up on doomed"))
  }
}

@Suite("The unit files")
struct UnitFileTests {
  @Test(.enabled(if: Place.tool("systemd-analyze") != nil, "no systemd-analyze here"))
  func `systemd finds nothing to say about the installed unit`() throws {
    let stage = try Folder()
    let install = try run([
      "make", "-f", Place.root + "/Makefile", "install", "DESTDIR=\(stage.path)", "PREFIX=/usr",
    ])
    #expect(install.status == 0, "\(install.err)")
    // The unit names programs where they will be; here they are where they were staged.
    let unit = text(stage.path + "/usr/lib/systemd/system/guardian@.service")
    #expect(unit.contains("ExecStart=/usr/bin/guardian "))
    let staged = unit.replacingOccurrences(of: "=/usr/bin/", with: "=\(stage.path)/usr/bin/")
    let file = try stage.write("guardian@.service", staged)
    let strict = text(Place.root + "/Units/guardian@.service.d-strict.conf")
      .replacingOccurrences(of: "\n#", with: "\n")
      .split(separator: "\n").filter {
        $0.contains("=") && $0.first?.isUppercase == true && !$0.contains(" = ")
      }
      .joined(separator: "\n")
    try FileManager.default.createDirectory(
      atPath: stage.path + "/guardian@.service.d", withIntermediateDirectories: true)
    for (what, dropIn) in [("plain", ""), ("strict", "[Service]\n\(strict)\n")] {
      _ = try stage.write("guardian@.service.d/strict.conf", dropIn)
      let verify = try run(["systemd-analyze", "verify", "--man=no", file])
      #expect(verify.status == 0, "\(what): \(verify.err)\(verify.out)")
      // Other units of this machine may have their own troubles; ours has none.
      #expect(!verify.err.contains("guardian@"), "\(what): \(verify.err)")
    }
  }

  @Test(arguments: ["guardian@.service", "user/guardian@.service"])
  func `every line of the unit has its reason above it`(unit: String) {
    var explained = false
    for line in text(Place.root + "/Units/" + unit).split(
      separator: "\n", omittingEmptySubsequences: false)
    {
      if line.hasPrefix("#") {
        explained = true
      } else if line.isEmpty || line.hasPrefix("[") {
        explained = line.hasPrefix("[Unit]") || line.hasPrefix("[Install]")
      } else {
        #expect(explained, "no reason for: \(line)")
      }
    }
  }
}
