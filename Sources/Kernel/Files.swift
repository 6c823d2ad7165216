// Files by descriptor: opened, read in bounded pieces, written, replaced in one step.
import CLinux
import Glibc

package struct FileStatus: Hashable, Sendable {
  package let device: UInt64
  package let inode: UInt64
  package let mode: UInt32
  package let user: UInt32
  package let group: UInt32
  /// Bytes.
  package let size: Int64
  /// Since the epoch.
  package let modifiedNanoseconds: Int64
  package let links: UInt64

  init(_ raw: stat) {
    device = UInt64(raw.st_dev)
    inode = UInt64(raw.st_ino)
    mode = raw.st_mode
    user = raw.st_uid
    group = raw.st_gid
    size = Int64(raw.st_size)
    modifiedNanoseconds = Int64(raw.st_mtim.tv_sec) * 1_000_000_000 + Int64(raw.st_mtim.tv_nsec)
    links = UInt64(raw.st_nlink)
  }

  package var isLink: Bool { mode & S_IFMT == S_IFLNK }
  package var isDirectory: Bool { mode & S_IFMT == S_IFDIR }
  package var isRegular: Bool { mode & S_IFMT == S_IFREG }
  package var isSocket: Bool { mode & S_IFMT == S_IFSOCK }
  package var permissions: UInt32 { mode & 0o7777 }
}

extension FileDescriptor {
  /// Close-on-exec always. `flags` as in open(2).
  package static func open(
    _ path: String, _ flags: Int32, mode: UInt32 = 0o600
  ) throws(SystemError) -> FileDescriptor {
    let raw = try retrying("open", path) {
      unsafe Glibc.open(path, flags | O_CLOEXEC, mode)
    }
    return FileDescriptor(owning: raw)
  }

  /// O_PATH, which the C library shows to GNU programs only.
  package static var pathOnly: Int32 { guardian_open_path }

  /// Of a descriptor from `Files.look`: the same file, open for reading.
  package func openedForReading() throws(SystemError) -> FileDescriptor {
    try .open("/proc/self/fd/\(raw)", O_RDONLY | O_NONBLOCK | O_NOCTTY)
  }

  package func duplicate() throws(SystemError) -> FileDescriptor {
    let raw = raw
    return FileDescriptor(
      owning: try retrying("duplicate a descriptor") { fcntl(raw, F_DUPFD_CLOEXEC, 3) })
  }

  package func status() throws(SystemError) -> FileStatus {
    var result = stat()
    let raw = raw
    _ = try retrying("look at a descriptor") { unsafe fstat(raw, &result) }
    return FileStatus(result)
  }

  /// Reads at most `buffer.count` and `limit` bytes into it; 0 at the end.
  package func read(
    into buffer: inout [UInt8], limit: Int = .max
  ) throws(SystemError) -> Int {
    let raw = raw
    return try retrying("read") {
      unsafe buffer.withUnsafeMutableBytes {
        unsafe Glibc.read(raw, $0.baseAddress, min($0.count, limit))
      }
    }
  }

