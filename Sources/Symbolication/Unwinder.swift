// From a thread's registers to its frames. Unwind information first; where there is none (code
// made at run time, a jump to nowhere) the frame pointer; where the stack itself is missing from
// the core, a search. Each frame says which of these found it.
import Reports

/// A frame before it has a name.
struct RawFrame {
  /// From the top, counting frames that were left out.
  var index: Int
  var pc: UInt64
  /// `pc` is where a call returns to: the call itself lies before it.
  var isReturnAddress: Bool
  var trust: Frame.Trust

  /// Inside the instruction that matters.
  var lookup: UInt64 { isReturnAddress && pc > 0 ? pc - 1 : pc }
}

/// Keeps the first and the last frames of a stack that has too many.
struct FrameCollector {
  private let half: Int
  private var top: [RawFrame] = []
  private var bottom: [RawFrame] = []
  private var next = 0
  private(set) var count = 0

  init(limit: Int) { half = max(limit / 2, 1) }

  mutating func append(pc: UInt64, isReturnAddress: Bool, trust: Frame.Trust) {
    let frame = RawFrame(index: count, pc: pc, isReturnAddress: isReturnAddress, trust: trust)
    count += 1
    if top.count < half {
      top.append(frame)
    } else if bottom.count < half {
      bottom.append(frame)
    } else {
      bottom[next] = frame
      next = (next + 1) % half
    }
  }

  var frames: [RawFrame] { top + bottom[next...] + bottom[..<next] }
  var omitted: Int { count - top.count - bottom.count }
}

struct Unwinder {
  let session: Session
  let limits: SymbolicationLimits
  let deadline: Deadline

  private var core: CoreFile { session.core }

  struct Stack {
    var frames: [RawFrame]
    var defects: [String] = []
  }

  func stack(_ thread: CoreFile.ThreadState) -> Stack {
    let machine = core.machine
    var frames = FrameCollector(limit: limits.framesPerThread)
    var defects: [String] = []
    var state = RegisterState(thread, machine)
    var trust = Frame.Trust.context
    var isReturn = false

    if deadline.passed {
      frames.append(pc: state.pc, isReturnAddress: false, trust: .context)
      return Stack(frames: frames.frames)
    }
    if isNowhere(state.pc, thread) {
      // A call through a bad pointer: the frame is the address itself; who called it is told by
      // the return address on top of the stack (or in the link register).
      frames.append(pc: state.pc, isReturnAddress: false, trust: .context)
      guard let caller = callerOfNowhere(state) else {
        return Stack(frames: frames.frames, defects: ["the caller of the bad address is not known"])
      }
      (state, trust, isReturn) = (caller.state, caller.trust, true)
    }

    walk: while true {
      var last: Session.Step?
      var undescribed = false
      var first = true
      var endless = false
      let start = state
      var from = state
      // Unwind rules are looked up at the call, not at what follows it.
      if isReturn, from.pc > 0 { from.pc -= 1 }
      let outcome = session.unwind(from: from) { step in
        if step.pc == 0 { return false }
        if let before = last, before.pc == step.pc, before.sp == step.sp { return false }
        let returns = first ? isReturn : !step.interrupted
        let pc = first ? start.pc : step.pc
        frames.append(pc: pc, isReturnAddress: returns, trust: first ? trust : .cfi)
        first = false
        last = Session.Step(pc: pc, interrupted: !returns, sp: step.sp, fp: step.fp)
        if frames.count >= limits.stepsPerThread || (frames.count & 63 == 0 && deadline.passed) {
          endless = true
          return false
        }
        undescribed = !session.isDescribed(returns ? pc - 1 : pc)
        return !undescribed
      }
      if first {
        // libdwfl could not even start: the state is all there is.
        frames.append(pc: start.pc, isReturnAddress: isReturn, trust: trust)
        undescribed = true
        last = Session.Step(
          pc: start.pc, interrupted: !isReturn, sp: start.registers[machine.stackPointer],
          fp: start.registers[machine.framePointer])
      }
      if endless {
        defects.append("unwinding stopped after \(frames.count) frames")
        break
      }
      guard let last, outcome != .complete else { break }
      if undescribed, let next = frameBehind(last) {
        (state, trust, isReturn) = (next, .framePointer, true)
        continue walk
      }
      if outcome == .failed, let next = frameBehindGap(last) {
        defects.append("a part of its stack is not in the core: what lies behind was searched for")
        (state, trust, isReturn) = (next, .scan, true)
        continue walk
      }
      break
    }
    if frames.omitted > 0 {
      defects.append(
        "\(frames.omitted) of its \(frames.count) frames, in the middle, were left out")
    }
    return Stack(frames: frames.frames, defects: defects)
  }

