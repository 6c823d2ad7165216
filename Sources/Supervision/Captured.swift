import Reports

/// Until the summary can be decoded.
enum Captured {
  static func summary(_ bytes: [UInt8]) -> CaptureSummary { CaptureSummary() }
}
