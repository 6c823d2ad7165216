// guardian in places that are not as a developer's machine: old kernels, strict sandboxes, binaries
// replaced under a running program, a whole crowd of crashing workers.
import Foundation
import Testing

@Suite("Unkind places")
struct PlaceTests {
  @Test(arguments: ["5.10", "sandbox"])
  func `without newer system calls all is reported and restarted as with them`(_ kernel: String)
    throws
  {
    let count = 2
    let guardian = try Supervised(
      name: "old", launcher: [Place.fixture("old_kernel"), kernel],
      options: ["--max-crashes", "\(count)", "--restart-delay", "1ms"],
      command: [Place.fixture("e2e_c")])
    #expect(try guardian.end() == 128 + 11)
    let reports = try guardian.reports()
    #expect(reports.count == count + 1, "\(guardian.log)")
    for (report, _) in reports {
      #expect(report.capture.threads == .all, "\(report.capture)")
      #expect(report.threads.count == 10)
      #expect(report.threads.first?.frames.first?.function == "store_price")
      #expect(report.threads.first?.name == "worker-2")
      #expect(report.threads.allSatisfy { !$0.frames.isEmpty })
    }
  }

  @Test func `a binary replaced while it runs is reported as the one that ran`() throws {
    let folder = try Folder()
    let server = folder.path + "/server"
    try FileManager.default.copyItem(atPath: Place.fixture("systemd_service"), toPath: server)
    let guardian = try Supervised(name: "replaced", command: [server])
    try wait(for: "the server") { guardian.log.contains("the service is up") }
    let program = try #require(guardian.program)
    // As a package manager does it: another file takes the name.
    let next = try #require(Place.tool("true"))
    try FileManager.default.copyItem(atPath: next, toPath: server + ".new")
    #expect(rename(server + ".new", server) == 0)
    kill(program.pid, SIGUSR1)
    #expect(try guardian.end() == 0, "the new binary's life ends cleanly")
    let (report, _) = try guardian.report("the crash", seconds: 5)
    let top = try #require(report.threads.first { $0.crashed }?.frames.first)
    #expect(top.function == "lose_the_order", "\(report.capture)")
    #expect(top.file?.hasSuffix("systemd_service.c") == true)
  }

  @Test(.enabled(if: getuid() == 0, "only root may mount"))
  func `on a nearly full disk the report is there, with or without its snapshot`() throws {
    let guardian = try Supervised(
      name: "full",
      launcher: [
        "/bin/sh", "-c",
        "mkdir -p state && mount -t tmpfs -o size=300k,mode=0700 none state && exec \"$@\"", "sh",
      ],
      options: ["--max-crashes", "2", "--restart-delay", "1ms"], command: [Place.fixture("e2e_c")])
    defer { _ = try? run(["umount", "--lazy", guardian.folder.path + "/state"]) }
    #expect(try guardian.end() == 128 + 11)
    let reports = try guardian.reports()
    #expect(!reports.isEmpty, "\(guardian.log)")
    for (report, _) in reports { #expect(report.ending.signal?.name == "SIGSEGV") }
    let partial = guardian.folder.path + "/state/reports/partial"
    #expect(try FileManager.default.contentsOfDirectory(atPath: partial) == [])
    #expect(!guardian.log.contains("DecodingError"), "\(guardian.log)")
    // The last message names a report that is there, or none.
    let last = guardian.log.split(separator: "\n").last { $0.contains("; report ") }
    if let id = last?.split(separator: " ").last {
      #expect(reports.contains { $0.folder.hasSuffix(id) }, "\(guardian.log)")
    }
  }

  @Test func `every crash of a row has a whole report, also where the next life comes at once`()
    throws
  {
    let guardian = try Supervised(
      name: "row",
      options: ["--max-crashes", "11", "--stable-after", "1ms", "--report-timeout", "infinity"],
      command: [Place.fixture("e2e_c")])
    #expect(try guardian.end() == 128 + 11)
    let reports = try guardian.reports().map(\.report)
    #expect(reports.count == 12)
    for report in reports {
      #expect(
        report.threads.first?.frames.first?.function == "store_price",
        "life \(report.program.life): \(report.capture)")
    }
    #expect(!guardian.log.contains("guardian-reporter"), "\(guardian.log)")
  }

  @Test func `of a crowd of workers that crash at once each has a report, and the server lives`()
    throws
  {
    let count = 16
    let guardian = try Supervised(
      name: "crowd", command: [Place.fixture("crowd"), "\(count)"])
    try wait(for: "the workers") { guardian.log.contains("\(count) workers wait") }
    let program = try #require(guardian.program)
    kill(program.pid, SIGUSR1)
    try wait(for: "the workers' deaths: \(guardian.log)") {
      guardian.log.contains("\(count) workers died of SIGSEGV")
    }
    try wait(for: "\(count) reports", seconds: 120) { try guardian.reports().count >= count }
    let reports = try guardian.reports().map(\.report)
    #expect(reports.count == count)
    #expect(Set(reports.map(\.program.pid)).count == count)
    for report in reports {
      #expect(report.program.role == .descendant)
      #expect(report.ending.signal?.name == "SIGSEGV")
      if report.capture.threads == .all {
        #expect(report.threads.first?.frames.first?.function == "spoil_the_crop")
      } else {
        // It was held as long as a dying program may be, and its turn had not come.
        #expect(!report.capture.defects.isEmpty)
      }
    }
    #expect(reports.contains { $0.capture.threads == .all })
    #expect(guardian.program?.pid == program.pid)
    #expect(try guardian.stop() == 128 + 15)
  }
}
