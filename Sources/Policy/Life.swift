/// The number of a life, from 1; it grows by one with each start and never repeats
/// within one guardian. Every event from outside carries the life it belongs to.
package struct Life: RawRepresentable, Hashable, Comparable, Sendable {
  package let rawValue: UInt32
  package init(rawValue: UInt32) { self.rawValue = rawValue }
  package static func < (a: Life, b: Life) -> Bool { a.rawValue < b.rawValue }

  /// The life after this one. After four thousand million of them it starts again at 1.
  package var next: Life { Life(rawValue: rawValue == .max ? 1 : rawValue + 1) }
}
