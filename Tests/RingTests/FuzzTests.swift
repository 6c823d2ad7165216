// A deterministic mutation fuzzer over a valid ring. GUARDIAN_FUZZ_ROUNDS sets how many
// mutants are read (`make fuzz` asks for more), GUARDIAN_FUZZ_SEED where it begins.
import Glibc
import Ring
import Testing

/// SplitMix64: small, fixed for ever, good enough to pick bytes.
struct SeededGenerator: RandomNumberGenerator {
  var state: UInt64
  mutating func next() -> UInt64 {
    state &+= 0x9e37_79b9_7f4a_7c15
    var z = state
    z = (z ^ (z >> 30)) &* 0xbf58_476d_1ce4_e5b9
    z = (z ^ (z >> 27)) &* 0x94d0_49bb_1331_11eb
    return z ^ (z >> 31)
  }
}

private func number(_ variable: String) -> UInt64? {
  guard let text = getenv(variable) else { return nil }
  return UInt64(String(cString: text))
}

/// What must be true of whatever bytes; nil: it is. Written from the limits of the header, not
/// from the decoder.
private func complaint(about contents: RingContents) -> String? {
  func bad(_ text: String, _ bytes: Int) -> Bool {
    // An escape is at most ten characters for at least one byte.
    text.utf8.count > bytes * 10
      || text.unicodeScalars.contains {
        $0.value < 0x20 || (0x7f...0x9f).contains($0.value) || (0x202a...0x202e).contains($0.value)
      }
  }
  if contents.crashes.count > 4 { return "more crashes than slots" }
  for crash in contents.crashes {
    if crash.registers.count > 40 { return "registers" }
    if crash.stack.count > 32768 { return "stack" }
    if crash.stackAddress.addingReportingOverflow(UInt64(crash.stack.count)).overflow {
      return "stack address"
    }
    if crash.exceptionFrames.count > 64 { return "frames" }
    if bad(crash.threadName, 16) || bad(crash.abortMessage, 1024) { return "text" }
    if bad(crash.exceptionType, 256) || bad(crash.exceptionReason, 1024) { return "text" }
  }
  if contents.crumbs.count > 1024 { return "more breadcrumbs than places" }
  for (earlier, later) in zip(contents.crumbs, contents.crumbs.dropFirst())
  where earlier.index >= later.index {
    return "breadcrumbs out of order"
  }
  for crumb in contents.crumbs
  where bad(crumb.category, 24) || bad(crumb.message, 192) || crumb.level > 4 {
    return "breadcrumb"
  }
  if contents.annotations.count > 64 { return "annotations" }
  for (key, value) in contents.annotations where bad(key, 64) || bad(value, 432) || key.isEmpty {
    return "annotation"
  }
  if contents.defects.count > 64 { return "a long list of defects" }
  for defect in contents.defects where defect.description.utf8.count > 200 { return "defect" }
  return nil
}

@Suite struct `Whatever bytes a ring holds` {
  static let regions: [Range<Int>] = {
    var regions = [0..<RingLayout.Header.size]
    for slot in 0..<4 {
      let at = SampleRing.slot(slot)
      regions.append(at..<(at + 64))
      regions.append(
        (at + RingLayout.Record.threadName)..<(at + RingLayout.Record.abortMessage + 64))
    }
    regions.append(RingLayout.crumbsOffset..<(RingLayout.crumbsOffset + 16 * 256))
    regions.append(RingLayout.annotationsOffset..<(RingLayout.annotationsOffset + 4 * 512))
    return regions
  }()

  static let sample: SampleRing = {
    var ring = SampleRing()
    for slot in 0..<3 { ring.addCrash(slot: slot, stackLength: 64) }
    for n in 0..<12 { ring.addCrumb(n, "step \(n) größe") }
    for place in 0..<3 { ring.addAnnotation(place, "key\(place)", "value") }
    return ring
  }()

  @Test func `it is read without a trap, and what comes out has its bounds`() {
    let seed = number("GUARDIAN_FUZZ_SEED") ?? 1
    let rounds = number("GUARDIAN_FUZZ_ROUNDS") ?? 100_000
    var random = SeededGenerator(state: seed)
    var bytes = Self.sample.bytes
    let regions = Self.regions
    var mutantsWithDefects = 0
    for round in 0..<rounds {
      var undo: [(Int, UInt8)] = []
      for _ in 0..<Int.random(in: 1...6, using: &random) {
        let region = regions.randomElement(using: &random)!
        let start = Int.random(in: region, using: &random)
        let width = [1, 2, 4, 8].randomElement(using: &random)!
        let fill: UInt64 =
          switch Int.random(in: 0..<5, using: &random) {
          case 0: 0
          case 1: .max
          case 2: 1
          case 3: UInt64(Int.random(in: 0..<70_000, using: &random))
          default: random.next()
          }
        for index in 0..<width where start + index < bytes.count {
          undo.append((start + index, bytes[start + index]))
          bytes[start + index] = UInt8(truncatingIfNeeded: fill >> UInt64(8 * index))
        }
      }
      let cut = round % 16 == 0 ? Int.random(in: 0...bytes.count, using: &random) : bytes.count
      let contents = RingDecoder.decode(bytes.span.extracting(0..<cut))
      if !contents.defects.isEmpty { mutantsWithDefects += 1 }
      if let complaint = complaint(about: contents) {
        Issue.record("seed \(seed), round \(round): \(complaint)")
        return
      }
      for index in undo.indices.reversed() { bytes[undo[index].0] = undo[index].1 }
    }
    // The mutants must bite: a fuzzer that never reaches a check proves nothing.
    #expect(mutantsWithDefects > Int(rounds) / 10)
  }

  @Test func `pure noise`() {
    var random = SeededGenerator(state: 7)
    for round in 0..<20 {
      var bytes = [UInt8](repeating: 0, count: RingLayout.size)
      for index in bytes.indices { bytes[index] = UInt8(truncatingIfNeeded: random.next()) }
      // Mostly with a good head, or nothing behind it would be looked at in every round.
      if round % 4 != 0 { bytes.replaceSubrange(0..<16, with: Self.sample.bytes[0..<16]) }
      if let complaint = complaint(about: RingDecoder.decode(bytes)) {
        Issue.record("round \(round): \(complaint)")
      }
    }
  }
}
