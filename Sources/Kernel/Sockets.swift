// Datagrams with the sender that the kernel names, and with descriptors.
import CLinux
import Glibc

/// A number that owns its descriptor, for collections.
package final class SharedDescriptor {
  package let descriptor: FileDescriptor
  package init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }
  package var raw: Int32 { descriptor.raw }
}

package struct Datagram {
  package let bytes: [UInt8]
  package let truncated: Bool
  /// In our pid namespace; 0: not in it, or not told.
  package let senderPID: Int32
  package let senderUID: UInt32
  package let descriptors: [SharedDescriptor]

  fileprivate init(
    _ message: guardian_message, _ bytes: [UInt8], descriptors: [SharedDescriptor]
  ) {
    self.bytes = bytes
    truncated = message.truncated || !descriptors.isEmpty && message.has_descriptors
    senderPID = message.pid
    senderUID = message.uid
    self.descriptors = descriptors
  }
}

package enum Sockets {
  /// The path ends up with these permissions, whatever the umask is. `descriptors`: whether any may
  /// come with a message (kernels before 6.16 let them come in any case).
  package static func bindDatagram(
    _ path: String, mode: UInt32, descriptors: Bool = false
  ) throws(SystemError) -> FileDescriptor {
    let raw = try retrying("bind the socket", path) {
      unsafe guardian_bind_datagram(path, descriptors)
    }
    let socket = FileDescriptor(owning: raw)
    try Files.setPermissions(path, mode)
    return socket
  }

  /// A datagram socket that nobody can send to.
  package static func silent() throws(SystemError) -> FileDescriptor {
    let raw = try retrying("create a socket") { socket(AF_UNIX, Int32(SOCK_DGRAM.rawValue), 0) }
    let silent = FileDescriptor(owning: raw)
    _ = try retrying("set a descriptor's flags") { fcntl(raw, F_SETFD, FD_CLOEXEC) }
    return silent
  }

  package static func packetPair() throws(SystemError) -> (SharedDescriptor, SharedDescriptor) {
    var ends: (Int32, Int32) = (-1, -1)
    let result = unsafe withUnsafeMutablePointer(to: &ends) {
      unsafe $0.withMemoryRebound(to: Int32.self, capacity: 2) { unsafe guardian_packet_pair($0) }
    }
    if result != 0 { throw SystemError("create a socket pair", errno: errno) }
    return (
      SharedDescriptor(FileDescriptor(owning: ends.0)),
      SharedDescriptor(FileDescriptor(owning: ends.1))
    )
  }

  /// Of a socket that only guardian's own processes can send to. nil: nothing there now (or the other
  /// side is gone).
  package static func receive(_ socket: borrowing FileDescriptor, limit: Int) -> Datagram? {
    guard let message = receiveMessage(socket, limit: limit) else { return nil }
    return Datagram(
      message.raw, message.bytes,
      descriptors: message.numbers.map { SharedDescriptor(FileDescriptor(owning: $0)) })
  }

  /// The same; the descriptors are the caller's to close.
  static func receiveNumbers(
    _ socket: borrowing FileDescriptor, limit: Int
  ) -> (bytes: [UInt8], numbers: [Int32])? {
    receiveMessage(socket, limit: limit).map { ($0.bytes, $0.numbers) }
  }

  private static func receiveMessage(
    _ socket: borrowing FileDescriptor, limit: Int
  ) -> (raw: guardian_message, bytes: [UInt8], numbers: [Int32])? {
    var buffer = [UInt8](repeating: 0, count: limit)
    let raw = socket.raw
    var message = unsafe buffer.withUnsafeMutableBytes {
      unsafe guardian_receive(raw, $0.baseAddress, $0.count)
    }
    if message.bytes < 0 { return nil }
    let count = Int(message.descriptor_count)
    let numbers = unsafe withUnsafeBytes(of: &message.descriptors) {
      unsafe Array($0.bindMemory(to: Int32.self).prefix(count))
    }
    return (message, Array(buffer[..<message.bytes]), numbers)
  }

  package enum FromStranger {
    case nothing
    case datagram(Datagram)
    /// It waits still, with its descriptors: `Errands.take` takes it.
    case withDescriptors(Datagram)
  }

  /// Of a socket that anybody may send to: no descriptor of a stranger ever gets into this process,
  /// where closing it may wait for ever.
  package static func receiveFromStranger(_ socket: Int32, limit: Int) -> FromStranger {
    guard let first = receiveText(socket, limit: limit, peek: true) else { return .nothing }
    if first.hasDescriptors { return .withDescriptors(first.datagram) }
    guard let taken = receiveText(socket, limit: limit, peek: false) else { return .nothing }
    return .datagram(taken.datagram)
  }

  private static func receiveText(
    _ socket: Int32, limit: Int, peek: Bool
  ) -> (datagram: Datagram, hasDescriptors: Bool)? {
    var buffer = [UInt8](repeating: 0, count: limit)
    let message = unsafe buffer.withUnsafeMutableBytes {
      unsafe guardian_receive_text(socket, $0.baseAddress, $0.count, peek)
    }
    if message.bytes < 0 { return nil }
    return (
      Datagram(message, Array(buffer[..<message.bytes]), descriptors: []),
      message.has_descriptors
    )
  }

  /// Whether a datagram waits.
  static func isWaiting(at socket: Int32) -> Bool {
    receiveText(socket, limit: 1, peek: true) != nil
  }
}

package enum Randomness {
  /// Lower-case hexadecimal of so many random bytes.
  package static func hex(bytes count: Int) -> String {
    var bytes = [UInt8](repeating: 0, count: count)
    let got = unsafe bytes.withUnsafeMutableBytes { unsafe getrandom($0.baseAddress!, $0.count, 0) }
    // getrandom cannot fail for so few bytes once the machine is up (random(7)).
    precondition(got == count, "getrandom failed")
    let digits = Array("0123456789abcdef".utf8)
    return String(
      decoding: bytes.flatMap { [digits[Int($0 >> 4)], digits[Int($0 & 15)]] }, as: UTF8.self)
  }
}