  /// At most `count` bytes from `offset`; fewer at the end of the file.
  package func read(count: Int, at offset: Int64) throws(SystemError) -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var filled = 0
    let raw = raw
    while filled < count {
      let got = try retrying("read") {
        unsafe bytes.withUnsafeMutableBytes {
          unsafe pread(raw, $0.baseAddress! + filled, count - filled, off_t(offset) + filled)
        }
      }
      if got == 0 { break }
      filled += got
    }
    bytes.removeLast(count - filled)
    return bytes
  }

  /// The whole file from here, at most `limit` bytes.
  package func readToEnd(limit: Int) throws(SystemError) -> [UInt8] {
    var result: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: min(limit, 65_536))
    while result.count < limit {
      let got = try read(into: &piece)
      if got == 0 { break }
      result.append(contentsOf: piece[..<min(got, limit - result.count)])
    }
    return result
  }

  /// Writes what the other side takes: may be less than all.
  package func write(_ bytes: borrowing ArraySlice<UInt8>) throws(SystemError) -> Int {
    let raw = raw
    let result = unsafe bytes.withUnsafeBytes { buffer in
      while true {
        let count = unsafe Glibc.write(raw, buffer.baseAddress, buffer.count)
        if count >= 0 { return (count, Int32(0)) }
        if errno != EINTR { return (count, errno) }
      }
    }
    if result.0 < 0 { throw SystemError("write", errno: result.1) }
    return result.0
  }

  package func writeAll(_ bytes: [UInt8]) throws(SystemError) {
    var rest = bytes[...]
    while !rest.isEmpty { rest = rest.dropFirst(try write(rest)) }
  }

  package func write(_ bytes: [UInt8], at offset: Int64) throws(SystemError) {
    var done = 0
    let raw = raw
    while done < bytes.count {
      done += try retrying("write") {
        unsafe bytes.withUnsafeBytes {
          unsafe pwrite(raw, $0.baseAddress! + done, bytes.count - done, off_t(offset) + done)
        }
      }
    }
  }

  package func truncate(to size: Int64) throws(SystemError) {
    let raw = raw
    _ = try retrying("set the size of a file") { ftruncate(raw, off_t(size)) }
  }

  /// Makes the file at least this long, with its space taken.
  package func allocate(_ size: Int64) throws(SystemError) {
    var outcome: Int32
    repeat { outcome = posix_fallocate(raw, 0, off_t(size)) } while outcome == EINTR
    if outcome != 0 { throw SystemError("take \(size) bytes of space", errno: outcome) }
  }

  /// Exactly these permissions, whatever the umask is.
  package func setPermissions(_ mode: UInt32) throws(SystemError) {
    let raw = raw
    _ = try retrying("change permissions") { fchmod(raw, mode) }
  }

  package func synchronize() throws(SystemError) {
    let raw = raw
    _ = try retrying("sync") { fsync(raw) }
  }

  /// false: somebody else holds the lock.
  package func tryLock() throws(SystemError) -> Bool {
    while true {
      if flock(raw, LOCK_EX | LOCK_NB) == 0 { return true }
      let cause = errno
      if cause == EWOULDBLOCK { return false }
      if cause != EINTR { throw SystemError("lock", errno: cause) }
    }
  }

  package func setNonBlocking() throws(SystemError) {
    let raw = raw
    let flags = try retrying("read a descriptor's flags") { fcntl(raw, F_GETFL) }
    _ = try retrying("set a descriptor's flags") { fcntl(raw, F_SETFL, flags | O_NONBLOCK) }
  }
}

