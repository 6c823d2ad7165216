// `start`, `stop`, `restart`, `reload`, `signal`, `logs` and `watch`.
import Control
import Glibc
import Policy
import Reports

enum ActionCommands {
  /// Waits until it is carried out.
  /// - Parameter words: what was done, of the state that is answered; nil: that state's sentence.
  /// - Returns: what to leave with.
  static func perform(
    _ conversation: Conversation, json: Bool, words: ((ControlStatus) -> String)? = nil
  ) throws -> Int32 {
    // A stop takes as long as the stop timeout says, which is not ours to know.
    guard let answer = try conversation.next(within: nil) else {
      throw ControlError(
        "'\(conversation.place.name)': guardian left before it was done", status: 1)
    }
    if json, let status = answer.status {
      Output.print(bytes: try JSONText.encode(status))
    } else if let error = answer.error {
      Output.error(error)
    } else if let status = answer.status {
      Output.print(SafeText.oneLine(words?(status) ?? status.sentence))
    }
    return answer.exit ?? 0
  }

  static func send(_ signal: Signal, _ conversation: Conversation, json: Bool) throws -> Int32 {
    try perform(conversation, json: json) { status in
      // The state may be that of a program which this signal is about to end.
      "sent \(signal.name) to \(status.name)" + (status.pid.map { " (pid \($0))" } ?? "")
    }
  }

  static func reload(_ conversation: Conversation, json: Bool) throws -> Int32 {
    guard let answer = try conversation.next(within: .seconds(10)) else {
      throw ControlError("'\(conversation.place.name)' does not answer", status: 69)
    }
    guard let reload = answer.reload else {
      throw ControlError(answer.error ?? "it was not done", status: answer.exit ?? 1)
    }
    if json {
      Output.print(bytes: try JSONText.encode(reload))
      return 0
    }
    let applied = reload.applied.joined(separator: ", ")
    let pending = reload.pending.joined(separator: ", ")
    if !applied.isEmpty {
      Output.print(SafeText.oneLine("\(reload.name): \(applied): holds now"))
    } else if pending.isEmpty {
      Output.print(SafeText.oneLine("\(reload.name): nothing in its configuration changed"))
    }
    if !pending.isEmpty {
      Output.print(
        SafeText.oneLine("\(reload.name): \(pending): holds when guardian is started anew"))
    }
    return 0
  }

  static func signal(_ word: String) throws(ControlError) -> Signal {
    guard let signal = Signal(name: word) else {
      throw ControlError("'\(word)' is not a signal; it is as in HUP, SIGUSR1 or 10", status: 64)
    }
    return signal
  }

  static func logs(_ conversation: Conversation, json: Bool, follow: Bool) throws {
    while let answer = try conversation.next(within: follow ? nil : .seconds(5)) {
      if let error = answer.error { throw ControlError(error, status: answer.exit ?? 1) }
      if let dropped = answer.dropped {
        if json {
          Output.print(bytes: try JSONText.encode(["dropped": dropped], layout: .compact) + [10])
        } else {
          Output.print("[\(dropped) bytes left out]")
        }
      }
      for line in answer.lines ?? [] {
        if json {
          Output.print(bytes: try JSONText.encode(line, layout: .compact) + [10])
        } else {
          Output.print(SafeText.oneLine(SafeText.expandingTabs(line.text)))
        }
      }
      if !Output.flush() { throw ControlError("cannot write to standard output", status: 74) }
    }
  }

  static func watch(_ conversation: Conversation, json: Bool) throws {
    while let answer = try conversation.next(within: nil) {
      if let error = answer.error { throw ControlError(error, status: answer.exit ?? 1) }
      guard let event = answer.event else { continue }
      if json {
        Output.print(bytes: try JSONText.encode(event, layout: .compact) + [10])
      } else {
        let time = event.time.dropFirst(11).prefix(12)
        Output.print(SafeText.oneLine("\(time) \(event.text)"))
      }
      if !Output.flush() { throw ControlError("cannot write to standard output", status: 74) }
    }
  }
}
