// One thread, one loop (sd-event(3)): descriptors, signals and timers call closures. It knows
// nothing of programs.
import CSystemd
import Glibc
import Kernel

/// One thing the loop watches. It is watched as long as this object lives.
@safe final class EventSource {
  fileprivate var source: OpaquePointer?
  fileprivate var handler: (UInt32) -> Void
  fileprivate var isOneShot = false
  fileprivate var lastSignal = signalfd_siginfo()

  fileprivate init(_ handler: @escaping (UInt32) -> Void) { self.handler = handler }

  deinit { cancel() }

  func cancel() {
    guard let open = unsafe source else { return }
    unsafe source = nil
    _ = unsafe sd_event_source_disable_unref(open)
  }

  var isEnabled: Bool {
    get {
      var state: Int32 = 0
      return unsafe sd_event_source_get_enabled(source, &state) >= 0 && state != SD_EVENT_OFF.number
    }
    set {
      _ = unsafe sd_event_source_set_enabled(
        source, newValue ? (isOneShot ? SD_EVENT_ONESHOT : SD_EVENT_ON).number : SD_EVENT_OFF.number
      )
    }
  }

  fileprivate func fire(_ events: UInt32) -> Int32 {
    // The handler may let go of this very source.
    withExtendedLifetime(self) { handler(events) }
    return 0
  }

  fileprivate static func from(_ pointer: UnsafeMutableRawPointer?) -> EventSource {
    unsafe Unmanaged<EventSource>.fromOpaque(pointer!).takeUnretainedValue()
  }
}

extension RawRepresentable where RawValue: FixedWidthInteger {
  /// C enumerations come as unsigned numbers, the calls take int.
  fileprivate var number: Int32 { Int32(truncatingIfNeeded: rawValue) }
}
extension FixedWidthInteger {
  fileprivate var number: Int32 { Int32(truncatingIfNeeded: self) }
}

@safe final class EventLoop {
  /// What is dispatched first when several things are ready: lower first.
  enum Urgency: Int64 {
    /// Endings: a restart waits for nothing else.
    case ending = -100
    case normal = 0
    /// A flood of output must not delay the rest.
    case output = 100
    /// Questions from outside: last of all that must be done.
    case control = 150
    case idle = 200
  }

  private let event: OpaquePointer

  init() throws(SystemError) {
    var made: OpaquePointer?
    let outcome = unsafe sd_event_new(&made)
    guard outcome >= 0, let made = unsafe made else {
      throw SystemError("create the event loop", errno: -outcome)
    }
    unsafe event = made
  }

  deinit { _ = unsafe sd_event_unref(event) }

  private func checked(_ source: EventSource, _ outcome: Int32, _ what: String, _ urgency: Urgency)
    throws(SystemError) -> EventSource
  {
    if outcome < 0 { throw SystemError(what, errno: -outcome) }
    _ = unsafe sd_event_source_set_priority(source.source, urgency.rawValue)
    return source
  }

  /// `events` as in epoll(7).
  func watch(
    _ descriptor: Int32, events: UInt32 = EPOLLIN.rawValue, urgency: Urgency = .normal,
    _ handler: @escaping (UInt32) -> Void
  ) throws(SystemError) -> EventSource {
    let source = EventSource(handler)
    let outcome = unsafe sd_event_add_io(
      event, &source.source, descriptor, events,
      { _, _, events, context in unsafe EventSource.from(context).fire(events) },
      Unmanaged.passUnretained(source).toOpaque())
    return try checked(source, outcome, "watch a descriptor", urgency)
  }

  /// The signal must be blocked already.
  func watchSignal(
    _ signal: Int32, urgency: Urgency = .normal, _ handler: @escaping (signalfd_siginfo) -> Void
  ) throws(SystemError) -> EventSource {
    let source = EventSource { _ in }
    unowned let unowned = source
    source.handler = { _ in handler(unowned.lastSignal) }
    let outcome = unsafe sd_event_add_signal(
      event, &source.source, signal,
      { _, info, context in
        let source = unsafe EventSource.from(context)
        unsafe source.lastSignal = info!.pointee
        return source.fire(0)
      }, Unmanaged.passUnretained(source).toOpaque())
    return try checked(source, outcome, "watch a signal", urgency)
  }

  /// Calls when the file is written to or its size changes (inotify(7)), also one of the kernel's that
  /// can tell of it; not for what is written through a mapping.
  func watchChanges(of path: String, _ handler: @escaping () -> Void) throws(SystemError)
    -> EventSource
  {
    let source = EventSource { _ in handler() }
    let outcome = unsafe sd_event_add_inotify(
      event, &source.source, path, UInt32(IN_MODIFY),
      { _, _, context in unsafe EventSource.from(context).fire(0) },
      Unmanaged.passUnretained(source).toOpaque())
    return try checked(source, outcome, "watch a file", .normal)
  }

  /// A timer that is not set. `clock`: CLOCK_MONOTONIC or CLOCK_BOOTTIME.
  func timer(_ clock: clockid_t, _ handler: @escaping () -> Void) throws(SystemError) -> Timer {
    let source = EventSource { _ in handler() }
    // Accuracy 1 µs: sd-event would otherwise put off a restart by up to 250 ms.
    let outcome = unsafe sd_event_add_time(
      event, &source.source, clock, UInt64.max, 1,
      { _, _, context in unsafe EventSource.from(context).fire(0) },
      Unmanaged.passUnretained(source).toOpaque())
    return Timer(clock, try checked(source, outcome, "create a timer", .normal))
  }

  struct Timer {
    private let clock: clockid_t
    private let source: EventSource

    fileprivate init(_ clock: clockid_t, _ source: EventSource) {
      self.clock = clock
      self.source = source
      disarm()
    }

    /// At this reading of the timer's own clock; what lies in the past fires at once.
    func set(at time: Duration) {
      let (seconds, attoseconds) = time.components
      let whole = UInt64(max(seconds, 0))
      // Rounded up: a timer that fires before its time would find nothing to do and spin.
      let part = UInt64(max(attoseconds, 0) + 999_999_999_999) / 1_000_000_000_000
      _ = unsafe sd_event_source_set_time(source.source, whole &* 1_000_000 &+ part)
      _ = unsafe sd_event_source_set_enabled(source.source, SD_EVENT_ONESHOT.number)
    }

    func set(after delay: Duration) { set(at: .nanoseconds(Clock.read(clock)) + delay) }

    func disarm() { _ = unsafe sd_event_source_set_enabled(source.source, SD_EVENT_OFF.number) }
  }

  /// Called once each time it is enabled, when nothing else is to be done.
  func whenIdle(_ handler: @escaping () -> Void) throws(SystemError) -> EventSource {
    let source = EventSource { _ in handler() }
    source.isOneShot = true
    let outcome = unsafe sd_event_add_defer(
      event, &source.source, { _, context in unsafe EventSource.from(context).fire(0) },
      Unmanaged.passUnretained(source).toOpaque())
    return try checked(source, outcome, "create an idle task", .idle)
  }

  /// Sends WATCHDOG=1 while this loop turns, if the service manager asked for it.
  func answerWatchdog() { _ = unsafe sd_event_set_watchdog(event, 1) }

  /// Runs until `leave`.
  func run() throws(SystemError) {
    let outcome = unsafe sd_event_loop(event)
    if outcome < 0 { throw SystemError("run the event loop", errno: -outcome) }
  }

  func leave() { _ = unsafe sd_event_exit(event, 0) }
}
