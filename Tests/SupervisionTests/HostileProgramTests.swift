// A program that wants to hurt guardian, or others through it.
import Glibc
import Kernel
import Ring
import Testing

@Suite struct `A hostile program` {
  /// guardian on a Python text, which has the channel's folder as `folder`.
  private func guardian(_ options: [String], _ text: String) throws -> Guardian {
    let start = """
      import array, ctypes, os, signal, socket, struct, sys, time
      folder = os.environ['GUARDIAN_CHANNEL']
      slot = \(RingLayout.slotsOffset)
      def ring(): return os.open(folder + '/ring', os.O_RDWR)
      def sock(name):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.connect(folder + '/' + name)
        return s
      def bell(slot=0, signal=11):
        return struct.pack('<IIIIII', \(RingLayout.Bell.magic), \(RingLayout.version), slot, 1, signal, 0)

      """
    return try Guardian(options, ["/usr/bin/env", "python3", "-c", start + text])
  }

  @Test func `that writes an impossible signal into its record only harms its own report`() throws {
    let guardian = try guardian(
      ["--max-crashes", "0"],
      """
      fd = ring()
      record = bytearray(os.pread(fd, \(RingLayout.slotSize), slot))
      struct.pack_into('<I', record, \(RingLayout.Record.state), 2)
      struct.pack_into('<I', record, \(RingLayout.Record.parts), 1)
      struct.pack_into('<i', record, \(RingLayout.Record.signal), 0x7fffffff)
      os.pwrite(fd, record, slot)
      sock('bell').send(bell())
      time.sleep(0.2)
      os._exit(1)
      """)
    #expect(try guardian.run() == .exited(1))
    #expect(guardian.reports.count == 1)
  }

  @Test(arguments: [0, 64 << 20])
  func `that changes the ring's size finds it as it was`(_ size: Int) throws {
    let guardian = try guardian(
      ["--max-crashes", "0"],
      """
      fd = ring()
      os.ftruncate(fd, \(size))
      end = time.monotonic() + 50
      while os.fstat(fd).st_size != \(RingLayout.size) and time.monotonic() < end: time.sleep(0.001)
      os._exit(0 if os.fstat(fd).st_size == \(RingLayout.size) else 3)
      """)
    #expect(try guardian.run() == .exited(0))
  }

  @Test func `of another user cannot learn where the channel is`() throws {
    let guardian = try guardian(
      ["--max-crashes", "0"], "print(folder, flush=True); signal.pause()")
    let folder = try eventually("the channel's folder") {
      guardian.process.outputText.split(separator: "\n").first.map(String.init)
    }
    let sockets = try Files.readText("/proc/net/unix", limit: 16 << 20)
    #expect(!sockets.contains(folder))
    #expect(try guardian.stop() == .exited(143))
  }

  /// Whoever closes such a socket last waits until all is sent, which nobody reads.
  @Test(arguments: ["bell", "notify", "crowd", "store"])
  func `cannot hold guardian with a socket that lingers`(_ way: String) throws {
    let guardian = try guardian(
      ["--max-crashes", "0"] + (way == "bell" ? [] : ["--ready", "notify"]),
      """
      way = '\(way)'
      door = sock('bell' if way == 'bell' else 'notify')
      listener = socket.create_server(('127.0.0.1', 0))
      out = socket.create_connection(listener.getsockname())
      out.setblocking(False)
      try:
        while True: out.send(b'x' * 65536)
      except BlockingIOError: pass
      linger = struct.pack('ii', 1, 40)
      out.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
      # Not of this process: its own end would wait for the peer's.
      peer, _ = listener.accept()
      if os.fork() == 0:
        out.close()
        signal.alarm(50)
        os.setsid()
        signal.pause()
      text = {'bell': bell(), 'store': b'FDSTORE=1\\nFDNAME=x\\nFDPOLL=0'}.get(way, b'STATUS=x')
      def send(text, numbers):
        door.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', numbers))])
      # More than one message was ever meant to carry; the kernel takes no more than 253.
      try: send(text, [out.fileno()] * (200 if way == 'crowd' else 1))
      except OSError: pass
      if way == 'store':
        end, held = os.pipe()
        send(b'BARRIER=1', [held])
        os.close(held)
        os.read(end, 1)
        out.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
      out.close()
      if way == 'store': door.send(b'FDSTOREREMOVE=1\\nFDNAME=x')
      os.write(1, b'sent')
      signal.pause()
      """)
    try eventually("the message") { guardian.process.outputText.contains("sent") ? true : nil }
    let began = Clock.monotonic
    #expect(try guardian.stop() != .signaled(SIGKILL))
    // The linger time is 40 s; a busy machine needs a few.
    #expect(Clock.monotonic - began < .seconds(30))
  }

  @Test func `that was not asked to talk cannot put off its own stop`() throws {
    let guardian = try guardian(
      ["--max-crashes", "0", "--stop-timeout", "300ms"],
      """
      def more(*_):
        sock('notify').send(b'EXTEND_TIMEOUT_USEC=300000000')
      signal.signal(signal.SIGTERM, more)
      print('pid', os.getpid(), flush=True)
      while True: signal.pause()
      """)
    _ = try guardian.programPID()
    #expect(try guardian.stop() == .exited(137))
  }

