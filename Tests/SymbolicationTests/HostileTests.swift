import Glibc
import Kernel
import Reports
import Symbolication
import Testing

/// A sequence that is the same in every run.
struct Dice {
  var state: UInt64
  mutating func roll(_ sides: Int) -> Int {
    state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
    return Int((state >> 33) % UInt64(sides))
  }
}

@Suite struct `A hostile core` {
  /// The begin of a core, with its headers, notes and first memory; small enough to change often.
  static func beginning(_ scratch: borrowing Scratch) throws -> [UInt8]? {
    guard Place.exists(Place.fixture("symbols_staticpie")) else {
      print("skipped: symbols_staticpie is not built here")
      return nil
    }
    let core = try #require(
      Core.of(Place.fixture("symbols_staticpie"), "null", in: scratch.path))
    let descriptor = open(core, O_RDONLY)
    defer { close(descriptor) }
    var bytes = [UInt8](repeating: 0, count: 1 << 20)
    let count = pread(descriptor, &bytes, bytes.count, 0)
    try #require(count > 65_536)
    return Array(bytes[..<count])
  }

  static func read(_ bytes: [UInt8], in scratch: borrowing Scratch) -> Snapshot? {
    let path = "\(scratch.path)/hostile"
    let descriptor = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    let file = FileDescriptor(owning: descriptor)
    _ = bytes.withUnsafeBytes { pwrite(descriptor, $0.baseAddress, $0.count, 0) }
    var limits = SymbolicationLimits()
    limits.milliseconds = 2_000
    return try? Symbolicator.snapshot(core: file, limits: limits)
  }

  @Test func `that is cut off anywhere gives an error or what is left`() throws {
    let scratch = Scratch()
    guard let whole = try Self.beginning(scratch) else { return }
    for length in [0, 1, 63, 64, 65, 120, 1_000, 4_096, 9_999, 30_000, whole.count] {
      let snapshot = Self.read(Array(whole.prefix(length)), in: scratch)
      if length < 64 { #expect(snapshot == nil) }
      if let snapshot { #expect(!snapshot.defects.isEmpty || length == whole.count) }
    }
    #expect(Self.read(whole, in: scratch)?.threads.count == 11)
  }

  @Test func `with changed bytes ends in time`() throws {
    let scratch = Scratch()
    guard let whole = try Self.beginning(scratch) else { return }
    var dice = Dice(state: 20_261)
    for _ in 0..<150 {
      var bytes = whole
      for _ in 0...dice.roll(12) {
        // Headers and notes, mostly: that is what is parsed.
        let place = dice.roll(4) == 0 ? dice.roll(bytes.count) : dice.roll(16_384)
        bytes[place] = [0, 1, 0x7f, 0x80, 0xff, UInt8(dice.roll(256))][dice.roll(6)]
      }
      let begin = clock_gettime_nsec()
      _ = Self.read(bytes, in: scratch)
      #expect(clock_gettime_nsec() - begin < 10_000_000_000)
    }
  }

  @Test func `that claims impossible sizes is refused without much memory`() throws {
    let scratch = Scratch()
    guard let whole = try Self.beginning(scratch) else { return }
    // The number, place, file size and memory size of the program headers.
    for (offset, width) in [
      (56, 2), (32, 8), (64 + 32, 8), (64 + 8, 8), (120 + 32, 8), (120 + 40, 8),
    ] {
      for value: UInt64 in [UInt64.max, 1 << 62, 1 << 40, 0xffff] {
        var bytes = whole
        for index in 0..<width {
          bytes[offset + index] = UInt8(truncatingIfNeeded: value >> (8 * index))
        }
        _ = Self.read(bytes, in: scratch)
      }
    }
  }

  @Test func `that is none is named as such`() {
    let empty = FileDescriptor(owning: open("/dev/null", O_RDONLY))
    #expect(throws: SymbolicationError.notACore("it is shorter than an ELF header")) {
      _ = try Symbolicator.snapshot(core: empty)
    }
    let program = FileDescriptor(owning: open("/bin/sh", O_RDONLY))
    #expect(throws: SymbolicationError.notACore("it is no 64-bit little-endian ELF core")) {
      _ = try Symbolicator.snapshot(core: program)
    }
  }
}

func clock_gettime_nsec() -> UInt64 {
  var time = timespec()
  clock_gettime(CLOCK_MONOTONIC, &time)
  return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

@Suite struct `A name` {
  @Test(arguments: [
    ("_ZN7billing6chargeEi", "billing::charge(int)"),
    (
      "_ZNSt6vectorIiSaIiEE9push_backERKi",
      "std::vector<int, std::allocator<int> >::push_back(int const&)"
    ),
    ("_ZN7billing6chargeEi.cold", "billing::charge(int) [clone .cold]"),
    ("_ZN7billing6chargeEi@@VERS_1", "billing::charge(int)"),
    ("_ZN4core9panicking9panic_fmt17h0123456789abcdefE", "core::panicking::panic_fmt"),
    ("_RNvCs15kBYyAo9fc_7mycrate7example", "mycrate::example"),
    ("$s4main3fooyS2iF", "main.foo(Int) -> Int"),
    ("$s4main7InvoiceV5total5priceS2i_tF", "main.Invoice.total(price: Int) -> Int"),
    ("memcpy", "memcpy"), ("_start", "_start"), ("main", "main"), ("", ""),
    ("_Z", "_Z"), ("_R", "_R"), ("$s", "$s"),
  ])
  func `is shown as a person wrote it`(name: String, readable: String) {
    var demangler = Demangler()
    #expect(demangler.readable(name) == readable)
    #expect(demangler.readable(name) == readable)
  }

  @Test func `that stands for gigabytes stays as it is`() {
    // Each S…_ doubles the type before it.
    var doubling = "_Z1fSt4pairIiiE"
    for index in 0..<60 {
      let reference = index == 0 ? "S_" : "S\(String(index - 1, radix: 36).uppercased())_"
      doubling += "St4pairI\(reference)\(reference)E"
    }
    var demangler = Demangler()
    for hostile in [
      doubling, "_Z" + String(repeating: "P", count: 100_000) + "i",
      "_Z1f" + String(repeating: "P", count: 16_000) + "i",
      "_R" + String(repeating: "I", count: 16_000), "$s" + String(repeating: "A", count: 16_000),
      "$s4main" + String(repeating: "3fooV", count: 3_000) + "F",
      "_RNv" + String(repeating: "Nt", count: 8_000) + "C1a1b",
    ] {
      let readable = demangler.readable(hostile)
      #expect(readable.utf8.count <= 4_200)
    }
  }

  @Test func `cannot forge a line of the report`() {
    var demangler = Demangler()
    #expect(demangler.readable("innocent\nSIGSEGV in other") == "innocent\u{fffd}SIGSEGV in other")
    #expect(demangler.readable("a\u{1b}[31mb") == "a\u{fffd}[31mb")
  }
}
