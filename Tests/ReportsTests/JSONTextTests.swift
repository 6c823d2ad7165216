import Reports
import Testing

@Suite struct JSONTextTests {
  private struct Inner: Codable { var b = 1, a = "x" }
  private struct Sample: Codable {
    var zulu = "last in the alphabet, first in the type"
    var large = UInt64.max
    var small = Int64.min
    var half = 0.5
    var whole = 3.0
    var tiny = 1e-300
    var huge = 1.7976931348623157e308
    var yes = true
    var missing: String?
    var list: [Int] = []
    var inner = [Inner()]
    var map = ["b": "2", "a": "1", "é\u{1b}": "3"]
    var empty: [String: String] = [:]
    enum Word: String, Codable { case execFailed = "exec-failed" }
    var word = Word.execFailed
  }

  @Test func `keys keep the order of the type and dictionaries are sorted`() throws {
    let text = String(decoding: try JSONText.encode(Sample(), layout: .compact), as: UTF8.self)
    #expect(
      text == """
        {"zulu":"last in the alphabet, first in the type","large":18446744073709551615,\
        "small":-9223372036854775808,"half":0.5,"whole":3,"tiny":1e-300,\
        "huge":1.7976931348623157e+308,"yes":true,"list":[],"inner":[{"b":1,"a":"x"}],\
        "map":{"a":"1","b":"2","é\\u001b":"3"},"empty":{},"word":"exec-failed"}
        """)
  }

  @Test func `an unknown value is left out and an empty list is not`() throws {
    let text = String(decoding: try JSONText.encode(Sample()), as: UTF8.self)
    #expect(!text.contains("missing"))
    #expect(text.contains("\n  \"list\": [],\n"))
  }

  @Test func `python reads back every string that Unicode has`() throws {
    var strings = (0..<0x300).compactMap { Unicode.Scalar($0).map { String($0) } }
    strings += ["\u{2028}\u{2029}", "\u{202e}evil", "\u{1f4a5}", "\u{e0001}", "\"\\/", "\u{fffd}"]
    let json = try JSONText.encode(strings)
    #expect(json.allSatisfy { $0 == 10 || $0 >= 0x20 && $0 != 0x7f })
    let scalars = try python(
      "import json,sys; print(' '.join('.'.join(str(ord(c)) for c in s) for s in json.load(sys.stdin)))",
      json)
    let expected = strings.map { text in
      text.unicodeScalars.map { String($0.value) }.joined(separator: ".")
    }
    #expect(scalars == expected.joined(separator: " ") + "\n")
  }

  @Test func `python reads numbers exactly`() throws {
    let numbers = [0.1, 1e22, 123456789.125, -0.0, 2.3e-308, 1e100, 2.5e-7]
    let text = try python(
      "import json,sys; print([float(x) for x in json.load(sys.stdin)])",
      try JSONText.encode(numbers, layout: .compact))
    #expect(
      text == "[0.1, 1e+22, 123456789.125, -0.0, 2.3e-308, 1e+100, 2.5e-07]\n")
  }

  @Test(arguments: [Double.nan, .infinity, -.infinity])
  func `a number that is not finite is an error that names its key`(number: Double) {
    struct Holder: Encodable { var value: [String: Double] }
    #expect(throws: JSONTextError.notFinite(key: "value.rate")) {
      try JSONText.encode(Holder(value: ["rate": number]))
    }
  }

  @Test func `a report reads in python with all its keys`() throws {
    let keys = try python(
      "import json,sys; r=json.load(sys.stdin); print(' '.join(r)); print(r['threads'][0]['frames'][0]['line'])",
      try JSONText.encode(Samples.report()))
    #expect(
      keys == """
        schema id time kind program ending exception threads modules breadcrumbs annotations \
        stderrTail host process fingerprint capture attachments
        42

        """)
  }

  @Test func `a report that is too large loses list entries and says so`() throws {
    var report = Samples.report()
    report.breadcrumbs = (0..<1000).map {
      Breadcrumb(
        time: report.time, level: "info", category: "c",
        message: String(repeating: "\u{1}", count: 192), pid: 1, thread: Int32($0))
    }
    report.stderrTail = (0..<2000).map {
      StderrLine(time: report.time, text: "\($0)" + String(repeating: "\u{1b}", count: 4000))
    }
    let json = try report.boundedJSON(limit: 1 << 20)
    #expect(json.count <= 1 << 20)
    #expect(report.capture.defects.contains { $0.hasPrefix("stderr: the oldest") })
    #expect(report.stderrTail.last?.text.hasPrefix("1999") == true)
    #expect(report.threads.first?.crashed == true)
  }
}
