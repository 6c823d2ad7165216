// guardian-sweep --runtime FOLDER --scope tree|group|process
//
// Started by guardian beside a program that must not outlive it, with a pidfd of guardian as
// descriptor 3. It sleeps until guardian dies. Then it ends what the kernel's death signal does
// not reach: descendants, and a program whose death signal was cleared by a change of user.
import Glibc
import Kernel

func usage() -> Never {
  let text = "usage: guardian-sweep --runtime FOLDER --scope tree|group|process\n"
  unsafe _ = write(2, text, text.utf8.count)
  exit(64)
}

var folder: String?
var scope: Sweep.Scope?
var words = CommandLine.arguments.dropFirst()
while let name = words.popFirst() {
  guard let value = words.popFirst() else { usage() }
  switch name {
  case "--runtime": folder = value
  case "--scope": scope = Sweep.Scope(rawValue: value)
  default: usage()
  }
}
guard let folder, folder.hasPrefix("/"), let scope else { usage() }

// Nobody ends it by a signal that was meant for the program or for guardian.
var all = sigset_t()
unsafe sigfillset(&all)
unsafe sigprocmask(SIG_SETMASK, &all, nil)
guardianForgetStartUp()

var dead = pollfd(fd: 3, events: Int16(POLLIN), revents: 0)
while unsafe poll(&dead, 1, -1) != 1 {
  if errno != EINTR { exit(71) }
}
if Int32(dead.revents) & POLLNVAL != 0 { usage() }

let sweep = Sweep(folder: folder, scope: scope)
let outcome = sweep.end(within: .seconds(30))
if let text = sweep.words(outcome) {
  let line = Array("guardian-sweep: guardian died: \(text)\n".utf8)
  // Standard error may be a pipe that nobody reads any more.
  var room = pollfd(fd: 2, events: Int16(POLLOUT), revents: 0)
  if unsafe poll(&room, 1, 100) == 1, Int32(room.revents) & POLLOUT != 0 {
    _ = unsafe line.withUnsafeBytes { unsafe write(2, $0.baseAddress, $0.count) }
  }
}
exit(outcome.left.isEmpty ? 0 : 1)
