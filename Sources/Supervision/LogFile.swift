// A file that the program's output goes to, rotated by size: PATH becomes PATH.1, PATH.1 becomes
// PATH.2, as many as are kept. Lines stay whole. Whatever goes wrong with the file, output is read
// on: what cannot be written is dropped, counted, said once, and its end is said too.
import CLinux
import Glibc
import Kernel

final class LogFile: ProgramSink {
  let path: String
  let hasRoom = true
  let isTerminal = false
  private let folder: String
  private let name: String
  private let complain: (String) -> Void
  private var limit: UInt64?
  private var keep = 0
  /// Above the limit after a rotation that failed: the next is tried when as much again is there.
  private var threshold: UInt64?
  /// The folder as it was when the file was opened: a rotation must not end up in another one.
  private var directory: FileDescriptor?
  private var file: FileDescriptor?
  private var size: UInt64 = 0
  /// The last byte was not a line's end.
  private var isInLine = false
  /// Bytes since something went wrong.
  private var lost: UInt64 = 0
  private var lossIsTold = false
  private var lastTold: Duration?
  private var lastAttempt: Duration?
  /// When it could not be rotated, beyond what it may grow, and when it was said that it grows.
  private var lastFailure: Duration?
  private var lastGrowth: Duration?

  /// - Parameter path: absolute.
  init(_ path: String, complain: @escaping (String) -> Void) {
    self.path = path
    self.complain = complain
    let slash = path.lastIndex(of: "/") ?? path.startIndex
    folder = slash == path.startIndex ? "/" : String(path[..<slash])
    name = String(path[slash...].drop { $0 == "/" })
  }

  func setLimits(bytes: UInt64?, keep: Int) {
    limit = bytes.map { max($0, 1) }
    threshold = limit
    self.keep = keep
  }

  /// What somebody may have meant who names a device.
  static func hint(_ path: String) -> String {
    path.hasPrefix("/dev/") || path.hasPrefix("/proc/")
      ? " (for guardian's own say 'inherit' or 'direct', for nothing 'null')" : ""
  }

  // MARK: opening

  func open() {
    lastAttempt = Clock.monotonic
    do {
      try openNow()
    } catch {
      file = nil
      tell(
        "\(error)\(Self.hint(path)): what the program writes there is lost until it can be opened")
    }
  }

  /// In place of the present one, which stays if that fails.
  func reopen() {
    do {
      try openNow()
      threshold = limit
    } catch {
      complain(
        file == nil
          ? "\(error)\(Self.hint(path)): what the program writes there is lost"
          : "\(error): the file opened before is written to")
    }
  }

  private func openNow() throws(SystemError) {
    let directory = try FileDescriptor.open(folder, FileDescriptor.pathOnly | O_DIRECTORY)
    // Where the folder is the program's, it may have put a link, a FIFO or another name of a file
    // there that is not its own.
    let file = try retrying("open", path) {
      unsafe openat(
        directory.raw, name,
        O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0o640)
    }
    let owned = FileDescriptor(owning: file)
    let status = try owned.status()
    guard status.isRegular, status.links == 1 else {
      throw SystemError("use as a plain file with one name", path, errno: EPERM)
    }
    self.directory = consume directory
    self.file = consume owned
    size = UInt64(clamping: status.size)
    isInLine = false
  }

  // MARK: writing

  func write(_ bytes: ArraySlice<UInt8>) {
    var rest = bytes
    while !rest.isEmpty {
      if file == nil {
        let now = Clock.monotonic
        if let lastAttempt, now - lastAttempt < Limit.sinkRetry {
          lost += UInt64(rest.count)
          return
        }
        open()
        if file == nil {
          lost += UInt64(rest.count)
          return
        }
      }
      let piece = fitting(rest)
      if piece.isEmpty {
        if rotate() { continue }
        lost += UInt64(rest.count)
        return
      }
      put(piece)
      rest = rest.dropFirst(piece.count)
    }
  }

  /// What still belongs into the present file; empty: it is to be rotated first.
  private func fitting(_ bytes: ArraySlice<UInt8>) -> ArraySlice<UInt8> {
    guard let threshold else { return bytes }
    let newline = UInt8(ascii: "\n")
    let room = Int(clamping: threshold > size ? threshold - size : 0)
    if bytes.count <= room { return bytes }
    if let end = bytes.prefix(room).lastIndex(of: newline) { return bytes[...end] }
    if !isInLine && size > 0 { return [] }
    // A line that begins in this file ends in it, unless it is longer than lines are.
    let more = bytes.prefix(room + max(0, Limit.lineBytes - overrun(threshold)))
    if let end = more.firstIndex(of: newline) { return more[...end] }
    return more
  }

  private func overrun(_ threshold: UInt64) -> Int {
    Int(clamping: size > threshold ? size - threshold : 0)
  }

