import Glibc
import Reports
import Ring
import Testing

/// Frames that stand at the deep end of a thread: `main` or where the C library starts one.
private func isDeepEnd(_ line: Substring) -> Bool {
  line.contains(" main") || line.contains("clone3")
}

@Suite(.serialized) struct `a snapshot of a crashing program` {
  @Test func `shows every thread in gdb and eu-stack, the crashing one first`() throws {
    let victim = try Victim("crash", threads: 31)
    let result = try capture(victim)
    let end = try victim.end()
    #expect(result.exitStatus == 0)
    #expect(result.summary.threadsSeen == 33)
    #expect(result.summary.threadsCaptured == 33)
    #expect(result.summary.crashingThread == victim.thread)
    #expect(result.summary.defects == [])
    #expect(result.summary.signature != 0)
    #expect(result.summary.heldMicroseconds > 0 && result.summary.heldMicroseconds < 5_000_000)
    #expect(result.summary.coreBytes < 2 << 20)
    #expect(end.said.contains("released \(victim.thread)"))
    #expect(end.status & 0x7F == SIGSEGV)

    let shown = try gdb(
      Place.fixture("capture_victim"), result.core, ["bt", "thread apply all bt", "p $_siginfo"])
    let first = try #require(shown.split(separator: "\n").first { $0.hasPrefix("#0") })
    #expect(first.contains("crash_here"))
    #expect(!shown.contains("handler"))
    // The crashing thread's stack comes twice.
    #expect(shown.lineCount(where: isDeepEnd) == 34)
    #expect(shown.contains("si_signo = 11"))
    let stacks = try output(of: ["eu-stack", "--core", result.core])
    #expect(stacks.count(of: "TID ") == 33)
    #expect(stacks.lineCount(where: isDeepEnd) == 33)
    let firstThread = stacks.split(separator: "\n").dropFirst(2).first
    #expect(firstThread?.contains("crash_here") == true)
  }

  @Test func `shows the true value of every kind of variable, or none`() throws {
    let victim = try Victim("crash", threads: 2, library: true)
    let result = try capture(victim)
    _ = try victim.end()
    let shown = try gdb(
      Place.fixture("capture_victim"), result.core,
      [
        "p changed_global", "p unchanged_global", "p zero_global", "p many_zeros[2000]",
        "p many_zeros[4000]", "p library_counter", "p node->value", "p node->next->value",
        "p local_value", "p *list", "p thread_number", "p far_memory[33554432]",
      ])
    for line in [
      "$1 = 4242", "$2 = 1234", "$3 = 77", "$4 = 2000", "$5 = 0", "$6 = 5151", "$7 = 11",
      "$8 = 22", "$9 = 1011", "$10 = {value = 11", "$11 = 99",
    ] {
      #expect(shown.contains("\n" + line), "\(line) is not in:\n\(shown)")
    }
    #expect(shown.contains("Cannot access memory at address"))
    #expect(!shown.contains("$12"))
  }

  @Test func `has the same signature for the same crash`() throws {
    let first = try Victim("crash", threads: 1)
    let second = try Victim("crash", threads: 3)
    #expect(try capture(first).summary.signature == capture(second).summary.signature)
  }

  @Test func `reaches from the guard page to main when the stack overflowed`() throws {
    let victim = try Victim("overflow", threads: 3)
    let result = try capture(victim)
    _ = try victim.end()
    #expect(result.exitStatus == 0)
    let shown = try gdb(
      Place.fixture("capture_victim"), result.core, ["bt 3", "info registers rip"])
    #expect(shown.contains("#0") && shown.contains("overflow"))
    #expect(result.summary.coreBytes < 2 << 20)
    // Of the 8 MiB between, nothing is kept; the oldest end is there, with main's own frame.
    #expect(result.summary.coreBytes > 192 << 10)
    let oldest = try gdb(
      Place.fixture("capture_victim"), result.core, ["x/1gx __libc_stack_end", "x/1gx __environ"])
    #expect(!oldest.contains("Cannot access"), "\(oldest)")
  }

