/// The number of a life, from 1; it grows by one with each start and never repeats
/// within one guardian. Every event from outside carries the life it belongs to.
package struct Life: RawRepresentable, Hashable, Comparable, Sendable {
  package let rawValue: UInt32
  package init(rawValue: UInt32) { self.rawValue = rawValue }
  package static func < (a: Life, b: Life) -> Bool { a.rawValue < b.rawValue }
}
