// Every guardian that a command may mean, and the talk with one of them.
import Control
import FoundationEssentials
import Glibc
import Kernel
import Policy
import Reports
import Settings

/// A runtime folder in which a guardian runs or ran.
struct GuardianPlace {
  let name: String
  let folder: String
  /// Found among the sockets of all users: what it says of itself is a stranger's word.
  var isOfAnother = false

  enum Contact {
    case connected(PacketSocket)
    /// Its folder is there, but nobody answers.
    case dead
    case unreachable(SystemError)
    case missing
  }

  func connect(within limit: Duration = .seconds(1)) -> Contact {
    do {
      return .connected(
        try PacketSocket.connect(folder + "/" + ControlRequest.socketName, within: limit))
    } catch {
      switch error.errno {
      case ENOENT, ECONNREFUSED, ENOTDIR:
        var status = stat()
        if unsafe stat(folder, &status) != 0 { return .missing }
        return .dead
      default: return .unreachable(error)
      }
    }
  }
}

/// A request that was sent.
struct Conversation {
  let place: GuardianPlace
  let socket: PacketSocket

  init(_ place: GuardianPlace, _ socket: PacketSocket, _ request: ControlRequest)
    throws(ControlError)
  {
    self.place = place
    self.socket = socket
    if case .all = socket.send(request.bytes) { return }
    throw ControlError("'\(place.name)' does not take the request", status: 69)
  }

  /// nil: it said all. `within` nil: for ever.
  func next(within limit: Duration?) throws(ControlError) -> ControlAnswer? {
    switch socket.receive(limit: ControlRequest.maximumAnswerBytes, within: limit) {
    case .gone: return nil
    case .nothing: throw ControlError("'\(place.name)' does not answer", status: 69)
    case .tooLong: throw ControlError("'\(place.name)' answers nonsense", status: 76)
    case .packet(let bytes):
      do { return try JSONDecoder().decode(ControlAnswer.self, from: Data(bytes)) } catch {
        throw ControlError("'\(place.name)' answers nonsense", status: 76)
      }
    }
  }
}

struct Guardians {
  /// By name.
  let places: [GuardianPlace]
  /// The one that was asked for.
  let isNamed: Bool
  /// Where state folders of the usual names lie, and those of the named one.
  private let stateRoots: [String]
  private let stateFolders: [String]

  init(_ command: ControlCommand, operand: String?, environment: [String: String])
    throws(ControlError)
  {
    let own = Places(uid: geteuid(), environment: environment, canBeMade: StartCheck.canBeMade)
    let system = Places(uid: 0, environment: [:])
    if let operand, command.name == nil, !ProgramName.isValid(operand) {
      throw ControlError("'\(operand)' is not a valid name: \(ProgramName.rule)", status: 64)
    }
    // A word behind the command goes over a variable.
    let name = operand ?? command.name
    var runtimes = [own.runtime]
    var states = [own.state]
    if system.runtime != own.runtime {
      runtimes.append(system.runtime)
      states.append(system.state)
    }
    runtimes.append(Places.lastResort(uid: geteuid()))
    stateRoots = states
    if let folder = command.runtimeDirectory {
      places = [
        GuardianPlace(name: name ?? SafeText.lastComponent(folder), folder: folder)
      ]
      isNamed = true
      stateFolders = command.stateDirectory.map { [$0] } ?? []
    } else if let name {
      isNamed = true
      stateFolders = command.stateDirectory.map { [$0] } ?? states.map { $0 + "/" + name }
      let found = runtimes.map { GuardianPlace(name: name, folder: $0 + "/" + name) }
      var status = stat()
      let others = Self.ofOtherUsers(besides: runtimes).filter { $0.name == name }
      places = [
        found.first { unsafe stat($0.folder, &status) == 0 }
          ?? (others.count == 1 ? others[0] : found[0])
      ]
    } else {
      isNamed = false
      stateFolders = []
      places =
        runtimes.flatMap { folder -> [GuardianPlace] in
          ((try? Files.list(folder)) ?? []).filter(ProgramName.isValid).map {
            GuardianPlace(name: $0, folder: folder + "/" + $0)
          }
        }
        + Self.ofOtherUsers(besides: runtimes)
    }
  }

  /// The control sockets that somebody has, by the paths they were made with: for everybody to see.
  private static func controlSockets() -> [String] {
    let bytes = (try? Files.read("/proc/net/unix", limit: 64 << 20)) ?? []
    return bytes.split(separator: 10).compactMap { line in
      // The path is the eighth field and may hold anything but a line's end.
      let fields = line.split(separator: 32, maxSplits: 7)
      guard fields.count == 8, fields[7].first == UInt8(ascii: "/"),
        let path = String(validating: fields[7], as: UTF8.self),
        path.hasSuffix("/" + ControlRequest.socketName)
      else { return nil }
      return path
    }
  }

