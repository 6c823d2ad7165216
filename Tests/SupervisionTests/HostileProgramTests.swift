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
  @Test(arguments: ["bell", "notify"])
  func `cannot hold guardian with a socket that lingers`(_ door: String) throws {
    let guardian = try guardian(
      ["--max-crashes", "0", "--ready", "notify"],
      """
      door = sock('\(door)')
      listener = socket.create_server(('127.0.0.1', 0))
      out = socket.create_connection(listener.getsockname())
      out.setblocking(False)
      try:
        while True: out.send(b'x' * 65536)
      except BlockingIOError: pass
      out.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack('ii', 1, 40))
      # Not of this process: its own end would wait for the peer's.
      peer, _ = listener.accept()
      if os.fork() == 0:
        out.close()
        signal.alarm(50)
        os.setsid()
        signal.pause()
      text = bell() if '\(door)' == 'bell' else b'STATUS=x'
      try: door.sendmsg([text], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [out.fileno()]))])
      except OSError: pass
      os.write(1, b'sent')
      out.close()
      signal.pause()
      """)
    try eventually("the message") { guardian.process.outputText.contains("sent") ? true : nil }
    let began = Clock.monotonic
    #expect(try guardian.stop() != .signaled(SIGKILL))
    // The linger time is 40 s; a busy machine needs a few.
    #expect(Clock.monotonic - began < .seconds(30))
  }
}
