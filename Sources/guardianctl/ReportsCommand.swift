// `reports` and `show`.
import FoundationEssentials
import Reports

enum ReportsCommand {
  /// One line of `reports --json`.
  private struct Row: Encodable {
    var id: String
    var program: String
    var time: String?
    var kind: String?
    var summary: String
    var fingerprint: String?
    /// Which of its group it is, and how many there are, also those that were deleted.
    var number: Int?
    var count: Int?
    var folder: String
    var path: String
  }

  static func list(_ library: Library, json: Bool) throws {
    var groups: [String: GroupIndex] = [:]
    let rows = library.reports.map { stored -> Row in
      let directory = stored.store.directory
      let index = groups[directory] ?? stored.store.loadIndex()
      groups[directory] = index
      do throws(ControlError) {
        let report = try stored.report()
        return Row(
          id: stored.id.text, program: stored.program, time: report.time,
          kind: report.kind.rawValue, summary: ReportText.headline(report),
          fingerprint: report.fingerprint, number: index.number(stored.id),
          count: index.group(report.fingerprint)?.count,
          folder: stored.folder.rawValue, path: stored.path)
      } catch {
        return Row(
          id: stored.id.text, program: stored.program, summary: error.text,
          folder: stored.folder.rawValue, path: stored.path)
      }
    }
    if json {
      Output.print(bytes: try JSONText.encode(rows))
      return
    }
    if rows.isEmpty {
      Output.error("there are no reports in \(library.placesText)")
      return
    }
    let short = library.shortIDs()
    // Whose they are is known where one program was asked for.
    let withProgram = !library.isNamed
    var table = [
      ["ID", "TIME (UTC)"] + (withProgram ? ["PROGRAM"] : []) + ["KIND", "GROUP", "WHAT"]
    ]
    for (row, stored) in zip(rows, library.reports) {
      // To the second; the day first, as it sorts.
      let time = row.time.map { String($0.prefix(19).map { $0 == "T" ? " " : $0 }) } ?? "?"
      var group = "?"
      if let number = row.number, let count = row.count { group = "\(number) of \(count)" }
      table.append(
        [short[stored.id] ?? row.id, time] + (withProgram ? [row.program] : [])
          + [row.kind ?? "?", group, row.summary])
    }
    Table.print(table)
  }

  static func show(_ library: Library, _ word: String?, json: Bool) throws {
    let stored = try library.find(word)
    if stored.folder == .partial {
      Output.error("report \(stored.id) is not finished: this is what was known at once")
    }
    if json {
      Output.print(bytes: try stored.json())
      return
    }
    let report = try stored.report()
    Output.print(bytes: Array(ReportText.render(report).utf8))
    Output.print("")
    Output.print("Folder")
    Output.print("  " + SafeText.oneLine(stored.path))
  }
}
