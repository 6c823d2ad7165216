// What the handler is made of, what it may call, and what it puts into the record.
import Glibc
import Testing

@Suite struct `the preloaded library` {
  private func lines(_ command: String) throws -> [String] {
    var tool = MiniGuardian()
    tool.preload = false
    tool.channel = false
    let outcome = try tool.run("/bin/sh", "-c", command)
    #expect(outcome.exitCode == 0, "\(outcome.output)")
    return outcome.output.split(separator: "\n").map(String.init)
  }

  @Test func `needs the C library and nothing else`() throws {
    let needed = try lines("readelf -d \(Places.handler)").filter { $0.contains("(NEEDED)") }
    #expect(needed.count == 1)
    #expect(needed.first?.hasSuffix("[libc.so.6]") == true)
  }

  /// Everything it may call of the C library. A new name here needs its reason in the file
  /// that calls it; one that may be called after a signal must be safe there.
  static let allowed: Set<String> = [
    // After the signal.
    "__errno_location", "clock_gettime", "memcpy", "memset", "sigdelset",
    // In signal handlers of the program, too: dispositions.
    "sigaddset", "sigfillset",
    // While it starts and in the program's own calls.
    "dl_iterate_phdr", "getauxval", "memcmp", "secure_getenv", "strcmp", "strlen", "strnlen",
    "vsnprintf", "__vsnprintf_chk",
    // Of the compiler's start files; weak.
    "__cxa_finalize", "__gmon_start__", "_ITM_deregisterTMCloneTable",
    "_ITM_registerTMCloneTable",
  ]

  @Test func `calls nothing but a short list`() throws {
    let called = try lines("nm -D --undefined-only \(Places.handler)").compactMap {
      $0.split(separator: " ").last?.split(separator: "@").first.map(String.init)
    }
    #expect(called.count > 5)
    #expect(Set(called).subtracting(Self.allowed) == [])
  }

  @Test func `runs with every C library since 2.31`() throws {
    let versions = try lines("nm -D --undefined-only \(Places.handler)").compactMap {
      name -> Int? in
      guard let text = name.split(separator: "@").last, text.hasPrefix("GLIBC_2.") else {
        return nil
      }
      return Int(text.dropFirst("GLIBC_2.".count).prefix { $0.isNumber })
    }
    #expect(versions.count > 5)
    #expect(versions.allSatisfy { $0 <= 31 })
  }

  @Test func `shows only its interposers and its interface`() throws {
    let exported = try lines("nm -D --defined-only \(Places.handler)").compactMap {
      $0.split(separator: " ").last.map(String.init)
    }
    let interposers: Set<String> = [
      "sigaction", "__sigaction", "signal", "bsd_signal", "ssignal", "sysv_signal",
      "__sysv_signal", "sigset", "sigignore", "siginterrupt", "sigvec", "pthread_create",
      "thrd_create", "prctl",
    ]
    #expect(interposers.isSubset(of: exported))
    #expect(
      Set(exported).subtracting(interposers).allSatisfy { $0.hasPrefix("guardian_") })
    #expect(!exported.contains("guardian_state"))
  }

  @Test(arguments: [
    "null-read", "double-free-large", "--thread stack-overflow", "--malloc-lock abort",
    "closed-and-exhausted-fds", "two-threads-at-once 8", "fork-child",
  ])
  func `allocates nothing in a crash`(way: String) throws {
    var guardian = MiniGuardian()
    guardian.preloadFirst = Places.fixture("handler_allocators")
    let outcome = try guardian.run(
      [Places.dies] + way.split(separator: " ").map(String.init))
    #expect(outcome.bells.count == 1)
    #expect(!outcome.output.contains("ALLOCATED"), "\(outcome.output)")
  }

  @Test func `would be caught if it allocated`() throws {
    var guardian = MiniGuardian()
    guardian.preloadFirst = Places.fixture("handler_allocators")
    let outcome = try guardian.run(Places.dies, "handler-allocates")
    #expect(outcome.output.contains("ALLOCATED malloc\nALLOCATED free\n"))
  }

  /// Numbers of the sockets above 200 that `ls -l …/fd` lists.
  private func highSockets(_ script: String) throws -> [Int] {
    let outcome = try MiniGuardian().run("/bin/sh", "-c", script)
    #expect(outcome.exitCode == 0, "\(outcome.output)")
    return outcome.output.split(separator: "\n").compactMap { line in
      let words = line.split(separator: " ")
      guard let arrow = words.firstIndex(of: "->"), words.last?.hasPrefix("socket:") == true
      else { return nil }
      return Int(words[arrow - 1])
    }.filter { $0 > 200 }
  }

  @Test func `keeps one descriptor, close-on-exec and above 200`() throws {
    #expect(try highSockets("ls -l /proc/$$/fd; exit 0") == [201])
    #expect(try highSockets("env -u LD_PRELOAD ls -l /proc/self/fd; exit 0") == [])
  }

  @Test func `finds a place for the bell under a low limit on descriptors`() throws {
    let outcome = try MiniGuardian().run(
      "/bin/sh", "-c", "ulimit -n 20; exec \(Places.dies) null-read")
    #expect(outcome.bells.count == 1)
    #expect(outcome.signal == SIGSEGV)
  }
}