  @Test func `has no arguments and no environment in it`() throws {
    for how in ["crash", "overflow"] {
      let victim = try Victim(how, threads: 2)
      let arguments = try #require(fileBytes("/proc/\(victim.pid)/environ"))
      let variables = arguments.split(separator: 0).filter { $0.count > 12 }
      let result = try capture(victim)
      _ = try victim.end()
      let core = try #require(fileBytes(result.core))
      #expect(!variables.isEmpty && core.count > 100_000)
      for variable in variables {
        #expect(
          !contains(core, Array(variable)), "\(String(decoding: variable, as: UTF8.self))")
      }
      // Nor zeros in their place.
      let shown = try gdb(Place.fixture("capture_victim"), result.core, ["p *(char **)environ"])
      #expect(!shown.contains("\"\""), "\(shown)")
    }
  }

  private func fileBytes(_ path: String) -> [UInt8]? {
    guard let file = fopen(path, "r") else { return nil }
    defer { fclose(file) }
    var bytes: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 65_536)
    while case let count = fread(&piece, 1, piece.count, file), count > 0 {
      bytes += piece[..<count]
    }
    return bytes
  }

  private func contains(_ bytes: [UInt8], _ part: [UInt8]) -> Bool {
    var at = 0
    while let start = bytes[at...].firstIndex(of: part[0]) {
      if bytes[start...].starts(with: part) { return true }
      at = start + 1
    }
    return false
  }

  @Test func `holds 200 threads`() throws {
    let victim = try Victim("crash", threads: 198)
    let result = try capture(victim)
    _ = try victim.end()
    #expect(result.summary.threadsCaptured == 200)
    let stacks = try output(of: ["eu-stack", "--core", result.core])
    #expect(stacks.lineCount(where: isDeepEnd) == 200)
  }

  @Test func `is taken while every other thread computes`() throws {
    let victim = try Victim("spin", threads: 31)
    let result = try capture(victim)
    let end = try victim.end()
    #expect(result.summary.threadsCaptured == 33)
    #expect(end.status & 0x7F == SIGSEGV)
    #expect(result.summary.heldMicroseconds < 5_000_000)
  }

  @Test func `names a thread that cannot be stopped and goes on without waiting for it`() throws {
    let victim = try Victim("stuck", threads: 3)
    let result = try capture(victim)
    _ = try victim.end()
    #expect(result.exitStatus == 0)
    #expect(result.summary.defects.contains { $0.contains("did not stop (state ") })
    #expect(result.summary.threadsCaptured >= 5)
    #expect(result.summary.heldMicroseconds < 5_000_000)
  }

  @Test func `brings along the binary that was replaced since the start`() throws {
    let folder = try Place.temporaryFolder()
    let program = folder + "/server"
    defer {
      unlink(program)
      rmdir(folder)
    }
    _ = try output(of: ["cp", Place.fixture("capture_victim"), program])
    var before = stat()
    try #require(stat(program, &before) == 0)
    let victim = try Victim("crash", threads: 3, executable: program)
    _ = try output(of: ["cp", "/bin/true", program + ".new"])
    try #require(rename(program + ".new", program) == 0)

    let result = try capture(victim)
    _ = try victim.end()
    #expect(result.summary.replacedModules == [program])
    try #require(result.descriptors.count == 1)
    var sent = stat()
    #expect(fstat(result.descriptors[0], &sent) == 0 && sent.st_ino == before.st_ino)
    close(result.descriptors[0])
    // Unwound by the segments in the minicore, without the file.
    let stacks = try output(of: ["eu-stack", "--core", result.core])
    #expect(stacks.count(of: "TID ") == 5)
    #expect(stacks.lineCount { $0.contains("clone3") } == 4)
    #expect(stacks.contains("__libc_start_main"))
    let shown = try gdb(
      Place.fixture("capture_victim"), result.core, ["bt", "p changed_global"])
    #expect(shown.contains("crash_here") && shown.contains("clone3"))
    #expect(shown.contains("$1 = 4242"))
  }

  @Test(.enabled(if: geteuid() == 0, "needs root"))
  func `finds the thread of a program in a pid namespace`() throws {
    let victim = try Victim(
      "crash", threads: 3, wrapper: ["unshare", "--pid", "--fork", "--kill-child"])
    let children = try output(
      of: ["cat", "/proc/\(victim.pid)/task/\(victim.pid)/children"])
    let pid = try #require(
      children.split(whereSeparator: { " \n".contains($0) }).first.flatMap { pid_t($0) })
    let result = try capture(victim, pid: pid)
    _ = try victim.end(kill: true)
    #expect(result.summary.crashingThread > victim.thread)
    #expect(result.summary.defects == [])
    let stacks = try output(of: ["eu-stack", "--core", result.core])
    #expect(stacks.contains("TID \(result.summary.crashingThread):\n#0"))
    #expect(stacks.split(separator: "\n").dropFirst(2).first?.contains("crash_here") == true)
  }
}

