import Glibc
import Control
import Kernel
import Policy
import Supervision
import Testing

/// What the program and other processes may send to guardian, or leave for it to read.
@Suite struct HostileMessageTests {
  @Test func `mutants of messages`() {
    var mutator = Mutator()
    let samples = [
      "READY=1\nSTATUS=ready to serve\nMAINPID=4711\n", "WATCHDOG=1", "WATCHDOG=trigger",
      "EXTEND_TIMEOUT_USEC=5000000\nWATCHDOG_USEC=20000000", "RELOADING=1\nMONOTONIC_USEC=1",
    ].map { Array($0.utf8) }
    let requests = ["logs follow", "signal 15", "status"].map { Array($0.utf8) }
    for _ in 0..<mutator.rounds {
      let message = NotifyMessage(mutator.mutant(of: samples))
      if let time = message.extendTimeout { #expect(time <= .seconds(86_400)) }
      if let time = message.watchdogInterval { #expect(time <= .seconds(86_400)) }
      _ = ControlRequest(mutator.mutant(of: requests))
    }
  }

  @Test func `mutants of a state file`() {
    var mutator = Mutator()
    var history = CrashHistory(
      bootID: "x",
      identity: CrashHistory.Identity(binary: "1", command: "2", configuration: "3"))
    history.departure = .gaveUp
    history.lastSignature = CrashSignature(rawValue: .max)
    history.failures = [7, 8].map {
      CrashHistory.Failure(at: .seconds(12), life: Life(rawValue: $0), words: "SIGSEGV")
    }
    let lines = Array((SealedText.open(StateFile.encode(history)) ?? "").utf8)
    for _ in 0..<mutator.rounds {
      // Sealed, or the checksum would keep nearly all of them from being read.
      let mutant = String(decoding: mutator.mutant(of: [lines]), as: UTF8.self)
      guard let contents = StateFile.decode(SealedText.seal(mutant)) else { continue }
      _ = (
        contents.history.lastLife.next,
        StateFile.encode(contents.history, running: contents.running)
      )
    }
  }

  @Test func `mutants of output in pieces of any size`() {
    var mutator = Mutator()
    let sample = Array("one\ntwo\r\n\n\u{1b}[31mthree".utf8)
    let flood = [UInt8](repeating: 120, count: 9000)
    for round in 0..<mutator.rounds / 20 {
      var tail = OutputTail()
      for _ in 0..<Int.random(in: 1...40, using: &mutator.random) {
        let piece = mutator.mutant(of: [sample, flood])
        tail.append(piece[...], at: Int64(round))
        tail.append(piece.suffix(3), at: .min)
      }
      let lines = tail.all
      #expect(lines.reduce(0) { $0 + $1.bytes.count } <= 64 << 10)
    }
  }

  @Test func `mutants of an executable`() throws {
    var mutator = Mutator()
    let path = "/tmp/guardian-mutant-\(getpid())"
    defer { Files.remove(path) }
    let head = try Files.read("/bin/true", limit: 16 << 10)
    for _ in 0..<mutator.rounds / 10 {
      var bytes = Array(mutator.mutant(of: [Array(head.prefix(1024))]))
      bytes += head.dropFirst(bytes.count)
      // In the headers, not only by shifting all that follows.
      for _ in 0..<4 {
        let at = Int.random(in: 16..<1024, using: &mutator.random)
        bytes[at] = [0, 1, 0x7f, 0x80, 0xff].randomElement(using: &mutator.random)!
      }
      try Files.replace(path, with: bytes)
      _ = ExecutableLookup.decide(path, user: 0)
    }
  }

  @Test func `the longest durations have words`() {
    #expect(Duration.milliseconds(Int64.max).words.hasSuffix("h"))
    #expect(Duration.milliseconds(Int64.min).words == "for ever ago")
  }
}
