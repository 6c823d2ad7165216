// Until target Ring has the encoder and decoder.
import Ring

enum RingLayout {
  static let size = 462848
  static let slotCount = 4
  static func releaseOffset(slot: Int) -> Int { 4096 + slot * 40960 + 8 }
}
enum RingHeaderEncoder {
  static func bytes(
    life: UInt32, guardianPID: Int32, captureTimeoutMilliseconds: UInt32, handlerRunsMax: UInt32
  ) -> [UInt8] {
    var out: [UInt8] = []
    func put(_ v: UInt64, _ n: Int) {
      for i in 0..<n { out.append(UInt8(truncatingIfNeeded: v >> (8 * UInt64(i)))) }
    }
    put(0x31474e4952445247, 8); put(1, 4); put(UInt64(RingLayout.size), 4); put(UInt64(life), 4)
    put(UInt64(UInt32(bitPattern: guardianPID)), 4); put(UInt64(captureTimeoutMilliseconds), 4);
    put(UInt64(handlerRunsMax), 4)
    return out
  }
}
enum RingDecoder {
  static func decode(_ bytes: [UInt8]) -> RingContents { RingContents() }
}
