import Glibc
import Reports
import Symbolication
import Testing

/// Where the symbols come from: separate files, files that changed, the program's own memory.
@Suite struct `Symbols` {
  /// A private copy of a fixture.
  static func copy(_ fixture: String, to folder: String) throws -> String? {
    guard Place.exists(Place.fixture(fixture)) else {
      print("skipped: \(fixture) is not built here")
      return nil
    }
    let program = "\(folder)/server"
    try #require(Shell.run("cp '\(Place.fixture(fixture))' '\(program)'") == 0)
    return program
  }

  @Test func `come from a separate debug file beside the program`() throws {
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_c", to: scratch.path) else { return }
    let split = """
      cd '\(scratch.path)' && objcopy --only-keep-debug server server.debug \
      && strip --strip-all server && objcopy --add-gnu-debuglink=server.debug server
      """
    try #require(Shell.run(split) == 0)
    let core = try #require(Core.of(program, "null", in: scratch.path))
    let snapshot = try Core.snapshot(core)
    expect(snapshot.threads[0].frames, `The crashing thread of a C program`.chain)
  }

  @Test func `of a stripped program are missing, its stack is not`() throws {
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_c", to: scratch.path) else { return }
    try #require(Shell.run("strip --strip-all '\(program)'") == 0)
    let core = try #require(Core.of(program, "null", in: scratch.path))
    let frames = try Core.snapshot(core).threads[0].frames
    #expect(frames[0].function == nil)
    #expect(frames[0].module == "server")
    #expect(frames[0].moduleOffset?.hasPrefix("0x") == true)
    #expect(frames.contains { $0.function == "start_thread" })
  }

  @Test func `come from debug information that dwz shares between units`() throws {
    guard Shell.has("dwz") else {
      print("skipped: no dwz here")
      return
    }
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_cxx", to: scratch.path) else { return }
    let compress = """
      cd '\(scratch.path)' && cp server other && dwz -m common.dwz -M '\(scratch.path)/common.dwz' \
      server other && readelf -S server | grep gnu_debugaltlink
      """
    guard Shell.run(compress) == 0 else {
      print("skipped: this dwz cannot compress what this compiler writes")
      return
    }
    let core = try #require(Core.of(program, "null", in: scratch.path))
    let frames = try Core.snapshot(core).threads[0].frames
    #expect(frames[0].function == "billing::Ledger<billing::Account>::charge(int) const")
    #expect(frames[0].line == Place.line("symbols_cxx.cpp", "charge"))
    #expect(frames.contains { $0.line == Place.line("symbols_cxx.cpp", "lambda") })
  }

  @Test func `of another build at the same path are never used`() throws {
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_c", to: scratch.path) else { return }
    let core = try #require(Core.of(program, "null", in: scratch.path))
    // A deploy: another program takes the name.
    try #require(
      Shell.run(
        "cp '\(Place.fixture("symbols_dwarf4"))' '\(program).new' && mv '\(program)' "
          + "'\(program).old' && mv '\(program).new' '\(program)'") == 0)
    let blind = try Core.snapshot(core)
    #expect(
      blind.defects.contains { $0.contains(program) && $0.contains("another build") },
      "\(blind.defects)")
    #expect(blind.threads.count == 11)
    #expect(blind.threads[0].frames[0].function == nil)
    #expect(blind.threads[0].frames[0].module == "server")

    let descriptor = open("\(program).old", O_RDONLY | O_CLOEXEC)
    defer { close(descriptor) }
    let seeing = try Core.snapshot(
      core, replaced: [ReplacedModule(path: program, descriptor: descriptor)])
    expect(seeing.threads[0].frames, `The crashing thread of a C program`.chain)
    #expect(!seeing.defects.contains { $0.contains(program) })
    #expect(fcntl(descriptor, F_GETFD) >= 0, "the descriptor stays open")
  }

  @Test func `come from the program's memory when its file is gone`() throws {
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_c", to: scratch.path) else { return }
    // With the read-only pages of files in the core.
    let core = try #require(Core.of(program, "null", in: scratch.path, filter: "0x7f"))
    try #require(unlink(program) == 0)
    let snapshot = try Core.snapshot(core)
    #expect(snapshot.defects.contains { $0.contains(program) && $0.contains("memory") })
    let frames = snapshot.threads[0].frames
    #expect(frames[0].module == "server")
    // The unwind tables were in memory too.
    #expect(frames.contains { $0.function == "start_thread" })
    #expect(frames.filter { $0.module == "server" }.allSatisfy { $0.trust != .scan })
  }

  @Test func `are not looked for in what is no file`() throws {
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_c", to: scratch.path) else { return }
    let core = try #require(Core.of(program, "null", in: scratch.path))
    // Opening a FIFO to read would wait for a writer for ever.
    try #require(unlink(program) == 0 && mkfifo(program, 0o600) == 0)
    let snapshot = try Core.snapshot(core)
    #expect(snapshot.defects.contains { $0.contains("is no regular file") })
    #expect(snapshot.threads.count == 11)
  }

  @Test func `are not looked for where a FIFO lies in the place of a debug file`() throws {
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_c", to: scratch.path) else { return }
    let split = """
      cd '\(scratch.path)' && objcopy --only-keep-debug server server.debug \
      && strip --strip-all server && objcopy --add-gnu-debuglink=server.debug server
      """
    try #require(Shell.run(split) == 0)
    let core = try #require(Core.of(program, "null", in: scratch.path))
    try #require(unlink(program + ".debug") == 0 && mkfifo(program + ".debug", 0o600) == 0)
    let snapshot = try Core.snapshot(core)
    #expect(snapshot.threads.count == 11)
    #expect(snapshot.threads[0].frames[0].function == nil)
  }

  @Test func `in compressed sections that claim to be gigabytes are not unpacked`() throws {
    let scratch = Scratch()
    guard let program = try Self.copy("symbols_c", to: scratch.path) else { return }
    try #require(Shell.run("objcopy --compress-debug-sections=zlib '\(program)'") == 0)
    let core = try #require(Core.of(program, "null", in: scratch.path))
    let honest = try Core.snapshot(core)
    expect(honest.threads[0].frames, `The crashing thread of a C program`.chain)

    let file = open(program, O_RDWR | O_CLOEXEC)
    defer { close(file) }
    func number(_ offset: UInt64, _ width: Int) -> UInt64 {
      var bytes = [UInt8](repeating: 0, count: width)
      pread(file, &bytes, width, off_t(offset))
      return bytes.reversed().reduce(0) { $0 << 8 | UInt64($1) }
    }
    var changed = 0
    for index in 0..<number(60, 2) {
      let header = number(40, 8) + index * 64
      guard number(header + 8, 8) & 0x800 != 0 else { continue }
      // ch_size of Elf64_Chdr.
      var size: UInt64 = 300 << 20
      pwrite(file, &size, 8, off_t(number(header + 24, 8) + 8))
      changed += 1
    }
    try #require(changed > 1)
    let hostile = try Core.snapshot(core)
    #expect(hostile.defects.contains { $0.contains(program) && $0.contains("too much memory") })
    #expect(hostile.threads.count == 11)
    #expect(hostile.threads[0].frames[0].function == nil)
  }
}

