import Testing

@Suite("How many reports are kept")
struct RetentionTests {
  @Test func `--reports-keep 2 leaves the first and the last of a row of the same crash`() throws {
    let guardian = try Supervised(
      name: "kept",
      options: ["--reports-keep", "2", "--max-crashes", "4", "--restart-delay", "1ms"],
      command: [Place.fixture("systemd_service"), "crash"])
    #expect(try guardian.end() == 128 + 11)
    #expect(try guardian.reports().map(\.report.program.life) == [1, 5])
  }
}
