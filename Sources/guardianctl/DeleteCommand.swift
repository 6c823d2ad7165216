// `delete`: reports that nobody needs any more. Their group goes on counting them.
import Glibc
import Kernel
import Reports

enum DeleteCommand {
  static func run(_ library: Library, _ words: [String], all: Bool, json: Bool) throws {
    let chosen = try chosen(library, words, all: all)
    var deleted: [String] = []
    // A store's index is written once for all of its reports.
    for (directory, reports) in Dictionary(grouping: chosen, by: \.store.directory) {
      if let owner = try? Files.status(directory).user, owner != geteuid() {
        throw ControlError(
          "'\(directory)' belongs to user \(owner): only that user deletes there", status: 77)
      }
      do {
        deleted += try reports[0].store.delete(reports.map(\.id)).map(\.text)
      } catch { throw ControlError("\(error)", status: 74) }
    }
    if json {
      Output.print(bytes: try JSONText.encode(deleted.sorted()))
    } else {
      for id in deleted.sorted() { Output.print("deleted \(id)") }
    }
  }

  private static func chosen(
    _ library: Library, _ words: [String], all: Bool
  ) throws(ControlError) -> [StoredReport] {
    if all {
      guard words.isEmpty else {
        throw ControlError("'delete' takes either reports or --all", status: 64)
      }
      guard library.isNamed else {
        throw ControlError("'delete --all' needs the program's name: --name=NAME", status: 64)
      }
      return library.reports
    }
    guard !words.isEmpty else {
      throw ControlError("'delete' needs more arguments: the ids of reports, or --all", status: 64)
    }
    var chosen: [StoredReport] = []
    for word in words {
      let stored = try library.find(word)
      if stored.folder == .partial {
        throw ControlError("report \(stored.id) is not finished; nothing was deleted", status: 1)
      }
      if !chosen.contains(where: { $0.id == stored.id }) { chosen.append(stored) }
    }
    return chosen
  }
}
