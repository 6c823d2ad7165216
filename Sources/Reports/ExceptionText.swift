import Policy

/// What runtimes write when a program dies → type, reason, place. Pure; the text is hostile.
package enum ExceptionText {
  package static func abortMessage(_ text: String) -> ExceptionFacts? { nil }
  package static func stderr(_ lines: [String], fitting status: Ending.Status) -> ExceptionFacts? {
    nil
  }
}
