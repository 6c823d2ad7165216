// `status` and `why`.
import Control
import Glibc
import Policy
import Reports

enum StatusCommand {
  /// - Returns: what to leave with, as systemctl: 0 runs, 3 does not, 4 there is no such.
  static func status(_ guardians: Guardians, json: Bool) throws -> Int32 {
    let statuses = guardians.statuses()
    if statuses.isEmpty {
      if json { Output.print(bytes: try JSONText.encode(statuses)) }
      if guardians.isNamed {
        let place = guardians.places[0]
        Output.error("there is no guarded program '\(place.name)' (looked in '\(place.folder)')")
        return 4
      }
      Output.error("no guardian of this user runs")
      return 3
    }
    if json {
      Output.print(bytes: try JSONText.encode(statuses))
    } else if guardians.isNamed || statuses.count == 1 {
      show(statuses[0])
    } else {
      list(statuses)
    }
    return guardians.isNamed || statuses.count == 1 ? statuses[0].exitStatus : 0
  }

  private static func show(_ status: ControlStatus) {
    Output.print(SafeText.oneLine(status.sentence))
    var rows: [(String, String)] = []
    func row(_ name: String, _ value: String?) {
      if let value { rows.append((name, SafeText.oneLine(value))) }
    }
    row("User", status.user)
    row("State", status.state)
    row("Life", status.life.map(String.init))
    row("PID", status.pid.map(String.init))
    row(
      "Up",
      status.uptime.map {
        time($0) + (status.started.map { ", since \(Self.second($0))" } ?? "")
      })
    row("Memory", status.memoryBytes.map(size))
    row("CPU", status.cpu.map(time))
    row("Says", status.programStatus)
    row("Health", status.health)
    row("Restarts", status.restarts.map(String.init))
    row("Failures", status.failures.map { failures($0, status.maxCrashes, status.crashWindow) })
    row(
      "Last ending",
      status.lastEnding.map { ending in
        ending + (status.lastEndingTime.map { ", " + Self.second($0) } ?? "")
      })
    row("Verdict", status.lastVerdict)
    row(
      "Last report",
      status.lastReport.map {
        $0 + (status.state == "dead" ? " (guardianctl -n \(status.name) show latest)" : "")
      })
    row("Start again", status.startAgain)
    row("Next restart", status.nextRestart.map { "in " + time($0) })
    row("Handler", status.handler)
    row("Command", status.command?.joined(separator: " "))
    row("Guardian", status.guardianPID.map { "pid \($0)" })
    row("Reports in", status.stateDirectory.map { $0 + "/reports" })
    let width = rows.map(\.0.count).max() ?? 0
    for (name, value) in rows {
      Output.print("  " + String(repeating: " ", count: width - name.count) + name + ": " + value)
    }
  }

  private static func list(_ statuses: [ControlStatus]) {
    let withUser = statuses.contains { $0.user != nil }
    var head = ["NAME", "STATE", "LIFE", "PID", "UP", "MEMORY", "CPU", "RESTARTS"]
    if withUser { head.append("USER") }
    head.append("LAST ENDING")
    var table = [head]
    for status in statuses {
      var row: [String] = [status.name, status.state]
      row.append(status.life.map { String($0) } ?? "-")
      row.append(status.pid.map { String($0) } ?? "-")
      row.append(status.uptime.map { time($0) } ?? "-")
      row.append(status.memoryBytes.map { size($0) } ?? "-")
      row.append(status.cpu.map { time($0) } ?? "-")
      row.append(status.restarts.map { String($0) } ?? "-")
      if withUser { row.append(status.user ?? "root") }
      row.append(status.state == "unreachable" ? status.sentence : status.lastEnding ?? "-")
      table.append(row)
    }
    Table.print(table)
  }

  static func why(_ why: ControlWhy, json: Bool) throws {
    if json {
      Output.print(bytes: try JSONText.encode(why))
      return
    }
    Output.print(
      SafeText.oneLine(
        "\(why.name): \(failures(why.failures, why.maxCrashes, why.crashWindow))"))
    if let verdict = why.lastVerdict { Output.print("  " + SafeText.oneLine(verdict)) }
    if !why.list.isEmpty {
      Output.print("")
      Table.print(
        [["LIFE", "ENDING", "AGO", "FORGOTTEN IN"]]
          + why.list.map {
            [
              String($0.life), $0.ending, time($0.ago), $0.forgottenIn.map(time) ?? "never",
            ]
          })
      if why.list.count < why.failures {
        Output.print("and \(why.failures &- why.list.count) earlier")
      }
    }
    Output.print("")
    Output.print(
      why.nextDelay == 0
        ? "After a further failure it would be restarted at once"
        : "After a further failure it would be restarted in \(time(why.nextDelay)) "
          + "(\(why.row) restart\(why.row == 1 ? "" : "s") in a row)")
    Output.print("What resets the count:")
    for reset in why.resets { Output.print("  " + SafeText.oneLine(reset)) }
  }

  private static func failures(_ count: Int, _ max: Int?, _ window: Int64?) -> String {
    (max.map { "\(count) of \($0)" } ?? "\(count)") + " that count"
      + (window.map { " within \(time($0))" } ?? "")
  }

  /// Of milliseconds.
  static func time(_ milliseconds: Int64) -> String {
    Duration.milliseconds(milliseconds).words
  }

  /// "2026-11-30 06:50:04 UTC" of an RFC 3339 text.
  private static func second(_ text: String) -> String {
    String(text.prefix(19).map { $0 == "T" ? " " : $0 }) + " UTC"
  }

  private static func size(_ bytes: UInt64) -> String {
    if bytes < 1 << 20 { return "\(bytes >> 10) KiB" }
    let tenths = (bytes >> 10) * 10 >> 10
    return tenths < 1000 ? "\(tenths / 10).\(tenths % 10) MiB" : "\(tenths / 10) MiB"
  }
}

enum Table {
  /// Aligned columns, safe for a terminal.
  static func print(_ rows: [[String]]) {
    let safe = rows.map { $0.map(SafeText.oneLine) }
    let columns = safe.first?.count ?? 0
    let widths = (0..<columns).map { column in safe.map { $0[column].count }.max() ?? 0 }
    for cells in safe {
      var line = ""
      for (column, cell) in cells.enumerated() {
        line += cell
        if column < columns - 1 {
          line += String(repeating: " ", count: widths[column] - cell.count + 2)
        }
      }
      Output.print(line)
    }
  }
}
