// `status` and `why`.
import Control
import Glibc
import Kernel
import Policy
import Reports

enum StatusCommand {
  /// - Returns: what to leave with, as systemctl: 0 runs, 3 does not, 4 there is no such.
  static func status(_ guardians: Guardians, json: Bool) throws -> Int32 {
    let statuses = guardians.statuses()
    let failed = guardians.failed(besides: statuses)
    if statuses.isEmpty, guardians.isNamed {
      if json {
        Output.print(bytes: try JSONText.encode(statuses))
        _ = Output.flush()
      }
      throw guardians.unknown
    }
    if statuses.isEmpty { Output.error("no guardian of this user runs") }
    if json {
      Output.print(bytes: try JSONText.encode(statuses + failed))
    } else {
      if guardians.isNamed || statuses.count == 1 {
        show(statuses[0])
      } else if !statuses.isEmpty {
        list(statuses)
      }
      self.failed(failed, isAlone: statuses.isEmpty)
    }
    if statuses.isEmpty { return 3 }
    return guardians.isNamed || statuses.count == 1 ? statuses[0].exitStatus : 0
  }

  /// Of as many as people read.
  private static func failed(_ failed: [ControlStatus], isAlone: Bool) {
    if failed.isEmpty { return }
    if !isAlone { Output.print("") }
    Output.print("Gave up or were killed; 'guardianctl status NAME' tells more:")
    let shown = 20
    Table.print(
      [["NAME", "WHEN (UTC)", "LAST ENDING"]]
        + failed.prefix(shown).map {
          [$0.name, $0.lastEndingTime.map(second) ?? "-", $0.lastEnding ?? "guardian was killed"]
        })
    if failed.count > shown { Output.print("and \(failed.count - shown) more") }
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
        time($0) + (status.started.map { ", since \(Self.second($0)) UTC" } ?? "")
      })
    row("Memory", status.memoryBytes.map(TimeText.bytes))
    row("CPU", status.cpu.map(time))
    row("Says", status.programStatus)
    row("Health", status.health)
    row("Restarts", status.restarts.map(String.init))
    row("Failures", status.failures.map { failures($0, status.maxCrashes, status.crashWindow) })
    row(
      "Last ending",
      status.lastEnding.map { ending in
        ending + (status.lastEndingTime.map { ", " + Self.second($0) + " UTC" } ?? "")
      })
    row("Verdict", status.lastVerdict)
    row(
      "Last report",
      (status.hasLastReport ? status.lastReport : nil).map {
        $0 + (status.state == "dead" ? " (guardianctl -n \(status.name) show latest)" : "")
      })
    row(
      "Start again",
      status.startAgain.map {
        $0 + ($0.contains(Redaction.mask) ? " (put in what is \(Redaction.mask))" : "")
      })
    row("Next restart", status.nextRestart.map { "in " + time($0) })
    row("Handler", status.handler)
    row("Command", status.command.map { ShellWords.text($0) })
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
      row.append(status.memoryBytes.map { TimeText.bytes($0) } ?? "-")
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
    let within = window.map { " within \(time($0))" } ?? ""
    if let max, count > max { return "\(count)\(within), more than max-crashes (\(max))" }
    return FailureCount.words(count, of: max) + " that count" + within
  }

  /// Of milliseconds.
  static func time(_ milliseconds: Int64) -> String {
    Duration.milliseconds(milliseconds).words
  }

  /// "2026-11-30 06:50:04" of an RFC 3339 text.
  private static func second(_ text: String) -> String {
    String(text.prefix(19).map { $0 == "T" ? " " : $0 })
  }
}

extension ControlStatus {
  /// Whether the report that is named is still there: it may be deleted since. One that cannot be
  /// looked for is believed in.
  var hasLastReport: Bool {
    guard let lastReport else { return false }
    guard let stateDirectory, let id = ReportID(lastReport) else { return true }
    let store = ReportStore(directory: stateDirectory + "/reports")
    if unsafe access(store.directory, X_OK) != 0 { return true }
    return StoreFolder.allCases.contains { Files.exists(store.path($0, id)) }
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
