// Reads the program's memory, never writes it. What cannot be read is left out, never guessed.
import CLinux
import Glibc
import Kernel

final class ProcessMemory {
  private let pid: Int32
  /// /proc/PID/mem, for pages the program itself may not read and where process_vm_readv is
  /// forbidden; -1 where it cannot be opened.
  private let file: FileDescriptor
  private var vectorReadsWork = true
  private var pages: [UInt64: [UInt8]] = [:]

  init(pid: Int32) {
    self.pid = pid
    self.file = FileDescriptor(owning: unsafe open("/proc/\(pid)/mem", O_RDONLY | O_CLOEXEC))
  }

  /// Fills `buffer` with the bytes of `ranges`, one after another, and returns the parts that
  /// could not be read (they are zero in the buffer and must not be shown).
  func gather(
    _ ranges: [AddressRange], into buffer: UnsafeMutableRawBufferPointer
  ) -> [AddressRange] {
    var unreadable: [AddressRange] = []
    var index = 0
    var inside: UInt64 = 0  // of ranges[index], already done
    var done = 0  // of the buffer
    var failures = 0
    var vectors: [iovec] = unsafe []
    unsafe vectors.reserveCapacity(1024)
    while index < ranges.count {
      // IOV_MAX ranges a call; 2 MiB a call keeps each one short.
      unsafe vectors.removeAll(keepingCapacity: true)
      var wanted = 0
      var at = index
      var skip = inside
      while at < ranges.count, unsafe vectors.count < 1024, wanted < 2 << 20 {
        let start = ranges[at].start + skip
        let size = Int(ranges[at].end - start)
        unsafe vectors.append(
          iovec(iov_base: UnsafeMutableRawPointer(bitPattern: UInt(start)), iov_len: size))
        wanted += size
        at += 1
        skip = 0
      }
      var got = unsafe readVectors(vectors, wanted: wanted, into: buffer, at: done)
      let complete = got == wanted
      done += got
      while got > 0 {
        let left = Int(ranges[index].size - inside)
        if got >= left {
          got -= left
          index += 1
          inside = 0
        } else {
          inside += UInt64(got)
          got = 0
        }
      }
      if complete { continue }
      // The page that stopped the call: /proc/PID/mem may still read it.
      let start = ranges[index].start + inside
      let end = min(ranges[index].end, start.pageFloor + pageSize)
      let size = Int(end - start)
      if unsafe !readFromFile(
        start, UnsafeMutableRawBufferPointer(rebasing: buffer[done..<done + size]))
      {
        unreadable.append(AddressRange(start: start, end: end))
        failures += 1
      }
      done += size
      inside += UInt64(size)
      if inside == ranges[index].size {
        index += 1
        inside = 0
      }
      if failures == CaptureLimits.unreadablePages {
        while index < ranges.count {
          unreadable.append(
            AddressRange(start: ranges[index].start + inside, end: ranges[index].end))
          index += 1
          inside = 0
        }
      }
    }
    return unreadable
  }

  /// Bytes read; short at the first page that cannot be read.
  private func readVectors(
    _ vectors: [iovec], wanted: Int, into buffer: UnsafeMutableRawBufferPointer, at offset: Int
  ) -> Int {
    if vectorReadsWork {
      var local = unsafe iovec(iov_base: buffer.baseAddress! + offset, iov_len: wanted)
      let count = unsafe vectors.withUnsafeBufferPointer {
        unsafe guardian_read_process(pid, &local, $0.baseAddress, UInt($0.count))
      }
      if count >= 0 { return count }
      // EFAULT: the very first page. Anything else (EPERM, ENOSYS under seccomp): this call
      // will never work here.
      if errno != EFAULT { vectorReadsWork = false }
    }
    if vectorReadsWork { return 0 }
    var done = 0
    for index in unsafe vectors.indices {
      let vector = unsafe vectors[index]
      let size = unsafe vector.iov_len
      let count = unsafe pread(
        file.raw, buffer.baseAddress! + offset + done, size,
        off_t(truncatingIfNeeded: UInt(bitPattern: vector.iov_base)))
      if count > 0 { done += count }
      if count != size { break }
    }
    return done
  }

  private func readFromFile(_ address: UInt64, _ buffer: UnsafeMutableRawBufferPointer) -> Bool {
    guard file.raw >= 0, address <= UInt64(Int64.max) else { return false }
    return unsafe pread(file.raw, buffer.baseAddress, buffer.count, off_t(address)) == buffer.count
  }

  /// A short reading that follows pointers: page by page, each page read once.
  func bytes(at address: UInt64, count: Int) -> [UInt8]? {
    guard count > 0, address.saturatingAdding(UInt64(count)) < .max - pageSize else { return nil }
    var result: [UInt8] = []
    result.reserveCapacity(count)
    var at = address
    while result.count < count {
      guard let page = page(at.pageFloor) else { return nil }
      let offset = Int(at - at.pageFloor)
      let part = min(count - result.count, Int(pageSize) - offset)
      result += page[offset..<offset + part]
      at += UInt64(part)
    }
    return result
  }

  /// Up to the first zero byte.
  func text(at address: UInt64, limit: Int) -> [UInt8]? {
    var result: [UInt8] = []
    var at = address
    while result.count < limit {
      guard at < .max - pageSize, let page = page(at.pageFloor) else { return nil }
      let rest = page[Int(at - at.pageFloor)...]
      if let end = rest.firstIndex(of: 0) { return result + rest[..<end] }
      result += rest
      at = at.pageFloor + pageSize
    }
    return nil
  }

  /// Reads many pages in one go for later calls of `bytes(at:count:)`.
  func prefetch(_ addresses: [UInt64]) {
    let ranges = merged(
      // Registers hold anything: only what can be an address at all.
      addresses.lazy.filter { $0 < UInt64(Int64.max) }.prefix(CaptureLimits.cachedPages).map {
        AddressRange(start: $0.pageFloor, end: $0.pageFloor + pageSize)
      })
    let total = ranges.reduce(0) { $0 + Int($1.size) }
    if total == 0 { return }
    var failed: [AddressRange] = []
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: total) { buffer, count in
      unsafe failed = gather(ranges, into: UnsafeMutableRawBufferPointer(buffer))
      count = total
    }
    var offset = 0
    for range in ranges {
      var address = range.start
      while address < range.end {
        if !failed.contains(where: { $0.contains(address) }) {
          pages[address] = Array(bytes[offset..<offset + Int(pageSize)])
        }
        offset += Int(pageSize)
        address += pageSize
      }
    }
  }

  private func page(_ address: UInt64) -> [UInt8]? {
    if let known = pages[address] { return known.isEmpty ? nil : known }
    guard pages.count < CaptureLimits.cachedPages else { return nil }
    var readable = false
    let range = AddressRange(start: address, end: address + pageSize)
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: Int(pageSize)) { buffer, count in
      readable = unsafe gather([range], into: UnsafeMutableRawBufferPointer(buffer)).isEmpty
      count = Int(pageSize)
    }
    pages[address] = readable ? bytes : []
    return readable ? bytes : nil
  }
}
