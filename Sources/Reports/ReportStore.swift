// The store: `reports/{partial,new,pending,done}/<id>/`. A report's state is the folder it lies
// in; it moves by rename, so it is never in two places and never half there. Only the finisher
// flushes and only it deletes.
import Glibc
import Kernel

package enum StoreFolder: String, CaseIterable, Sendable {
  /// Not final yet: guardian or a reporter is at it, or was when it died.
  case partial
  /// Final, nobody was told.
  case new
  /// Being delivered.
  case pending
  /// Delivered.
  case done

  /// Where final reports lie.
  package static let final: [StoreFolder] = [.new, .pending, .done]
}

package struct ReportStore<Calls: StoreCalls> {
  /// `<state>/reports`
  package let directory: String
  package let calls: Calls

  package init(directory: String, calls: Calls) {
    self.directory = directory
    self.calls = calls
  }

  package func path(_ folder: StoreFolder) -> String { directory + "/" + folder.rawValue }
  package func path(_ folder: StoreFolder, _ id: ReportID) -> String {
    path(folder) + "/" + id.text
  }

  /// Throws if somebody else than root and we could put things into one of the folders, which
  /// need not be there yet.
  package func checkOwners() throws(SystemError) {
    for path in [directory] + StoreFolder.allCases.map(path) {
      do { try Files.checkOwner(path) } catch  where error.errno == ENOENT {}
    }
  }

  /// Makes the folders, 0700.
  package func prepare() throws(SystemError) {
    try calls.makeFolder(directory)
    for folder in StoreFolder.allCases { try calls.makeFolder(path(folder)) }
  }

  // MARK: guardian's part

  /// `partial/<id>`, new and empty.
  package func begin(_ id: ReportID) throws(SystemError) -> IncidentFolder<Calls> {
    let path = path(.partial, id)
    do {
      try calls.makeFolder(path)
    } catch  where error.errno == ENOENT {
      try prepare()
      try calls.makeFolder(path)
    }
    return IncidentFolder(id: id, path: path, calls: calls)
  }

  /// Of all that are stored or begun.
  package func newest() -> ReportID? {
    StoreFolder.allCases.compactMap { folder in
      ((try? calls.list(path(folder))) ?? []).compactMap { ReportID($0) }.max()
    }.max()
  }

  /// `partial/<id>`, which is there.
  package func folder(_ id: ReportID) -> IncidentFolder<Calls> {
    IncidentFolder(id: id, path: path(.partial, id), calls: calls)
  }

  /// Snapshots of crashes whose guardian died before it wrote their report, oldest first.
  package func begun() -> [BegunIncident] {
    ((try? calls.list(path(.partial))) ?? []).compactMap { ReportID($0) }.sorted().compactMap {
      id in
      let folder = path(.partial, id)
      guard let files = try? calls.list(folder), !files.contains("report.json"),
        let bytes =
          (try? calls.read(
            folder + "/" + BegunIncident.name, limit: BegunIncident.maximumBytes)) ?? nil
      else { return nil }
      return BegunIncident(id, bytes)
    }
  }

  /// Folders in `partial` whose guardian or reporter is gone become final as they are; empty ones
  /// vanish, and one that no report can be written for stays. To be called at guardian's start. The
  /// index learns of them at the next finishing. Throws only if `partial` cannot be listed.
  /// - Parameter others: somebody writes a better report for these.
  package func adoptOrphans(
    program: Program, except others: Set<ReportID> = []
  ) throws(SystemError) -> [ReportID] {
    var adopted: [ReportID] = []
    for name in try calls.list(path(.partial)) {
      if let id = ReportID(name), others.contains(id) { continue }
      let path = path(.partial) + "/" + name
      // Deletion was interrupted.
      if name.hasSuffix(Self.gone) {
        try? calls.removeFolder(path)
        continue
      }
      guard let id = ReportID(name), let lock = FolderLock(path, wait: false) else { continue }
      defer { withExtendedLifetime(lock) {} }
      guard let files = try? calls.list(path) else { continue }
      if !files.contains("report.json") {
        let hasEvidence = files.contains { $0 == "core" || $0 == "ring" }
        let bytes = (try? calls.bytes(inFolder: path)) ?? 0
        guard hasEvidence, bytes > 0 else {
          try? calls.removeFolder(path)
          continue
        }
        var report = Self.minimal(id, program: program)
        let folder = IncidentFolder(id: id, path: path, calls: calls)
        // Without a report it is none: it waits for a guardian that finds room.
        guard (try? folder.writeMakingRoom(&report, sync: false)) != nil else { continue }
      }
      for file in files where file.hasSuffix(".tmp") { try? calls.removeFile(path + "/" + file) }
      if (try? calls.rename(path, to: self.path(.new, id))) != nil { adopted.append(id) }
    }
    return adopted
  }

  /// What can be said of a crash whose guardian died before it wrote anything.
  private static func minimal(_ id: ReportID, program: Program) -> Report {
    var report = Report(
      id: id.text, time: TimeText.rfc3339(id.time), kind: .crash, program: program,
      ending: EndingFacts(), host: Host.read(machineID: nil), process: ProcessFacts(), policy: nil,
      capture: CaptureFacts(handler: "unknown", threads: .none))
    report.capture.defects = ["guardian ended before it could write the report"]
    report.fingerprint = Fingerprint.of(report)
    return report
  }

  // MARK: The finisher's part

  /// Makes a report final: counts it, writes it, flushes it, moves it to `new`, keeps the store
  /// within its limits. `report.group` is set. Kill at any instruction leaves the folder in
  /// `partial` (adopted later) or in `new` (counted later).
  @discardableResult
  package func finish(_ report: Report, limits: StoreLimits = StoreLimits()) throws(SystemError)
    -> Report
  {
    guard let id = ReportID(report.id) else {
      throw SystemError("finish the report", report.id, errno: EINVAL)
    }
    try prepare()
    let lock = FolderLock(directory, wait: true)
    defer { withExtendedLifetime(lock) {} }

    var report = report
    if !Fingerprint.isValid(report.fingerprint) { report.fingerprint = Fingerprint.of(report) }
    var index = loadIndex()
    index.add(id, .init(fingerprint: report.fingerprint, time: report.time))
    report.group = index.group(report.fingerprint)

    let folder = IncidentFolder(id: id, path: path(.partial, id), calls: calls)
    do {
      try folder.write(&report, sync: true)
    } catch  where error.errno == ENOSPC || error.errno == EDQUOT {
      // The newest report is worth more than old ones.
      var fewer = limits
      fewer.bytes /= 2
      retain(&index, limits: fewer)
      try folder.writeMakingRoom(&report, sync: true)
    }
    for file in try calls.list(folder.path) where file.hasSuffix(".tmp") {
      try? calls.removeFile(folder.path + "/" + file)
    }
    for file in ["core", "ring", "stderr.log", "maps"] { try calls.sync(folder.path + "/" + file) }
    try calls.sync(folder.path)
    try calls.rename(folder.path, to: path(.new, id))
    try calls.sync(path(.new))
    try calls.sync(path(.partial))

    // From here on the report is safe: what fails now is put right by the next finisher.
    retain(&index, limits: limits)
    try? save(index)
    return report
  }

  /// Makes a report of `partial` final as it is, without its reporter, and keeps the store within
  /// its limits. Waits for nothing: where a finisher is just at that, it sees to the limits, and
  /// nothing is flushed.
  /// - Parameter limits: nil: more follow, and the last of them makes room.
  package func keep(_ id: ReportID, limits: StoreLimits?) throws(SystemError) {
    let partial = path(.partial, id)
    // What the reporter would have made of it is all that it was for.
    try? calls.removeFile(partial + "/ring")
    try calls.rename(partial, to: path(.new, id))
    guard let limits, let lock = FolderLock(directory, wait: false) else { return }
    defer { withExtendedLifetime(lock) {} }
    var index = loadIndex()
    retain(&index, limits: limits)
    try? save(index, sync: false)
  }

  private var indexPath: String { directory + "/groups" }

  /// The index as it is on disk, put right by what lies in the folders.
  package func loadIndex() -> GroupIndex {
    let bytes = (try? calls.read(indexPath, limit: ReportLimits.indexBytes)) ?? nil
    var index = bytes.map { GroupIndex(text: $0) } ?? GroupIndex()
    var present: Set<ReportID> = []
    var isComplete = true
    for folder in StoreFolder.final {
      guard let names = try? calls.list(path(folder)) else {
        isComplete = false
        continue
      }
      for name in names {
        guard let id = ReportID(name) else { continue }
        present.insert(id)
        if index.entries[id] != nil { continue }
        let json =
          (try? calls.read(
            path(folder, id) + "/report.json", limit: ReportLimits.jsonBytes + 4096)) ?? nil
        let sketch = ReportSketch(json: json ?? [])
        let fingerprint = sketch.fingerprint ?? Self.unknownFingerprint
        index.add(
          id,
          .init(fingerprint: fingerprint, time: sketch.time ?? TimeText.rfc3339(id.time)))
        if let group = sketch.group { index.recall(fingerprint, group) }
      }
    }
    // A folder that could not be listed must not count as emptied.
    if isComplete {
      for id in index.entries.keys where !present.contains(id) { index.remove(id) }
    }
    return index
  }

  private static var unknownFingerprint: String { String(repeating: "0", count: 32) }

  private func save(_ index: GroupIndex, sync: Bool = true) throws(SystemError) {
    let temporary = indexPath + ".tmp"
    try calls.write(temporary, index.text, sync: sync)
    try calls.rename(temporary, to: indexPath)
    if sync { try calls.sync(directory) }
  }

  // MARK: Retention

  private static var gone: String { ".gone" }

  /// Deletes until the limits hold: first what is neither the first nor the last of its kind,
  /// oldest first, then the rest, oldest first; never the newest. What is deleted stays counted.
  private func retain(_ index: inout GroupIndex, limits: StoreLimits) {
    var stored: [(id: ReportID, folder: StoreFolder, bytes: UInt64)] = []
    for folder in StoreFolder.final {
      for name in (try? calls.list(path(folder))) ?? [] {
        guard let id = ReportID(name) else { continue }
        stored.append((id, folder, (try? calls.bytes(inFolder: path(folder, id))) ?? 0))
      }
    }
    var count = stored.count
    var bytes = stored.reduce(0) { $0 &+ $1.bytes }
    // What the reports themselves take is free space that they may use.
    let free = (try? calls.freeBytes(directory)) ?? .max
    let share = free == .max ? .max : (free &+ bytes) / ReportLimits.storedShareOfFreeDisk
    let bytesMaximum = min(limits.bytes, share)
    let protected = index.protected
    // By its id, not by who is finished last: several finishers may be at work.
    let newest = stored.map(\.id).max()
    let order = stored.filter { $0.id != newest }.sorted { a, b in
      let (first, second) = (protected.contains(a.id), protected.contains(b.id))
      return first == second ? a.id < b.id : !first
    }
    var failed = false
    for report in order where count > limits.reports || bytes > bytesMaximum {
      // One that will not go is no reason to delete what is worth more.
      if failed, protected.contains(report.id) { break }
      // Out of the final folder first, so that nobody finds half a report there.
      let grave = path(.partial, report.id) + Self.gone
      guard (try? calls.rename(path(report.folder, report.id), to: grave)) != nil else {
        failed = true
        continue
      }
      index.remove(report.id)
      count -= 1
      bytes -= report.bytes
      try? calls.removeFolder(grave)
    }
  }

  /// Deletes final reports; they stay counted, as those do that retention deletes. Who has no such
  /// report is passed over.
  /// - Returns: those that are gone now.
  package func delete(_ ids: [ReportID]) throws(SystemError) -> [ReportID] {
    let lock = FolderLock(directory, wait: true)
    defer { withExtendedLifetime(lock) {} }
    var index = loadIndex()
    var deleted: [ReportID] = []
    var failure: SystemError?
    for id in ids where failure == nil {
      let grave = path(.partial, id) + Self.gone
      for folder in StoreFolder.final where !deleted.contains(id) {
        do {
          try calls.rename(path(folder, id), to: grave)
        } catch {
          if error.errno != ENOENT { failure = error }
          continue
        }
        index.remove(id)
        deleted.append(id)
        try? calls.removeFolder(grave)
      }
    }
    try save(index)
    if let failure { throw failure }
    return deleted
  }

  // MARK: Readers

  /// What is being written, or was when its reporter died; oldest first.
  package func unfinished() -> [ReportID] {
    ((try? calls.list(path(.partial))) ?? []).compactMap { ReportID($0) }.sorted()
  }

  /// Final reports, oldest first.
  package func reports() throws(SystemError) -> [(id: ReportID, folder: StoreFolder)] {
    var result: [(id: ReportID, folder: StoreFolder)] = []
    for folder in StoreFolder.final {
      for name in try calls.list(path(folder)) {
        if let id = ReportID(name) { result.append((id, folder)) }
      }
    }
    return result.sorted { $0.id < $1.id }
  }
}

