// Encodable values → JSON text (RFC 8259) without Foundation, because guardian itself writes
// reports. Knows nothing of reports. Keys come in the order in which a type encodes them;
// dictionaries are sorted, so that equal values give equal bytes.
import Kernel

/// A JSON value whose members keep their order.
package indirect enum JSONValue: Hashable, Sendable {
  package struct Member: Hashable, Sendable {
    package var key: String
    package var value: JSONValue
    package init(_ key: String, _ value: JSONValue) {
      self.key = key
      self.value = value
    }
  }
  case null
  case bool(Bool)
  case integer(Int64)
  case unsigned(UInt64)
  /// Finite.
  case double(Double)
  case string(String)
  case array([JSONValue])
  case object([Member])
}

package enum JSONTextError: Error, Hashable, Sendable, CustomStringConvertible {
  /// JSON has no word for it.
  case notFinite(key: String)
  /// A type's own `encode(to:)` failed or asked for what is not supported.
  case cannotEncode(type: String, cause: String)

  package var description: String {
    switch self {
    case .notFinite(let key): "cannot write '\(key)' as JSON: the number is not finite"
    case .cannotEncode(let type, let cause): "cannot write a \(type) as JSON: \(cause)"
    }
  }
}

package enum JSONText {
  package enum Layout: Sendable { case compact, pretty }

  /// UTF-8. Pretty text is indented by two spaces and ends with a line feed.
  package static func encode(
    _ value: some Encodable, layout: Layout = .pretty
  ) throws(JSONTextError) -> [UInt8] {
    write(try tree(value), layout: layout)
  }

  package static func tree(_ value: some Encodable) throws(JSONTextError) -> JSONValue {
    do {
      return try TreeEncoder.encode(value, path: [])
    } catch let error as JSONTextError {
      throw error
    } catch {
      throw .cannotEncode(type: "\(type(of: value))", cause: "\(error)")
    }
  }

  package static func write(_ value: JSONValue, layout: Layout) -> [UInt8] {
    var writer = Writer(pretty: layout == .pretty)
    writer.write(value, depth: 0)
    if layout == .pretty { writer.bytes.append(UInt8(ascii: "\n")) }
    return writer.bytes
  }

  private struct Writer {
    let pretty: Bool
    var bytes: [UInt8] = []

    mutating func write(_ value: JSONValue, depth: Int) {
      switch value {
      case .null: bytes.append(contentsOf: "null".utf8)
      case .bool(let flag): bytes.append(contentsOf: (flag ? "true" : "false").utf8)
      case .integer(let number): bytes.append(contentsOf: String(number).utf8)
      case .unsigned(let number): bytes.append(contentsOf: String(number).utf8)
      case .double(let number): write(number)
      case .string(let text): write(text)
      case .array(let elements):
        write(elements, open: "[", close: "]", depth: depth) { writer, element in
          writer.write(element, depth: depth + 1)
        }
      case .object(let members):
        write(members, open: "{", close: "}", depth: depth) { writer, member in
          writer.write(member.key)
          writer.bytes.append(UInt8(ascii: ":"))
          if writer.pretty { writer.bytes.append(UInt8(ascii: " ")) }
          writer.write(member.value, depth: depth + 1)
        }
      }
    }

    private mutating func write<Element>(
      _ elements: [Element], open: Unicode.Scalar, close: Unicode.Scalar, depth: Int,
      each: (inout Writer, Element) -> Void
    ) {
      bytes.append(UInt8(ascii: open))
      for (index, element) in elements.enumerated() {
        if index > 0 { bytes.append(UInt8(ascii: ",")) }
        newLine(depth: depth + 1)
        each(&self, element)
      }
      if !elements.isEmpty { newLine(depth: depth) }
      bytes.append(UInt8(ascii: close))
    }

    private mutating func newLine(depth: Int) {
      guard pretty else { return }
      bytes.append(UInt8(ascii: "\n"))
      bytes.append(contentsOf: repeatElement(UInt8(ascii: " "), count: 2 * depth))
    }

    /// Swift prints the shortest text that reads back as the same number; it is JSON but for
    /// the ".0" that whole numbers need not carry.
    private mutating func write(_ number: Double) {
      let text = number.description
      let isWhole = text.hasSuffix(".0") && text != "-0.0"
      bytes.append(contentsOf: (isWhole ? String(text.dropLast(2)) : text).utf8)
    }

    private mutating func write(_ text: String) {
      bytes.append(UInt8(ascii: "\""))
      if text.utf8.allSatisfy({
        $0 >= 0x20 && $0 < 0x7f && $0 != UInt8(ascii: "\"") && $0 != UInt8(ascii: "\\")
      }) {
        bytes.append(contentsOf: text.utf8)
      } else {
        for scalar in text.unicodeScalars { write(scalar) }
      }
      bytes.append(UInt8(ascii: "\""))
    }

    /// Escaped beyond what JSON asks for: also what a terminal would act on (the text may be
    /// shown by `cat`) and U+2028/9, which JavaScript once read as line ends.
    private mutating func write(_ scalar: Unicode.Scalar) {
      switch scalar {
      case "\"": bytes.append(contentsOf: "\\\"".utf8)
      case "\\": bytes.append(contentsOf: "\\\\".utf8)
      case "\n": bytes.append(contentsOf: "\\n".utf8)
      case "\r": bytes.append(contentsOf: "\\r".utf8)
      case "\t": bytes.append(contentsOf: "\\t".utf8)
      case _ where scalar.isUnsafeToShow:
        for unit in String(scalar).utf16 {
          let hex = String(unit, radix: 16)
          bytes.append(contentsOf: "\\u".utf8)
          bytes.append(contentsOf: repeatElement(UInt8(ascii: "0"), count: 4 - hex.count))
          bytes.append(contentsOf: hex.utf8)
        }
      default: bytes.append(contentsOf: String(scalar).utf8)
      }
    }
  }
}

