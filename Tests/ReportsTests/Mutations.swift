// Bytes that are almost right: what breaks a parser is rarely noise. Seeded, so that a failure can
// be had again: GUARDIAN_FUZZ_SEED sets where it begins, GUARDIAN_FUZZ_ROUNDS how long it goes on
// (a fiftieth of the rings that `make fuzz` reads).
import Glibc

struct Mutator {
  /// SplitMix64.
  struct Generator: RandomNumberGenerator {
    var state: UInt64
    mutating func next() -> UInt64 {
      state &+= 0x9e37_79b9_7f4a_7c15
      var z = state
      z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
      z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
      return z ^ (z >> 31)
    }
  }

  let seed = Mutator.number("GUARDIAN_FUZZ_SEED") ?? 1
  let rounds = Int((Mutator.number("GUARDIAN_FUZZ_ROUNDS") ?? 100_000) / 50)
  var random: Generator

  init() { random = Generator(state: seed) }

  private static func number(_ variable: String) -> UInt64? {
    guard let text = getenv(variable) else { return nil }
    return UInt64(String(cString: text))
  }

  /// What texts are cut up by, numbers at their edges, and bytes that are no text.
  private static let words: [[UInt8]] =
    [
      "'", "\"", "', ", "\", line ", "' panicked at ", ": ", ":", "::", "(", ")", " (", "[", "{",
      "\n", "\r\n", "\t", " ", "=", "%", "%4", "-", "-1", "0", "9", "18446744073709551615",
      "18446744073709551616", "9223372036854775807", "-9223372036854775808", "ffffffffffffffff",
      "1e308", "\u{301}", "\u{200d}", "ß", "…", " (deleted)", "  File \"", "://", "@", "?", "&",
    ].map { Array($0.utf8) } + [[0], [0xff], [0xc3], [0xe2, 0x80], [0x80, 0x80, 0x80]]

  /// One to six changes to one of the samples.
  mutating func mutant(of samples: [[UInt8]]) -> [UInt8] {
    var bytes = samples.randomElement(using: &random)!
    for _ in 0..<Int.random(in: 1...6, using: &random) {
      let at = Int.random(in: 0...bytes.count, using: &random)
      let end = min(bytes.count, at + Int.random(in: 0...40, using: &random))
      switch Int.random(in: 0..<8, using: &random) {
      case 0: bytes.removeLast(bytes.count - at)
      case 1: bytes.removeSubrange(at..<end)
      case 2: bytes.insert(contentsOf: bytes[at..<end], at: at)
      case 3 where bytes.count > 1:
        bytes.swapAt(min(at, bytes.count - 1), Int.random(in: bytes.indices, using: &random))
      case 4 where at < bytes.count:
        bytes[at] = UInt8(truncatingIfNeeded: random.next())
      case 5:
        let other = samples.randomElement(using: &random)!
        bytes.replaceSubrange(
          at..<end,
          with: other.dropFirst(Int.random(in: 0...other.count, using: &random)).prefix(60))
      default: bytes.insert(contentsOf: Self.words.randomElement(using: &random)!, at: at)
      }
    }
    return Array(bytes.prefix(16 << 10))
  }
}
