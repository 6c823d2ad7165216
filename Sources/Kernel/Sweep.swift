// Clearing away what a dead guardian left running: done by guardian-sweep at once, and by the next
// guardian of the name, should that one have been killed as well.
import CLinux
import Glibc

package struct Sweep {
  /// As kill-mode names it.
  package enum Scope: String, Sendable { case process, group, tree }

  /// The runtime folder.
  package let folder: String
  package let scope: Scope
  /// The life that was running, if a file says so.
  package let record: LifeRecord?
  /// Those that were there: what the next guardian starts meanwhile is not to be swept away.
  private let channels: Set<String>
  private let scan = TreeScan()
  /// Of looking into memory, in one pass.
  private static let patience = Duration.seconds(5)

  package init(folder: String, scope: Scope) {
    self.folder = folder
    self.scope = scope
    record = LifeRecord.read(in: folder)
    channels = Set(
      ((try? Files.list(folder)) ?? []).filter(LifeMarks.isChannelName)
        + (record.map { [$0.channel] } ?? []))
  }

  /// Who is to be ended now.
  /// - Parameter isQuick: without those that only their memory could show.
  package func find(isQuick: Bool = false) -> [TreeProcess] {
    switch scope {
    case .process: return record?.process.map { [$0] } ?? []
    case .group:
      guard let record else { return [] }
      let group = record.marks(in: folder).group
      return ProcessTree.all().filter { process in
        process.isAlive && process.pid != getpid()
          && group.map { process.group == $0.number && process.session == $0.session } ?? false
      }
    case .tree:
      let main = record?.process
      var marks = record?.marks(in: folder) ?? LifeMarks(folder: folder)
      marks.channels = channels
      return scan.find(
        marks, below: main.map { [$0.pid] } ?? [], patience: isQuick ? nil : Self.patience)
    }
  }

  /// Blocks until they are gone or the time is up.
  package func end(within limit: Duration) -> ProcessTree.Outcome {
    ProcessTree.end(
      within: limit, cgroup: scope == .tree ? livingCgroup : nil,
      quickly: { find(isQuick: true) }, { find() })
  }

  private var livingCgroup: String? {
    guard let record, record.boot == LifeRecord.currentBoot, !record.cgroup.isEmpty else {
      return nil
    }
    return record.cgroup
  }

  /// nil: there was nothing to do.
  package func words(_ outcome: ProcessTree.Outcome) -> String? {
    if outcome.killed.isEmpty { return nil }
    var text = "ended " + ProcessTree.words(outcome.killed)
    if !outcome.left.isEmpty { text += "; cannot end " + ProcessTree.words(outcome.left) }
    return text
  }
}

/// Lets go of the code and constants that only start-up needed.
package func guardianForgetStartUp() { guardian_forget_start_up() }
