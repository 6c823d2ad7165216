// Virtual dispositions: what the program set is what it sees, and nothing else.
import Glibc
import Testing

@Suite struct `virtual dispositions` {
  @Test func `show the program only what it set itself, in every spelling`() throws {
    let outcome = try MiniGuardian().run(Places.fixture("handler_dispositions"))
    #expect(outcome.output == "")
    #expect(outcome.exitCode == 0)
    #expect(outcome.bells.isEmpty)
    #expect(outcome.ring.handlerRuns == 0)
  }

  @Test func `are what the kernel itself would show`() throws {
    var without = MiniGuardian()
    without.preload = false
    let outcome = try without.run(Places.fixture("handler_dispositions"))
    #expect(outcome.output == "")
    #expect(outcome.exitCode == 0)
  }

  @Test func `leave a signal ignored that was ignored at the start`() throws {
    var guardian = MiniGuardian()
    let outcome = try guardian.run(
      "/bin/sh", "-c",
      "trap '' PIPE QUIT; exec \(Places.fixture("handler_dispositions")) expect-handler")
    #expect(outcome.output == "")
    #expect(outcome.exitCode == 0)
    guardian.preload = false
    let without = try guardian.run(
      "/bin/sh", "-c",
      "trap '' PIPE QUIT; exec \(Places.fixture("handler_dispositions")) ignored")
    #expect(without.output == "")
    #expect(without.exitCode == 0)
  }

  @Test func `pass everything through without a channel`() throws {
    var guardian = MiniGuardian()
    guardian.channel = false
    let outcome = try guardian.run(Places.fixture("handler_dispositions"))
    #expect(outcome.output == "")
    #expect(outcome.exitCode == 0)
    #expect(outcome.ring.handlerFlags == 0)
  }

  @Test func `tell guardian which signals the program handles itself`() throws {
    let handled = try MiniGuardian().run(Places.dies, "handler-lives-on")
    #expect(handled.ring.replacedSignals == 1 << 10)
    let back = try MiniGuardian().run(Places.dies, "handler-then-default")
    #expect(back.ring.replacedSignals == 0)
    let ignored = try MiniGuardian().run(Places.dies, "ignored-lives-on")
    #expect(ignored.ring.replacedSignals == 0)
  }
}

@Suite struct `a channel that is not as it must be` {
  /// Nothing of the handler is in place: the same end, no record, no bell.
  private func expectInert(_ change: @escaping (_ folder: String) throws -> Void) throws {
    var guardian = MiniGuardian()
    guardian.prepare = change
    let outcome = try guardian.run(Places.dies, "--thread", "stack-overflow")
    #expect(outcome.signal == SIGSEGV)
    #expect(outcome.bells.isEmpty)
    #expect(outcome.ring.handlerFlags == 0)
    #expect(outcome.ring.records.count == 0)
  }
  private func overwrite(_ offset: Int, _ bytes: [UInt8]) -> (_ folder: String) throws -> Void {
    { folder in
      let fd = open(folder + "/ring", O_RDWR | O_CLOEXEC)
      defer { close(fd) }
      guard pwrite(fd, bytes, bytes.count, off_t(offset)) == bytes.count else {
        throw Failure("overwrite")
      }
    }
  }

  @Test func `by its magic number leaves the handler inert`() throws {
    try expectInert(overwrite(0, [0]))
  }
  @Test func `by its version leaves the handler inert`() throws {
    try expectInert(overwrite(8, [3, 0, 0, 0]))
  }
  @Test func `by its stated size leaves the handler inert`() throws {
    try expectInert(overwrite(12, [0, 0, 0, 1]))
  }

  @Test func `because it is missing leaves the handler inert`() throws {
    var guardian = MiniGuardian()
    guardian.environment["GUARDIAN_CHANNEL"] = "/nonexistent/channel"
    guardian.channel = false
    let outcome = try guardian.run(Places.dies, "abort")
    #expect(outcome.signal == SIGABRT)
    #expect(outcome.output == "")
  }

  @Test func `because only the bell is missing still leaves a record`() throws {
    var guardian = MiniGuardian()
    guardian.prepare = { unlink($0 + "/bell") }
    let outcome = try guardian.run(Places.dies, "abort")
    #expect(outcome.signal == SIGABRT)
    #expect(outcome.ring.records.map(\.state) == [2])
    #expect(outcome.ring.handlerFlags & 0b111 == 0b011)
  }
}