@Suite struct `A snapshot` {
  @Test func `has as many threads as other readers of the core find`() throws {
    guard Place.exists(Place.fixture("symbols_cxx")) else {
      print("skipped: symbols_cxx is not built here")
      return
    }
    let scratch = Scratch()
    let core = try #require(Core.of(Place.fixture("symbols_cxx"), "null", in: scratch.path))
    let snapshot = try Core.snapshot(core)
    if Shell.has("eu-stack") {
      let stacks = Shell.output("eu-stack --core '\(core)'", in: scratch.path)
      #expect(
        stacks.split(separator: "\n").count { $0.hasPrefix("TID ") } == snapshot.threads.count)
      for thread in snapshot.threads { #expect(stacks.contains("TID \(thread.id):")) }
    } else {
      print("skipped: no eu-stack here")
    }
    if Shell.has("gdb") {
      let threads = Shell.output(
        "gdb -batch -nx -ex 'info threads' '\(Place.fixture("symbols_cxx"))' '\(core)'",
        in: scratch.path)
      let lines = threads.split(separator: "\n").filter { $0.contains("Thread 0x") }
      #expect(lines.count { $0.contains("(LWP ") } >= snapshot.threads.count)
      #expect(
        threads.split(separator: "\n").first { $0.hasPrefix("* 1 ") }?
          .contains("(LWP \(snapshot.threads[0].id))") == true)
    } else {
      print("skipped: no gdb here")
    }
  }

  @Test func `resolves further addresses and takes names of threads`() throws {
    guard Place.exists(Place.fixture("symbols_c")) else {
      print("skipped: symbols_c is not built here")
      return
    }
    let scratch = Scratch()
    let core = try #require(Core.of(Place.fixture("symbols_c"), "null", in: scratch.path))
    let first = try Core.snapshot(core)
    let work = try #require(first.threads[0].frames.first { $0.function == "work" })
    let address = try #require(work.address.flatMap { UInt64($0.dropFirst(2), radix: 16) })
    let second = try Core.snapshot(
      core, names: [first.threads[0].id: "biller"], addresses: [address])
    expect(second.resolved, [Expected("work", "symbols_c.c", "work")])
    #expect(second.threads[0].name == "biller")
  }

  @Test func `without time left says so and still has its threads' first frames`() throws {
    guard Place.exists(Place.fixture("symbols_c")) else {
      print("skipped: symbols_c is not built here")
      return
    }
    let scratch = Scratch()
    let core = try #require(Core.of(Place.fixture("symbols_c"), "null", in: scratch.path))
    var limits = SymbolicationLimits()
    limits.milliseconds = 0
    let snapshot = try Core.snapshot(core, limits: limits)
    #expect(snapshot.defects.contains { $0.contains("ran out of its 0 ms") })
    #expect(snapshot.threads.count == 11)
    #expect(snapshot.threads.allSatisfy { $0.frames.count == 1 })
  }
}
