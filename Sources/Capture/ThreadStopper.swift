// Stops every thread of a process by ptrace, and lets them go again. All are seized and
// interrupted first and waited for afterwards: one after another would take a scheduler's
// round trip each, during which the others run on and start new threads.
//
// Only the thread that seized may read and detach; guardian-capture has one thread.
import CLinux
import Glibc

struct ThreadStopper {
  enum State: Equatable {
    /// Seized and asked to stop.
    case asked
    /// Stopped; `signal` was about to be delivered and goes on at the detach.
    case stopped(signal: Int32)
    case gone
    /// Never stopped; its state letter of /proc (D: sleeps uninterruptibly).
    case unstoppable(UInt8)
    /// Could not be seized.
    case refused(errno: Int32)
  }

  let pid: Int32
  private(set) var threads: [Int32] = []
  private(set) var states: [Int32: State] = [:]
  private(set) var tooMany = false
  private(set) var names: [Int32: [UInt8]] = [:]
  private var waitingFor = 0
  private var refusal: Int32?

  init(pid: Int32) { self.pid = pid }

  var stopped: [Int32] {
    threads.filter { if case .stopped = states[$0] { true } else { false } }
  }
  var seen: Int { threads.count(where: { states[$0] != .gone }) }
  var firstRefusal: Int32? {
    for thread in threads { if case .refused(let cause) = states[thread] { return cause } }
    return nil
  }

  /// Stops all threads that can be stopped before `deadline` (CLOCK_MONOTONIC, nanoseconds).
  mutating func stopAll(before deadline: Int64) {
    linux_block_child_signal()
    for _ in 0..<CaptureLimits.threadRounds {
      // Until a pass over the list finds nobody new; then wait; then look once more, because
      // a thread that had not stopped yet may have started another one.
      var anyNew = false
      while seizeNew() {
        anyNew = true
        if monotonicNanoseconds() > deadline { break }
      }
      if !anyNew { return }
      // The threads need a moment to stop: their names are read meanwhile.
      readNames()
      wait(before: deadline)
      if monotonicNanoseconds() > deadline { return }
    }
  }

  private mutating func seizeNew() -> Bool {
    guard let list = threadIDs(of: pid, limit: CaptureLimits.threads + 1) else { return false }
    var found = false
    for thread in list where states[thread] == nil {
      if threads.count == CaptureLimits.threads {
        tooMany = true
        break
      }
      threads.append(thread)
      if let refusal {
        // Refused once is refused always: each of 4096 questions would take its time.
        states[thread] = .refused(errno: refusal)
        continue
      }
      if linux_ptrace_seize(thread) == -1 {
        let cause = errno
        states[thread] = cause == ESRCH || isDead(thread) ? .gone : .refused(errno: cause)
        if states[thread] != .gone && stoppedOrAsked == 0 { refusal = cause }
        continue
      }
      found = true
      states[thread] = .asked
      waitingFor += 1
      _ = linux_ptrace_interrupt(thread)
    }
    return found
  }

  mutating func readNames() {
    for thread in threads where names[thread] == nil {
      var name = readFile("/proc/\(pid)/task/\(thread)/comm", limit: 64) ?? []
      if name.last == 0x0A { name.removeLast() }
      names[thread] = name
    }
  }

  private var stoppedOrAsked: Int {
    states.count(where: {
      switch $0.value {
      case .asked, .stopped: true
      case .gone, .unstoppable, .refused: false
      }
    })
  }

  private mutating func wait(before deadline: Int64) {
    var patience = monotonicNanoseconds() + CaptureLimits.uninterruptibleNanoseconds
    while waitingFor > 0 {
      var status: Int32 = 0
      let thread = unsafe waitpid(-1, &status, __WALL | WNOHANG)
      if thread > 0 {
        note(thread, status: status)
        continue
      }
      if thread == -1 && errno != EINTR {
        // Nobody is left to wait for.
        for thread in threads where states[thread] == .asked { states[thread] = .gone }
        waitingFor = 0
        return
      }
      let now = monotonicNanoseconds()
      if now > deadline { break }
      if now > patience {
        giveUpUninterruptible()
        patience = now + CaptureLimits.uninterruptibleNanoseconds
      }
      _ = linux_wait_for_child_signal(max(0, min(deadline, patience) - now) + 1)
    }
    for thread in threads where states[thread] == .asked {
      states[thread] = .unstoppable(stateLetter(thread))
    }
    waitingFor = 0
  }

  private mutating func note(_ thread: Int32, status: Int32) {
    guard let state = states[thread] else { return }
    let event = linux_stop_event(status)
    let signal = linux_stop_signal(status)
    if signal == 0 {
      states[thread] = .gone
    } else {
      // PTRACE_EVENT_STOP (128) comes of our interrupt or of a group stop; without an event
      // it is a signal on its way, which the thread must get when it goes on.
      states[thread] = .stopped(signal: event == 0 ? signal : 0)
    }
    if state == .asked { waitingFor -= 1 }
  }

  private mutating func giveUpUninterruptible() {
    for thread in threads where states[thread] == .asked {
      let letter = stateLetter(thread)
      if letter == UInt8(ascii: "D") || letter == UInt8(ascii: "Z") || letter == UInt8(ascii: "X") {
        states[thread] = letter == UInt8(ascii: "D") ? .unstoppable(letter) : .gone
        waitingFor -= 1
      }
    }
  }

  private func stateLetter(_ thread: Int32) -> UInt8 {
    guard let stat = readFile("/proc/\(pid)/task/\(thread)/stat", limit: 1024) else {
      return UInt8(ascii: "X")
    }
    return statFields(stat).first?.first ?? UInt8(ascii: "?")
  }

  private func isDead(_ thread: Int32) -> Bool {
    let letter = stateLetter(thread)
    return letter == UInt8(ascii: "Z") || letter == UInt8(ascii: "X")
  }

  /// Lets every thread go on. One that is not stopped is let go when this process exits.
  func detachAll() {
    for thread in threads {
      if case .stopped(let signal) = states[thread] { _ = linux_ptrace_detach(thread, signal) }
    }
  }

  /// Register set `note` of a stopped thread.
  func registerSet(_ thread: Int32, note: UInt32, limit: Int) -> [UInt8]? {
    var size = -1
    let bytes = unsafe [UInt8](unsafeUninitializedCapacity: limit) { buffer, count in
      size = unsafe linux_ptrace_register_set(thread, note, buffer.baseAddress, limit)
      count = max(0, min(size, limit))
    }
    return size > 0 ? bytes : nil
  }
}
