import Glibc
import Kernel
import Testing

@Suite struct `A terminal` {
  @Test func `is handed to the program and taken back, with colours kept`() throws {
    // util-linux's script(1) makes a terminal and puts its command in the foreground of it.
    let scratch = Scratch()
    let probe = Root.fixture("spawn_probe")
    let script =
      "\(Root.guardian) --state-directory \(scratch.path)/state "
      + "--runtime-directory \(scratch.path)/run -- \(probe) terminal; "
      + "\(probe) terminal"
    let process = try Process(["script", "-qec", script, "/dev/null"])
    #expect(try process.wait() == .exited(0))
    let lines = process.outputText.filter { $0 != "\r" }.split(whereSeparator: \.isNewline)
    // Once under guardian, and once after it: the shell has its terminal again.
    #expect(lines.filter { $0 == "foreground 1" }.count == 2)
    #expect(lines.filter { $0 == "tty 1" }.count == 2)
  }

  @Test func `stops guardian and program together at ^Z, and goes on with both at fg`() throws {
    let scratch = Scratch()
    let guardian =
      "\(Root.guardian) --state-directory \(scratch.path)/state "
      + "--runtime-directory \(scratch.path)/run -- sh -c 'echo ready; exec cat'"
    let process = try Process(["python3", "-c", session, guardian])
    #expect(try process.wait() == .exited(0), "\(process.outputText)\(process.errorText)")
  }

  @Test func `of which guardian is in the background is the program's after fg`() throws {
    let scratch = Scratch()
    let guardian =
      "\(Root.guardian) --state-directory \(scratch.path)/state "
      + "--runtime-directory \(scratch.path)/run -- sh -c 'echo ready; exec cat'"
    let process = try Process(["python3", "-c", people + background, guardian])
    #expect(try process.wait() == .exited(0), "\(process.outputText)\(process.errorText)")
  }

  @Test func `without a shell behind it is not stopped by ^Z, and each ^C arrives once`() throws {
    let scratch = Scratch()
    let process = try Process([
      "python3", "-c", people + alone, Root.guardian, "--state-directory",
      scratch.path + "/state", "--runtime-directory", scratch.path + "/run", "--", "python3", "-c",
      counts,
    ])
    #expect(try process.wait() == .exited(0), "\(process.outputText)\(process.errorText)")
  }

  @Test(arguments: [
    [], ["bash", "--norc", "--noprofile", "-ic", "\"$@\"; exit $?", "bash"],
  ])
  func `that goes away is one HUP for the program`(shell: [String]) throws {
    let scratch = Scratch()
    let process = try Process(
      ["python3", "-c", people + hangup, scratch.path + "/book"] + shell + [
        Root.guardian,
        "--state-directory", scratch.path + "/state", "--runtime-directory", scratch.path + "/run",
        "--", "python3", "-c", counts, scratch.path + "/book",
      ])
    #expect(try process.wait() == .exited(0), "\(process.outputText)\(process.errorText)")
  }

  /// A program that counts the signals it gets, and leaves at USR1.
  private let counts = """
    import os, signal, sys
    out = open(sys.argv[1], 'a', buffering=1) if len(sys.argv) > 1 else sys.stdout
    got = {signal.SIGINT: 0, signal.SIGHUP: 0, signal.SIGTSTP: 0, signal.SIGCONT: 0}
    signal.pthread_sigmask(signal.SIG_BLOCK, [*got, signal.SIGUSR1])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTSTP])
    print('ready', os.getpid(), os.getppid(), file=out, flush=True)
    while True:
        number = signal.sigwait([signal.SIGINT, signal.SIGHUP, signal.SIGUSR1])
        if number == signal.SIGUSR1: break
        got[number] += 1
        print('got', signal.Signals(number).name, got[number], file=out, flush=True)
    print('left', file=out, flush=True)
    """

  private let background = """
    start()
    expect(b'prompt> ')
    type(sys.argv[1].encode() + b' &\\n')
    # cat wants the terminal, which the shell has: the job stops, as any other would.
    expect(b'ready\\r\\n')
    for number in range(1, 100000):
        type(b'jobs; echo mark$((%d + 1))\\n' % number)
        if b'Stopped' in upto(b'mark%d\\r\\n' % (number + 1)): break
    type(b'fg\\n'); expect(b'exec cat')
    type(b'two\\n'); expect(b'two', 2)
    type(b'\\x03'); expect(b'prompt> ')
    type(b'echo left with $?\\n'); expect(b'left with 130')
    """

  private let alone = """
    start(sys.argv[1:])
    expect(b'ready ')
    program = int(upto(b'\\r\\n').split()[0])
    type(b'\\x1a')
    type(b'\\x03'); expect(b'got SIGINT 1')
    type(b'\\x1a')
    os.kill(program, 10)
    expect(b'left')
    _, status = os.waitpid(pid, 0)
    sys.exit(0 if status == 0 else 'guardian left with %d' % status)
    """

