/// The head of a new ring, as guardian writes it before the program starts. The rest of the
/// ring is zero.
package enum RingHeaderEncoder {
  /// What the field of that name holds.
  package static func guardianPID(_ pid: Int32) -> [UInt8] {
    (0..<4).map { UInt8(truncatingIfNeeded: pid >> Int32(8 * $0)) }
  }

  /// The first `RingLayout.Header.size` bytes.
  package static func bytes(
    life: UInt32, guardianPID: Int32, captureTimeoutMilliseconds: UInt32, handlerRunsMax: UInt32
  ) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: RingLayout.Header.size)
    func put<T: FixedWidthInteger>(_ value: T, at offset: Int) {
      for index in 0..<(T.bitWidth / 8) {
        bytes[offset + index] = UInt8(truncatingIfNeeded: value >> T(8 * index))
      }
    }
    put(RingLayout.magic, at: RingLayout.Header.magic)
    put(RingLayout.version, at: RingLayout.Header.version)
    put(UInt32(RingLayout.size), at: RingLayout.Header.ringSize)
    put(life, at: RingLayout.Header.life)
    put(guardianPID, at: RingLayout.Header.guardianPID)
    put(captureTimeoutMilliseconds, at: RingLayout.Header.captureTimeout)
    put(handlerRunsMax, at: RingLayout.Header.handlerRunsMax)
    return bytes
  }
}
