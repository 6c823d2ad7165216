// TOML text as values. Knows no key.
import CToml

/// A place in a file; both count from 1.
package struct TomlPosition: Hashable, Sendable {
  package let line: Int
  package let column: Int
}

package indirect enum TomlValue: Hashable, Sendable {
  case string(String)
  case integer(Int64)
  case float(Double)
  case boolean(Bool)
  /// A date or time, as text.
  case time(String)
  case array([TomlElement])
  case table(TomlTable)
}

/// A value and where it stands.
package struct TomlElement: Hashable, Sendable {
  package let value: TomlValue
  package let position: TomlPosition
}

/// In the order of the file.
package struct TomlTable: Hashable, Sendable {
  package struct Entry: Hashable, Sendable {
    package let key: String
    package let keyPosition: TomlPosition
    package let element: TomlElement
  }
  package let entries: [Entry]

  package subscript(key: String) -> TomlElement? {
    entries.first { $0.key == key }?.element
  }
}

struct TomlError: Error {
  let text: String
  /// nil: the text as a whole.
  let position: TomlPosition?
}

extension TomlTable {
  init(text bytes: [UInt8]) throws(TomlError) {
    var error = ctoml_error()
    let document = unsafe bytes.withUnsafeBytes { bytes in
      unsafe ctoml_parse(
        bytes.baseAddress?.assumingMemoryBound(to: CChar.self), bytes.count, &error)
    }
    guard let document = unsafe document else {
      let text = unsafe withUnsafeBytes(of: &error.text) { bytes in
        unsafe String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
      }
      let position = TomlPosition(line: Int(error.line), column: Int(error.column))
      throw TomlError(text: text, position: position.line > 0 ? position : nil)
    }
    defer { unsafe ctoml_free(document) }
    let nodes = unsafe UnsafeBufferPointer(
      start: ctoml_nodes(document), count: ctoml_count(document))
    var children: [[Int]] = Array(repeating: [], count: nodes.count)
    // The first one is the root.
    for index in 1..<nodes.count {
      children[unsafe nodes[index].parent].append(index)
    }
    func text(_ start: UnsafePointer<CChar>?, _ length: Int) -> String {
      unsafe String(
        decoding: UnsafeRawBufferPointer(start: start, count: start == nil ? 0 : length),
        as: UTF8.self)
    }
    // The reader limits the depth.
    func table(_ index: Int) -> TomlTable {
      TomlTable(
        entries: children[index].map { child in
          let node = unsafe nodes[child]
          return unsafe Entry(
            key: text(node.key, node.key_length),
            keyPosition: TomlPosition(line: Int(node.key_line), column: Int(node.key_column)),
            element: element(child))
        })
    }
    func element(_ index: Int) -> TomlElement {
      let node = unsafe nodes[index]
      let value: TomlValue =
        switch unsafe node.kind {
        case CTOML_TABLE: .table(table(index))
        case CTOML_ARRAY: .array(children[index].map(element))
        case CTOML_STRING: unsafe .string(text(node.text, node.text_length))
        case CTOML_INTEGER: unsafe .integer(node.integer)
        case CTOML_FLOAT: unsafe .float(node.number)
        case CTOML_BOOLEAN: unsafe .boolean(node.boolean != 0)
        default: unsafe .time(text(node.text, node.text_length))
        }
      return unsafe TomlElement(
        value: value, position: TomlPosition(line: Int(node.line), column: Int(node.column)))
    }
    self = table(0)
  }
}

extension TomlValue {
  /// What it is, for errors: "a string".
  var name: String {
    switch self {
    case .string: "a string"
    case .integer: "an integer"
    case .float: "a float"
    case .boolean: "a boolean"
    case .time: "a date or time"
    case .array: "an array"
    case .table: "a table"
    }
  }
}
