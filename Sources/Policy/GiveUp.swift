/// Why guardian gave up; the on-give-up command is told so.
package struct GiveUp: Hashable, Sendable {
  package let reason: String
  package init(reason: String) { self.reason = reason }
}
