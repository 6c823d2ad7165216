// The state file: what outlives guardian. A text of one fact a line, replaced in one step; on a full
// disk written over in its place, for which it has room to spare. It is read as hostile: whatever is
// not exactly as written here makes it no state at all, which costs a count and nothing else.
import Glibc
import Kernel
import Policy

package enum StateFile {
  static let name = "state"
  private static let head = "guardian.state/1"

  /// A life whose ending nobody wrote down yet.
  package struct Unfinished: Hashable, Sendable {
    package let life: Life
    package let pid: Int32
    /// Nanoseconds since the epoch.
    package let startedWall: Int64
    /// What was run; empty: not known.
    package let command: [String]
    package init(life: Life, pid: Int32, startedWall: Int64, command: [String] = []) {
      self.life = life
      self.pid = pid
      self.startedWall = startedWall
      self.command = command
    }
  }

  package struct Contents: Hashable, Sendable {
    package var history: CrashHistory
    package var running: Unfinished?
    /// The program was stopped by hand, and guardian died after that.
    package var diedWhileStopped = false
    package init(history: CrashHistory, running: Unfinished? = nil) {
      self.history = history
      self.running = running
    }
  }

  package static func encode(
    _ history: CrashHistory, running: Unfinished? = nil,
    farewell: [(key: String, value: String)] = []
  ) -> [UInt8] {
    var text = head + "\n"
    func line(_ key: String, _ value: String) {
      // One fact a line, whatever the fact holds.
      text += key + " "
      text += String(value.unicodeScalars.map { $0 == "\n" ? " " : Character($0) }) + "\n"
    }
    line("boot", history.bootID)
    line("binary", history.identity.binary)
    line("command", history.identity.command)
    line("configuration", history.identity.configuration)
    line("departure", history.departure.rawValue)
    line("last-life", String(history.lastLife.rawValue))
    line("row", String(history.row))
    if let signature = history.lastSignature {
      line("signature", String(signature.rawValue, radix: 16))
    }
    line("identical", String(history.identical))
    line("exec-failed", history.lastExecFailed ? "yes" : "no")
    if let running {
      line("running", "\(running.life.rawValue) \(running.pid) \(running.startedWall)")
      let words = running.command.map(escaped).joined(separator: " ")
      if !words.isEmpty, words.utf8.count <= commandBytes { line("running-command", words) }
    }
    for failure in history.failures {
      let (seconds, attoseconds) = failure.at.components
      line(
        "failure",
        "\(seconds) \(attoseconds / 1_000_000_000) \(failure.life.rawValue) \(failure.words)")
    }
    for fact in farewell { line(fact.key, fact.value) }
    return SealedText.seal(text)
  }

  /// The file is as many of these, and some bytes are left for what the next one may have more of.
  private static let blockBytes = 4096
  private static let spareBytes = 2048

  /// Where the disk is full, what fits into the file that is there: all of it, or the counts without
  /// the words.
  package static func save(
    _ history: CrashHistory, running: Unfinished? = nil,
    farewell: [(key: String, value: String)] = [], to path: String
  ) throws(SystemError) {
    func padded(_ bytes: [UInt8], _ size: Int) -> [UInt8] {
      bytes + [UInt8](repeating: 10, count: size - bytes.count)
    }
    let bytes = encode(history, running: running, farewell: farewell)
    let size = (bytes.count + spareBytes + blockBytes - 1) / blockBytes * blockBytes
    do { try Files.replace(path, with: padded(bytes, size)) } catch {
      guard [ENOSPC, EDQUOT].contains(error.errno),
        let there = (try? Files.status(path, follow: false))?.size
      else { throw error }
      var short = history
      for index in short.failures.indices { short.failures[index].words = "?" }
      let rest = running.map {
        Unfinished(life: $0.life, pid: $0.pid, startedWall: $0.startedWall)
      }
      for bytes in [bytes, encode(short, running: rest)] where bytes.count <= there {
        return try Files.overwrite(path, with: padded(bytes, Int(there)))
      }
      throw error
    }
  }

  /// A longer one is not kept for a report: the file is written with every life.
  private static let commandBytes = 8192

  /// One word: what would end it or the line stands as %XX, as in a URL.
  private static func escaped(_ text: String) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      if scalar.value > 0x20, scalar != "%", scalar.value != 0x7f {
        result.unicodeScalars.append(scalar)
      } else {
        result += (scalar.value < 16 ? "%0" : "%") + String(scalar.value, radix: 16)
      }
    }
    return result
  }

  private static func unescaped(_ text: Substring) -> String {
    var result: [UInt8] = []
    var rest = text.utf8[...]
    while let byte = rest.popFirst() {
      if byte == UInt8(ascii: "%"), let value = UInt8(text[rest.startIndex...].prefix(2), radix: 16)
      {
        result.append(value)
        rest = rest.dropFirst(2)
      } else {
        result.append(byte)
      }
    }
    return String(decoding: result, as: UTF8.self)
  }

  /// nil: not a state file, or a damaged one.
  package static func decode(_ bytes: [UInt8]) -> Contents? {
    guard bytes.count < Limit.stateBytes, let text = SealedText.open(bytes) else { return nil }
    var lines = text.split(separator: "\n", omittingEmptySubsequences: false)[...]
    guard lines.popFirst() == head[...], lines.popLast() == "" else { return nil }
    var facts: [Substring: Substring] = [:]
    var failures: [CrashHistory.Failure] = []
    for line in lines {
      guard let space = line.firstIndex(of: " ") else { return nil }
      let value = line[line.index(after: space)...]
      if line[..<space] != "failure" {
        if facts.updateValue(value, forKey: line[..<space]) != nil { return nil }
        continue
      }
      let words = value.split(separator: " ", maxSplits: 3)
      guard words.count == 4, let seconds = Int64(words[0]), (0..<1 << 40).contains(seconds),
        let nanoseconds = Int64(words[1]), (0..<1_000_000_000).contains(nanoseconds),
        let life = UInt32(words[2]), failures.count <= CrashHistory.maxCrashesLimit
      else { return nil }
      failures.append(
        CrashHistory.Failure(
          at: .seconds(seconds) + .nanoseconds(nanoseconds), life: Life(rawValue: life),
          words: Printable.text(words[3].utf8)))
    }
    guard let boot = facts["boot"], let binary = facts["binary"], let command = facts["command"],
      let configuration = facts["configuration"],
      let departure = facts["departure"].flatMap({
        CrashHistory.Departure(rawValue: String($0))
      }),
      let lastLife = facts["last-life"].flatMap({ UInt32($0) }),
      let row = facts["row"].flatMap({ Int($0) }), (0...1_000_000_000).contains(row),
      let identical = facts["identical"].flatMap({ Int($0) }),
      (0...1_000_000_000).contains(identical), let execFailed = facts["exec-failed"]
    else { return nil }
    var history = CrashHistory(
      bootID: String(boot),
      identity: CrashHistory.Identity(
        binary: String(binary), command: String(command), configuration: String(configuration)))
    history.departure = departure
    history.lastLife = Life(rawValue: lastLife)
    history.row = row
    history.identical = identical
    history.lastExecFailed = execFailed == "yes"
    if let signature = facts["signature"] {
      guard let value = UInt64(signature, radix: 16) else { return nil }
      history.lastSignature = CrashSignature(rawValue: value)
    }
    history.failures = failures
    var running: Unfinished?
    if let text = facts["running"] {
      let words = text.split(separator: " ", omittingEmptySubsequences: false)
      guard words.count == 3, let life = UInt32(words[0]), let pid = Int32(words[1]), pid > 0,
        let wall = Int64(words[2]), wall >= 0
      else { return nil }
      running = Unfinished(
        life: Life(rawValue: life), pid: pid, startedWall: wall,
        command: facts["running-command"].map {
          $0.split(separator: " ", omittingEmptySubsequences: false).map(unescaped)
        } ?? [])
    }
    var contents = Contents(history: history, running: running)
    // Who leaves in order says with what.
    contents.diedWhileStopped = history.departure == .stopped && facts["left-with"] == nil
    return contents
  }
}

/// FNV-1a: the same on every machine and in every run, which Swift's own hash is not. For names
/// of things, not against an enemy.
struct StableHash {
  private(set) var value: UInt64 = 0xcbf2_9ce4_8422_2325
  mutating func add(_ bytes: some Sequence<UInt8>) {
    for byte in bytes { value = (value ^ UInt64(byte)) &* 0x100_0000_01b3 }
    // An end mark, so that "ab","c" is not "a","bc".
    value = (value ^ 0xff) &* 0x100_0000_01b3
  }
  mutating func add(_ number: some FixedWidthInteger) {
    add(String(number).utf8)
  }
  var text: String { String(value, radix: 16) }
}