extension ReportStore<KernelStoreCalls> {
  package init(directory: String) { self.init(directory: directory, calls: KernelStoreCalls()) }
}

package struct StoreLimits: Hashable, Sendable {
  package var reports = ReportLimits.storedReports
  package var bytes = ReportLimits.storedBytes
  package init() {}
}

/// `partial/<id>/` of one incident.
package struct IncidentFolder<Calls: StoreCalls> {
  package let id: ReportID
  /// Absolute if the store's is.
  package let path: String
  private let calls: Calls

  package init(id: ReportID, path: String, calls: Calls) {
    self.id = id
    self.path = path
    self.calls = calls
  }

  /// The file that the capture fills: new, empty, O_RDWR, close-on-exec.
  package func openCore() throws(SystemError) -> FileDescriptor {
    let name = path + "/core"
    return FileDescriptor(
      owning: try retrying("create", name) {
        unsafe open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o600)
      })
  }

  /// Whose snapshot it is, for the case that nothing more is written.
  package func note(_ begun: BegunIncident) {
    try? calls.write(path + "/" + BegunIncident.name, begun.bytes, sync: false)
  }

  /// Everything guardian leaves for the reporter, the report first: for want of room the snapshot
  /// goes before it. Throws if there is no report.
  /// - Returns: why another file is missing.
  @discardableResult
  package func writePlain(
    _ report: Report, ring: [UInt8]?, stderr: [UInt8], maps: [UInt8] = []
  ) throws(SystemError) -> SystemError? {
    var first: SystemError?
    var report = report
    try writeMakingRoom(&report, sync: false)
    try? calls.removeFile(path + "/" + BegunIncident.name)
    let files: [(name: String, bytes: [UInt8]?)] = [
      ("stderr.log", stderr), ("ring", ring), ("maps", maps.isEmpty ? nil : maps),
    ]
    for (name, bytes) in files {
      guard let bytes else { continue }
      do { try calls.write(path + "/" + name, bytes, sync: false) } catch {
        first = first ?? error
        // Half of it is of no use and takes room from the next report.
        try? calls.removeFile(path + "/" + name)
      }
    }
    return first
  }

  /// As `write`. On a full disk the snapshot and the ring make room: who died of what is worth more
  /// than its memory. `report` then says so.
  func writeMakingRoom(_ report: inout Report, sync: Bool) throws(SystemError) {
    do throws(SystemError) {
      do {
        try write(&report, sync: sync)
      } catch  where error.errno == ENOSPC || error.errno == EDQUOT {
        let heavy = ["core", "ring", "maps"]
        for name in heavy { giveUp(path + "/" + name) }
        report.attachments.removeAll { heavy.contains($0.name) }
        let loss =
          "\(SystemError.text(error.errno)): the snapshot was removed to make room for the report"
        if !report.capture.defects.contains(loss) { report.capture.defects.append(loss) }
        try writeBeforeOlder(&report, sync: sync)
      }
    } catch {
      for name in ["report.txt.tmp", "report.json.tmp"] { try? calls.removeFile(path + "/" + name) }
      throw error
    }
  }

  /// Who died of what now is worth more than the memory of who died before, too.
  private func writeBeforeOlder(_ report: inout Report, sync: Bool) throws(SystemError) {
    var older = olderSnapshots()[...]
    while true {
      do {
        return try write(&report, sync: sync)
      } catch {
        guard error.errno == ENOSPC || error.errno == EDQUOT, let core = older.popFirst() else {
          throw error
        }
        giveUp(core)
      }
    }
  }

  /// Its room is free at once, also while a reporter has it open: that one leaves the plain report.
  private func giveUp(_ file: String) {
    if (try? calls.read(file, limit: 1)) ?? nil != nil { try? calls.write(file, [], sync: false) }
    try? calls.removeFile(file)
  }

  /// The snapshots of final reports, the oldest first, then those of reports that are being made: their
  /// reporter may have to do without.
  private func olderSnapshots() -> [String] {
    // `path` is `<store>/partial/<id>`.
    let store = path.split(separator: "/", omittingEmptySubsequences: false).dropLast(2)
      .joined(separator: "/")
    func reports(_ folder: StoreFolder) -> [(id: ReportID, path: String)] {
      let path = store + "/" + folder.rawValue
      var found: [(id: ReportID, path: String)] = []
      for name in (try? calls.list(path)) ?? [] {
        if let id = ReportID(name), id != self.id { found.append((id, path + "/" + name)) }
      }
      return found
    }
    var final = StoreFolder.final.flatMap(reports)
    final.sort { $0.id < $1.id }
    var paths = final.map { $0.path + "/core" }
    for report in reports(.partial).sorted(by: { $0.id < $1.id }) {
      for name in ["core", "ring", "maps"] { paths.append(report.path + "/" + name) }
    }
    return paths
  }

  package func write(_ report: Report, sync: Bool = false) throws(SystemError) {
    var report = report
    try write(&report, sync: sync)
  }

  /// report.json and report.txt, each whole or not at all; `report` is changed to what was
  /// written (limits).
  func write(_ report: inout Report, sync: Bool) throws(SystemError) {
    let json: [UInt8]
    do { json = try report.boundedJSON() } catch {
      // Only a number that is not finite gets here, and none is of the program's making.
      throw SystemError("encode the report", "\(id): \(error)", errno: EINVAL)
    }
    let text = Array(ReportText.render(report).utf8.prefix(ReportLimits.jsonBytes))
    try calls.write(path + "/report.txt.tmp", text, sync: sync)
    try calls.write(path + "/report.json.tmp", json, sync: sync)
    try calls.rename(path + "/report.txt.tmp", to: path + "/report.txt")
    try calls.rename(path + "/report.json.tmp", to: path + "/report.json")
  }
}

/// An exclusive flock(2) on a folder: held by who works in it, gone with its process.
package struct FolderLock: ~Copyable {
  private let descriptor: FileDescriptor

  /// nil: another process has it (`wait` false), or it cannot be had.
  package init?(_ path: String, wait: Bool) {
    let raw = unsafe open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW)
    guard raw >= 0 else { return nil }
    let descriptor = FileDescriptor(owning: raw)
    while flock(raw, LOCK_EX | (wait ? 0 : LOCK_NB)) != 0 {
      if errno != EINTR { return nil }
    }
    self.descriptor = descriptor
  }
}
