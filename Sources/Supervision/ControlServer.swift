// guardian's end of the control socket. It carries packets and knows nothing of supervision. A
// client may be slow, silent or hostile: there are at most so many, each has one short request
// and a bounded queue of answers, nothing is waited for, and who does not take part in time is
// dropped.
import CSystemd
import Control
import Glibc
import Kernel
import Reports

/// Somebody at the other end.
final class ControlClient {
  fileprivate let socket: PacketSocket
  fileprivate var source: EventSource?
  fileprivate var watchesRoom = false
  fileprivate var patience: EventLoop.Timer?
  fileprivate var queue: [[UInt8]] = []
  fileprivate var queued = 0
  fileprivate var hasAsked = false
  /// Nothing more will be said: the connection ends with the last answer.
  fileprivate var isDone = false
  fileprivate(set) var isGone = false
  /// What this client follows, and how far it is.
  var interest = Interest.none
  /// Bytes of output that it did not take.
  var dropped: UInt64 = 0
  /// The beginning of a line whose end has not come.
  var openLines: [OutputStream: [UInt8]] = [:]

  enum Interest {
    case none
    /// The answer is due when the request has been carried out.
    case outcome(ControlRequest, life: UInt32)
    case output
    case events(last: String)
  }

  fileprivate init(_ socket: PacketSocket) { self.socket = socket }

  var number: Int32 { socket.raw }
  /// What it is to follow, for the program that comes after this one; nil: its answers are not all
  /// taken, or it waits for what is done by then.
  var standing: String? {
    guard !isGone, !isDone, queue.isEmpty else { return nil }
    switch interest {
    case .none: return hasAsked ? nil : "new"
    case .output: return "output"
    case .events: return "events"
    case .outcome: return nil
    }
  }

  /// Whether more may be queued.
  var hasRoom: Bool { queued < Limit.controlQueueBytes / 2 }
}

final class ControlServer {
  private let loop: EventLoop
  private let path: String
  private let listener: PacketSocket
  private var source: EventSource?
  private var pause: EventLoop.Timer?
  private var open: [Int32: ControlClient] = [:]
  /// Called once for each client.
  private let onRequest: (ControlRequest, ControlClient) -> Void
  /// Called when the number of clients changed.
  private let onChange: () -> Void

  /// `inherited`: a listener that was open before this program was executed.
  init(
    _ path: String, inherited: Int32? = nil, loop: EventLoop, onChange: @escaping () -> Void,
    onRequest: @escaping (ControlRequest, ControlClient) -> Void
  ) throws(SystemError) {
    self.path = path
    self.loop = loop
    self.onChange = onChange
    self.onRequest = onRequest
    if let inherited {
      listener = PacketSocket(inherited: inherited)
    } else {
      listener = try PacketSocket.listen(path, backlog: Limit.controlBacklog)
    }
    // Behind everything else that is ready: endings, signals, output.
    source = try loop.watch(listener.raw, urgency: .control) { [unowned self] _ in accept() }
    pause = try loop.timer(CLOCK_MONOTONIC) { [unowned self] in source?.isEnabled = true }
  }

  var clients: [ControlClient] { Array(open.values) }
  var listenerNumber: Int32 { listener.raw }

  /// A client of the program before this one.
  /// - Parameter hasAsked: its request was taken.
  func resume(_ number: Int32, hasAsked: Bool = true) -> ControlClient? {
    let client = ControlClient(PacketSocket(inherited: number))
    client.hasAsked = hasAsked
    do {
      client.patience = try loop.timer(CLOCK_MONOTONIC) { [unowned self, unowned client] in
        drop(client)
      }
      try watch(client)
    } catch { return nil }
    if !hasAsked { client.patience?.set(after: Limit.controlPatience) }
    open[number] = client
    return client
  }

  func close() {
    for client in clients { drop(client) }
    source = nil
    Files.remove(path)
  }

  private func accept() {
    // One at a time: a flood of connections goes between other events.
    do {
      guard let socket = try listener.accept() else { return }
      guard let user = socket.peerUser, user == geteuid() || user == 0,
        open.count < Limit.controlClients
      else { return }
      let client = ControlClient(socket)
      client.patience = try loop.timer(CLOCK_MONOTONIC) { [unowned self, unowned client] in
        drop(client)
      }
      try watch(client)
      client.patience?.set(after: Limit.controlPatience)
      open[socket.raw] = client
      onChange()
    } catch {
      // No descriptors or no memory: whoever waits will wait; looking again at once would spin.
      source?.isEnabled = false
      pause?.set(after: .seconds(1))
    }
  }

  private func watch(_ client: ControlClient) throws(SystemError) {
    client.source = nil
    let events = EPOLLIN.rawValue | (client.watchesRoom ? EPOLLOUT.rawValue : 0)
    client.source = try loop.watch(client.socket.raw, events: events, urgency: .control) {
      [unowned self, unowned client] events in
      // It may be dropped on the way.
      let client = client
      if events & EPOLLOUT.rawValue != 0 { flush(client) }
      if !client.isGone, events & ~EPOLLOUT.rawValue != 0 { receive(client) }
    }
  }

  private func receive(_ client: ControlClient) {
    switch client.socket.receive(limit: ControlRequest.maximumBytes) {
    case .nothing: return
    case .gone: drop(client)
    case .tooLong: refuse(client)
    case .packet(let bytes):
      guard !client.hasAsked, let request = ControlRequest(bytes) else {
        refuse(client)
        return
      }
      client.hasAsked = true
      client.patience?.disarm()
      onRequest(request, client)
    }
  }

  private func refuse(_ client: ControlClient) {
    // Whoever floods us is not answered as well.
    if client.hasAsked {
      drop(client)
      return
    }
    client.hasAsked = true
    answer(client, ControlAnswer(error: "this is not a request", exit: 64), isLast: true)
  }

  /// Sends what fits, keeps the rest.
  func answer(_ client: ControlClient, _ answer: ControlAnswer, isLast: Bool = false) {
    guard !client.isGone, let packet = try? JSONText.encode(answer, layout: .compact) else {
      return
    }
    if packet.count > ControlRequest.maximumAnswerBytes
      || client.queued + packet.count > Limit.controlQueueBytes
    {
      drop(client)
      return
    }
    client.queue.append(packet)
    client.queued += packet.count
    if isLast { client.isDone = true }
    flush(client)
  }

  func finish(_ client: ControlClient) {
    client.isDone = true
    flush(client)
  }

  private func flush(_ client: ControlClient) {
    if client.isGone { return }
    var sent = 0
    loop: while sent < client.queue.count {
      switch client.socket.send(client.queue[sent]) {
      case .all:
        client.queued -= client.queue[sent].count
        sent += 1
      case .full: break loop
      case .gone:
        drop(client)
        return
      }
    }
    client.queue.removeFirst(sent)
    if client.queue.isEmpty {
      if client.isDone {
        drop(client)
        return
      }
      if client.hasAsked { client.patience?.disarm() }
    } else if sent > 0 || !client.watchesRoom {
      client.patience?.set(after: Limit.controlPatience)
    }
    if client.watchesRoom != !client.queue.isEmpty {
      client.watchesRoom = !client.queue.isEmpty
      do { try watch(client) } catch { drop(client) }
    }
  }

  private func drop(_ client: ControlClient) {
    if client.isGone { return }
    client.isGone = true
    client.source = nil
    client.patience?.disarm()
    // Only now may the number be given to another.
    open[client.socket.raw] = nil
    onChange()
  }
}
