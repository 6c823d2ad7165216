// Where the program's standard output and error go, as the options say: each a sink that takes
// bytes and never stops the program. Made once; `open` when guardian can say what is wrong.
import Glibc
import Kernel
import Settings

/// Takes what the program wrote. Nothing here blocks for ever or fails: what cannot be kept is
/// dropped, counted and said.
protocol ProgramSink: AnyObject {
  /// Whether more should be read from the program now.
  var hasRoom: Bool { get }
  var isTerminal: Bool { get }
  func write(_ bytes: ArraySlice<UInt8>)
  /// Takes what is in `pipe`, at most `limit` bytes, and leaves it there.
  func copy(from pipe: Int32, limit: Int) -> PipeCopy
}

enum PipeCopy {
  /// So many bytes; behind them lie so many more.
  case copied(Int, behind: Int)
  /// It takes nothing now, and says when it does again.
  case full
  /// It is to be read and written.
  case impossible
}

extension ProgramSink {
  func copy(from pipe: Int32, limit: Int) -> PipeCopy { .impossible }
}

/// One of the program's streams.
package enum OutputStream: String, Sendable {
  case stdout
  case stderr
}

final class NullSink: ProgramSink {
  let hasRoom = true
  let isTerminal = false
  func write(_ bytes: ArraySlice<UInt8>) {}
}

final class StandardStreams {
  /// nil: the program writes there itself, and guardian sees nothing of it.
  private(set) var output: ProgramSink?
  private(set) var error: ProgramSink
  let reader = OutputReader()
  private let outputTarget: OutputTarget
  private let errorTarget: OutputTarget
  private let own: OutputSink
  private var files: [LogFile] = []
  private var journals: [JournalStream] = []

  /// - Parameter own: guardian's standard error.
  init(_ configuration: Configuration, own: OutputSink) {
    outputTarget = configuration.standardOutput
    errorTarget = configuration.standardError
    self.own = own
    error = own
  }

  /// The program writes to guardian's own standard error, which guardian does not see.
  var errorIsDirect: Bool { errorTarget == .direct }

  /// What the program gets as standard output where guardian is not between: null, or guardian's.
  var outputIsNull: Bool { outputTarget == .null }

  /// - Parameter onRoom: output may be read again.
  /// - Parameter complain: one line for people.
  func open(
    _ configuration: Configuration, loop: EventLoop, onRoom: @escaping () -> Void,
    complain: @escaping (String) -> Void
  ) {
    own.onRoom = onRoom
    func sink(_ target: OutputTarget, _ stream: OutputStream) -> ProgramSink? {
      switch target {
      case .inherit: return nil
      case .direct: return stream == .stderr ? NullSink() : nil
      case .null: return stream == .stderr ? NullSink() : nil
      case .file(let path):
        // Both streams into one file: one writer, or each would rotate it away from the other.
        if let file = files.first(where: { $0.path == path }) { return file }
        let file = LogFile(path, complain: complain)
        files.append(file)
        return file
      case .journal:
        let journal = JournalStream(
          identifier: configuration.name, stream: stream, loop: loop, onRoom: onRoom,
          complain: complain)
        if let journal { journals.append(journal) }
        return journal
      }
    }
    output = sink(outputTarget, .stdout)
    error = sink(errorTarget, .stderr) ?? own
    adopt(configuration)
    for file in files { file.open() }
  }

  /// Limits that were read again.
  func adopt(_ configuration: Configuration) {
    for file in files { file.setLimits(bytes: configuration.logBytes, keep: configuration.logKeep) }
  }

  /// Somebody moved the files away and wants new ones in their place.
  func reopen() { for file in files { file.reopen() } }

  /// Before guardian leaves.
  func finish(within limit: Duration) {
    for journal in journals { journal.finish(within: limit) }
    for file in files { file.finish() }
    own.finish(within: limit)
  }
}