/// Dictionaries encode themselves in hash order; they are taken apart here instead.
private protocol TextKeyed {
  var sortedMembers: [(key: String, value: any Encodable)] { get }
}
extension Dictionary: TextKeyed where Key == String, Value: Encodable {
  fileprivate var sortedMembers: [(key: String, value: any Encodable)] {
    sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
  }
}

/// Builds the tree. Containers are references because `Encoder` hands them out and never says
/// when they are done.
private final class TreeEncoder: Encoder {
  final class Node {
    enum Content {
      case empty
      case value(JSONValue)
      case array([Node])
      case object([(key: String, node: Node)])
    }
    var content = Content.empty

    var tree: JSONValue {
      switch content {
      case .empty: .object([])
      case .value(let value): value
      case .array(let nodes): .array(nodes.map(\.tree))
      case .object(let members): .object(members.map { .init($0.key, $0.node.tree) })
      }
    }
    func element() -> Node {
      let node = Node()
      guard case .array(var nodes) = content else { return node }
      content = .empty
      nodes.append(node)
      content = .array(nodes)
      return node
    }
    func member(_ key: String) -> Node {
      let node = Node()
      guard case .object(var members) = content else { return node }
      content = .empty
      members.append((key, node))
      content = .object(members)
      return node
    }
  }

  let node: Node
  let codingPath: [any CodingKey]
  var userInfo: [CodingUserInfoKey: Any] { [:] }

  init(node: Node, path: [any CodingKey]) {
    self.node = node
    codingPath = path
  }

  static func encode(_ value: any Encodable, path: [any CodingKey]) throws -> JSONValue {
    switch value {
    case let text as String: return .string(text)
    case let flag as Bool: return .bool(flag)
    case let number as Double: return try finite(number, path)
    case let number as Float: return try finite(Double(number), path)
    case let number as any FixedWidthInteger:
      if let signed = Int64(exactly: number) { return .integer(signed) }
      if let unsigned = UInt64(exactly: number) { return .unsigned(unsigned) }
      throw JSONTextError.cannotEncode(type: "\(type(of: value))", cause: "it exceeds 64 bits")
    case let dictionary as any TextKeyed:
      return .object(
        try dictionary.sortedMembers.map { member in
          .init(member.key, try encode(member.value, path: path + [TextKey(member.key)]))
        })
    default:
      let node = Node()
      try value.encode(to: TreeEncoder(node: node, path: path))
      return node.tree
    }
  }

