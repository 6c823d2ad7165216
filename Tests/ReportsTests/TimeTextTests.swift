import Reports
import Testing

@Suite struct TimeTextTests {
  @Test(arguments: [
    (0, 0, "1970-01-01T00:00:00.000000Z"),
    (951_782_400, 1_999, "2000-02-29T00:00:00.000001Z"),
    (-1, 999_999_999, "1969-12-31T23:59:59.999999Z"),
    (1_796_021_404, 123_456_789, "2026-11-30T06:50:04.123456Z"),
    (253_402_300_799, 0, "9999-12-31T23:59:59.000000Z"),
    (Int64.max, 0, "9999-12-31T23:59:59.000000Z"),
    (Int64.min, 0, "0000-01-01T00:00:00.000000Z"),
  ])
  func `a time is written as RFC 3339 asks`(seconds: Int64, nanoseconds: Int32, text: String) {
    #expect(
      TimeText.rfc3339(WallTime(seconds: seconds, nanoseconds: nanoseconds)) == text)
  }

  @Test func `python agrees on the date of every thousandth hour in two centuries`() throws {
    let times = stride(from: Int64(-3_155_673_600), to: 4_102_444_800, by: 3_600_000).map { $0 }
    let ours = times.map { TimeText.rfc3339(WallTime(seconds: $0, nanoseconds: 0)) }
    let theirs = try python(
      """
      import sys,datetime
      e=datetime.datetime(1970,1,1)
      for s in sys.stdin.read().split():
        print((e+datetime.timedelta(seconds=int(s))).isoformat()+'.000000Z')
      """, Array(times.map(String.init).joined(separator: " ").utf8))
    #expect(theirs == ours.joined(separator: "\n") + "\n")
  }

  @Test(arguments: [
    (0.0, "0 ms"), (0.85, "850 ms"), (12, "12 s"), (185, "3 min 5 s"), (7200, "2 h"),
    (371_000, "4 d 7 h"), (.nan, "?"), (-1, "?"),
  ])
  func `a duration is said in two units at most`(seconds: Double, text: String) {
    #expect(TimeText.duration(seconds: seconds) == text)
  }

  @Test func `names of reports are UUIDs of version 7 that sort by time`() throws {
    let time = WallTime(seconds: 1_796_021_404, nanoseconds: 123_000_000)
    let id = ReportID.make(at: time)
    let version = try python(
      "import sys,uuid; u=uuid.UUID(sys.stdin.read()); print(u.version, u.variant, u.int>>80)",
      Array(id.text.utf8))
    #expect(version == "7 specified in RFC 4122 1796021404123\n")
    #expect(id.milliseconds == 1_796_021_404_123)
    #expect(ReportID(id.text) == id)
    #expect(ReportID.make(at: time) != id)
    #expect(id < ReportID.make(at: WallTime(seconds: 1_796_021_405, nanoseconds: 0)))
  }

  @Test(arguments: [
    "", "..", "0198c0de-0001-7abc-8def-0123456789a", "0198C0DE-0001-7abc-8def-0123456789ab",
    "0198c0de-0001-4abc-8def-0123456789ab", "0198c0de-0001-7abc-8def-0123456789a/",
  ])
  func `nothing else may name a folder`(text: String) {
    #expect(ReportID(text) == nil)
  }
}
