// What will really be run, and whether the crash handler can be preloaded into it. Reads the
// first bytes of files and ELF headers; every offset in them is checked, none is believed.
import CLinux
import Glibc
import Kernel

/// The program as execve will find it.
struct Executable {
  /// As given or as found in PATH.
  let path: [UInt8]
  let handler: HandlerDecision
}

package enum HandlerDecision: Hashable {
  case preload
  /// Why not, as it stands in the report: "static executable", …
  case none(String)
}

package enum ExecutableLookup {
  /// The file that `command` names: with a slash in it as it is, else the first in PATH that may
  /// be executed. nil with the errno that execvp would give.
  static func find(_ command: [UInt8], searchPath: String?) -> Result<[UInt8], SystemError> {
    let name = String(decoding: command, as: UTF8.self)
    if command.isEmpty { return .failure(SystemError("execute", name, errno: ENOENT)) }
    if command.contains(UInt8(ascii: "/")) { return .success(command) }
    var denied = false
    // The C library's own default when PATH is not set.
    for folder in (searchPath ?? "/bin:/usr/bin").split(
      separator: ":", omittingEmptySubsequences: false)
    {
      let candidate = (folder.isEmpty ? "." : String(folder)) + "/" + name
      let status: FileStatus
      do { status = try Files.status(candidate) } catch {
        if error.errno == EACCES { denied = true }
        continue
      }
      if !status.isRegular { continue }
      if Files.isExecutable(candidate) { return .success(Array(candidate.utf8)) }
      denied = true
    }
    return .failure(SystemError("execute", name, errno: denied ? EACCES : ENOENT))
  }

  /// Looks at the file, and through `#!` at its interpreter. `user`: whom it will run as.
  package static func decide(_ path: String, user: UInt32, depth: Int = 0) -> HandlerDecision {
    // A file that cannot be read is left to exec; nothing is known, and the preload is harmless
    // where the loader cannot take it.
    guard let found = try? Files.look(at: Array(path.utf8), follow: true),
      // Opening alone would make a device act.
      let status = try? found.status(), status.isRegular,
      let file = try? found.openedForReading(),
      let head = try? file.read(count: 4096, at: 0)
    else { return .preload }

    if head.starts(with: "#!".utf8) {
      if depth >= 4 { return .preload }  // the kernel's own limit
      let line = head.dropFirst(2).prefix { $0 != 10 }
      let words = line.split { $0 == 32 || $0 == 9 }
      guard let interpreter = words.first else { return .preload }
      return decide(String(decoding: interpreter, as: UTF8.self), user: user, depth: depth + 1)
    }

    if (status.mode & S_ISUID != 0 && status.user != user)
      || (status.mode & S_ISGID != 0 && status.mode & S_IXGRP != 0 && status.group != getegid())
    {
      return .none("setuid or setgid executable")
    }
    let capabilities = unsafe getxattr(path, "security.capability", nil, 0)
    if capabilities > 0 && user != 0 { return .none("executable with file capabilities") }
    return ELFInspection.decide(file, size: status.size, head: head)
  }
}

enum ELFInspection {
  /// Limits for what a hostile or broken file may make us read.
  private static let dynamicLimit = 64 * 1024
  private static let stringLimit = 16 * 1024 * 1024

  /// The loader that guardian itself was linked for: the handler is of the same kind.
  private static let ownInterpreter: String? = {
    guard let file = try? FileDescriptor.open("/proc/self/exe", O_RDONLY),
      let head = try? file.read(count: 4096, at: 0),
      let headers = programHeaders(file, head)
    else { return nil }
    return interpreter(file, headers)
  }()

  private struct ProgramHeader {
    let type: UInt32
    let offset: UInt64
    let address: UInt64
    let size: UInt64
  }

  private static func number(_ bytes: [UInt8], _ offset: Int, _ size: Int) -> UInt64? {
    guard offset >= 0, offset + size <= bytes.count else { return nil }
    var value: UInt64 = 0
    for index in (0..<size).reversed() { value = value << 8 | UInt64(bytes[offset + index]) }
    return value
  }