/// Calls on paths.
package enum Files {
  package static func status(_ path: String, follow: Bool = true) throws(SystemError) -> FileStatus
  {
    var result = stat()
    _ = try retrying("look at", path) {
      unsafe follow ? stat(path, &result) : lstat(path, &result)
    }
    return FileStatus(result)
  }

  /// What lies at a path that a stranger chose, without opening it: opening alone makes a device
  /// act and waits at a FIFO. Good for `status` and `openedForReading` only.
  package static func look(
    at path: [UInt8], follow: Bool = false
  ) throws(SystemError) -> FileDescriptor {
    let flags = FileDescriptor.pathOnly | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW)
    let raw = try retrying("look at", String(decoding: path, as: UTF8.self)) {
      unsafe (path + [0]).withUnsafeBytes {
        unsafe Glibc.open($0.baseAddress!.assumingMemoryBound(to: CChar.self), flags)
      }
    }
    return FileDescriptor(owning: raw)
  }

  /// Throws unless only root and we can put things into the folder: a link that a stranger made,
  /// or a folder that he may write to, would make us write and delete where he likes.
  package static func checkOwner(_ path: String) throws(SystemError) {
    var found = try status(path, follow: false)
    func isOurs(_ status: FileStatus) -> Bool { status.user == 0 || status.user == geteuid() }
    if found.isLink {
      if !isOurs(found) { throw SystemError("trust the link of another user", path, errno: EPERM) }
      found = try status(path)
    }
    if !found.isDirectory { throw SystemError("use the folder", path, errno: ENOTDIR) }
    if !isOurs(found) { throw SystemError("trust the folder of another user", path, errno: EPERM) }
    if found.mode & 0o022 != 0 {
      throw SystemError("trust the folder that others may write to", path, errno: EPERM)
    }
  }

  /// Throws unless only root and we can put something else in the place of a folder above this one,
  /// by the path as it is written and by the one without links.
  package static func checkAbove(_ path: String) throws(SystemError) {
    var paths = [path]
    if let real = unsafe realpath(path, nil) {
      paths.append(unsafe String(cString: real))
      unsafe free(real)
    }
    for path in paths {
      var above = path
      while let slash = above.lastIndex(of: "/"), above != "/" {
        above = slash == above.startIndex ? "/" : String(above[..<slash])
        try checkHolder(above)
      }
    }
  }

  /// In a folder with the sticky bit, as /tmp is, nobody can rename what is not his.
  private static func checkHolder(_ path: String) throws(SystemError) {
    let found = try status(path)
    if found.user != 0 && found.user != geteuid() {
      throw SystemError("trust a folder in that of another user", path, errno: EPERM)
    }
    let isOthers = found.mode & 0o002 != 0
    // A group of root's, or, for who is not root, a group of his own.
    let isGroups = found.mode & 0o020 != 0 && found.group != 0 && found.group != getegid()
    if isOthers || isGroups, found.mode & S_ISVTX == 0 {
      throw SystemError("trust a folder in one that others may write to", path, errno: EPERM)
    }
  }

  package static func exists(_ path: String) -> Bool { unsafe access(path, F_OK) == 0 }

  /// At most `limit` bytes.
  package static func read(_ path: String, limit: Int) throws(SystemError) -> [UInt8] {
    let file = try FileDescriptor.open(path, O_RDONLY)
    do { return try file.readToEnd(limit: limit) } catch {
      throw SystemError("read", path, errno: error.errno)
    }
  }

  package static func readText(_ path: String, limit: Int) throws(SystemError) -> String {
    String(decoding: try read(path, limit: limit), as: UTF8.self)
  }

  /// Replaces `path` in one step: readers see the old bytes or the new ones. With `durable` also
  /// after a power loss. The file has `mode` whatever the umask is. Whoever may write to the folder
  /// can put nothing in the draft's place that would be written to.
  package static func replace(
    _ path: String, with bytes: [UInt8], mode: UInt32 = 0o600, durable: Bool = false
  ) throws(SystemError) {
    let slash = path.lastIndex(of: "/")
    let name = String(path[(slash.map { path.index(after: $0) } ?? path.startIndex)...])
    let above = slash.map { $0 == path.startIndex ? "/" : String(path[..<$0]) } ?? "."
    let draft = name + ".new"
    do throws(SystemError) {
      let folder = try FileDescriptor.open(above, FileDescriptor.pathOnly | O_DIRECTORY)
      let directory = folder.raw
      _ = unsafe unlinkat(directory, draft, 0)
      let number = try retrying("create", draft) {
        unsafe openat(
          directory, draft,
          O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, mode)
      }
      let file = FileDescriptor(owning: number)
      let status = try file.status()
      if !status.isRegular || status.links != 1 {
        throw SystemError("create", draft, errno: EEXIST)
      }
      do throws(SystemError) {
        try file.writeAll(bytes)
        try file.setPermissions(mode)
        if durable { try file.synchronize() }
        _ = try retrying("rename", draft) { unsafe renameat(directory, draft, directory, name) }
      } catch {
        _ = unsafe unlinkat(directory, draft, 0)
        throw error
      }
    } catch {
      throw SystemError("write", path, errno: error.errno)
    }
  }

  /// Writes over the beginning of a file that is there and at least as long: what it takes on the disk
  /// stays the same. Not one step: a reader, or a power loss, may find it half done.
  package static func overwrite(_ path: String, with bytes: [UInt8]) throws(SystemError) {
    do {
      let file = try FileDescriptor.open(path, O_WRONLY | O_NOFOLLOW)
      try file.write(bytes, at: 0)
    } catch {
      throw SystemError("write", path, errno: error.errno)
    }
  }

  package static func rename(_ from: String, to: String) throws(SystemError) {
    _ = try retrying("rename", from) { unsafe Glibc.rename(from, to) }
  }

  package static func makeDirectory(_ path: String, mode: UInt32 = 0o700) throws(SystemError) {
    _ = try retrying("create the folder", path) { unsafe mkdir(path, mode) }
  }

  /// Like `mkdir -p`: those that are missing get `mode`.
  package static func makeDirectories(_ path: String, mode: UInt32 = 0o700) throws(SystemError) {
    if let found = try? status(path) {
      if found.isDirectory { return }
      throw SystemError("create the folder", path, errno: ENOTDIR)
    }
    if let slash = path.lastIndex(of: "/"), slash != path.startIndex {
      try makeDirectories(String(path[..<slash]), mode: mode)
    }
    do { try makeDirectory(path, mode: mode) } catch {
      if error.errno != EEXIST { throw error }
    }
  }

  package static func setPermissions(_ path: String, _ mode: UInt32) throws(SystemError) {
    _ = try retrying("change permissions of", path) { unsafe chmod(path, mode) }
  }

  package static func remove(_ path: String) { _ = unsafe unlink(path) }

  package static func removeDirectory(_ path: String) throws(SystemError) {
    _ = try retrying("remove the folder", path) { unsafe rmdir(path) }
  }

  /// Names in a folder, without `.` and `..`, sorted; at most `limit`.
  package static func list(_ path: String, limit: Int = 65_536) throws(SystemError) -> [String] {
    let folder = try FileDescriptor.open(path, O_RDONLY | O_DIRECTORY)
    return try list(folder, path, limit: limit)
  }

  /// `path` for the words of an error.
  private static func list(
    _ descriptor: borrowing FileDescriptor, _ path: String, limit: Int = 65_536
  ) throws(SystemError) -> [String] {
    let number = try descriptor.duplicate().release()
    guard let folder = unsafe fdopendir(number) else {
      let cause = errno
      _ = close(number)
      throw SystemError("read the folder", path, errno: cause)
    }
    defer { _ = unsafe closedir(folder) }
    var names: [String] = []
    while names.count < limit, let entry = unsafe readdir(folder) {
      let name = unsafe withUnsafePointer(to: &entry.pointee.d_name) {
        unsafe $0.withMemoryRebound(to: CChar.self, capacity: 256) { unsafe String(cString: $0) }
      }
      if name != "." && name != ".." { names.append(name) }
    }
    return names.sorted()
  }

  /// A folder of plain files and everything in it, one level deep: what guardian itself makes. A
  /// link to a folder is none, and what takes its place meanwhile is not touched.
  package static func removeShallow(_ path: String) { try? removeFolder(path) }

  /// As `removeShallow`; a missing one is fine.
  package static func removeFolder(_ path: String) throws(SystemError) {
    do {
      let folder = try FileDescriptor.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)
      let raw = folder.raw
      for name in try list(folder, path) {
        do {
          _ = try retrying("remove", path + "/" + name) { unsafe unlinkat(raw, name, 0) }
        } catch  where error.errno == ENOENT {}
      }
      try removeDirectory(path)
    } catch  where error.errno == ENOENT {}
  }

  /// Names in a folder that is no link, sorted; none if it is missing.
  package static func listNoFollow(_ path: String) throws(SystemError) -> [String] {
    do {
      return try list(
        FileDescriptor.open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW), path, limit: .max)
    } catch  where error.errno == ENOENT { return [] }
  }

  package static func readLink(_ path: String) throws(SystemError) -> String {
    var buffer = [UInt8](repeating: 0, count: 4096)
    let count = try retrying("read the link", path) {
      unsafe buffer.withUnsafeMutableBytes {
        unsafe readlink(path, $0.baseAddress!.assumingMemoryBound(to: CChar.self), $0.count)
      }
    }
    return String(decoding: buffer[..<count], as: UTF8.self)
  }

  package static func isExecutable(_ path: String) -> Bool {
    unsafe faccessat(AT_FDCWD, path, X_OK, AT_EACCESS) == 0
  }

  package static func makeFIFO(_ path: String, mode: UInt32) throws(SystemError) {
    _ = try retrying("create the FIFO", path) { unsafe mkfifo(path, mode) }
  }

  /// A pipe's two ends, close-on-exec; the reading one, which is the first, does not block.
  package static func makePipe() throws(SystemError) -> (SharedDescriptor, SharedDescriptor) {
    var ends: [Int32] = [-1, -1]
    _ = try retrying("create a pipe") { unsafe guardian_pipe(&ends) }
    return (
      SharedDescriptor(FileDescriptor(owning: ends[0])),
      SharedDescriptor(FileDescriptor(owning: ends[1]))
    )
  }

  package static func currentDirectory() -> String {
    guard let path = unsafe getcwd(nil, 0) else { return "/" }
    defer { unsafe free(path) }
    return unsafe String(cString: path)
  }
}
