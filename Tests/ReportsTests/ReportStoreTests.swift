import Glibc
import Kernel
import Reports
import Testing

/// Lets the n-th call fail, and every later one too if `forGood` (the process was killed there:
/// nothing that it would have done happens).
private final class FailingCalls: StoreCalls {
  let real = KernelStoreCalls()
  var left: Int
  let forGood: Bool
  private(set) var failed = false
  init(failing number: Int, forGood: Bool) {
    left = number
    self.forGood = forGood
  }
  private func pass() throws(SystemError) {
    left -= 1
    if left == 0 || left < 0 && forGood {
      failed = true
      throw SystemError("do the call", errno: EIO)
    }
  }
  func makeFolder(_ path: String) throws(SystemError) {
    try pass()
    try real.makeFolder(path)
  }
  func write(_ path: String, _ bytes: [UInt8], sync: Bool) throws(SystemError) {
    do { try pass() } catch {
      // A torn write is the worst that a kill leaves.
      try real.write(path, Array(bytes.prefix(bytes.count / 2)), sync: false)
      throw error
    }
    try real.write(path, bytes, sync: false)
  }
  func read(_ path: String, limit: Int) throws(SystemError) -> [UInt8]? {
    try pass()
    return try real.read(path, limit: limit)
  }
  func rename(_ from: String, to: String) throws(SystemError) {
    try pass()
    try real.rename(from, to: to)
  }
  func removeFile(_ path: String) throws(SystemError) {
    try pass()
    try real.removeFile(path)
  }
  func removeFolder(_ path: String) throws(SystemError) {
    try pass()
    try real.removeFolder(path)
  }
  func list(_ path: String) throws(SystemError) -> [String] {
    try pass()
    return try real.list(path)
  }
  func bytes(inFolder path: String) throws(SystemError) -> UInt64 {
    try pass()
    return try real.bytes(inFolder: path)
  }
  func sync(_ path: String) throws(SystemError) { try pass() }
  func freeBytes(_ path: String) throws(SystemError) -> UInt64 {
    try pass()
    return 1 << 40
  }
}

/// A file system of so many bytes: a write that does not fit is torn, as the kernel's.
private struct SmallDisk: StoreCalls {
  let real = KernelStoreCalls()
  let directory: String
  let capacity: Int

  private func used(_ path: String) -> Int {
    var status = stat()
    guard lstat(path, &status) == 0 else { return 0 }
    guard status.st_mode & S_IFMT == S_IFDIR else { return Int(status.st_size) }
    return ((try? real.list(path)) ?? []).reduce(0) { $0 + used(path + "/" + $1) }
  }
  func write(_ path: String, _ bytes: [UInt8], sync: Bool) throws(SystemError) {
    try real.write(path, [], sync: false)
    let room = max(0, capacity - used(directory))
    try real.write(path, Array(bytes.prefix(room)), sync: false)
    if bytes.count > room { throw SystemError("write", path, errno: ENOSPC) }
  }
  func makeFolder(_ path: String) throws(SystemError) { try real.makeFolder(path) }
  func read(_ path: String, limit: Int) throws(SystemError) -> [UInt8]? {
    try real.read(path, limit: limit)
  }
  func rename(_ from: String, to: String) throws(SystemError) { try real.rename(from, to: to) }
  func removeFile(_ path: String) throws(SystemError) { try real.removeFile(path) }
  func removeFolder(_ path: String) throws(SystemError) { try real.removeFolder(path) }
  func list(_ path: String) throws(SystemError) -> [String] { try real.list(path) }
  func bytes(inFolder path: String) throws(SystemError) -> UInt64 {
    try real.bytes(inFolder: path)
  }
  func sync(_ path: String) throws(SystemError) {}
  func freeBytes(_ path: String) throws(SystemError) -> UInt64 { UInt64(capacity) }
}

@Suite struct ReportStoreTests {
  private let scratch = Scratch()
  private var directory: String { scratch.path + "/reports" }
  private var store: ReportStore<KernelStoreCalls> { ReportStore(directory: directory) }

  private func json(_ id: ReportID, in folder: StoreFolder = .new) throws -> ReportSketch? {
    try KernelStoreCalls().read(store.path(folder, id) + "/report.json", limit: 64 << 20)
      .map { ReportSketch(json: $0) }
  }

