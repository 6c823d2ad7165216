// Numbers of one guardian in Prometheus' text format (version 0.0.4), for the node exporter's
// textfile collector. Pure.

package struct Metrics: Hashable, Sendable {
  package enum Kind: String, Sendable { case counter, gauge }

  package struct Sample: Hashable, Sendable {
    package let labels: [Label]
    package let value: Double
    package struct Label: Hashable, Sendable {
      package let name: String
      package let value: String
    }
  }

  private struct Family: Hashable, Sendable {
    let name: String
    let kind: Kind
    let help: String
    var samples: [Sample]
  }

  private let program: String
  private var families: [Family] = []

  /// - Parameter program: in every sample as the label `name`.
  package init(program: String) { self.program = program }

  /// nil: there is no such number now.
  package mutating func add(
    _ name: String, _ kind: Kind, _ help: String, _ value: Double?,
    labels: [(name: String, value: String)] = []
  ) {
    guard let value else { return }
    let all = [("name", program)] + labels.map { ($0.name, $0.value) }
    let sample = Sample(
      labels: all.map { Sample.Label(name: $0.0, value: $0.1) }, value: value)
    // The samples of one name must stand together.
    if let index = families.firstIndex(where: { $0.name == name }) {
      families[index].samples.append(sample)
    } else {
      families.append(Family(name: name, kind: kind, help: help, samples: [sample]))
    }
  }

  package var text: String {
    var text = ""
    for family in families {
      text += "# HELP \(family.name) \(Self.escaped(family.help, quote: false))\n"
      text += "# TYPE \(family.name) \(family.kind.rawValue)\n"
      for sample in family.samples {
        let labels = sample.labels.map { "\($0.name)=\"\(Self.escaped($0.value, quote: true))\"" }
        text += "\(family.name){\(labels.joined(separator: ","))} \(Self.number(sample.value))\n"
      }
    }
    return text
  }

  private static func escaped(_ text: String, quote: Bool) -> String {
    var result = ""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\\": result += "\\\\"
      case "\n": result += "\\n"
      case "\"" where quote: result += "\\\""
      default: result.unicodeScalars.append(scalar)
      }
    }
    return result
  }

  private static func number(_ value: Double) -> String {
    if value == value.rounded(), abs(value) < 1e15 { return String(Int64(value)) }
    return value.description
  }
}
