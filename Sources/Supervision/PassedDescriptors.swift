// Descriptors that outlive a life: the listening sockets that the service manager passed or
// guardian opened, and what a program gave to keep. Every life gets them as systemd passes
// sockets (sd_listen_fds(3)).
import CLinux
import CSystemd
import Glibc
import Kernel
import Settings

struct PassedDescriptor {
  /// For LISTEN_FDNAMES.
  let name: String
  let descriptor: SharedDescriptor
}

/// Open as long as guardian is, whatever becomes of the program: a connection that comes between
/// two lives waits for the next one.
final class ListeningSockets {
  private(set) var all: [PassedDescriptor] = []
  /// What a program had given to keep, and the service manager kept over guardian's own death.
  private(set) var stored: [(passed: PassedDescriptor, watches: Bool)] = []
  /// How many of them, the first ones, the service manager passed.
  private var passedCount = 0
  private var addresses: [ListenAddress] = []
  /// What is to be said about them.
  private(set) var warning: String?
  /// Sockets in the file system that guardian made: they go with it.
  private var files: [(path: String, device: UInt64, inode: UInt64)] = []

  /// Takes what was passed. Before guardian opens anything: a number that nobody passed must not
  /// be one of its own.
  /// - Parameters:
  ///   - environment: guardian's own.
  ///   - takesStored: false: a binary before this one hands them over, perhaps by other numbers.
  init(inherited environment: Environment, takesStored: Bool = true) {
    takeInherited(environment, takesStored)
  }

  var passed: ArraySlice<PassedDescriptor> { all.prefix(passedCount) }
  /// Those that guardian opened itself.
  var opened: [(address: String, descriptor: Int32)] {
    zip(addresses, all.dropFirst(passedCount)).map { ($0.text, $1.descriptor.raw) }
  }

  /// - Parameters:
  ///   - name: of the program, for LISTEN_FDNAMES.
  ///   - handed: by address, what was open before this binary was executed.
  func open(
    _ addresses: [ListenAddress], name: String, handed: [String: Int32] = [:]
  ) throws(SystemError) {
    for address in addresses {
      self.addresses.append(address)
      if let raw = handed[address.text] {
        all.append(
          PassedDescriptor(name: name, descriptor: SharedDescriptor(FileDescriptor(owning: raw))))
        if case .unix(let path) = address, let status = try? Files.status(path, follow: false) {
          files.append((path, status.device, status.inode))
        }
        continue
      }
      if all.count >= Configuration.listenLimit {
        throw SystemError("listen on", address.text, errno: EMFILE)
      }
      all.append(PassedDescriptor(name: name, descriptor: try listen(on: address)))
    }
  }

  private func listen(on address: ListenAddress) throws(SystemError) -> SharedDescriptor {
    let raw: Int32
    switch address {
    case .tcp(let address):
      raw = unsafe guardian_listen_tcp(address.host, address.port, Limit.listenBacklog)
    case .unix(let path):
      try Self.removeStale(path, address)
      raw = unsafe guardian_listen_unix(path, Limit.listenBacklog)
    }
    if raw < 0 { throw SystemError("listen on", address.text, errno: errno) }
    let socket = SharedDescriptor(FileDescriptor(owning: raw))
    if case .unix(let path) = address, let status = try? Files.status(path, follow: false) {
      files.append((path, status.device, status.inode))
    }
    return socket
  }

  private func takeInherited(_ environment: Environment, _ takesStored: Bool) {
    guard environment.text("LISTEN_PID").flatMap({ Int32($0) }) == getpid(),
      let count = environment.text("LISTEN_FDS").flatMap({ Int32($0) }), count > 0
    else { return }
    let names = (environment.text("LISTEN_FDNAMES") ?? "")
      .split(separator: ":", omittingEmptySubsequences: false).map(String.init)
    for index in 0..<min(count, 1024) where fcntl(3 + index, F_GETFD) >= 0 {
      let name = names.indices.contains(Int(index)) ? names[Int(index)] : ""
      if let (own, watches) = StoredName.read(name) {
        if takesStored {
          let descriptor = SharedDescriptor(FileDescriptor(owning: 3 + index))
          stored.append((PassedDescriptor(name: own, descriptor: descriptor), watches))
        }
        continue
      }
      if all.count == Configuration.listenLimit {
        warning =
          "\(count) sockets were passed to guardian: the program gets the first \(all.count)"
        break
      }
      all.append(
        PassedDescriptor(
          name: NotifyMessage.isDescriptorName(Array(name.utf8)) ? name : "unknown",
          descriptor: SharedDescriptor(FileDescriptor(owning: 3 + index))))
    }
    passedCount = all.count
  }

  /// Removes a socket that a dead process left; anything else that lies there is somebody's.
  private static func removeStale(_ path: String, _ address: ListenAddress) throws(SystemError) {
    guard let found = try? Files.status(path, follow: false) else { return }
    guard found.isSocket else {
      throw SystemError("listen on", address.text, errno: EEXIST)
    }
    if unsafe guardian_somebody_listens(path) != 0 {
      throw SystemError("listen on", address.text, errno: EADDRINUSE)
    }
    // Still the same one: somebody may just have done what we are about to do.
    if let now = try? Files.status(path, follow: false), now.inode == found.inode,
      now.device == found.device
    {
      Files.remove(path)
    }
  }

