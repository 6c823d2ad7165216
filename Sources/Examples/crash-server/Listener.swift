import Glibc

/// A listening socket that any number of threads serve.
struct Listener: Sendable {
  let socket: Int32
  let port: UInt16

  init(port wanted: UInt16) {
    socket = Glibc.socket(AF_INET, Int32(SOCK_STREAM.rawValue) | O_CLOEXEC, 0)
    var yes: Int32 = 1
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = wanted.bigEndian
    address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let socket = self.socket
    let bound = withUnsafeMutablePointer(to: &address) {
      $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
        bind(socket, $0, length) == 0 && listen(socket, 64) == 0
          && getsockname(socket, $0, &length) == 0
      }
    }
    guard bound else {
      perror("cannot listen on 127.0.0.1:\(wanted)")
      exit(1)
    }
    port = UInt16(bigEndian: address.sin_port)
  }

  /// Answers one request after the other, for ever.
  func serve() {
    while true {
      let client = accept(socket, nil, nil)
      guard client >= 0 else { continue }
      let path = readPath(client)
      complain("GET \(path)")
      let (status, body) = answer(path)
      let text =
        "HTTP/1.1 \(status)\r\nContent-Type: text/plain\r\nContent-Length: \(body.utf8.count)\r\n"
        + "Connection: close\r\n\r\n\(body)"
      // MSG_NOSIGNAL: a client that went away must not kill the server.
      _ = text.withCString { send(client, $0, strlen($0), Int32(MSG_NOSIGNAL)) }
      close(client)
    }
  }

  /// The path of `GET PATH HTTP/1.1`; the rest of the request is of no interest.
  private func readPath(_ client: Int32) -> String {
    var request: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 4096)
    // To the empty line: closing a socket with unread bytes would cut the answer off.
    while !request.suffix(4).elementsEqual("\r\n\r\n".utf8), request.count < 16_384 {
      let count = recv(client, &buffer, buffer.count, 0)
      guard count > 0 else { break }
      request += buffer[..<count]
    }
    let words = String(decoding: request, as: UTF8.self).split(separator: " ")
    return words.count > 1 ? String(words[1]) : ""
  }
}

/// A thread with a name that a report can show.
func startThread(named name: String, _ body: @escaping @Sendable () -> Void) {
  final class Box {
    let name: String
    let body: @Sendable () -> Void
    init(_ name: String, _ body: @escaping @Sendable () -> Void) {
      self.name = name
      self.body = body
    }
  }
  var thread = pthread_t()
  let box = Unmanaged.passRetained(Box(name, body)).toOpaque()
  let failure = pthread_create(
    &thread, nil,
    { box in
      let box = Unmanaged<Box>.fromOpaque(box!).takeRetainedValue()
      nameThisThread(box.name)
      box.body()
      return nil
    }, box)
  guard failure == 0 else {
    complain("cannot start thread \(name): \(String(cString: strerror(failure)))")
    exit(1)
  }
}

private func nameThisThread(_ name: String) {
  let file = open("/proc/thread-self/comm", O_WRONLY | O_CLOEXEC)
  _ = name.withCString { write(file, $0, strlen($0)) }
  close(file)
}

/// One line on standard error.
func complain(_ line: String) {
  _ = (line + "\n").withCString { write(2, $0, strlen($0)) }
}
