// One guardian a name: the runtime folder, its lock, and what a dead guardian left in it.
import Glibc
import Kernel
import Settings

/// The runtime folder, held by its lock as long as this object lives.
final class Instance {
  let runtimeDirectory: String
  private let lock: FileDescriptor

  private init(_ runtimeDirectory: String, _ lock: consuming FileDescriptor) {
    self.runtimeDirectory = runtimeDirectory
    self.lock = lock
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
    do {
      // The folders above hold other names too: anybody may look which there are.
      if let slash = folder.lastIndex(of: "/"), slash != folder.startIndex {
        try Files.makeDirectories(String(folder[..<slash]), mode: 0o755)
      }
      try Files.makeDirectories(folder, mode: 0o711)
      try check(folder)
      let lock = try FileDescriptor.open(
        folder + "/lock", O_RDWR | O_CREAT | O_NOFOLLOW, mode: 0o600)
      guard try lock.tryLock() else {
        let text = (try? lock.read(count: 16, at: 0)) ?? []
        let pid = Int32(String(decoding: text.prefix { $0 > 32 }, as: UTF8.self))
        throw Failure.taken(
          name: name, holder: pid.map { "another guardian, pid \($0)" } ?? "another guardian")
      }
      try lock.truncate(to: 0)
      try lock.write(Array("\(getpid())\n".utf8), at: 0)
      // Others pass through to the channel, whose name they must know.
      try Files.setPermissions(folder, 0o711)
      return Instance(folder, lock)
    } catch let error as SystemError {
      throw .system(error)
    } catch let error as Failure {
      throw error
    } catch {
      throw .system(SystemError("take the name", name, errno: EIO))
    }
  }

  /// Under /tmp anybody may have made a folder of that name first.
  private static func check(_ folder: String) throws(SystemError) {
    let status = try Files.status(folder, follow: false)
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
