// How often each fault was seen: `reports/groups`, a small text that outlives the reports it
// counts. Pure: bytes ⇄ value. It is a memory of what was deleted; what still lies in the
// folders is counted from there, so a lost or torn index loses only what is gone anyway.

package struct GroupIndex: Hashable, Sendable {
  package struct Entry: Hashable, Sendable {
    package var fingerprint: String
    /// Of the ending, RFC 3339.
    package var time: String
    package init(fingerprint: String, time: String) {
      self.fingerprint = fingerprint
      self.time = time
    }
  }
  package struct Removed: Hashable, Sendable {
    package var count: Int
    package var firstSeen: String
    package var lastSeen: String
  }

  /// Reports that are there.
  package private(set) var entries: [ReportID: Entry] = [:]
  /// By fingerprint, reports that are gone.
  package private(set) var removed: [String: Removed] = [:]
  /// The bytes were not all ours.
  package private(set) var wasDamaged = false

  package init() {}

  package mutating func add(_ id: ReportID, _ entry: Entry) { entries[id] = entry }

  /// The report is no longer there: it stays counted.
  package mutating func remove(_ id: ReportID) {
    guard let entry = entries.removeValue(forKey: id) else { return }
    forget(entry.fingerprint, count: 1, first: entry.time, last: entry.time)
  }

  /// At least `group.count` reports of this fault were seen: what a stored report says of its
  /// group, when the index was lost.
  package mutating func recall(_ fingerprint: String, _ group: Group) {
    let known = self.group(fingerprint)?.count ?? 0
    forget(
      fingerprint, count: max(0, group.count - known), first: group.firstSeen,
      last: group.lastSeen)
  }

  private mutating func forget(_ fingerprint: String, count: Int, first: String, last: String) {
    guard count > 0 else { return }
    var gone =
      removed[fingerprint] ?? Removed(count: 0, firstSeen: first, lastSeen: last)
    gone.count = Self.sum(gone.count, count)
    gone.firstSeen = min(gone.firstSeen, first)
    gone.lastSeen = max(gone.lastSeen, last)
    removed[fingerprint] = gone
  }

  package func group(_ fingerprint: String) -> Group? {
    let times = entries.values.filter { $0.fingerprint == fingerprint }.map(\.time)
    let gone = removed[fingerprint]
    guard let first = (times + [gone?.firstSeen].compactMap { $0 }).min(),
      let last = (times + [gone?.lastSeen].compactMap { $0 }).max()
    else { return nil }
    return Group(count: Self.sum(times.count, gone?.count ?? 0), firstSeen: first, lastSeen: last)
  }

  /// Which of its group a report is that is there, counted from the oldest.
  package func number(_ id: ReportID) -> Int? {
    guard let entry = entries[id] else { return nil }
    let there = entries.filter { $0.value.fingerprint == entry.fingerprint }.keys
    // What was deleted is older, as far as retention did it.
    return Self.sum(removed[entry.fingerprint]?.count ?? 0, there.count { $0 <= id })
  }

  /// Of counts that a text may have made as large as it liked.
  private static func sum(_ a: Int, _ b: Int) -> Int {
    let (sum, overflow) = a.addingReportingOverflow(b)
    return overflow ? .max : sum
  }

  /// First and last report of every fingerprint.
  package var protected: Set<ReportID> {
    var first: [String: ReportID] = [:]
    var last: [String: ReportID] = [:]
    for (id, entry) in entries {
      first[entry.fingerprint] = min(first[entry.fingerprint] ?? id, id)
      last[entry.fingerprint] = max(last[entry.fingerprint] ?? id, id)
    }
    return Set(first.values).union(last.values)
  }

  // MARK: Text

  private static let head = "guardian.groups/1"
  /// Faults whose reports are all gone: so many are remembered, the latest.
  private static let rememberedGroups = 4096

  package var text: [UInt8] {
    var lines = [Self.head]
    let kept = removed.sorted { $0.value.lastSeen > $1.value.lastSeen }
      .prefix(Self.rememberedGroups).sorted { $0.key < $1.key }
    for (fingerprint, gone) in kept {
      lines.append("removed \(fingerprint) \(gone.count) \(gone.firstSeen) \(gone.lastSeen)")
    }
    for (id, entry) in entries.sorted(by: { $0.key < $1.key }) {
      lines.append("report \(id) \(entry.fingerprint) \(entry.time)")
    }
    lines.append("end \(lines.count)")
    return Array((lines.joined(separator: "\n") + "\n").utf8)
  }

  /// Never fails: a line that is not one of ours is left out and `wasDamaged` set.
  package init(text: [UInt8]) {
    let lines = text.split(separator: UInt8(ascii: "\n"), omittingEmptySubsequences: true)
      .map { String(decoding: $0.prefix(256), as: UTF8.self) }
    if lines.first != Self.head || lines.last != "end \(lines.count - 1)" { wasDamaged = true }
    for line in lines {
      let words = line.split(separator: " ").map(String.init)
      switch words.first {
      case "removed":
        guard words.count == 5, Fingerprint.isValid(words[1]), let count = Int(words[2]), count > 0,
          Self.isTime(words[3]), Self.isTime(words[4])
        else { break }
        removed[words[1]] = Removed(count: count, firstSeen: words[3], lastSeen: words[4])
        continue
      case "report":
        guard words.count == 4, let id = ReportID(words[1]), Fingerprint.isValid(words[2]),
          Self.isTime(words[3])
        else { break }
        entries[id] = Entry(fingerprint: words[2], time: words[3])
        continue
      case "end": continue
      default: if line == Self.head { continue }
      }
      wasDamaged = true
    }
  }

  package static func isTime(_ text: some StringProtocol) -> Bool {
    text.utf8.count == 27 && text.hasSuffix("Z")
      && text.utf8.dropLast().allSatisfy {
        $0 >= UInt8(ascii: "0") && $0 <= UInt8(ascii: "9")
          || [UInt8(ascii: "-"), UInt8(ascii: ":"), UInt8(ascii: "."), UInt8(ascii: "T")]
            .contains($0)
      }
  }
}

