/// The states of a service, each with what only that state knows. All instants that end in
/// `Until` or are called `until` are on CLOCK_MONOTONIC.
extension ServiceMachine {
  package enum State: Hashable, Sendable {
    /// Before the first input.
    case idle
    /// A spawn was asked for and has not been answered.
    case spawning(Spawning)
    /// A stop was asked for before the spawn was answered.
    case cancelling(Cancelling)
    /// Executed, not yet ready.
    case starting(Run, until: Duration?)
    case running(Run)
    /// A crash handler holds the program for a capture.
    case held(Run, Hold)
    /// It was asked to stop.
    case stopping(Run, Stopping)
    /// It hangs: it is captured, then aborted.
    case hanging(Run, Hanging)
    /// KILL was sent to all of it; its ending has not been seen.
    case killing(Killing)
    /// The main process ended; what else is left of the life has to go too.
    case clearing(Clearing)
    /// No process; the next life starts at an appointed time.
    case waiting(Waiting)
    /// No process, as was asked for; guardian stays.
    case stopped
    /// No process, and there will be none; the reporters finish.
    case leaving(Leaving)
    /// It said `leave`. Nothing follows.
    case left
  }

  /// A life under way.
  package struct Run: Hashable, Sendable {
    package let life: Life
    /// When it was executed.
    package let started: Now
    /// The longest time between two heartbeats; nil: no watchdog.
    package var watchdog: Duration?
    /// The last sign of life, or readiness, on CLOCK_MONOTONIC.
    package var heartbeat: Duration
  }

  package struct Spawning: Hashable, Sendable {
    package let life: Life
    package let started: Now
    package let until: Duration
  }

  /// What somebody asked for: what is to come after the stop.
  package enum Request: Hashable, Sendable {
    /// `guardianctl restart`.
    case again
    /// `guardianctl stop`.
    case stay
    /// TERM to guardian.
    case leave
  }

  package struct Cancelling: Hashable, Sendable {
    package let life: Life
    package let started: Now
    package var request: Request
    package let until: Duration
  }

  package struct Hold: Hashable, Sendable {
    package let until: Duration
    /// What to go back to if it lives on.
    package let before: Before
    package enum Before: Hashable, Sendable {
      /// With the time left to become ready.
      case starting(left: Duration?)
      case running
    }
  }

  package struct Stopping: Hashable, Sendable {
    package var request: Request
    package var stage: Stage
    package enum Stage: Hashable, Sendable {
      /// The stop signal was sent. `latest`: no extension goes beyond.
      case signalled(until: Duration, latest: Duration)
      /// It would not stop: a snapshot of it is taken, then KILL.
      case captured(until: Duration)
    }
  }

  package enum Hang: Hashable, Sendable { case watchdog, health, startTimeout }

  package struct Hanging: Hashable, Sendable {
    package let hang: Hang
    package var stage: Stage
    package enum Stage: Hashable, Sendable {
      case captured(until: Duration)
      case aborted(until: Duration)
    }
  }

  package struct Killing: Hashable, Sendable {
    package let life: Life
    package let started: Now
    package var why: Why
    package let until: Duration
    package enum Why: Hashable, Sendable {
      /// A stop that was asked for; `timedOut`: it had all the stop timeout.
      case request(Request, timedOut: Bool)
      case hang(Hang)
      /// It hung, and then a stop was asked for as well.
      case hangThenRequest(Hang, Request)
    }
  }

  package struct Clearing: Hashable, Sendable {
    package let life: Life
    package var next: Next
    package var stage: Stage
    /// Effects that wait until the next life was spawned, so that it does not wait for them.
    package var owed: [Effect]
    package enum Next: Hashable, Sendable {
      case start(at: Duration)
      case stay
      case leave(Departing)
    }
    package enum Stage: Hashable, Sendable {
      /// The rest may end in its own way until then.
      case asked(until: Duration)
      /// KILL was sent to the rest.
      case killed(until: Duration)
    }
  }

  package struct Waiting: Hashable, Sendable {
    package let until: Duration
  }

  /// Why guardian leaves.
  package enum Departing: Hashable, Sendable {
    /// The policy decided it.
    case decided
    /// Somebody asked for it, and expects it by then.
    case asked(until: Duration)
  }

  package struct Leaving: Hashable, Sendable {
    package let leave: Leave
    package let by: Departing
    package let until: Duration
  }
}