  private func incident(_ report: Report) throws {
    let folder = try store.begin(ReportID(report.id)!)
    _ = try folder.openCore()
    try folder.writePlain(report, ring: [1, 2, 3], stderr: Array("oops\n".utf8))
  }

  @Test func `an incident becomes a final report with its files`() throws {
    let report = Samples.report()
    try incident(report)
    #expect(try store.reports().isEmpty)
    let finished = try store.finish(report)
    #expect(finished.group?.count == 1)
    let files = try KernelStoreCalls().list(store.path(.new, Samples.id))
    #expect(files == ["core", "report.json", "report.txt", "ring", "stderr.log"])
    #expect(try KernelStoreCalls().list(store.path(.partial)).isEmpty)
    let sketch = try #require(try json(Samples.id))
    #expect(sketch.group == finished.group)
    #expect(sketch.fingerprint == report.fingerprint)
    var status = stat()
    #expect(stat(store.path(.new, Samples.id), &status) == 0)
    #expect(status.st_mode & 0o777 == 0o700)
  }

  @Test func `reports of one fault are counted together and others apart`() throws {
    for number in 1...4 {
      let report = Samples.report(id: Samples.id(number), function: number == 3 ? "other" : "same")
      try incident(report)
      let group = try #require(try store.finish(report).group)
      #expect(group.count == (number == 3 ? 1 : number == 4 ? 3 : number))
      #expect(group.lastSeen == report.time)
    }
  }

  @Test func `the first and the last of a kind outlive the limit and all are counted`() throws {
    var limits = StoreLimits()
    limits.reports = 5
    for number in 1...12 {
      let report = Samples.report(
        id: Samples.id(number), function: number.isMultiple(of: 4) ? "rare" : "often")
      try incident(report)
      try store.finish(report, limits: limits)
    }
    let left = try store.reports().map(\.id)
    #expect(left.count == 5)
    for number in [1, 4, 11, 12] { #expect(left.contains(Samples.id(number))) }
    let rare = Samples.report(id: Samples.id(1), function: "rare").fingerprint
    let often = Samples.report(id: Samples.id(1), function: "often").fingerprint
    let index = store.loadIndex()
    #expect(index.group(rare)?.count == 3)
    #expect(index.group(often)?.count == 9)
    #expect(index.group(often)?.firstSeen == TimeText.rfc3339(Samples.id(1).time))
  }

  @Test func `what is kept plain is within the limits too, and counted`() throws {
    var limits = StoreLimits()
    limits.reports = 5
    for number in 1...12 {
      try incident(Samples.report(id: Samples.id(number), function: "often"))
      try store.keep(Samples.id(number), limits: limits)
    }
    let left = try store.reports().map(\.id)
    #expect(left.count == 5)
    #expect(left.contains(Samples.id(1)) && left.contains(Samples.id(12)))
    let often = Samples.report(id: Samples.id(1), function: "often").fingerprint
    #expect(store.loadIndex().group(often)?.count == 12)
    #expect(!(try KernelStoreCalls().list(store.path(.new, Samples.id(12)))).contains("ring"))
    // Where a finisher has the lock, nobody waits.
    guard let lock = FolderLock(directory, wait: false) else {
      Issue.record("the lock is not free")
      return
    }
    try incident(Samples.report(id: Samples.id(13)))
    try store.keep(Samples.id(13), limits: limits)
    #expect(try store.reports().count == 6)
    withExtendedLifetime(lock) {}
  }

  @Test func `a link in the place of a folder leads nobody to other files`() throws {
    try store.prepare()
    let victim = scratch.path + "/victim"
    let calls = KernelStoreCalls()
    try calls.makeFolder(victim)
    try calls.write(victim + "/precious", [1], sync: false)
    try calls.write(victim + "/ring", [1], sync: false)
    for name in ["x.gone", Samples.id.text] {
      #expect(symlink(victim, store.path(.partial) + "/" + name) == 0)
    }
    _ = try store.adoptOrphans(program: Samples.program())
    #expect(throws: SystemError.self) { try calls.removeFolder(store.path(.partial) + "/x.gone") }
    Files.removeShallow(store.path(.partial) + "/x.gone")
    #expect(try calls.list(victim) == ["precious", "ring"])
  }

  @Test func `folders that others may write to are not trusted`() throws {
    try store.checkOwners()
    try store.prepare()
    try store.checkOwners()
    for folder in [directory, store.path(.partial), store.path(.done)] {
      chmod(folder, 0o770)
      #expect(throws: SystemError.self) { try store.checkOwners() }
      chmod(folder, 0o700)
      if getuid() != 0 { continue }
      chown(folder, 1234, 1234)
      let error = #expect(throws: SystemError.self) { try store.checkOwners() }
      #expect(
        error?.description
          == "cannot trust the folder of another user '\(folder)': Operation not permitted")
      chown(folder, 0, 0)
    }
    try store.checkOwners()
    if getuid() == 0 {
      let link = scratch.path + "/link"
      #expect(symlink(directory, link) == 0)
      try Files.checkOwner(link)
      #expect(lchown(link, 1234, 1234) == 0)
      #expect(throws: SystemError.self) { try Files.checkOwner(link) }
    }
  }

