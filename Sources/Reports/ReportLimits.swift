/// Every bound of a report and of the store, with its reason. What is cut off is named as a
/// defect in the report.
package enum ReportLimits {
  /// A report travels by mail and HTTP and is opened in editors.
  package static let jsonBytes = 8 << 20
  /// One text: a name, a reason, a path, a line. Longer ones are cut and end in "…".
  package static let textBytes = 16 << 10
  /// A report is read by people; 512 thread stacks are more than anyone looks at, yet the JSON
  /// is read by programs.
  package static let threads = 4096
  /// The newest frames of a stack and, from a deep recursion, its beginning.
  package static let newestFrames = 192
  package static let oldestFrames = 64
  package static let modules = 4096
  package static let breadcrumbs = 1024
  package static let stderrLines = 2000
  package static let environmentVariables = 1024
  package static let commandArguments = 1024
  package static let defects = 64
  package static let causes = 16

  /// Threads whose names are read while the program is held: one small file each.
  package static let namedThreads = 1024

  /// Text of /proc that is read of a program that may have made it large on purpose.
  package static let procTextBytes = 1 << 20
  /// Of the stderr tail, what the exception parsers look at.
  package static let parsedStderrLines = 2000

  /// Retention of one store.
  package static let storedReports = 100
  package static let storedBytes: UInt64 = 256 << 20
  /// Of the free space of the store's file system.
  package static let storedShareOfFreeDisk: UInt64 = 10
  /// An index that is longer is not one of ours.
  package static let indexBytes = 4 << 20
}
