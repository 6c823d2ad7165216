import Reports
import Testing

@Suite struct FingerprintTests {
  private func frame(
    _ function: String?, module: String = "api", line: Int = 1, address: UInt64 = 0x1000,
    inApp: Bool = true
  ) -> Frame {
    var frame = Frame(index: 0, address: SafeText.hex(address), trust: .cfi)
    frame.function = function
    frame.module = module
    frame.modulePath = "/usr/bin/" + module
    frame.moduleOffset = SafeText.hex(address & 0xfff)
    frame.line = line
    frame.inApp = inApp
    return frame
  }
  private func print(_ frames: [Frame], life: UInt32 = 1, buildID: String = "aa") -> String {
    var report = Samples.report()
    report.program.life = life
    report.program.uptimeSeconds = Double(life)
    report.modules = [Module(path: "/usr/bin/api", buildID: buildID, base: "0x0", end: "0x9")]
    report.threads = [ThreadFacts(id: Int32(life), crashed: true, frames: frames)]
    return Fingerprint.of(report)
  }

  @Test func `address layout, line numbers and the life change nothing`() {
    #expect(
      print([frame("f", line: 1, address: 0x5500_1000), frame("main")], life: 1)
        == print([frame("f", line: 9, address: 0x7f00_2000), frame("main")], life: 7, buildID: "b"))
  }

  @Test func `another top function is another fault`() {
    #expect(print([frame("f"), frame("main")]) != print([frame("g"), frame("main")]))
    #expect(print([frame("f")]) != print([frame("f", module: "libx.so")]))
    #expect(Fingerprint.isValid(print([frame("f")])))
  }

  @Test func `recursion of any depth is one fault`() {
    let deep = (0..<500).flatMap { _ in [frame("even"), frame("odd")] } + [frame("main")]
    let flat = [frame("even"), frame("odd"), frame("even"), frame("odd"), frame("main")]
    #expect(print(deep) == print(flat))
  }

  @Test func `frames of libraries are skipped and clones of a function are one`() {
    let a = [frame("raise", module: "libc.so.6", inApp: false), frame("f [clone .isra.0]")]
    #expect(print(a) == print([frame("f.cold")]))
  }

  @Test func `without symbols module, build and offset are what counts`() {
    #expect(
      print([frame(nil, address: 0x5500_0123)]) == print([frame(nil, address: 0x7700_0123)]))
    #expect(
      print([frame(nil, address: 0x5500_0123)]) != print([frame(nil, address: 0x5500_0456)]))
    #expect(
      print([frame(nil, address: 0x123)], buildID: "aa")
        != print([frame(nil, address: 0x123)], buildID: "bb"))
  }

  @Test func `numbers in a message change nothing`() {
    func exit(_ reason: String) -> String {
      var report = Samples.report(kind: .exit)
      report.threads = []
      report.exception = ExceptionFacts(type: "E", reason: reason, source: .stderr)
      return Fingerprint.of(report)
    }
    #expect(exit("index 17 of 3 at 0x7f12ab") == exit("index 4 of 99 at 0x55"))
    #expect(exit("no card") != exit("no money"))
  }

  @Test(arguments: [
    ("/usr/lib/x86_64-linux-gnu/libc.so.6", "f", false),
    ("/lib64/ld-linux-x86-64.so.2", nil, false),
    ("[vdso]", nil, false), ("/srv/app/server", "billing::charge(int)", true),
    ("/srv/app/server", "core::panicking::panic_fmt", false), ("/srv/app/server", "main", true),
    ("/srv/app/server", "aborted_order", true), ("/srv/app/server", "abort", false),
    ("/srv/app/server", "<usize as core::slice::index::SliceIndex<[T]>>::index", false),
    ("/srv/app/server", "<cart::Item as core::fmt::Display>::fmt", true),
    ("/srv/app/server", "std::vector<int>::operator[](unsigned long)", false),
    ("/usr/lib/libswiftCore.so", "x", false), ("/srv/app/libcart.so", "cart::add", true),
  ])
  func `the program's own frames are told from the rest`(
    path: String, function: String?, own: Bool
  ) {
    #expect(InApp.isInApp(modulePath: path, function: function) == own)
  }

  @Test(arguments: [
    ("/usr/include/c++/12/bits/stl_vector.h", false),
    ("/rustc/0/library/core/src/slice/index.rs", false), ("library/std/src/rt.rs", false),
    ("/home/me/.cargo/registry/src/x/serde/src/lib.rs", false), ("/src/invoice.cpp", true),
  ])
  func `a library's source compiled into the program is not its own`(file: String, own: Bool) {
    #expect(InApp.isInApp(modulePath: "/srv/app/server", function: "f", file: file) == own)
  }
}