  @Test func `the limit in bytes holds`() throws {
    var limits = StoreLimits()
    limits.bytes = 300 << 10
    for number in 1...6 {
      let report = Samples.report(id: Samples.id(number))
      try incident(report)
      try KernelStoreCalls().write(
        store.path(.partial, Samples.id(number)) + "/core",
        [UInt8](repeating: 7, count: 100 << 10), sync: false)
      try store.finish(report, limits: limits)
    }
    #expect(try store.reports().map(\.id) == [Samples.id(1), Samples.id(6)])
  }

  @Test(arguments: [true, false])
  func `whatever call fails, no report is lost or counted twice`(killed: Bool) throws {
    var number = 0
    while true {
      number += 1
      Scratch.remove(directory)
      var limits = StoreLimits()
      limits.reports = 2
      for earlier in 1...3 {
        let report = Samples.report(id: Samples.id(earlier))
        try incident(report)
        try store.finish(report, limits: limits)
      }
      let report = Samples.report(id: Samples.id(9))
      try incident(report)
      let calls = FailingCalls(failing: number, forGood: killed)
      let failing = ReportStore(directory: directory, calls: calls)
      _ = try? failing.finish(report, limits: limits)

      // The next guardian, then the next finisher.
      _ = try store.adoptOrphans(program: Samples.program())
      let sketch = try #require(try json(Samples.id(9)), "call \(number)")
      #expect(sketch.fingerprint == report.fingerprint, "call \(number)")
      let next = Samples.report(id: Samples.id(10))
      try incident(next)
      let group = try store.finish(next, limits: limits).group
      #expect(group?.count == 5, "call \(number)")
      #expect(group?.firstSeen == TimeText.rfc3339(Samples.id(1).time), "call \(number)")
      #expect(try KernelStoreCalls().list(store.path(.partial)).isEmpty, "call \(number)")
      #expect(try store.reports().map(\.id) == [Samples.id(1), Samples.id(10)], "call \(number)")
      if !calls.failed { break }
    }
    #expect(number > 25)
  }

  @Test func `orphans become final as they are and empty ones vanish`() throws {
    let whole = Samples.report(id: Samples.id(1))
    try incident(whole)
    let bare = try store.begin(Samples.id(2))
    _ = try bare.openCore()
    try KernelStoreCalls().write(bare.path + "/core", [1, 2, 3, 4], sync: false)
    let empty = try store.begin(Samples.id(3))
    _ = try empty.openCore()
    let busy = try store.begin(Samples.id(4))
    try busy.writePlain(Samples.report(id: Samples.id(4)), ring: nil, stderr: [])
    guard let lock = FolderLock(busy.path, wait: false) else {
      Issue.record("no lock")
      return
    }

    let adopted = try store.adoptOrphans(program: Samples.program())
    withExtendedLifetime(lock) {}
    #expect(adopted == [Samples.id(1), Samples.id(2)])
    #expect(try KernelStoreCalls().list(store.path(.partial)) == [Samples.id(4).text])
    let text = try python(
      "import json,sys; r=json.load(sys.stdin); print(r['capture']['defects'][0], r['program']['name'])",
      try KernelStoreCalls().read(
        store.path(.new, Samples.id(2)) + "/report.json", limit: 1 << 20) ?? [])
    #expect(text == "guardian ended before it could write the report api\n")
  }