  /// Of a folder that may not be looked into: nobody has its socket, so it is only what a guardian
  /// left. A path that is too long for a socket's address is not told.
  private static func isLeftover(_ place: GuardianPlace, _ error: SystemError) -> Bool {
    let path = place.folder + "/" + ControlRequest.socketName
    return status(error) == 77 && path.utf8.count < 108 && !controlSockets().contains(path)
  }

  /// For root: the guardians of all users, by the control sockets that the kernel knows
  /// (/proc/net/unix) where users' runtime folders are: …/guardian/NAME or …/guardian-UID/run/NAME.
  private static func ofOtherUsers(besides known: [String]) -> [GuardianPlace] {
    if geteuid() != 0 { return [] }
    var found: Set<String> = []
    for path in controlSockets() {
      let parts = path.split(separator: "/", omittingEmptySubsequences: false)
      guard parts.count >= 4, ProgramName.isValid(String(parts[parts.count - 2])) else { continue }
      let above = parts[parts.count - 3]
      let isUsers =
        above == "guardian" || above == "run" && parts[parts.count - 4].hasPrefix("guardian-")
      let folder = parts.dropLast().joined(separator: "/")
      if isUsers, !known.contains(where: { folder.hasPrefix($0 + "/") }) { found.insert(folder) }
    }
    return found.sorted().prefix(1000).map {
      GuardianPlace(name: SafeText.lastComponent($0), folder: $0, isOfAnother: true)
    }
  }

  /// Whether a guardian of that name ever ran here.
  private var wasThere: Bool {
    var status = stat()
    return stateFolders.contains { unsafe stat($0, &status) == 0 }
  }

  static func unknown(_ name: String, lookedFor folders: [String]) -> ControlError {
    ControlError(
      "there is no guarded program '\(name)' (looked for "
        + folders.map { "'\($0)'" }.joined(separator: ", ") + ")", status: 4)
  }

  private func unknown(_ place: GuardianPlace) -> ControlError {
    Self.unknown(place.name, lookedFor: stateFolders.isEmpty ? [place.folder] : stateFolders)
  }

  /// Of one whose guardian does not run: how it left, as its state file tells, or that its program
  /// outlived it.
  private func dead(_ place: GuardianPlace) -> ControlStatus {
    var status = ControlStatus(
      name: place.name, state: "dead", sentence: "\(place.name): no guardian runs")
    for folder in isNamed ? stateFolders : stateRoots.map({ $0 + "/" + place.name }) {
      guard let farewell = Farewell.read(stateDirectory: folder) else { continue }
      if let name = farewell.name { status.name = name }
      status.sentence = farewell.sentence(status.name)
      status.lastEnding = farewell.ending
      status.lastEndingTime = farewell.time
      status.lastReport = farewell.report
      status.startAgain = farewell.startAgain
      status.stateDirectory = folder
      break
    }
    if let record = LifeRecord.read(in: place.folder), record.process != nil {
      status.state = "unguarded"
      status.sentence =
        "\(status.name) life \(record.life), pid \(record.pid) runs without a guardian: it was killed, "
        + "and nobody would restart the program"
      status.life = record.life
      status.pid = record.pid
      status.started = TimeText.rfc3339(
        WallTime(nanosecondsSince1970: UInt64(clamping: record.wall)))
      status.uptime = max(0, (Clock.boot - .nanoseconds(record.sinceBoot)).nanoseconds / 1_000_000)
    }
    return status
  }

  private func noGuardian(_ place: GuardianPlace) -> ControlError {
    let status = dead(place)
    var text = status.sentence
    if status.hasLastReport { text += "; its report: guardianctl -n \(place.name) show latest" }
    if let again = status.startAgain { text += "; start it again with: \(again)" }
    return ControlError(text, status: 3)
  }

