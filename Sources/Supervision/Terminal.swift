// The terminal that guardian was started from: who is in its foreground, and a pseudo-terminal
// that looks like it.
import CLinux
import Glibc
import Kernel

struct Terminal {
  /// One of guardian's own standard descriptors.
  private let descriptor: Int32

  /// The controlling terminal, also when guardian was started in its background.
  static func controlling() -> Terminal? {
    for number in [Int32(0), 2, 1] where isatty(number) == 1 && tcgetpgrp(number) > 0 {
      return Terminal(descriptor: number)
    }
    return nil
  }

  /// One that guardian had already given away when this program was executed.
  init(resuming descriptor: Int32) { self.descriptor = descriptor }
  private init(descriptor: Int32) { self.descriptor = descriptor }

  var raw: Int32 { descriptor }
  /// Below 0: the terminal is gone.
  var foregroundGroup: Int32 { tcgetpgrp(descriptor) }
  /// guardian is in its foreground: only then may it be given away.
  var isOurs: Bool { foregroundGroup == getpgrp() }

  /// Somebody outside of guardian's job is there to continue it: its process group is not orphaned
  /// (credentials(7)). Without that a stopped job would stay so for ever.
  var hasShell: Bool {
    let group = getpgrp()
    var pid = getppid()
    for _ in 0..<64 where pid > 0 {
      if Processes.session(of: pid) != getsid(0) { return false }
      if Processes.processGroup(of: pid) != group { return true }
      guard let next = Processes.parent(of: pid) else { return false }
      pid = next
    }
    return false
  }

  /// Passes guardian's foreground on, if it is guardian's.
  func handOver(to life: RunningLife) {
    if !isOurs { return }
    give(to: life.group)
    life.hasTerminal = true
  }

  /// Back to guardian's own group, if it is still the one it was given to. TTOU is blocked here
  /// as every signal guardian handles is.
  func takeBack(from group: Int32) {
    if tcgetpgrp(descriptor) == group { _ = tcsetpgrp(descriptor, getpgrp()) }
  }

  private func give(to group: Int32) { _ = tcsetpgrp(descriptor, group) }

  func takeBack() { _ = tcsetpgrp(descriptor, getpgrp()) }

  static func copySize(from model: Int32, to other: Int32) {
    var size = winsize()
    if unsafe ioctl(model, UInt(TIOCGWINSZ), &size) == 0 {
      _ = unsafe ioctl(other, UInt(TIOCSWINSZ), &size)
    }
  }

  /// A pseudo-terminal with the size of terminal `model`, that changes no byte of what is
  /// written: the real terminal does that.
  static func openPair(like model: Int32) -> (master: Int32, slave: Int32)? {
    let master = unsafe open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC)
    if master < 0 { return nil }
    var unlock: Int32 = 0
    guard unsafe ioctl(master, UInt(guardian_tiocsptlck), &unlock) == 0,
      case let slave = ioctl(
        master, UInt(guardian_tiocgptpeer), O_RDWR | O_NOCTTY | O_CLOEXEC),
      slave >= 0
    else {
      close(master)
      return nil
    }
    var settings = termios()
    if unsafe tcgetattr(slave, &settings) == 0 {
      settings.c_oflag &= ~tcflag_t(OPOST)
      _ = unsafe tcsetattr(slave, TCSANOW, &settings)
    }
    copySize(from: model, to: slave)
    return (master, slave)
  }
}
