/// One ring of the bell: what the datagram claims. Who sent it is the kernel's to say.
package struct RingBell: Hashable, Sendable {
  /// Below `RingLayout.slotCount`.
  package let slot: Int
  /// In the program's own pid namespace; above 0.
  package let tid: Int32
  /// 1…64.
  package let signal: Int32

  /// nil: this is no bell of ours.
  package init?(_ bytes: [UInt8]) {
    typealias Field = RingLayout.Bell
    guard bytes.count == Field.size else { return nil }
    func word(_ offset: Int) -> UInt32 {
      (0..<4).reduce(0) { $0 | UInt32(bytes[offset + $1]) << UInt32(8 * $1) }
    }
    let slot = word(Field.slot)
    let tid = Int32(bitPattern: word(Field.tid))
    let signal = Int32(bitPattern: word(Field.signal))
    guard word(0) == Field.magic, word(Field.version) == RingLayout.version,
      slot < UInt32(RingLayout.slotCount), tid > 0, (1...64).contains(signal)
    else { return nil }
    self.slot = Int(slot)
    self.tid = tid
    self.signal = signal
  }
}
