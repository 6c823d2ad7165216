// Every stored report that a command may mean: of the named program, or of all of this user. A
// unit's state folder lies in the system's place, whoever its user is, and a guardian that runs says
// where its own lies.
import Control
import FoundationEssentials
import Glibc
import Kernel
import Reports
import Settings

struct StoredReport {
  let id: ReportID
  let program: String
  let store: ReportStore<KernelStoreCalls>
  let folder: StoreFolder

  var path: String { store.path(folder, id) }

  func json() throws(ControlError) -> [UInt8] {
    do {
      guard
        let bytes = try KernelStoreCalls().read(
          path + "/report.json", limit: ReportLimits.jsonBytes * 2)
      else { throw SystemError("open", path + "/report.json", errno: ENOENT) }
      return bytes
    } catch {
      throw ControlError("\(error)", status: 66)
    }
  }

  func report() throws(ControlError) -> Report {
    let bytes = try json()
    do { return try JSONDecoder().decode(Report.self, from: Data(bytes)) } catch {
      throw ControlError("'\(path)/report.json' is not a report", status: 65)
    }
  }
}

struct Library {
  /// Newest first.
  let reports: [StoredReport]
  /// Those that are being written, newest first.
  let unfinished: [StoredReport]
  /// One program was asked for, or one folder.
  let isNamed: Bool
  private let places: [String]

  init(_ command: ControlCommand, environment: [String: String]) throws(ControlError) {
    let directories = try Self.directories(command, environment)
    isNamed = command.stateDirectory != nil || command.name != nil
    var status = stat()
    let existing = directories.filter { unsafe stat($0, &status) == 0 }
    if existing.isEmpty, isNamed {
      let cause = errno
      if command.stateDirectory == nil, let name = command.name {
        throw Guardians.unknown(name, lookedFor: directories)
      }
      throw ControlError(
        "there is no state folder '\(directories[0])': \(SystemError.text(cause))", status: 66)
    }
    places = existing.isEmpty ? Self.roots(environment) : existing
    var found: [StoredReport] = []
    var unfinished: [StoredReport] = []
    for directory in existing {
      let store = ReportStore(directory: directory + "/reports")
      // Looked at first: what moves on meanwhile is seen below.
      unfinished += store.unfinished().map {
        StoredReport(
          id: $0, program: SafeText.lastComponent(directory), store: store, folder: .partial)
      }
      do {
        for report in try store.reports() {
          found.append(
            StoredReport(
              id: report.id, program: SafeText.lastComponent(directory), store: store,
              folder: report.folder))
        }
      } catch {
        if existing.count == 1 {
          throw ControlError("\(error)", status: error.errno == EACCES ? 77 : 66)
        }
        // Of other users' programs there is nothing to say to who asked for all.
        if isNamed || error.errno != EACCES { Output.error("\(error)") }
      }
    }
    reports = found.sorted { $0.id > $1.id }
    let final = Set(found.map(\.id))
    self.unfinished = unfinished.filter { !final.contains($0.id) }.sorted { $0.id > $1.id }
  }

  /// With some patience for a report that is meant and still being written.
  static func settled(
    _ command: ControlCommand, environment: [String: String], word: String?
  ) throws(ControlError) -> Library {
    var library = try Library(command, environment: environment)
    let end = Clock.monotonic + .seconds(3)
    var said = false
    while library.isBeingWritten(word), Clock.monotonic < end {
      if !said { Output.error("the report is being written: waiting up to 3 s for it") }
      said = true
      usleep(20_000)
      library = try Library(command, environment: environment)
    }
    return library
  }

  private func isBeingWritten(_ word: String?) -> Bool {
    guard let word, word != "latest" else {
      return unfinished.first.map { newest in reports.first.map { $0.id < newest.id } ?? true }
        ?? false
    }
    let lower = word.lowercased()
    return !reports.contains { $0.id.text.hasPrefix(lower) }
      && unfinished.contains { $0.id.text.hasPrefix(lower) }
  }

  /// With those that are not finished and can be read already.
  private var readable: [StoredReport] {
    let begun = unfinished.filter { Files.exists($0.path + "/report.json") }
    return begun.isEmpty ? reports : (reports + begun).sorted { $0.id > $1.id }
  }

  /// This user's place, and the system's.
  static func roots(_ environment: [String: String]) -> [String] {
    let own = Places(uid: geteuid(), environment: environment, canBeMade: StartCheck.canBeMade)
      .state
    let system = Places(uid: 0, environment: [:]).state
    return own == system ? [own] : [own, system]
  }

  private static func directories(
    _ command: ControlCommand, _ environment: [String: String]
  ) throws(ControlError) -> [String] {
    if let directory = command.stateDirectory { return [directory] }
    var result: [String] = []
    for (index, root) in roots(environment).enumerated() {
      if let name = command.name {
        result.append(root + "/" + name)
        continue
      }
      do {
        result += try KernelStoreCalls().list(root).map { root + "/" + $0 }
      } catch  where index == 0 {
        throw ControlError("\(error)", status: error.errno == EACCES ? 77 : 66)
      } catch {}
    }
    let running = try Guardians(command, operand: nil, environment: environment).statuses()
    result += running.compactMap(\.stateDirectory)
    var seen: Set<String> = []
    return result.filter { seen.insert($0).inserted }
  }

  /// The names of the programs that are or were guarded here, as far as may be seen.
  static func programs(_ command: ControlCommand, _ environment: [String: String]) -> [String] {
    var names = roots(environment).flatMap { (try? Files.list($0)) ?? [] }
    var all = command
    all.name = nil
    if let guardians = try? Guardians(all, operand: nil, environment: environment) {
      names += guardians.places.map(\.name)
      // A folder that was named need not have the program's name.
      if command.runtimeDirectory != nil { names += guardians.statuses().map(\.name) }
    }
    return Set(names.filter(ProgramName.isValid)).sorted()
  }

  /// "latest", nothing, or the beginning of an id that only one report has.
  func find(_ word: String?) throws(ControlError) -> StoredReport {
    let reports = readable
    guard let latest = reports.first else {
      throw ControlError("there are no reports in \(placesText)", status: 1)
    }
    guard let word, word != "latest" else { return latest }
    let lower = word.lowercased()
    let matching = reports.filter { $0.id.text.hasPrefix(lower) }
    switch matching.count {
    case 1: return matching[0]
    case 0:
      throw ControlError(
        "there is no report '\(word)' in \(placesText); 'guardianctl reports' lists them, --name "
          + "names a program",
        status: 1)
    default:
      throw ControlError(
        "'\(word)' is the beginning of \(matching.count) reports: "
          + matching.prefix(4).map(\.id.text).joined(separator: ", ")
          + (matching.count > 4 ? ", …" : ""), status: 64)
    }
  }

  var placesText: String {
    let named = places.count > 4 ? 3 : places.count
    return places.prefix(named).map { "'\($0)'" }.joined(separator: ", ")
      + (named < places.count ? " and \(places.count - named) other places" : "")
  }

  /// The shortest beginning of each id that is its own, at least of 13 characters.
  func shortIDs() -> [ReportID: String] {
    let sorted = reports.map(\.id.text).sorted()
    var result: [ReportID: String] = [:]
    for report in reports {
      let text = report.id.text
      var length = 13
      while length < 36, sorted.count(where: { $0.hasPrefix(text.prefix(length)) }) > 1 {
        length += 1
      }
      result[report.id] = String(text.prefix(length))
    }
    return result
  }
}
