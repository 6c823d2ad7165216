import Glibc
import Kernel
import Testing

@Suite struct `Standard error` {
  let probe = Root.fixture("spawn_probe")

  @Test func `is passed on whole, and its last lines are in the report`() throws {
    let guardian = try Guardian(
      ["--max-crashes", "0"],
      ["/bin/sh", "-c", "for i in 1 2 3; do echo line $i >&2; done; printf 'no end' >&2; exit 1"])
    #expect(try guardian.run() == .exited(1))
    #expect(guardian.process.errorText.contains("line 1\nline 2\nline 3\nno end"))
    let log = try guardian.reportText(0, "stderr.log")
    #expect(log.hasPrefix("line 1\nline 2\nline 3\nno end"))
  }

  @Test func `of a flood is passed on to the last byte`() throws {
    let guardian = try Guardian(["--max-crashes", "0", "--quiet"], [probe, "flood", "50000000"])
    #expect(try guardian.run() == .exited(0))
    let size = try Files.status(guardian.process.errors).size
    #expect(size == 50_000_000 + 14)
    #expect(guardian.process.errorText.hasSuffix("the last line\n"))
  }

  @Test func `that nobody reads holds the program up only for a while`() throws {
    let scratch = Scratch()
    let fifo = scratch.path + "/sink"
    try Files.makeFIFO(fifo, mode: 0o600)
    // Somebody who holds it open and never reads.
    let reader = try FileDescriptor.open(fifo, O_RDWR | O_NONBLOCK)
    let guardian = try Guardian(
      ["--max-crashes", "0"], [probe, "flood", "20000000"], in: scratch, errors: fifo)
    #expect(try guardian.run() == .exited(0))
    withExtendedLifetime(reader) {}
  }

  @Test func `of a flood into a pipe comes in order, and its end is in the report`() throws {
    let lines = 2_000_000
    let scratch = Scratch()
    let fifo = scratch.path + "/sink"
    try Files.makeFIFO(fifo, mode: 0o600)
    let reader = try FileDescriptor.open(fifo, O_RDONLY | O_NONBLOCK)
    let guardian = try Guardian(
      ["--restart", "no", "--quiet"], [probe, "numbers", "\(lines)"], in: scratch, errors: fifo)
    // The pipe is full before anything is read: guardian has to wait for room, and go on.
    try eventually("a full pipe") {
      var there: Int32 = 0
      _ = unsafe ioctl(reader.raw, UInt(FIONREAD), &there)
      return there == 65536 ? true : nil
    }
    var next = 0
    var rest: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 16)
    var isInOrder = true
    reading: while true {
      var ready = pollfd(fd: reader.raw, events: Int16(POLLIN), revents: 0)
      #expect(unsafe poll(&ready, 1, 60_000) == 1)
      let count = try reader.read(into: &piece)
      if count == 0 { break reading }
      rest += piece[..<count]
      var start = rest.startIndex
      while rest.endIndex - start >= 9 {
        var number = 0
        for byte in rest[start..<(start + 8)] { number = number * 10 + Int(byte) - 48 }
        if number != next || rest[start + 8] != 10 { isInOrder = false }
        next += 1
        start += 9
      }
      rest.removeFirst(start)
    }
    #expect(isInOrder)
    #expect(next == lines && rest.isEmpty)
    #expect(try guardian.run() == .exited(1))
    let tail = try guardian.reportText(0, "stderr.log").split(separator: "\n").compactMap {
      Int($0)
    }
    #expect(tail == Array((lines - 200)..<lines))
  }

  @Test func `held open by a grandchild delays nothing`() throws {
    let guardian = try Guardian(
      ["--max-crashes", "1", "--kill-mode", "process"],
      ["/bin/sh", "-c", "setsid sleep 1000 & echo pid $!; echo said >&2; exit 1"])
    #expect(try guardian.run() == .exited(1))
    for number in 1...2 { kill(try guardian.programPID(number), SIGKILL) }
    #expect(guardian.process.errorText.occurrences(of: "said\n") == 2)
  }
}
