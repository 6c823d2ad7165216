// Finding the processes of a program by what is known of them. Cheap marks first: descent, group,
// cgroup, standard error. Into the memory of the rest only a child looks, for a bounded time:
// thousands of strangers, and such as make themselves hard to look at, must not put off an ending.
import Glibc

package final class TreeScan {
  /// Looked into, and found to be the program's or somebody else's.
  private var ours: Set<TreeProcess.Identity> = []
  private var others: Set<TreeProcess.Identity> = []
  /// What is left of the time for looking into memory, in all.
  private var budget = TreeScan.budget
  private static let budget = Duration.seconds(20)

  package init() {}

  /// All its time again; what was found out stays.
  package func renew() { budget = Self.budget }

  /// The living ones that have a mark, and whatever stands below them or below `roots`. Never the
  /// caller, who stands above it, or `sparing`.
  /// - Parameter patience: for looking into memory; nil: it is not looked into. Who was not
  ///   reached within it is not among them, and the next call goes on there.
  package func find(
    _ marks: LifeMarks, below roots: Set<Int32> = [], sparing: Set<Int32> = [],
    patience: Duration?
  ) -> [TreeProcess] {
    let all = ProcessTree.all()
    var parents: [Int32: Int32] = [:]
    for process in all { parents[process.pid] = process.parent }
    var spared = sparing.union(Errands.pids)
    var above = getpid()
    while above > 0, spared.insert(above).inserted || above == getpid() {
      guard let next = parents[above], next != above else { break }
      above = next
    }
    let inCgroup = Set(marks.cgroup.map(Cgroup.processes) ?? [])
    var members = roots
    var undecided: [TreeProcess] = []
    for process in all where !spared.contains(process.pid) && process.isAlive {
      let identity = process.identity
      if inCgroup.contains(process.pid) || ours.contains(identity) || isInGroup(process, marks) {
        members.insert(process.pid)
      } else if !others.contains(identity), process.pid != 2, process.parent != 2 {
        // A process of the kernel has no memory to look into.
        if hasError(process, marks) {
          ours.insert(identity)
          members.insert(process.pid)
        } else {
          undecided.append(process)
        }
      }
    }
    Self.descend(all, &members, spared)
    if let patience {
      undecided.removeAll { members.contains($0.pid) }
      for process in look(into: undecided, marks, within: min(patience, budget)) {
        members.insert(process.pid)
      }
      Self.descend(all, &members, spared)
    }
    return all.filter { members.contains($0.pid) && $0.isAlive && !spared.contains($0.pid) }
  }

  /// Downwards until nothing is added: a parent may come after its child in the list.
  private static func descend(
    _ all: [TreeProcess], _ members: inout Set<Int32>, _ spared: Set<Int32>
  ) {
    var grew = true
    while grew {
      grew = false
      for process in all
      where members.contains(process.parent) && !spared.contains(process.pid)
        && members.insert(process.pid).inserted
      {
        grew = true
      }
    }
  }

  private func isInGroup(_ process: TreeProcess, _ marks: LifeMarks) -> Bool {
    guard let group = marks.group else { return false }
    return process.group == group.number && process.session == group.session
  }

  private func hasError(_ process: TreeProcess, _ marks: LifeMarks) -> Bool {
    let thread = Processes.livingThread(of: process)
    guard let error = try? Files.readLink("/proc/\(process.pid)/task/\(thread)/fd/2") else {
      return false
    }
    return marks.isChannel(error)
  }

  private func look(
    into processes: [TreeProcess], _ marks: LifeMarks, within patience: Duration
  ) -> [TreeProcess] {
    if processes.isEmpty || patience <= .zero { return [] }
    let began = Clock.monotonic
    // Whoever was there before the program is hardly its own.
    let since = marks.since ?? 0
    let ordered = processes.filter { $0.start >= since } + processes.filter { $0.start < since }
    let verdicts = Errands.search(
      ordered.map { ($0.pid, Processes.livingThread(of: $0)) }, marks: marks,
      until: began + patience)
    budget -= Clock.monotonic - began
    var found: [TreeProcess] = []
    for (process, verdict) in zip(ordered, verdicts) {
      switch verdict {
      case .marked:
        ours.insert(process.identity)
        found.append(process)
      case .unmarked: others.insert(process.identity)
      case .unknown: break
      }
    }
    return found
  }
}