  /// Listens again on those that a program shut down: whoever has one may do that to all who have it.
  /// - Returns: which these were, and why one cannot be had again.
  func revive() -> [(address: String, error: SystemError?)] {
    var told: [(address: String, error: SystemError?)] = []
    for (index, address) in addresses.enumerated() {
      let place = passedCount + index
      let socket = all[place].descriptor.raw
      if guardian_still_listens(socket) { continue }
      if guardian_listen_again(socket, Limit.listenBacklog) == 0 {
        told.append((address.text, nil))
        continue
      }
      do {
        let fresh = try listen(on: address)
        all[place] = PassedDescriptor(name: all[place].name, descriptor: fresh)
        told.append((address.text, nil))
      } catch { told.append((address.text, error)) }
    }
    return told
  }

  /// When guardian leaves. Only what is still ours.
  func removeFiles() {
    for file in files {
      if let status = try? Files.status(file.path, follow: false), status.device == file.device,
        status.inode == file.inode
      {
        Files.remove(file.path)
      }
    }
    files = []
  }
}

/// How a stored descriptor is called in the service manager's own store: among sockets it must be told
/// apart, and whether it is watched is known to nobody else.
package enum StoredName {
  private static let prefixes = [("guardian-stored.", true), ("guardian-unwatched.", false)]
  /// sd_pid_notify_with_fds(3): longer names are refused.
  private static let limit = 255

  /// nil: it would be too long.
  package static func make(_ name: String, watches: Bool) -> String? {
    let text = prefixes.first { $0.1 == watches }!.0 + name
    return text.utf8.count <= limit ? text : nil
  }

  package static func read(_ text: String) -> (name: String, watches: Bool)? {
    for (prefix, watches) in prefixes where text.hasPrefix(prefix) {
      let name = String(text.dropFirst(prefix.count))
      return NotifyMessage.isDescriptorName(Array(name.utf8)) ? (name, watches) : nil
    }
    return nil
  }
}

/// What a program gave to keep (FDSTORE=1), for the life after it.
final class DescriptorStore {
  private struct Entry {
    let passed: PassedDescriptor
    /// Watches for the other side's end.
    var source: EventSource?
  }
  private var entries: [Entry] = []
  private let loop: EventLoop

  init(loop: EventLoop) { self.loop = loop }

  var all: [PassedDescriptor] { entries.map(\.passed) }

  /// - Parameter number: of the kind that `Errands.take` lets through.
  /// - Returns: false: there is no room; it is the caller's still.
  func keep(_ number: Int32, name: String, watches: Bool) -> Bool {
    // A program that gives the same ones in every life must not fill the store.
    if entries.contains(where: {
      $0.passed.name == name && guardian_same_file($0.passed.descriptor.raw, number)
    }) {
      // The other one is open still: this is not the last close, which alone could wait.
      close(number)
      return true
    }
    if entries.count >= Limit.storedDescriptors { return false }
    return keep(SharedDescriptor(FileDescriptor(owning: number)), name: name, watches: watches)
  }

  /// One that was kept before this binary was executed.
  @discardableResult
  func keep(_ descriptor: SharedDescriptor, name: String, watches: Bool) -> Bool {
    let number = descriptor.raw
    var entry = Entry(passed: PassedDescriptor(name: name, descriptor: descriptor))
    if watches {
      // Nothing is asked for: only an end or an error is told. Files cannot be watched, and
      // have no other side.
      entry.source = try? loop.watch(number, events: 0) { [unowned self] events in
        if events & (EPOLLHUP.rawValue | EPOLLERR.rawValue) != 0 {
          drop { $0.passed.descriptor.raw == number }
        }
      }
    }
    entries.append(entry)
    return true
  }

  /// What hung up just now, before the loop could tell.
  func dropHungUp() {
    drop { entry in
      if entry.source == nil { return false }
      var state = pollfd(fd: entry.passed.descriptor.raw, events: 0, revents: 0)
      guard unsafe poll(&state, 1, 0) == 1 else { return false }
      return Int32(state.revents) & (POLLHUP | POLLERR) != 0
    }
  }

  func remove(_ name: String) { drop { $0.passed.name == name } }

  /// When guardian leaves: its own end would close them.
  func removeAll() { drop { _ in true } }

  /// The last who closes a socket may have to wait until it is empty, or until what lies in it is
  /// closed: that is not us.
  private func drop(_ isGone: (Entry) -> Bool) {
    var left: [Entry] = []
    var copies: [Int32] = []
    for entry in entries {
      if !isGone(entry) {
        left.append(entry)
        continue
      }
      // Before its number ends: the loop knows it by that.
      entry.source?.cancel()
      // With a copy open, the end of the entry is not the last close.
      let copy = fcntl(entry.passed.descriptor.raw, F_DUPFD_CLOEXEC, 3)
      if copy >= 0 { copies.append(copy) }
    }
    entries = left
    Errands.close(copies)
  }
}