/// What a stored report says of itself, read from its text line by line: guardian has no JSON
/// decoder. It is our own pretty layout, in which only a top-level key stands behind exactly two
/// spaces, and a line feed is never part of a string.
package struct ReportSketch: Hashable, Sendable {
  package var fingerprint: String?
  package var time: String?
  package var group: Group?

  package init(json: [UInt8]) {
    var groupCount: Int?
    var groupFirst: String?
    var inGroup = false
    for line in json.split(separator: UInt8(ascii: "\n")) {
      if line.starts(with: "  \"".utf8) {
        inGroup = line.starts(with: "  \"group\": {".utf8)
        if let value = Self.value(line, "  \"fingerprint\": \""), Fingerprint.isValid(value) {
          fingerprint = value
        }
        if let value = Self.value(line, "  \"time\": \""), GroupIndex.isTime(value) { time = value }
      } else if inGroup {
        if let value = Self.value(line, "    \"count\": ") { groupCount = Int(value) }
        if let value = Self.value(line, "    \"firstSeen\": \"") { groupFirst = value }
        if let value = Self.value(line, "    \"lastSeen\": \""), let count = groupCount, count > 0,
          let first = groupFirst, GroupIndex.isTime(first), GroupIndex.isTime(value)
        {
          group = Group(count: count, firstSeen: first, lastSeen: value)
        }
      }
    }
  }

  private static func value(_ line: ArraySlice<UInt8>, _ head: String) -> String? {
    guard line.starts(with: head.utf8) else { return nil }
    let rest = line.dropFirst(head.utf8.count)
      .prefix { $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: ",") }
    return String(decoding: rest.prefix(256), as: UTF8.self)
  }
}