  static func finite(_ number: Double, _ path: [any CodingKey]) throws -> JSONValue {
    guard number.isFinite else {
      throw JSONTextError.notFinite(key: path.map(\.stringValue).joined(separator: "."))
    }
    return .double(number)
  }

  struct TextKey: CodingKey {
    let stringValue: String
    var intValue: Int? { nil }
    init(_ text: String) { stringValue = text }
    init?(stringValue: String) { self.stringValue = stringValue }
    init?(intValue: Int) { stringValue = String(intValue) }
  }

  func container<K: CodingKey>(keyedBy type: K.Type) -> KeyedEncodingContainer<K> {
    if case .object = node.content {} else { node.content = .object([]) }
    return KeyedEncodingContainer(Keyed<K>(node: node, codingPath: codingPath))
  }
  func unkeyedContainer() -> any UnkeyedEncodingContainer {
    if case .array = node.content {} else { node.content = .array([]) }
    return Unkeyed(node: node, codingPath: codingPath)
  }
  func singleValueContainer() -> any SingleValueEncodingContainer {
    Single(node: node, codingPath: codingPath)
  }

  struct Keyed<K: CodingKey>: KeyedEncodingContainerProtocol {
    let node: Node
    let codingPath: [any CodingKey]

    func encodeNil(forKey key: K) { node.member(key.stringValue).content = .value(.null) }
    func encode<T: Encodable>(_ value: T, forKey key: K) throws {
      let tree = try TreeEncoder.encode(value, path: codingPath + [key])
      node.member(key.stringValue).content = .value(tree)
    }
    func nestedContainer<N: CodingKey>(keyedBy type: N.Type, forKey key: K)
      -> KeyedEncodingContainer<N>
    {
      TreeEncoder(node: node.member(key.stringValue), path: codingPath + [key])
        .container(keyedBy: type)
    }
    func nestedUnkeyedContainer(forKey key: K) -> any UnkeyedEncodingContainer {
      TreeEncoder(node: node.member(key.stringValue), path: codingPath + [key])
        .unkeyedContainer()
    }
    func superEncoder() -> any Encoder {
      TreeEncoder(node: node.member("super"), path: codingPath + [TextKey("super")])
    }
    func superEncoder(forKey key: K) -> any Encoder {
      TreeEncoder(node: node.member(key.stringValue), path: codingPath + [key])
    }
  }

  struct Unkeyed: UnkeyedEncodingContainer {
    let node: Node
    let codingPath: [any CodingKey]
    var count: Int {
      if case .array(let nodes) = node.content { nodes.count } else { 0 }
    }

    func encodeNil() { node.element().content = .value(.null) }
    func encode<T: Encodable>(_ value: T) throws {
      let tree = try TreeEncoder.encode(value, path: codingPath + [TextKey(String(count))])
      node.element().content = .value(tree)
    }
    func nestedContainer<N: CodingKey>(keyedBy type: N.Type) -> KeyedEncodingContainer<N> {
      TreeEncoder(node: node.element(), path: codingPath).container(keyedBy: type)
    }
    func nestedUnkeyedContainer() -> any UnkeyedEncodingContainer {
      TreeEncoder(node: node.element(), path: codingPath).unkeyedContainer()
    }
    func superEncoder() -> any Encoder { TreeEncoder(node: node.element(), path: codingPath) }
  }

  struct Single: SingleValueEncodingContainer {
    let node: Node
    let codingPath: [any CodingKey]

    func encodeNil() { node.content = .value(.null) }
    func encode<T: Encodable>(_ value: T) throws {
      node.content = .value(try TreeEncoder.encode(value, path: codingPath))
    }
  }
}