@Suite(.serialized) struct `a snapshot that cannot be whole` {
  @Test(.enabled(if: geteuid() == 0, "needs root"))
  func `says so without the right to trace, and still releases the program`() throws {
    let victim = try Victim("crash", threads: 3)
    let result = try capture(
      victim,
      wrapper: [
        "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--bounding-set",
        "-all", "--inh-caps", "-all",
      ])
    let end = try victim.end()
    #expect(result.exitStatus == 1)
    #expect(result.summary.defects.contains { $0.hasPrefix("no right to trace process") })
    #expect(end.said.contains("released"))
    #expect(end.status & 0x7F == SIGSEGV)
  }

  @Test func `releases the program when there is no time at all`() throws {
    let victim = try Victim("crash", threads: 31)
    let result = try capture(victim, timeout: 1)
    let end = try victim.end()
    #expect(end.said.contains("released"))
    #expect(result.summary.heldMicroseconds < 5_000_000)
  }

  @Test func `ends when the program is gone`() throws {
    let victim = try Victim("hang", threads: 1)
    let other = try Victim("hang", threads: 1)
    let pid = other.pid
    _ = try other.end(kill: true)
    let result = try capture(victim, pid: pid, slot: nil)
    #expect(result.exitStatus == 1)
    #expect(!result.summary.defects.isEmpty)
  }

  @Test func `survives a program that lies wherever it can`() throws {
    let victim = try Victim(hostile: ())
    var bytes = [UInt8](repeating: 0, count: RingLayout.size)
    var seed: UInt64 = 42
    for index in bytes.indices {
      seed = seed &* 6_364_136_223_846_793_005 &+ 1
      bytes[index] = UInt8(truncatingIfNeeded: seed >> 56)
    }
    // Random crash records, one of them of the thread that exists, on a machine like this.
    for slot in 0..<4 {
      let at = RingLayout.slotsOffset + slot * RingLayout.slotSize
      for part in 0..<4 { bytes[at + RingLayout.Record.parts + part] = 0xFF }
      for (part, byte) in [62, 0, 0, 0].enumerated() {
        bytes[at + RingLayout.Record.architecture + part] = UInt8(byte)
      }
    }
    try #require(pwrite(victim.ring, bytes, bytes.count, 0) == bytes.count)
    for slot in [nil, 0, 3, 99] as [Int?] {
      let result = try capture(victim, slot: slot)
      #expect(result.exitStatus == 0)
      #expect(result.summary.threadsSeen >= 11)
      #expect(result.summary.coreBytes < 70 << 20)
      let stacks = try output(of: ["eu-stack", "--core", result.core])
      #expect(stacks.contains("TID "))
    }
    _ = try victim.end(kill: true)
  }
}

@Suite struct `the summary of a snapshot` {
  @Test func `comes back as it was, whatever bytes its texts hold`() {
    var summary = CaptureSummary()
    summary.threadsSeen = 33
    summary.threadsCaptured = 32
    summary.heldMicroseconds = 3157
    summary.coreBytes = 548_864
    summary.crashingThread = 660
    summary.signature = .max
    summary.replacedModules = ["/opt/my server/a=b%20\n", "/usr/lib/ü.so"]
    summary.defects = ["thread 7 did not stop (state D)", "x=y z\u{0}"]
    #expect(CaptureSummary(decoding: summary.encoded()) == summary)
  }

  @Test func `never grows beyond one message`() {
    var summary = CaptureSummary()
    summary.replacedModules = Array(repeating: String(repeating: "p", count: 640), count: 16)
    summary.defects = Array(repeating: String(repeating: " ", count: 10_000), count: 500)
    let bytes = summary.encoded()
    #expect(bytes.count <= CaptureSummary.maximumBytes)
    let back = CaptureSummary(decoding: bytes)
    #expect(back.replacedModules == summary.replacedModules)
    #expect(back.defects.last?.hasSuffix("more defects") == true)
  }

  @Test func `ignores what it does not know`() {
    let text = "threads-seen=x new-word=5 =a held-us=-1 crashing-thread=99999999999 core-bytes=7 %"
    let summary = CaptureSummary(decoding: Array(text.utf8))
    #expect(summary.coreBytes == 7)
    #expect(summary.threadsSeen == 0 && summary.heldMicroseconds == 0)
    #expect(summary.crashingThread == 0)
  }
}