  @Test(arguments: ["", "garbage\n\u{0}\n", "guardian.groups/1\nreport x y z\nend 9\n"])
  func `a damaged index is put right from what lies there`(text: String) throws {
    for number in 1...3 {
      let report = Samples.report(id: Samples.id(number))
      try incident(report)
      var limits = StoreLimits()
      limits.reports = 2
      try store.finish(report, limits: limits)
    }
    try KernelStoreCalls().write(directory + "/groups", Array(text.utf8), sync: false)
    let report = Samples.report(id: Samples.id(4))
    try incident(report)
    let group = try store.finish(report).group
    // The third report says "3 of its kind", though only two are there.
    #expect(group?.count == 4)
    #expect(group?.firstSeen == TimeText.rfc3339(Samples.id(1).time))
    #expect(!GroupIndex(text: Array(text.utf8)).protected.contains(Samples.id(1)))
  }

  @Test func `hostile bytes never make the index fail`() {
    var state: UInt64 = 7
    let valid = GroupIndex(text: Array("guardian.groups/1\nend 1\n".utf8))
    #expect(!valid.wasDamaged)
    for _ in 0..<500 {
      let bytes = (0..<200).map { _ -> UInt8 in
        state = state &* 6_364_136_223_846_793_005 &+ 1
        return UInt8(truncatingIfNeeded: state >> 40)
      }
      let index = GroupIndex(text: Array("guardian.groups/1\nremoved ".utf8) + bytes)
      #expect(index.wasDamaged)
    }
  }

  @Test func `on a full disk the report wins over the snapshot`() throws {
    let disk = SmallDisk(directory: scratch.path, capacity: 64 << 10)
    let small = ReportStore(directory: directory, calls: disk)
    var report = Samples.report()
    report.attachments = [Attachment(name: "core", bytes: 64 << 10)]
    let folder = try small.begin(Samples.id)
    #expect(throws: SystemError.self) {
      try disk.write(folder.path + "/core", [UInt8](repeating: 7, count: 80 << 10), sync: false)
    }
    try folder.writePlain(
      report, ring: [UInt8](repeating: 1, count: 80 << 10), stderr: Array("oops\n".utf8))
    let files = try KernelStoreCalls().list(folder.path)
    #expect(files == ["report.json", "report.txt", "stderr.log"])
    let json = try KernelStoreCalls().read(folder.path + "/report.json", limit: 1 << 20) ?? []
    let text = try python(
      "import json,sys; r=json.load(sys.stdin); print(r['capture']['defects'][-1], r['attachments'])",
      json)
    #expect(
      text
        == "No space left on device: the snapshot was removed to make room for the report []\n")
    // The finisher's part needs room for a second one.
    try small.finish(report)
    #expect(try store.reports().map(\.id) == [Samples.id])
  }

  @Test func `where no report can be written there is none, and nothing is adopted without one`()
    throws
  {
    let disk = SmallDisk(directory: scratch.path, capacity: 1 << 10)
    let small = ReportStore(directory: directory, calls: disk)
    let folder = try small.begin(Samples.id(1))
    #expect(throws: SystemError.self) {
      try folder.writePlain(Samples.report(id: Samples.id(1)), ring: [1], stderr: [1])
    }
    #expect(try KernelStoreCalls().list(folder.path).isEmpty)
    try KernelStoreCalls().write(folder.path + "/ring", [1, 2, 3], sync: false)
    #expect(try small.adoptOrphans(program: Samples.program()).isEmpty)
    #expect(try store.reports().isEmpty)
    // There is room again.
    #expect(try KernelStoreCalls().list(store.path(.partial)) == [Samples.id(1).text])
  }

  @Test func `a report that cannot be written stays where it is`() throws {
    let report = Samples.report()
    #expect(throws: SystemError.self) { try store.finish(report) }
    #expect(try store.reports().isEmpty)
  }
}
