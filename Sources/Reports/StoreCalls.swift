// The few file-system calls the store is made of, behind one protocol, so that a test may let
// the n-th of them fail and see that nothing is lost.
import Glibc
import Kernel

package protocol StoreCalls {
  /// 0700; an existing folder is fine.
  func makeFolder(_ path: String) throws(SystemError)
  /// Makes or truncates the file, 0600.
  func write(_ path: String, _ bytes: [UInt8], sync: Bool) throws(SystemError)
  /// At most `limit` bytes; nil: no such file.
  func read(_ path: String, limit: Int) throws(SystemError) -> [UInt8]?
  func rename(_ from: String, to: String) throws(SystemError)
  /// A missing file is fine.
  func removeFile(_ path: String) throws(SystemError)
  /// A folder and the files in it, through its own descriptor: a link is none. A missing folder is
  /// fine.
  func removeFolder(_ path: String) throws(SystemError)
  /// Names without "." and "..", sorted; none if the folder is missing.
  func list(_ path: String) throws(SystemError) -> [String]
  /// Bytes on disk of the files in a folder.
  func bytes(inFolder path: String) throws(SystemError) -> UInt64
  /// Flushes a file or folder; a missing one is fine.
  func sync(_ path: String) throws(SystemError)
  /// Bytes an unprivileged user may still write to the file system.
  func freeBytes(_ path: String) throws(SystemError) -> UInt64
}

/// The kernel's own.
package struct KernelStoreCalls: StoreCalls, Sendable {
  package init() {}

  package func makeFolder(_ path: String) throws(SystemError) {
    do {
      _ = try retrying("make the folder", path) { unsafe mkdir(path, 0o700) }
    } catch  where error.errno == EEXIST {
      var status = stat()
      _ = try retrying("look at", path) { unsafe stat(path, &status) }
      if status.st_mode & S_IFMT != S_IFDIR {
        throw SystemError("make the folder", path, errno: ENOTDIR)
      }
    }
  }

  package func write(_ path: String, _ bytes: [UInt8], sync: Bool) throws(SystemError) {
    let file = FileDescriptor(
      owning: try retrying("create", path) {
        unsafe open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0o600)
      })
    var done = 0
    while done < bytes.count {
      let raw = file.raw
      done += try retrying("write", path) {
        unsafe bytes[done...].withUnsafeBytes {
          unsafe Glibc.write(raw, $0.baseAddress, $0.count)
        }
      }
    }
    if sync {
      let raw = file.raw
      _ = try retrying("flush", path) { fsync(raw) }
    }
  }

  package func read(_ path: String, limit: Int) throws(SystemError) -> [UInt8]? {
    let raw: Int32
    do {
      raw = try retrying("open", path) {
        unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
      }
    } catch  where error.errno == ENOENT {
      return nil
    }
    let file = FileDescriptor(owning: raw)
    var result: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while result.count < limit {
      let raw = file.raw
      let count = try retrying("read", path) {
        unsafe buffer.withUnsafeMutableBytes {
          unsafe Glibc.read(raw, $0.baseAddress, min($0.count, limit - result.count))
        }
      }
      if count == 0 { break }
      result.append(contentsOf: buffer[..<count])
    }
    return result
  }

  package func rename(_ from: String, to: String) throws(SystemError) {
    _ = try retrying("rename to '\(to)' the folder or file", from) {
      unsafe Glibc.rename(from, to)
    }
  }

  package func removeFile(_ path: String) throws(SystemError) {
    do {
      _ = try retrying("remove", path) { unsafe unlink(path) }
    } catch  where error.errno == ENOENT {
    }
  }

  package func removeFolder(_ path: String) throws(SystemError) { try Files.removeFolder(path) }

  package func list(_ path: String) throws(SystemError) -> [String] {
    try Files.listNoFollow(path)
  }

  package func bytes(inFolder path: String) throws(SystemError) -> UInt64 {
    var sum: UInt64 = 0
    for name in try list(path) {
      var status = stat()
      if unsafe lstat(path + "/" + name, &status) == 0 {
        sum += UInt64(max(0, status.st_blocks)) * 512
      }
    }
    return sum
  }

  package func sync(_ path: String) throws(SystemError) {
    let raw: Int32
    do {
      raw = try retrying("open", path) {
        unsafe open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)
      }
    } catch  where error.errno == ENOENT {
      return
    }
    let file = FileDescriptor(owning: raw)
    let number = file.raw
    _ = try retrying("flush", path) { fsync(number) }
  }

  package func freeBytes(_ path: String) throws(SystemError) -> UInt64 {
    var status = statvfs()
    _ = try retrying("look at the file system of", path) { unsafe statvfs(path, &status) }
    return UInt64(status.f_bavail) &* UInt64(status.f_frsize)
  }
}