  // MARK: what waits in the kernel for ever

  @Test(.enabled(if: HungFileSystem.isPossible, "needs root and /dev/fuse"))
  func `cannot hold guardian with a file that cannot be closed`() throws {
    let scratch = Scratch()
    guard let hung = try HungFileSystem(in: scratch) else { return }
    let guardian = try guardian(
      ["--max-crashes", "0", "--ready", "notify", "--stop-timeout", "200ms"],
      """
      door = sock('notify')
      if os.fork() == 0:
        fd = os.open('\(hung.folder)/file', os.O_RDWR)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))]
        for text in [b'X=1', b'FDSTORE=1', b'FDSTORE=1\\nFDPOLL=0']: door.sendmsg([text], rights)
        signal.pause()
      door.send(b'READY=1')
      signal.pause()
      """)
    try eventually("the word; \(guardian.process.errorText)") {
      guardian.process.errorText.contains("neither a socket, a pipe, memory nor an event")
        ? true : nil
    }
    #expect(try guardian.stop() == .exited(143))
    // Its own end has to close the file too.
    #expect(guardian.process.errorText.contains("cannot end python3 (pid "))
  }

  @Test(.enabled(if: HungFileSystem.isPossible, "needs root and /dev/fuse"))
  func `cannot hold guardian with memory that cannot be read`() throws {
    let scratch = Scratch()
    guard let hung = try HungFileSystem(in: scratch) else { return }
    let ill = scratch.path + "/ill"
    let guardian = try guardian(
      [
        "--max-crashes", "0", "--health-exec", "test ! -e \(ill)", "--health-interval", "50ms",
        "--health-retries", "1", "--stop-timeout", "200ms", "--capture-timeout", "1s",
      ],
      """
      import threading
      libc = ctypes.CDLL(None, use_errno=True)
      libc.mmap.restype = ctypes.c_void_p
      libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
      fd = os.open('\(hung.folder)/file', os.O_RDONLY)
      place = libc.mmap(None, 4096, 1, 2, fd, 0)
      memory = os.open('/proc/self/mem', os.O_RDONLY)
      threading.Thread(target=lambda: os.pread(memory, 1, place)).start()
      signal.signal(signal.SIGUSR1, lambda *_: libc.mmap(None, 4096, 3, 0x22, -1, 0))
      print('pid', os.getpid(), flush=True)
      signal.pause()
      """)
    let pid = try guardian.programPID()
    // Its memory is locked for the one that reads, and for whoever comes behind one that changes it.
    try hung.wait(for: .read)
    try eventually("it to wait for its memory") {
      kill(pid, SIGUSR1)
      return Processes.state(of: pid) == "D" ? true : nil
    }
    try Files.replace(ill, with: [])
    _ = try guardian.run()
    #expect(try guardian.reportText().contains("could not be read in time"))
  }

  @Test(.enabled(if: HungFileSystem.isPossible, "needs root and /dev/fuse"))
  func `that cannot be killed is waited for once`() throws {
    let scratch = Scratch()
    guard let hung = try HungFileSystem(in: scratch) else { return }
    let guardian = try guardian(
      ["--restart-delay", "0", "--stop-timeout", "200ms"],
      """
      print('pid', os.getpid(), flush=True)
      if os.environ['GUARDIAN_LIFE'] == '1' and os.fork() == 0:
        os.setsid()
        os.stat('\(hung.folder)/hang')
      signal.pause()
      """)
    let first = try guardian.programPID()
    try hung.wait(for: .lookUp)
    kill(first, SIGKILL)
    kill(try guardian.programPID(2), SIGKILL)
    _ = try guardian.programPID(3)
    #expect(try guardian.stop() == .exited(143))
    let said = guardian.process.errorText
    #expect(
      said.split(separator: "\n").filter { $0.contains("cannot end python3 (pid ") }.count == 1)
    #expect(!said.contains("killed what was left"), "\(said)")
  }
}

/// A file system whose daemon leaves requests unanswered (hungfuse.py), as long as this object lives.
final class HungFileSystem {
  static let isPossible = geteuid() == 0 && Files.exists("/dev/fuse")
  enum Request: Int { case lookUp = 1, read = 15 }

  let folder: String
  private let scratch: Scratch
  private let input: Input
  private let daemon: Process

  /// nil: it cannot be mounted here, for the reason that is printed.
  init?(in scratch: Scratch) throws {
    self.scratch = scratch
    folder = scratch.path + "/fuse"
    input = try Input(in: scratch)
    let daemon = try Process(
      ["python3", Root.path + "/Tests/Fixtures/hungfuse.py", folder], input: input.path)
    self.daemon = daemon
    let isMounted = try eventually("the file system; \(daemon.errorText)") {
      if daemon.outputText.hasPrefix("mounted") { return true }
      return daemon.errorText.contains("skipped") ? false : nil
    }
    if !isMounted {
      print(daemon.errorText)
      return nil
    }
  }

  /// Until somebody waits for an answer.
  func wait(for request: Request) throws {
    try eventually("request \(request)") {
      daemon.outputLines.contains("asked \(request.rawValue)") ? true : nil
    }
  }

  deinit {
    daemon.signal(SIGTERM)
    _ = try? daemon.wait()
  }
}
