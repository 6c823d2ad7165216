// What guardian leaves beside the snapshot of a crash before it knows the ending: if it dies now, the
// next one can tell whose snapshot it is. Read as strictly as it is written.
import Kernel

package struct BegunIncident: Hashable, Sendable {
  package static let name = "begun"
  package static let maximumBytes = 256

  package var id: ReportID
  package var life: UInt32
  package var pid: Int32
  package var role: Program.Role
  /// The crash record in the ring; nil: a snapshot of a hang.
  package var slot: Int?
  /// What the bell said it dies of.
  package var signal: Int32?
  /// Of the life: wall clock, nanoseconds since the epoch.
  package var startedWall: Int64

  package init(
    id: ReportID, life: UInt32, pid: Int32, role: Program.Role, slot: Int?, signal: Int32?,
    startedWall: Int64
  ) {
    self.id = id
    self.life = life
    self.pid = pid
    self.role = role
    self.slot = slot
    self.signal = signal
    self.startedWall = startedWall
  }

  package var bytes: [UInt8] {
    let numbers = [Int64(life), Int64(pid), Int64(slot ?? -1), Int64(signal ?? -1), startedWall]
    return Array((numbers.map(String.init).joined(separator: " ") + " \(role.rawValue)\n").utf8)
  }

  /// nil: not such a file, or a damaged one.
  package init?(_ id: ReportID, _ bytes: [UInt8]) {
    let words = String(decoding: bytes, as: UTF8.self).dropLast()
      .split(separator: " ", omittingEmptySubsequences: false)
    guard bytes.count <= Self.maximumBytes, bytes.last == 10, words.count == 6,
      let life = UInt32(words[0]), let pid = Int32(words[1]), pid > 0,
      let slot = Int(words[2]), (-1..<4096).contains(slot), let signal = Int32(words[3]),
      (-1...64).contains(signal), let wall = Int64(words[4]), wall >= 0,
      let role = Program.Role(rawValue: String(words[5]))
    else { return nil }
    self.init(
      id: id, life: life, pid: pid, role: role, slot: slot < 0 ? nil : slot,
      signal: signal <= 0 ? nil : signal, startedWall: wall)
  }
}
