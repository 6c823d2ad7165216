// Connections that keep the borders of messages (unix(7), SOCK_SEQPACKET), and who is at their
// other end. Nothing here waits but `connect` and `receive` with a limit.
import CLinux
import Glibc
import Kernel

/// One end of a connection, or a listener.
package final class PacketSocket {
  private let descriptor: FileDescriptor
  package var raw: Int32 { descriptor.raw }

  private init(_ descriptor: consuming FileDescriptor) { self.descriptor = descriptor }

  /// One that was open before this program was executed.
  package init(inherited raw: Int32) { descriptor = FileDescriptor(owning: raw) }

  /// Replaces what is at `path`. Only its owner may connect.
  package static func listen(_ path: String, backlog: Int32) throws(SystemError) -> PacketSocket {
    Files.remove(path)
    let raw = try retrying("listen at", path) { unsafe guardian_listen_packet(path, backlog) }
    return PacketSocket(FileDescriptor(owning: raw))
  }

  /// Waits at most so long where the other side's backlog is full.
  package static func connect(
    _ path: String, within limit: Duration = .seconds(1)
  ) throws(SystemError) -> PacketSocket {
    let milliseconds = Int32(clamping: max(limit, .zero).nanoseconds / 1_000_000)
    let raw = try retrying("connect to", path) {
      unsafe guardian_connect_packet(path, milliseconds)
    }
    return PacketSocket(FileDescriptor(owning: raw))
  }

  /// nil: nobody waits.
  package func accept() throws(SystemError) -> PacketSocket? {
    let number = guardian_accept(raw)
    if number >= 0 { return PacketSocket(FileDescriptor(owning: number)) }
    switch errno {
    case EAGAIN, EINTR, ECONNABORTED: return nil
    default: throw SystemError("accept a connection", errno: errno)
    }
  }

  /// The user who connected, as the kernel noted it; nil: not told.
  package var peerUser: UInt32? {
    let user = guardian_peer_user(raw)
    return user == UInt32.max ? nil : user
  }

  package enum Sent { case all, full, gone }

  package func send(_ packet: [UInt8]) -> Sent {
    while true {
      let count = unsafe packet.withUnsafeBytes {
        unsafe Glibc.send(raw, $0.baseAddress, $0.count, Int32(MSG_NOSIGNAL | MSG_DONTWAIT))
      }
      if count >= 0 { return .all }
      switch errno {
      case EINTR: continue
      case EAGAIN, ENOBUFS, ENOMEM: return .full
      default: return .gone
      }
    }
  }

  package enum Received: Equatable {
    case packet([UInt8])
    case tooLong
    case nothing
    case gone
  }

  /// Never waits.
  package func receive(limit: Int) -> Received {
    var buffer = [UInt8](repeating: 0, count: limit + 1)
    while true {
      let count = unsafe buffer.withUnsafeMutableBytes {
        unsafe recv(raw, $0.baseAddress, $0.count, Int32(MSG_DONTWAIT))
      }
      if count > limit { return .tooLong }
      if count > 0 { return .packet(Array(buffer[..<count])) }
      if count == 0 { return .gone }
      switch errno {
      case EINTR: continue
      case EAGAIN: return .nothing
      default: return .gone
      }
    }
  }

  /// Waits for the next packet, at most so long; nil: for ever.
  package func receive(limit: Int, within time: Duration?) -> Received {
    let end = time.map { Clock.monotonic + $0 }
    while true {
      let received = receive(limit: limit)
      if received != .nothing { return received }
      var wait: Int32 = -1
      if let end {
        let left = end - Clock.monotonic
        if left <= .zero { return .nothing }
        wait = Int32(clamping: left.nanoseconds / 1_000_000 + 1)
      }
      var state = pollfd(fd: raw, events: Int16(POLLIN), revents: 0)
      _ = unsafe poll(&state, 1, wait)
    }
  }
}
