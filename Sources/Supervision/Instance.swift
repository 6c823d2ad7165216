// One guardian a name: the runtime folder, its lock, and what a dead guardian left in it.
import Glibc
import Kernel
import Settings

/// The runtime folder, held by its lock as long as this object lives.
final class Instance {
  let runtimeDirectory: String
  private var lock: FileDescriptor
  /// The last process that the guardian before this one started.
  let before: (life: UInt32, pid: Int32)?

  private init(
    _ runtimeDirectory: String, _ lock: consuming FileDescriptor,
    before: (life: UInt32, pid: Int32)? = nil
  ) {
    self.runtimeDirectory = runtimeDirectory
    self.lock = lock
    self.before = before
  }

  /// Says at once which life began: the state file and the life file follow when it runs, and
  /// guardian may be killed before that. One write into the lock.
  func note(life: UInt32, pid: Int32) {
    let text = "\(getpid()) \(life) \(pid)\n"
    try? lock.write(Array(text.utf8), at: 0)
  }

  private static func before(_ text: [UInt8]) -> (life: UInt32, pid: Int32)? {
    let line = String(decoding: text.prefix { $0 != 10 }, as: UTF8.self).split(separator: " ")
    guard line.count == 3, let life = UInt32(line[1]), let pid = Int32(line[2]), pid > 0 else {
      return nil
    }
    return (life, pid)
  }

  /// The lock was taken before this program was executed, and never let go.
  static func resume(_ runtimeDirectory: String, lock: Int32) -> Instance {
    Instance(runtimeDirectory, FileDescriptor(owning: lock))
  }

  var lockNumber: Int32 { lock.raw }

  enum Failure: Error {
    case taken(name: String, holder: String)
    case system(SystemError)

    var words: String {
      switch self {
      case .taken(let name, let holder):
        "the name '\(name)' is taken by \(holder): stop that one or give another --name"
      case .system(let error): "\(error): nothing was started"
      }
    }
  }

  /// Takes the name. One that was derived and is taken gets a number; `configuration` then says
  /// which.
  static func take(_ configuration: inout Configuration) throws(Failure) -> Instance {
    do { return try takeFree(&configuration) } catch {
      // A container's root file system may be read-only, and /run with it.
      guard case .system(let cause) = error, configuration.givenRuntimeDirectory == nil,
        [EROFS, EACCES, EPERM, ENOENT, ENOTDIR].contains(cause.errno)
      else { throw error }
      configuration.takeLastResort(uid: geteuid())
      do { return try takeFree(&configuration) } catch {
        if case .taken = error { throw error }
        throw .system(cause)
      }
    }
  }

  private static func takeFree(_ configuration: inout Configuration) throws(Failure) -> Instance {
    let first = configuration
    for attempt in 2...Limit.nameAttempts {
      do {
        return try take(folder: configuration.runtimeDirectory, name: configuration.name)
      } catch {
        guard case .taken = error, !configuration.nameIsGiven,
          configuration.givenRuntimeDirectory == nil, attempt < Limit.nameAttempts
        else { throw error }
        configuration = first
        configuration.number(attempt)
      }
    }
    throw .taken(name: first.name, holder: "too many others")
  }

  private static func take(folder: String, name: String) throws(Failure) -> Instance {
    let before = before((try? Files.read(folder + "/lock", limit: 64)) ?? [])
    let lock = try hold(folder, name: name)
    return Instance(folder, lock, before: before)
  }

  /// Somebody removed the folder, or what is in it: it is made again and taken.
  /// - Returns: false: it cannot be, or somebody else has it now.
  func restore() -> Bool {
    do {
      lock = try Instance.hold(runtimeDirectory, name: "")
      return true
    } catch { return false }
  }

  private static func hold(_ folder: String, name: String) throws(Failure) -> FileDescriptor {
    do {
      // The folders above hold other names too: anybody may look which there are.
      if let slash = folder.lastIndex(of: "/"), slash != folder.startIndex {
        let above = String(folder[..<slash])
        try Files.makeDirectories(above, mode: 0o755)
        if above == Places.lastResort(uid: geteuid()) { try check(above) }
      }
      try Files.makeDirectories(folder, mode: 0o711)
      try check(folder)
      let lock = try FileDescriptor.open(
        folder + "/lock", O_RDWR | O_CREAT | O_NOFOLLOW, mode: 0o600)
      let end = Clock.monotonic + Limit.leftoverPatience
      while try !lock.tryLock() {
        let text = (try? lock.read(count: 16, at: 0)) ?? []
        let pid = Int32(String(decoding: text.prefix { $0 > 32 }, as: UTF8.self))
        // A guardian that was killed while it started a process: until that one is executed, it
        // has the lock too.
        // And one that is on its way out.
        if let pid, Clock.monotonic < end,
          kill(pid, 0) != 0 && errno == ESRCH || Processes.isEnding(pid)
        {
          Clock.pause(.milliseconds(5))
          continue
        }
        throw Failure.taken(
          name: name, holder: pid.map { "another guardian, pid \($0)" } ?? "another guardian")
      }
      try lock.truncate(to: 0)
      try lock.write(Array("\(getpid())\n".utf8), at: 0)
      // Others pass through to the channel, whose name they must know.
      try Files.setPermissions(folder, 0o711)
      return lock
    } catch let error as SystemError {
      throw .system(error)
    } catch let error as Failure {
      throw error
    } catch {
      throw .system(SystemError("take the name", name, errno: EIO))
    }
  }

  /// Under /tmp anybody may have made a folder of that name first. A link is root's (systemd makes
  /// one with DynamicUser=) or ours, and what it leads to is ours.
  private static func check(_ folder: String) throws(SystemError) {
    var status = try Files.status(folder, follow: false)
    if status.isLink, status.user == 0 || status.user == geteuid() {
      status = try Files.status(folder)
    }
    if !status.isDirectory { throw SystemError("use the folder", folder, errno: ENOTDIR) }
    if status.user != geteuid() || status.mode & 0o022 != 0 && status.user != 0 {
      throw SystemError("use the folder", folder, errno: EPERM)
    }
  }

  /// The names of the channels in it: at the start those of a guardian that was killed.
  var channels: [String] {
    ((try? Files.list(runtimeDirectory)) ?? []).filter(Channel.isName)
  }

  /// When nobody is left to use them. `kept`: the name of one that is used.
  func removeChannels(except kept: String? = nil) {
    for name in channels where name != kept {
      Files.removeShallow(runtimeDirectory + "/" + name)
    }
  }

  // MARK: the life file

  private var lifePath: String { runtimeDirectory + "/" + LifeRecord.name }
  var lifeRecord: LifeRecord? { LifeRecord.read(in: runtimeDirectory) }
  func write(_ record: LifeRecord) throws(SystemError) {
    try Files.replace(lifePath, with: record.bytes)
  }
  func removeLifeRecord() { Files.remove(lifePath) }
}
