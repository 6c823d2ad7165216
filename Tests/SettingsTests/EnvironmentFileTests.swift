// Files of variables: what is read, and that everything unclear is an error with its place.
import Settings
import Testing

@Suite struct `an environment file` {
  /// "A=1 B=two", or the place and text of the error.
  private func read(_ text: String) -> String { read(Array(text.utf8)) }

  private func read(_ bytes: [UInt8]) -> String {
    let folder = Folder()
    let path = folder.file("e", bytes)
    do {
      return try configuration(["--env-file", path]).fileEnvironment.map {
        $0.name + "=" + String(decoding: $0.value, as: UTF8.self)
      }.joined(separator: "|")
    } catch {
      return error.description.replacing("guardian: " + path, with: "")
        .replacing("; nothing was started", with: "")
    }
  }

  @Test(arguments: [
    ("", ""),
    ("A=1", "A=1"),
    ("A=1\nB=2\n", "A=1|B=2"),
    ("A=1\r\nB=2\r\n", "A=1|B=2"),
    ("\u{FEFF}A=1\n", "A=1"),
    ("# A=1\n;B=2\n   # C=3\n\n \n\tD=4", "D=4"),
    ("A= a b \t\n", "A=a b"),
    ("A=\nB=", "A=|B="),
    ("A=a#b ;c", "A=a#b ;c"),
    ("A=a'b\"c", "A=a'b\"c"),
    ("A='a \"b\" \\n $c'  ", "A=a \"b\" \\n $c"),
    ("A=\"a 'b' \\\" \\$ \\` \\\\ \\n\"", "A=a 'b' \" $ ` \\ \\n"),
    ("A=\"a\\\nb\"\nB='c\nd'", "A=ab|B=c\nd"),
    ("A=a\\\nb\\ \\c\nB=2", "A=ab c|B=2"),
    ("A=trailing\\ \n", "A=trailing "),
    ("A=1\nA=2", "A=2"),
    ("A=x=y", "A=x=y"),
    ("A=\\", "A="),
  ])
  func `is read`(text: String, result: String) { #expect(read(text) == result) }

  @Test func `may hold what is not UTF-8`() throws {
    let folder = Folder()
    let path = folder.file("e", [65, 61, 0xff, 0xfe, 10])
    #expect(try configuration(["--env-file", path]).fileEnvironment.first?.value == [0xff, 0xfe])
  }

  @Test(arguments: [
    ("A", ":1:1: this line is not NAME=VALUE: it has no '='"),
    ("A=1\n\n  secret\nB=2", ":3:3: this line is not NAME=VALUE: it has no '='"),
    ("=1", ":1:1: there is no name before the '='"),
    ("1A=1", ":1:1: a variable's name has letters, digits and _ only, and no blank before its '='"),
    (
      "export A=1",
      ":1:1: 'export' is a shell's: leave it out, every variable here is the program's"
    ),
    ("A =1", ":1:2: a variable's name has letters, digits and _ only, and no blank before its '='"),
    ("A=1\nB='x", ":2:3: the value of 'B' has no closing quote"),
    ("A=\"x\\\"", ":1:3: the value of 'A' has no closing quote"),
    ("A='x'y", ":1:6: after the closing quote of 'A' nothing may follow"),
    ("A='x' # y", ":1:7: after the closing quote of 'A' nothing may follow"),
    ("A=x\0y", ":1:4: the value of 'A' holds a NUL byte"),
  ])
  func `that is wrong says where and what`(text: String, error: String) {
    #expect(read(text) == error)
  }

  @Test func `cut off anywhere or of nonsense never fails otherwise`() {
    let whole = Array("A='x\ny' \nB=\"a\\\"b\"\r\n# c\nC=\\\nd\n".utf8)
    for length in 0...whole.count { _ = read(Array(whole[..<length])) }
    var seed: UInt64 = 88_172_645_463_325_252
    for _ in 0..<500 {
      var bytes = whole
      for _ in 0..<4 {
        seed ^= seed << 13
        seed ^= seed >> 7
        seed ^= seed << 17
        let choice = Array("=\"'\\\n\r #;\0A".utf8)
        bytes[Int(seed % UInt64(bytes.count))] = choice[Int(seed >> 32 % 64) % choice.count]
      }
      _ = read(bytes)
    }
  }

  @Test func `that is missing is an error, unless it may be`() throws {
    #expect(
      failure(["--env-file", "/nonexistent/e"])?.line
        == "guardian: /nonexistent/e: cannot read the environment file: No such file or directory; "
        + "nothing was started")
    #expect(failure(["--env-file", "/nonexistent/e"])?.status == 78)
    #expect(try configuration(["--env-file", "-/nonexistent/e"]).fileEnvironment.isEmpty)
  }
}