  private let hangup = """
    def book(text):
        end = time.monotonic() + 60
        while True:
            try: lines = open(sys.argv[1]).read()
            except OSError: lines = ''
            if text in lines: return lines
            if time.monotonic() > end: sys.exit('did not come: %r in %r' % (text, lines))
            time.sleep(0.005)
    start(sys.argv[2:])
    book('ready')
    guardian = int(book('\\n').split()[2])
    os.close(terminal)
    book('got SIGHUP 1')
    # Whatever else was on its way came before this one.
    os.kill(guardian, 10)
    lines = book('left')
    os.waitpid(pid, 0)
    sys.exit(0 if 'SIGHUP 2' not in lines else lines)
    """

  private let people = """
    import os, pty, select, sys, time
    seen = b''
    def start(command=['bash', '--norc', '--noprofile', '-i']):
        global pid, terminal
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ['PS1'] = 'prompt> '
            os.execvp(command[0], command)
    def upto(text, count=1):
        global seen
        end = time.monotonic() + 60
        while seen.count(text) < count:
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            if not ready: sys.exit('did not come: %r in %r' % (text, seen))
            seen += os.read(terminal, 65536)
        before, seen = seen[:seen.rindex(text)], seen[seen.rindex(text) + len(text):]
        return before
    expect = upto
    def type(text): os.write(terminal, text)

    """

  @Test func `^C that the program answers by an ending of its own stops both`() throws {
    let ran = try typed(
      "trap 'echo got INT; exit 7' INT; echo ready; while :; do read line; done",
      patient + "until(b'prompt> ')\n"
        + "type(b'echo left with $?\\n'); expect(b'left with 7')")
    #expect(ran.left == .exited(0), "\(ran.words)")
  }

  @Test func `^C twice reaches guardian also when the program ignores it, and once more ends it`()
    throws
  {
    let stopped = try typed(
      "trap '' INT; echo ready; exec sleep 1000",
      again + "until(b'twice: stopping'); expect(b'prompt> ')\n"
        + "type(b'echo left with $?\\n'); expect(b'left with 1')")
    #expect(stopped.left == .exited(0), "\(stopped.words)")
    let killed = try typed(
      "trap '' INT TERM; echo ready; exec sleep 1000",
      again + "until(b'twice: stopping'); until(b'prompt> ')\n"
        + "type(b'echo left with $?\\n'); expect(b'left with 137')")
    #expect(killed.left == .exited(0), "\(killed.words)")
  }

  /// Types ^C until something comes of it, every so many seconds.
  private func typing(every seconds: Double) -> String {
    """
    def until(text):
        global seen
        while text not in seen:
            type(b'\\x03')
            end = time.monotonic() + \(seconds)
            while text not in seen and time.monotonic() < end:
                if select.select([terminal], [], [], 0.05)[0]: seen += os.read(terminal, 65536)
        expect(text)

    """
  }
  /// Two of them may be one where the machine is busy.
  private var again: String { typing(every: 0.3) }
  /// Once more only if it came before anybody watched for it.
  private var patient: String { typing(every: 10) }

  @Test func `an INT that was not typed is the program's own affair`() throws {
    let ran = try typed(
      "trap 'exit 7' INT; echo ready; kill -INT $$; wait",
      "expect(b'restarting'); expect(b'giving up'); expect(b'prompt> ')\n"
        + "type(b'echo left with $?\\n'); expect(b'left with 7')")
    #expect(ran.left == .exited(0), "\(ran.words)")
  }

  private func typed(_ program: String, _ keys: String) throws -> (left: Left, words: String) {
    let scratch = Scratch()
    let script = scratch.path + "/program"
    try Files.replace(script, with: Array("#!/bin/sh\n\(program)\n".utf8), mode: 0o755)
    let guardian =
      "\(Root.guardian) --max-crashes 1 --state-directory \(scratch.path)/state "
      + "--runtime-directory \(scratch.path)/run -- \(script)"
    let start = session.components(before: "type(b'one")
    let process = try Process(["python3", "-c", start + keys, guardian])
    return (try process.wait(), process.outputText + process.errorText)
  }

  /// A person at an interactive shell: types, and waits for what must appear.
  private let session = """
    import os, pty, select, sys, time
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ['PS1'] = 'prompt> '
        os.execvp('bash', ['bash', '--norc', '--noprofile', '-i'])
    seen = b''
    def expect(text, count=1):
        global seen
        end = time.monotonic() + 60
        while seen.count(text) < count:
            ready, _, _ = select.select([terminal], [], [], max(0, end - time.monotonic()))
            if not ready: sys.exit('did not come: %r in %r' % (text, seen))
            seen += os.read(terminal, 65536)
        seen = seen[seen.rindex(text) + len(text):]
    def type(text): os.write(terminal, text)
    expect(b'prompt> ')
    type(sys.argv[1].encode() + b'\\n')
    expect(b'ready\\r\\n')
    type(b'one\\n'); expect(b'one', 2)
    type(b'\\x1a'); expect(b'Stopped'); expect(b'prompt> ')
    type(b'fg\\n'); expect(b'exec cat')
    type(b'two\\n'); expect(b'two', 2)
    type(b'\\x03'); expect(b'prompt> ')
    type(b'echo left with $?\\n'); expect(b'left with 130')
    """
}

extension String {
  /// What stands before the first `mark`.
  fileprivate func components(before mark: String) -> String {
    var end = startIndex
    while end < endIndex, !self[end...].hasPrefix(mark) { end = index(after: end) }
    return String(self[..<end])
  }
}
