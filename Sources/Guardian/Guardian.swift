// The public module, for a Swift program that wants more than to be watched. It
// knows nothing of guardian itself: everything goes through the shared ring.
import CrashHandler

/// What a program tells the guardian it runs under, and learns from it.
///
/// Every member works, and does nothing, when the program does not run under
/// guardian. All are safe from any thread and any task, and none of them blocks.
///
/// ```swift
/// import Guardian
///
/// Guardian.annotate("release", "2.4.1")
/// if Guardian.crashedLastRun { cache.rebuild() }
/// Guardian.ready()
/// Guardian.breadcrumb("listening on 8080", category: "http")
/// ```
public enum Guardian {
  /// How much a breadcrumb matters.
  public enum Level: UInt8, Sendable, CaseIterable {
    /// Of use only to who looks for this very bug.
    case debug = 0
    /// The normal course of things.
    case info = 1
    /// Unusual, and handled.
    case warning = 2
    /// Something failed.
    case error = 3
    /// The program is about to end because of it.
    case fatal = 4
  }

  /// Whether the program runs under guardian and its channel is open.
  public static var isPresent: Bool { guardian_is_present() }

  /// Whether the life before this one ended in a crash.
  public static var crashedLastRun: Bool { guardian_crashed_last_run() }

  /// The id of this program's last report, as `guardianctl show` takes it; `nil` if
  /// there is none.
  public static var lastReport: String? {
    guard let text = unsafe guardian_last_report() else { return nil }
    return unsafe String(cString: text)
  }

  /// Notes one event on the way to a crash.
  ///
  /// The last 1024 breadcrumbs of a life, of all its processes together, are in its
  /// report. The call is lock-free and costs about as much as reading the clock.
  ///
  /// - Parameters:
  ///   - message: What happened. Cut after 192 bytes of UTF-8.
  ///   - category: The part of the program, such as `"http"`. Cut after 24 bytes.
  ///   - level: How much it matters.
  public static func breadcrumb(
    _ message: String, category: String = "", level: Level = .info
  ) {
    var message = message
    var category = category
    message.withUTF8 { text in
      category.withUTF8 { name in
        unsafe withText(text) { textStart, textCount in
          unsafe withText(name) { nameStart, nameCount in
            unsafe guardian_breadcrumb_bytes(
              guardian_level(rawValue: guardian_level.RawValue(level.rawValue)), nameStart,
              nameCount, textStart, textCount)
          }
        }
      }
    }
  }

  /// Sets what every report of this life says under a key.
  ///
  /// - Parameters:
  ///   - key: Up to 64 bytes of UTF-8, such as `"tenant"`. There is room for 64 keys.
  ///   - value: Up to 432 bytes of UTF-8; `nil` or an empty string removes the key.
  /// - Returns: Whether it was noted; `false` if the program does not run under guardian
  ///   or all places are taken.
  @discardableResult
  public static func annotate(_ key: String, _ value: String?) -> Bool {
    var key = key
    var value = value ?? ""
    return key.withUTF8 { name in
      value.withUTF8 { text in
        unsafe withText(name) { nameStart, nameCount in
          unsafe withText(text) { textStart, textCount in
            unsafe guardian_annotate_bytes(nameStart, nameCount, textStart, textCount)
          }
        }
      }
    }
  }

  /// Says that the program is alive.
  ///
  /// With a watchdog set (`--watchdog`), guardian ends and restarts a program that was
  /// silent for longer than that. Call it from the loop whose standstill is a failure.
  public static func heartbeat() { guardian_heartbeat() }

  /// Says that the program has started and serves.
  ///
  /// - Returns: Whether anyone heard it.
  @discardableResult
  public static func ready() -> Bool { guardian_ready() }

  /// Tells what this thread is about to die of, if it dies.
  ///
  /// For errors that the crash itself does not show, such as the one a last `catch`
  /// caught before it calls `fatalError`. Only the latest call counts.
  ///
  /// - Parameters:
  ///   - type: The error's type, such as `"ParseError"`. Cut after 256 bytes.
  ///   - reason: What it says. Cut after 1024 bytes.
  ///   - frames: Return addresses of where it was thrown, innermost first; the first 64 count.
  public static func setException(type: String, reason: String, frames: [UInt64] = []) {
    unsafe frames.withUnsafeBufferPointer { addresses in
      unsafe guardian_set_exception(type, reason, addresses.baseAddress, addresses.count)
    }
  }

  /// Takes back what ``setException(type:reason:frames:)`` told.
  public static func clearException() { guardian_set_exception(nil, nil, nil, 0) }

  private static func withText<Result>(
    _ bytes: UnsafeBufferPointer<UInt8>, _ body: (UnsafePointer<CChar>?, Int) -> Result
  ) -> Result {
    unsafe bytes.withMemoryRebound(to: CChar.self) { text in
      unsafe body(text.baseAddress, text.count)
    }
  }
}