  private static func programHeaders(
    _ file: borrowing FileDescriptor, _ head: [UInt8]
  ) -> [ProgramHeader]? {
    guard let offset = number(head, 32, 8), let size = number(head, 54, 2), size >= 56,
      let count = number(head, 56, 2), count <= 1024, offset < UInt64(Int64.max),
      let bytes = try? file.read(count: Int(size * count), at: Int64(offset))
    else { return nil }
    return (0..<Int(count)).compactMap { index in
      let at = index * Int(size)
      guard let type = number(bytes, at, 4), let offset = number(bytes, at + 8, 8),
        let address = number(bytes, at + 16, 8), let size = number(bytes, at + 32, 8)
      else { return nil }
      return ProgramHeader(type: UInt32(type), offset: offset, address: address, size: size)
    }
  }

  private static func interpreter(
    _ file: borrowing FileDescriptor, _ headers: [ProgramHeader]
  ) -> String? {
    guard let header = headers.first(where: { $0.type == UInt32(PT_INTERP) }), header.size < 4096,
      header.offset < UInt64(Int64.max),
      let bytes = try? file.read(count: Int(header.size), at: Int64(header.offset))
    else { return nil }
    return String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
  }

  static func decide(
    _ file: borrowing FileDescriptor, size: Int64, head: [UInt8]
  ) -> HandlerDecision {
    guard head.starts(with: [0x7f, 0x45, 0x4c, 0x46]) else { return .preload }
    #if arch(x86_64)
      let machine: UInt64 = 62
    #else
      let machine: UInt64 = 183
    #endif
    guard head.count > 63, head[4] == 2, head[5] == 1, number(head, 18, 2) == machine else {
      return .none("executable of another architecture or word size")
    }
    guard let headers = programHeaders(file, head) else { return .none("unreadable executable") }
    guard let loader = interpreter(file, headers) else { return .none("static executable") }
    let base = { (path: String) in path.split(separator: "/").last.map(String.init) ?? path }
    if let ownInterpreter, base(loader) != base(ownInterpreter) {
      return .none("executable for another C library (\(Printable.text(base(loader).utf8)))")
    }
    if let sanitizer = sanitizer(file, headers) {
      return .none("executable with a sanitizer's runtime (\(sanitizer))")
    }
    return .preload
  }

  /// A sanitizer's runtime must come first of all libraries: with a preload before it such a
  /// program refuses to start. It is a needed library (gcc) or inside the executable, which then
  /// exports its entry points (clang).
  private static func sanitizer(
    _ file: borrowing FileDescriptor, _ headers: [ProgramHeader]
  ) -> String? {
    guard let dynamic = headers.first(where: { $0.type == UInt32(PT_DYNAMIC) }),
      dynamic.offset < UInt64(Int64.max),
      let bytes = try? file.read(
        count: min(Int(clamping: dynamic.size), dynamicLimit), at: Int64(dynamic.offset))
    else { return nil }
    var needed: [UInt64] = []
    var strings: (address: UInt64, size: UInt64) = (0, 0)
    for at in stride(from: 0, to: bytes.count - 15, by: 16) {
      guard let tag = number(bytes, at, 8), let value = number(bytes, at + 8, 8), tag != 0 else {
        break
      }
      switch tag {
      case 1: needed.append(value)
      case 5: strings.address = value
      case 10: strings.size = value
      default: break
      }
    }
    guard
      let segment = headers.first(where: {
        $0.type == UInt32(PT_LOAD) && strings.address >= $0.address
          && strings.address - $0.address < $0.size
      }),
      case let offset = segment.offset &+ (strings.address - segment.address),
      offset < UInt64(Int64.max),
      let table = try? file.read(
        count: min(Int(clamping: strings.size), stringLimit), at: Int64(offset))
    else { return nil }
    for start in needed where start < UInt64(table.count) {
      let name = String(
        decoding: table[Int(start)...].prefix(256).prefix { $0 != 0 }, as: UTF8.self)
      for library in ["libasan", "libtsan", "libhwasan", "libclang_rt."]
      where name.hasPrefix(library) {
        return Printable.text(name.utf8)
      }
    }
    for symbol in ["__asan_init", "__tsan_init", "__msan_init", "__hwasan_init"]
    where contains(table, [0] + Array(symbol.utf8) + [0]) {
      return symbol
    }
    return nil
  }

  private static func contains(_ bytes: [UInt8], _ pattern: [UInt8]) -> Bool {
    unsafe bytes.withUnsafeBytes { haystack in
      unsafe pattern.withUnsafeBytes { needle in
        unsafe guardian_contains(
          haystack.baseAddress, haystack.count, needle.baseAddress, needle.count)
      }
    }
  }
}