  private func put(_ bytes: ArraySlice<UInt8>) {
    if lost > 0 {
      let text = (isInLine ? "\n" : "") + "guardian: \(lost) bytes of output are missing here\n"
      if append(Array(text.utf8)[...]) < text.utf8.count {
        lost += UInt64(bytes.count)
        return
      }
      if lossIsTold { complain("'\(path)' can be written to again: \(lost) bytes were lost") }
      lossIsTold = false
      lost = 0
    }
    lost += UInt64(bytes.count - append(bytes))
  }

  /// How many bytes were written.
  private func append(_ bytes: ArraySlice<UInt8>) -> Int {
    var rest = bytes
    while !rest.isEmpty, let raw = file?.raw {
      let count = unsafe rest.withUnsafeBytes { unsafe Glibc.write(raw, $0.baseAddress, $0.count) }
      if count < 0 {
        if errno == EINTR { continue }
        let error = SystemError("write to", path, errno: errno)
        tell("\(error): what the program writes there is lost until it can be written again")
        break
      }
      isInLine = rest[rest.startIndex + count - 1] != UInt8(ascii: "\n")
      size += UInt64(count)
      rest = rest.dropFirst(count)
    }
    return bytes.count - rest.count
  }

  /// Once for each loss, and not with every byte of a disk that is full and then not.
  private func tell(_ text: String) {
    let now = Clock.monotonic
    if lossIsTold { return }
    if let lastTold, now - lastTold < Limit.sinkComplaintPause { return }
    lossIsTold = true
    lastTold = now
    complain(text)
  }

  func finish() {
    if lost > 0 { complain("'\(path)': \(lost) bytes of the program's output were lost") }
  }

  // MARK: rotation

  /// Killed between two steps it leaves a gap in the numbers or a draft, which the next one takes.
  /// - Returns: false: it cannot be rotated, and has grown as much as it may.
  private func rotate() -> Bool {
    if let lastFailure, Clock.monotonic - lastFailure < Limit.sinkRetry { return false }
    do {
      // Somebody may have cut it.
      if let now = try file?.status().size, UInt64(clamping: now) < size {
        size = UInt64(clamping: now)
        return true
      }
      try rotateNow()
      threshold = limit
      lastFailure = nil
      return true
    } catch {
      let most = (limit ?? .max).multipliedReportingOverflow(by: 2)
      // It was tried there already.
      if !most.overflow, size >= most.partialValue || threshold == most.partialValue {
        lastFailure = Clock.monotonic
        tell("\(error): '\(path)' is twice as long as it should be: what follows is lost")
        return false
      }
      threshold = most.overflow ? nil : most.partialValue
      tellGrowth("\(error): '\(path)' grows on")
      return true
    }
  }

  /// Lines may be longer than a limit that is small, and each is a reason to try again.
  private func tellGrowth(_ text: String) {
    let now = Clock.monotonic
    if let lastGrowth, now - lastGrowth < Limit.sinkComplaintPause { return }
    lastGrowth = now
    complain(text)
  }

  private func rotateNow() throws(SystemError) {
    guard let folder = directory?.raw, let own = try file?.status() else { return }
    var raw = stat()
    let isThere = unsafe fstatat(folder, name, &raw, AT_SYMLINK_NOFOLLOW) == 0
    if !isThere || raw.st_ino != own.inode || raw.st_dev != own.device {
      // It was moved away already.
      try openNow()
      return
    }
    // Before anything is moved: without room for a new one the old one stays.
    var free = name + ".new"
    // What lies there and is no file is the program's: another name will do.
    if unsafe unlinkat(folder, free, 0) != 0, errno != ENOENT {
      free = name + "." + Randomness.hex(bytes: 8) + ".new"
    }
    let draft = free
    let number = try retrying("create", self.folder + "/" + draft) {
      unsafe openat(
        folder, draft, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0o640)
    }
    let fresh = FileDescriptor(owning: number)
    // The new one is like the old one.
    _ = fchmod(number, own.permissions)
    if own.user != geteuid() || own.group != getegid() { _ = fchown(number, own.user, own.group) }
    do {
      try shift(folder)
      try rename(folder, draft, name)
    } catch {
      _ = unsafe unlinkat(folder, draft, 0)
      throw error
    }
    file = consume fresh
    size = 0
    isInLine = false
  }

  private func shift(_ folder: Int32) throws(SystemError) {
    // More than are kept, from a time when more were.
    var beyond = keep + 1
    while unsafe unlinkat(folder, "\(name).\(beyond)", 0) == 0, beyond < 10_000 { beyond += 1 }
    if keep == 0 { return }
    for number in stride(from: keep - 1, through: 1, by: -1) {
      do { try rename(folder, "\(name).\(number)", "\(name).\(number + 1)") } catch {
        if error.errno != ENOENT { throw error }
      }
    }
    try rename(folder, name, name + ".1")
  }

  private func rename(_ folder: Int32, _ from: String, _ to: String) throws(SystemError) {
    _ = try retrying("rename", self.folder + "/" + from) {
      unsafe renameat(folder, from, folder, to)
    }
  }
}
