import Policy
import Ring

/// Everything guardian knows of one ending when it writes the plain report: the only input of
/// `PlainReport`. Bytes that the program could choose are still raw here.
package struct Incident: Sendable {
  package struct StderrLine: Hashable, Sendable {
    package var time: WallTime
    package var bytes: [UInt8]
    /// The life that wrote it: only the last one's lines explain this ending.
    package var life: UInt32
    package init(time: WallTime, bytes: [UInt8], life: UInt32) {
      self.time = time
      self.bytes = bytes
      self.life = life
    }
  }

  package var id: ReportID
  /// Of the ending.
  package var time: WallTime
  /// `command` is not redacted yet; `executable`, `uid`, `gid` and `workingDirectory` are
  /// taken from `process` where they are nil.
  package var program: Program
  package var ending: Ending
  package var stopRequested = false
  /// "SIGTERM": what asks the program to stop, and how long it may take; nil: for ever.
  package var stopSignal = "SIGTERM"
  package var stopTimeout: Duration?
  /// nil where nothing was decided: a descendant, a snapshot of a hang.
  package var verdict: Verdict?
  /// The life's ring; nil: there was none.
  package var ring: RingContents?
  /// The crash record that the bell named.
  package var slot: Int?
  /// Name of the process that sent the signal, if it still lives.
  package var senderName: String?
  package var stderr: [StderrLine] = []
  package var host = Host()
  package var process = ProcessTexts()
  /// nil: no capture was made.
  package var capture: CaptureSummary?
  /// "preloaded", "linked", "none: static executable", …
  package var handler: String
  /// Why it was found to hang, in the words of what found it; nil: it was not.
  package var hang: String?
  /// The limit for which the kernel killed it, in words; nil: not for one that guardian knows of.
  package var killedByLimit: String?
  /// What is missing, as far as guardian knows already.
  package var defects: [String] = []
  /// Why the program could not be executed, in words.
  package var startFailure: String?
  /// Beside report.json in the folder.
  package var attachments: [Attachment] = []

  package init(id: ReportID, time: WallTime, program: Program, ending: Ending, handler: String) {
    self.id = id
    self.time = time
    self.program = program
    self.ending = ending
    self.handler = handler
  }
}