@Suite struct `the crash record` {
  @Test func `holds the interrupted registers and the stack they point to`() throws {
    let outcome = try MiniGuardian().run(Places.dies, "--thread", "call-null")
    let record = try #require(outcome.ring.records.first)
    #if arch(x86_64)
      // The order of ucontext's gregs: RBP is 10, RSP 15, RIP 16.
      #expect(record.register(15) == record.sp)
      #expect(record.register(16) == record.pc)
      #expect(record.pc == 0)
      // A call of null has pushed where it came from; the frame pointer's chain goes on.
      let frame = record.register(10)
      #expect(record.stackWord(record.sp) != 0)
      #expect(frame > record.sp && frame < record.sp + 4096)
      #expect(record.stackWord(frame) > frame)
    #endif
    #expect(record.stackAddress <= record.sp)
    #expect(record.sp - record.stackAddress < 256)
    // The handler ran on the thread's own alternate stack.
    #expect(record.altstackSize >= 16384)
    #expect(record.context > record.altstack)
    #expect(record.context < record.altstack + record.altstackSize)
  }

  @Test func `holds the stack above the guard page when the stack overflowed`() throws {
    let outcome = try MiniGuardian().run(Places.dies, "--thread", "stack-overflow")
    let record = try #require(outcome.ring.records.first)
    #expect(record.stackAddress > record.sp)
    #expect(record.stackAddress % 4096 == 0)
    #expect(record.stackLength == 32768)
  }

  @Test func `is of this moment`() throws {
    var before = timespec()
    clock_gettime(CLOCK_REALTIME, &before)
    let outcome = try MiniGuardian().run(Places.dies, "abort")
    let record = try #require(outcome.ring.records.first)
    let time = Int(record.realtime / 1_000_000_000)
    #expect(time >= before.tv_sec && time <= before.tv_sec + 120)
  }

  @Test func `keeps what came before when the handler itself faults`() throws {
    // At the copy of the stack: the parts before it are whole, the rest is missing.
    let outcome = try MiniGuardian().run(Places.fixture("handler_faults"))
    #expect(outcome.signal == SIGFPE, "\(outcome.output)")
    let record = try #require(outcome.ring.records.first)
    #expect(record.state == 1)
    #expect(record.signal == SIGFPE)
    #expect(record.parts & 0b11 == 0b11)
    #expect(record.parts & 0b10000 == 0)
    #expect(outcome.bells.isEmpty)
  }

  @Test(arguments: ["two-threads-at-once 2", "two-threads-at-once 64"])
  func `is one, of the first thread, when many crash at once`(way: String) throws {
    for _ in 0..<5 {
      let outcome = try MiniGuardian().run(
        [Places.dies] + way.split(separator: " ").map(String.init))
      #expect(outcome.signal == SIGSEGV)
      #expect(outcome.bells.count == 1)
      #expect(outcome.ring.records.map(\.state) == [2])
      #expect(outcome.ring.handlerRuns == 1)
    }
  }
}

@Suite struct `the alternate stacks` {
  /// "mappings 38 38"
  private func mappings(_ count: String) throws -> (before: Int, after: Int) {
    let outcome = try MiniGuardian().run(Places.dies, "many-threads", count)
    #expect(outcome.exitCode == 0)
    let words = outcome.output.split(separator: " ").compactMap {
      Int($0.prefix { $0.isNumber })
    }
    try #require(words.count == 2, "\(outcome.output)")
    return (words[0], words[1])
  }

  @Test func `of thousands of ended threads do not stay`() throws {
    // 3000 threads. Those that were kept for the next ones, and the C library's own cached
    // stacks, are a few dozen; two mappings for each that leaked would be thousands.
    let mappings = try mappings("60")
    #expect(mappings.after < 400)
  }

  @Test func `are there in every kind of thread, and never against the program's own`() throws {
    let outcome = try MiniGuardian().run(Places.fixture("handler_threads"))
    #expect(outcome.output == "")
    #expect(outcome.exitCode == 0)
    #expect(outcome.ring.handlerFlags & 0b1000 != 0)
  }
}