  /// Is this no code, so that it was called by mistake? Code that was made at run time and is not
  /// in the core is no such place, unless fetching the instruction is what failed.
  private func isNowhere(_ pc: UInt64, _ thread: CoreFile.ThreadState) -> Bool {
    !core.mayBeCode(pc)
      || (core.segment(pc) == nil && pc == core.faultAddress && thread.id == core.threads.first?.id)
  }

  /// The state at the call that went to an address without code.
  private func callerOfNowhere(
    _ state: RegisterState
  ) -> (state: RegisterState, trust: Frame.Trust)? {
    let machine = core.machine
    var caller = state
    if machine == .aarch64 {
      guard let link = state.registers[30], core.mayBeCode(link) else { return nil }
      caller.pc = link
      return (caller, .cfi)
    }
    guard let sp = state.registers[machine.stackPointer], let address = core.word(sp),
      core.isExecutable(address)
    else {
      return state.registers[machine.framePointer].flatMap { step(fp: $0, above: 0) }
        .map { ($0, .framePointer) }
    }
    caller.pc = address
    caller.registers[machine.stackPointer] = sp &+ 8
    return (caller, .cfi)
  }

  /// One step by the frame pointer, if it points to what looks like a frame.
  private func frameBehind(_ step: Session.Step) -> RegisterState? {
    guard let fp = step.fp else { return nil }
    return self.step(fp: fp, above: step.sp ?? 0)
  }

  private func step(fp: UInt64, above sp: UInt64) -> RegisterState? {
    guard fp >= sp, fp & 7 == 0, fp <= UInt64.max - 16, let previous = core.word(fp),
      let address = core.word(fp + 8), core.mayBeCode(address)
    else { return nil }
    return RegisterState(pc: address, sp: fp + 16, fp: previous, core.machine)
  }

  /// Beyond memory that is missing: the first word that is a return address from which the unwind
  /// information leads to the outermost frame.
  private func frameBehindGap(_ step: Session.Step) -> RegisterState? {
    let farthest: UInt64 = 1 << 30
    let mostCandidates = 512
    let mostSteps = 16_384
    guard let sp = step.sp else { return nil }
    // The stored memory around sp, then the next: that is the oldest part of the same stack.
    var at = sp
    while core.word(at) != nil {
      guard let segment = core.segment(at) else { return nil }
      at = segment.start + max(segment.stored, 8)
    }
    guard let segment = core.nextStored(at), segment.start > sp, segment.start - sp < farthest,
      !segment.executable
    else { return nil }
    var candidates = 0
    for address in stride(from: segment.start & ~7, to: segment.start + segment.stored, by: 8) {
      guard let word = core.word(address), word > 0, core.isExecutable(word),
        session.isDescribed(word - 1)
      else { continue }
      candidates += 1
      if candidates > mostCandidates || deadline.passed { return nil }
      var state = RegisterState(pc: word - 1, sp: address + 8, fp: nil, core.machine)
      var steps = 0
      let outcome = session.unwind(from: state) { _ in
        steps += 1
        return steps < mostSteps
      }
      if case .complete = outcome, steps > 1 {
        state.pc = word
        return state
      }
    }
    return nil
  }
}
