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
