/// A signal by its number on this machine (signal(7)).
package struct Signal: RawRepresentable, Hashable, Sendable {
  package let rawValue: Int32
  package init(rawValue: Int32) { self.rawValue = rawValue }
}
