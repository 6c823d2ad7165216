import FoundationEssentials
import Reports

/// What the worker found, as it tells the finisher: JSON in a memory file. Only these parts of
/// the report are taken from it; whatever else a worker that was taken over might say is not
/// even read.
struct WorkerResult: Codable {
  static let maximumBytes = ReportLimits.jsonBytes * 4

  var threads: [ThreadFacts]
  var modules: [Module]
  /// nil: the plain report's stays.
  var exception: ExceptionFacts?
  var defects: [String]

  static func decode(_ bytes: [UInt8]) -> WorkerResult? {
    try? JSONDecoder().decode(WorkerResult.self, from: Data(bytes))
  }
}

extension Report {
  static func decode(_ bytes: [UInt8]) throws -> Report {
    try JSONDecoder().decode(Report.self, from: Data(bytes))
  }
}
