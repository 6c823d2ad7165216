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

  /// nil: nothing there now (or the other side is gone).
  package static func receive(_ socket: borrowing FileDescriptor, limit: Int) -> Datagram? {
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
    return Datagram(
      bytes: Array(buffer[..<message.bytes]), truncated: message.truncated,
      senderPID: message.pid, senderUID: message.uid,
      descriptors: numbers.map { SharedDescriptor(FileDescriptor(owning: $0)) })
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
