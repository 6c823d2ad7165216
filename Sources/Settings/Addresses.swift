// Addresses: where guardian listens for the program, and where a health probe asks. Numeric, so
// that nothing has to be looked up in a name service while a program waits to be started.
import Glibc

/// An IP address with a port.
package struct NetworkAddress: Hashable, Sendable {
  /// Numeric, without brackets.
  package let host: String
  package let port: UInt16
  package let isIPv6: Bool

  /// As people write it; an IPv6 address in brackets.
  package var text: String { (isIPv6 ? "[\(host)]" : host) + ":\(port)" }

  /// "127.0.0.1:80", "[::1]:80".
  /// - Parameter defaultPort: for a text without a port; nil: there must be one.
  /// - Throws: what is wrong with `text`, for "ADDRESS …".
  init(_ text: Substring, defaultPort: UInt16? = nil) throws(BadValue) {
    let shown = quoted(String(text))
    let host: Substring
    let rest: Substring
    if text.first == "[" {
      guard let end = text.firstIndex(of: "]") else {
        throw BadValue("\(shown): the bracket is not closed")
      }
      host = text[text.index(after: text.startIndex)..<end]
      rest = text[text.index(after: end)...]
      isIPv6 = true
    } else {
      if text.count(where: { $0 == ":" }) > 1 {
        throw BadValue("\(shown): an IPv6 address goes in brackets, as [::1]:80")
      }
      let end = text.firstIndex(of: ":") ?? text.endIndex
      host = text[..<end]
      rest = text[end...]
      isIPv6 = false
    }
    // The one name that needs no name service.
    let name = host == "localhost" && !isIPv6 ? "127.0.0.1" : String(host)
    var parsed = in6_addr()
    guard unsafe inet_pton(isIPv6 ? AF_INET6 : AF_INET, name, &parsed) == 1 else {
      throw BadValue(
        "\(shown): \(quoted(name)) is not a numeric IP\(isIPv6 ? "v6" : "v4") address"
          + (host.isEmpty ? ", such as 0.0.0.0" : ""))
    }
    self.host = name
    if rest.isEmpty, let defaultPort {
      port = defaultPort
      return
    }
    let digits = rest.dropFirst()
    guard rest.first == ":", !digits.isEmpty, digits.utf8.allSatisfy({ (48...57).contains($0) }),
      let number = UInt16(digits), number > 0
    else {
      throw BadValue("\(shown): the port is a number from 1 to 65535")
    }
    port = number
  }
}

/// A socket that guardian opens for the program.
package enum ListenAddress: Hashable, Sendable {
  case tcp(NetworkAddress)
  /// Absolute, once the settings are complete.
  case unix(String)

  package var text: String {
    switch self {
    case .tcp(let address): "tcp:" + address.text
    case .unix(let path): "unix:" + path
    }
  }
}

extension Kind<ListenAddress> {
  /// The longest path that a socket's address holds (unix(7)).
  static let pathBytes = 107

  static let listen = Kind(
    argument: "ADDRESS",
    notation: "tcp:ADDR:PORT, tcp:[ADDR6]:PORT or unix:PATH, with a numeric address or localhost",
    toml: [.string],
    completion: .words(["tcp:", "unix:"]),
    parse: { text throws(BadValue) in
      if text.hasPrefix("tcp:") {
        return .tcp(try NetworkAddress(text.dropFirst(4)))
      }
      guard text.hasPrefix("unix:"), text.utf8.count > 5 else {
        throw BadValue("\(quoted(text)) is neither tcp:ADDR:PORT nor unix:PATH")
      }
      return .unix(String(text.dropFirst(5)))
    }, format: \.text)
}

/// Where a health probe asks by HTTP.
package struct HealthURL: Hashable, Sendable {
  package let address: NetworkAddress
  /// As the request's Host line says it.
  package let host: String
  /// With its query; begins with "/".
  package let path: String

  package var text: String { "http://" + host + path }
}

extension Kind<NetworkAddress> {
  static let address = Kind(
    argument: "ADDR:PORT",
    notation: "ADDR:PORT or [ADDR6]:PORT with a numeric address or localhost",
    toml: [.string],
    parse: { text throws(BadValue) in try NetworkAddress(text[...]) },
    format: \.text)
}

extension Kind<HealthURL> {
  static let httpURL = Kind(
    argument: "URL", notation: "http://ADDR[:PORT]/PATH with a numeric address or localhost",
    toml: [.string],
    parse: { text throws(BadValue) in
      if text.hasPrefix("https:") {
        throw BadValue("\(quoted(text)): only http is spoken; use --health-exec with curl")
      }
      guard text.hasPrefix("http://") else {
        throw BadValue("\(quoted(text)) is not http://ADDR[:PORT]/PATH")
      }
      // What stands in a request line must not end it.
      guard text.utf8.allSatisfy({ $0 > 32 && $0 < 127 }), text.utf8.count <= 1024 else {
        throw BadValue("\(quoted(text)): at most 1024 printable ASCII characters without blanks")
      }
      let rest = text.dropFirst(7)
      let end = rest.firstIndex { $0 == "/" || $0 == "?" || $0 == "#" } ?? rest.endIndex
      let host = rest[..<end]
      let address = try NetworkAddress(host, defaultPort: 80)
      let path = rest[end...].prefix { $0 != "#" }
      return HealthURL(
        address: address, host: String(host),
        path: path.first == "/" ? String(path) : "/" + path)
    }, format: \.text)
}
