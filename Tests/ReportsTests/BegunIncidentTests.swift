import Reports
import Testing

@Suite struct `The note of a crash that was begun` {
  private let begun = BegunIncident(
    id: ReportID.make(at: .now()), life: 3, pid: 77, role: .descendant, slot: 0, signal: 11,
    startedWall: 1)

  @Test func `is read as it was written`() {
    #expect(BegunIncident(begun.id, begun.bytes) == begun)
    var hang = begun
    (hang.slot, hang.signal, hang.role) = (nil, nil, .main)
    #expect(BegunIncident(hang.id, hang.bytes) == hang)
  }

  @Test func `that is cut or changed is none`() {
    for length in 0..<begun.bytes.count {
      #expect(BegunIncident(begun.id, Array(begun.bytes[..<length])) == nil)
    }
    let text = String(decoding: begun.bytes, as: UTF8.self)
    for (old, new) in [
      ("3 77", "3 0"), ("3 77", "-3 77"), ("77 0", "77 5000"), ("11", "99"), ("descendant", "x"),
      ("\n", " \n"),
    ] {
      #expect(BegunIncident(begun.id, Array(text.replacing(old, with: new).utf8)) == nil, "\(new)")
    }
  }
}
