// Argument and environment vectors as the kernel takes them. Their bytes need not be UTF-8.
import CSpawn
import Glibc

/// A null-terminated vector of C strings in memory of its own.
@safe final class CStrings {
  /// As `execve` takes it.
  let vector: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>
  private let count: Int

  init(_ strings: [[UInt8]]) {
    count = strings.count
    unsafe vector = .allocate(capacity: strings.count + 1)
    for (index, bytes) in strings.enumerated() {
      let copy = UnsafeMutablePointer<CChar>.allocate(capacity: bytes.count + 1)
      for (offset, byte) in bytes.enumerated() { unsafe copy[offset] = CChar(bitPattern: byte) }
      unsafe copy[bytes.count] = 0
      unsafe vector[index] = copy
    }
    unsafe vector[strings.count] = nil
  }

  deinit {
    for index in 0..<count { unsafe vector[index]?.deallocate() }
    unsafe vector.deallocate()
  }

  /// From a vector that C handed to us.
  static func bytes(
    of vector: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>?
  ) -> [[UInt8]] {
    guard let vector = unsafe vector else { return [] }
    var result: [[UInt8]] = []
    while let entry = unsafe vector[result.count] {
      unsafe result.append(Array(UnsafeRawBufferPointer(start: entry, count: strlen(entry))))
    }
    return result
  }
}

/// The environment of a program, by name; the order is kept.
struct Environment {
  private(set) var entries: [[UInt8]]

  init(_ entries: [[UInt8]]) { self.entries = entries }

  private static func name(of entry: [UInt8]) -> ArraySlice<UInt8> {
    // An entry may begin with '=' and need not have one at all.
    entry.prefix { $0 != UInt8(ascii: "=") }
  }

  subscript(name: String) -> [UInt8]? {
    get {
      entries.first { Self.name(of: $0).elementsEqual(name.utf8) }.map {
        Array($0.dropFirst(name.utf8.count + 1))
      }
    }
    set {
      let position = entries.firstIndex { Self.name(of: $0).elementsEqual(name.utf8) }
      entries.removeAll { Self.name(of: $0).elementsEqual(name.utf8) }
      guard let newValue else { return }
      let entry = Array(name.utf8) + [UInt8(ascii: "=")] + newValue
      entries.insert(entry, at: min(position ?? entries.count, entries.count))
    }
  }

  func text(_ name: String) -> String? { self[name].map { String(decoding: $0, as: UTF8.self) } }

  mutating func set(_ name: String, _ value: String) { self[name] = Array(value.utf8) }

  mutating func removeAll(prefix: String) {
    entries.removeAll { Self.name(of: $0).starts(with: prefix.utf8) }
  }

  /// Where the value of `name` lies in the vector, to be patched between clone and exec.
  func position(of name: String) -> Int? {
    entries.firstIndex { Self.name(of: $0).elementsEqual(name.utf8) }
  }
}