  /// The only one that is meant, connected.
  func one(_ request: ControlRequest) throws(ControlError) -> Conversation {
    if isNamed {
      let place = places[0]
      switch place.connect() {
      case .connected(let socket): return try Conversation(place, socket, request)
      case .dead: throw noGuardian(place)
      case .missing:
        if wasThere { throw noGuardian(place) }
        throw unknown(place)
      case .unreachable(let error):
        throw ControlError(Self.words(error, place), status: Self.status(error))
      }
    }
    var found: [(GuardianPlace, PacketSocket)] = []
    var failure: (SystemError, GuardianPlace)?
    // Without a name only one's own are meant.
    for place in places where !place.isOfAnother {
      switch place.connect() {
      case .connected(let socket): found.append((place, socket))
      case .unreachable(let error):
        if !Self.isLeftover(place, error) { failure = (error, place) }
      case .dead, .missing: break
      }
    }
    if found.count == 1 { return try Conversation(found[0].0, found[0].1, request) }
    if found.isEmpty {
      if let (error, place) = failure {
        throw ControlError(Self.words(error, place), status: Self.status(error))
      }
      throw ControlError("no guardian of this user runs", status: 3)
    }
    throw ControlError(
      "there are \(found.count) guarded programs, name one: "
        + found.prefix(8).map(\.0.name).joined(separator: ", "), status: 64)
  }

  /// Another user's guardian is named as such.
  private static func words(_ error: SystemError, _ place: GuardianPlace) -> String {
    guard status(error) == 77, let owner = try? Files.status(place.folder).user else {
      return "\(place.name): \(error)"
    }
    let name = unsafe getpwuid(owner).map { unsafe String(cString: $0.pointee.pw_name) }
    return "\(place.name) belongs to \(name ?? "user \(owner)"): "
      + (owner == 0 ? "use sudo" : "ask as that user or as root")
  }

  private static func status(_ error: SystemError) -> Int32 {
    error.errno == EACCES || error.errno == EPERM ? 77 : 69
  }

  /// What each says of itself.
  func statuses() -> [ControlStatus] {
    // All are asked before the first is waited for: one that is stuck costs its time once.
    // The same for those that do not even take the question, of whom a stranger may have many.
    let patience = Clock.monotonic + .seconds(1)
    var asked: [(GuardianPlace, Conversation?, ControlStatus?)] = []
    for place in places {
      switch place.connect(within: patience - Clock.monotonic) {
      case .connected(let socket):
        let talk = try? Conversation(place, socket, .status)
        asked.append((place, talk, talk == nil ? Self.stuck(place) : nil))
      case .unreachable(let error):
        if !isNamed, Self.isLeftover(place, error) { continue }
        var status = ControlStatus(
          name: place.name, state: "unreachable", sentence: Self.words(error, place))
        status.exit = Self.status(error)
        asked.append((place, nil, status))
      case .dead:
        let status = dead(place)
        if isNamed || status.state == "unguarded" { asked.append((place, nil, status)) }
      case .missing:
        if isNamed, wasThere { asked.append((place, nil, dead(place))) }
      }
    }
    let end = Clock.monotonic + .seconds(3)
    return asked.map { place, talk, known in
      if let known { return known }
      let left = max(end - Clock.monotonic, .milliseconds(1))
      guard let talk, let answer = try? talk.next(within: left), var status = answer.status else {
        return Self.stuck(place)
      }
      status.user = nil
      if place.isOfAnother {
        status.name = place.name
        status.user = Self.user(talk.socket.peerUser)
      }
      return status
    }
  }

  /// The named one was never there.
  var unknown: ControlError { unknown(places[0]) }

  /// Those whose guardian gave up or was killed, the last one first.
  /// - Parameter living: what `statuses` says: of these there is nothing to tell.
  func failed(besides living: [ControlStatus]) -> [ControlStatus] {
    if isNamed { return [] }
    var seen = Set(living.map(\.name))
    var failed: [ControlStatus] = []
    for root in stateRoots {
      for name in (try? Files.list(root)) ?? []
      where ProgramName.isValid(name) && seen.insert(name).inserted {
        guard let farewell = Farewell.read(stateDirectory: root + "/" + name),
          farewell.way != .stopped
        else { continue }
        let status = dead(GuardianPlace(name: name, folder: ""))
        if !seen.contains(status.name) || status.name == name { failed.append(status) }
      }
    }
    return failed.sorted { ($0.lastEndingTime ?? "", $1.name) > ($1.lastEndingTime ?? "", $0.name) }
  }

  private static func user(_ number: UInt32?) -> String {
    guard let number else { return "?" }
    guard let entry = unsafe getpwuid(number), let name = unsafe entry.pointee.pw_name else {
      return "\(number)"
    }
    return unsafe String(cString: name)
  }

  private static func stuck(_ place: GuardianPlace) -> ControlStatus {
    var status = ControlStatus(
      name: place.name, state: "unreachable", sentence: "\(place.name): guardian does not answer")
    status.exit = 69
    return status
  }
}
