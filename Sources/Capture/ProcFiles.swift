// Files of /proc/PID, read whole into memory with a limit, and their few numbers. All of it
// is text that the program can shape (names with newlines, endless lists): a line that does
// not parse is skipped.
import CLinux
import Glibc
import Kernel

/// The whole file, at most `limit` bytes; nil with errno if it cannot be opened or read.
func readFile(_ path: String, limit: Int) -> [UInt8]? {
  let raw = unsafe open(path, O_RDONLY | O_CLOEXEC)
  guard raw >= 0 else { return nil }
  let file = FileDescriptor(owning: raw)
  return readAll(file.raw, limit: limit)
}

/// Reads to the end or to `limit`; nil if nothing could be read because of an error.
func readAll(_ descriptor: Int32, limit: Int) -> [UInt8]? {
  var bytes: [UInt8] = []
  var room = min(limit, 16 << 10)
  while bytes.count < limit {
    let wanted = min(room, limit - bytes.count)
    let start = bytes.count
    bytes.append(contentsOf: repeatElement(0, count: wanted))
    var used = 0
    // seq_file gives at most a page a call: fill what was reserved before growing.
    var failed = false
    while used < wanted {
      let count = unsafe bytes.withUnsafeMutableBytes {
        unsafe read(descriptor, $0.baseAddress! + start + used, wanted - used)
      }
      if count == -1 && errno == EINTR { continue }
      if count <= 0 {
        failed = count < 0
        break
      }
      used += count
    }
    if used < wanted {
      bytes.removeLast(wanted - used)
      return failed && bytes.isEmpty ? nil : bytes
    }
    room = min(room * 2, 1 << 20)
  }
  return bytes
}

/// Numbers of the directory entries in /proc/PID/task.
func threadIDs(of pid: Int32, limit: Int) -> [Int32]? {
  let directory = unsafe opendir("/proc/\(pid)/task")
  guard let directory = unsafe directory else { return nil }
  defer { unsafe closedir(directory) }
  var result: [Int32] = []
  while result.count < limit, let entry = unsafe readdir(directory) {
    let name = unsafe withUnsafeBytes(of: entry.pointee.d_name) { name in
      var value: Int32 = 0
      for index in name.indices {
        let byte = unsafe name[index]
        if byte == 0 { break }
        guard byte >= 0x30, byte <= 0x39, value < 100_000_000 else { return Int32(0) }
        value = value * 10 + Int32(byte - 0x30)
      }
      return value
    }
    if name > 0 { result.append(name) }
  }
  return result
}

/// The values of one line of /proc/PID/status. The kernel escapes newlines in names there.
func statusNumbers(_ status: [UInt8], key: StaticString) -> [Int32] {
  for line in status.split(separator: 0x0A) {
    guard Array(line.prefix(key.utf8CodeUnitCount)).hasPrefix(key) else { continue }
    return line.dropFirst(key.utf8CodeUnitCount).split(whereSeparator: { $0 == 9 || $0 == 0x20 })
      .compactMap { Int32(String(decoding: $0, as: UTF8.self)) }
  }
  return []
}

/// The fields of /proc/PID/stat after the name, so index 0 is the state (proc(5) field 3).
/// The name may hold spaces and parentheses: the last one ends it.
func statFields(_ stat: [UInt8]) -> [ArraySlice<UInt8>] {
  guard let close = stat.lastIndex(of: UInt8(ascii: ")")) else { return [] }
  return stat[(close + 1)...].split(whereSeparator: { $0 == 0x20 || $0 == 0x0A })
}

func decimal(_ text: ArraySlice<UInt8>) -> UInt64? {
  var value: UInt64 = 0
  if text.isEmpty { return nil }
  for byte in text {
    guard byte >= 0x30, byte <= 0x39 else { return nil }
    let (times, over) = value.multipliedReportingOverflow(by: 10)
    let (sum, carried) = times.addingReportingOverflow(UInt64(byte - 0x30))
    if over || carried { return nil }
    value = sum
  }
  return value
}

/// Nanoseconds of CLOCK_MONOTONIC.
func monotonicNanoseconds() -> Int64 {
  var now = timespec()
  unsafe clock_gettime(CLOCK_MONOTONIC, &now)
  return Int64(now.tv_sec) * 1_000_000_000 + Int64(now.tv_nsec)
}
