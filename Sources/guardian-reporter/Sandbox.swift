// What the worker may still do. The one list of system calls is here.
import CSeccomp
import Glibc
import Kernel

enum Priority {
  /// The program is starting again meanwhile: it comes first, and this dies first.
  static func lower() {
    _ = setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 19)
    _ = guardian_ioprio_idle()
    let score = unsafe open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC)
    guard score >= 0 else { return }
    try? FileDescriptor(owning: score).writeAll(Array("1000".utf8))
  }

  /// The worker, once there is one: written before the alarm or read by it, never both at once in
  /// a way that matters (a pid is one word).
  nonisolated(unsafe) private static var worker: pid_t = 0

  /// Not the lowest for ever: beside a dozen busy threads nice 19 gets a five-hundredth of a
  /// processor, and a report of a tenth of a second would not come within a minute. By then the
  /// program has long started again. Without the right to it all stays as it is.
  static func raise(afterSeconds seconds: UInt32) {
    _ = signal(SIGALRM) { _ in
      _ = setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 0)
      let worker = unsafe Priority.worker
      if worker > 0 {
        _ = setpriority(__priority_which_t(PRIO_PROCESS.rawValue), id_t(worker), 0)
      }
    }
    _ = alarm(seconds)
  }

  /// SIGALRM as the kernel means it: the end.
  static func endItself(afterSeconds seconds: UInt32) {
    _ = signal(SIGALRM, SIG_DFL)
    var alarms = sigset_t()
    unsafe sigemptyset(&alarms)
    unsafe sigaddset(&alarms, SIGALRM)
    unsafe sigprocmask(SIG_UNBLOCK, &alarms, nil)
    _ = alarm(seconds)
  }

  static func raiseLater(_ worker: pid_t) { unsafe Priority.worker = worker }
}

enum Sandbox {
  /// Another user than the program's: what it owns must not be within reach either.
  static func workerUID(program: UInt32?) -> UInt32 {
    guard geteuid() == 0 else { return geteuid() }
    return program == 65534 ? 65533 : 65534
  }

  /// Who the worker is once it is inside.
  enum Owner: CustomStringConvertible {
    case user(UInt32)
    /// No other user may be taken, for this reason.
    case same(UInt32, SystemError?)

    var description: String {
      switch self {
      case .user(let uid): "user \(uid)"
      case .same(let uid, nil): "this user, \(uid)"
      case .same(let uid, let error?): "this user, \(uid), without its capabilities (\(error))"
      }
    }
  }

  /// In this order: limits, rights, system calls. `network`: debug information is to be
  /// fetched, as DEBUGINFOD_URLS says.
  /// `parent`: with it the worker dies.
  @discardableResult
  static func enter(
    uid: UInt32, seconds: UInt64, network: Bool, parent: Int32
  ) throws(SystemError) -> Owner {
    // Debug information of a large program is mapped whole: some gigabytes of addresses.
    try limit(GUARDIAN_LIMIT_ADDRESS_SPACE, 16 << 30)
    try limit(GUARDIAN_LIMIT_CPU_SECONDS, seconds)
    try limit(GUARDIAN_LIMIT_FILE_BYTES, UInt64(WorkerResult.maximumBytes))
    try limit(GUARDIAN_LIMIT_FILES, 4096)
    try limit(GUARDIAN_LIMIT_CORE_BYTES, 0)
    let owner = try giveUpRights(uid)
    // A change of user takes it away: so not earlier. The parent may be gone already.
    _ = try retrying("set the death signal") { guardian_die_with_parent() }
    if getppid() != parent { throw SystemError("stay without the finisher", errno: ESRCH) }
    try filter(network: network)
    return owner
  }

  private static func giveUpRights(_ uid: UInt32) throws(SystemError) -> Owner {
    guard geteuid() == 0, uid != 0 else { return .same(geteuid(), nil) }
    do {
      _ = try retrying("leave all groups") { setgroups(0, nil) }
      _ = try retrying("change the group") { guardian_become_group(uid) }
      _ = try retrying("change the user") { guardian_become_user(uid) }
      return .user(uid)
    } catch  where error.errno == EPERM || error.errno == EINVAL {
      // Root without CAP_SETUID or CAP_SETGID, or of a user namespace that knows no other user: it
      // has little to give up, and gives up that. The filter lets it write no file.
      _ = try retrying("drop all capabilities") { guardian_drop_capabilities() }
      return .same(geteuid(), error)
    }
  }

  /// Enters, to see whether it can: for `guardianctl doctor`.
  static func check() -> Int32 {
    do {
      let owner = try enter(
        uid: workerUID(program: nil), seconds: 10, network: false, parent: getppid())
      complain("system calls are filtered; \(owner)")
      return 0
    } catch {
      complain("\(error)")
      return 1
    }
  }

  private static func limit(_ what: guardian_limit, _ value: UInt64) throws(SystemError) {
    _ = try retrying("set a limit") { guardian_set_limit(what, value) }
  }

  /// Reading files and memory, and ending. Files are opened for reading only and nothing that
  /// is mapped can be executed.
  private static let allowed = [
    "read", "pread64", "readv", "preadv", "lseek", "close", "fstat", "newfstatat", "stat",
    "lstat", "statx", "statfs", "fstatfs", "readlink", "readlinkat", "access", "faccessat",
    "faccessat2", "getdents64", "getcwd", "dup", "fcntl", "fadvise64",
    "write", "pwrite64", "writev", "ftruncate",
    "munmap", "mremap", "brk", "madvise", "mincore",
    "futex", "sched_yield", "sched_getaffinity", "set_robust_list", "rseq", "membarrier",
    "rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall",
    "getpid", "gettid", "getuid", "geteuid", "getgid", "getegid", "getrlimit", "getrusage",
    "clock_gettime", "clock_getres", "gettimeofday", "time", "times", "uname", "sysinfo",
    "getrandom", "exit", "exit_group",
  ]

  /// Only when debug information is to be fetched: libdebuginfod with its threads and cache.
  private static let fetching = [
    "socket", "connect", "bind", "getsockname", "getpeername", "getsockopt", "setsockopt",
    "sendto", "sendmsg", "sendmmsg", "recvfrom", "recvmsg", "recvmmsg", "poll", "ppoll", "select",
    "pselect6", "epoll_create1", "epoll_ctl", "epoll_wait", "epoll_pwait", "eventfd2", "pipe2",
    "socketpair", "ioctl", "shutdown", "clone", "clone3", "nanosleep", "clock_nanosleep",
    "openat", "open", "mkdir", "mkdirat", "rename", "renameat", "renameat2", "unlink", "unlinkat",
    "rmdir", "chmod", "fchmod", "fchmodat", "utimensat", "fsync", "mmap", "mprotect", "umask",
    "prctl", "prlimit64",
  ]

  /// What nothing here can want: whoever calls it took the worker over.
  private static let deadly = [
    "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev", "mount", "umount2",
    "setns", "unshare", "bpf", "init_module", "finit_module", "kexec_load", "keyctl", "add_key",
    "perf_event_open", "userfaultfd", "pivot_root", "chroot", "io_uring_setup",
  ]

  private static func filter(network: Bool) throws(SystemError) {
    guard let filter = unsafe seccomp_init(guardian_seccomp_refuse()) else {
      throw SystemError("make the system call filter", errno: ENOMEM)
    }
    defer { unsafe seccomp_release(filter) }
    func add(_ name: String, _ rule: (Int32) -> Int32) throws(SystemError) {
      let number = unsafe seccomp_syscall_resolve_name(name)
      // Not every machine has every call.
      if number < 0 { return }
      let error = rule(number)
      // The library found out that the kernel takes no such filter from us.
      if error == -EINVAL {
        throw SystemError(
          "filter system calls: seccomp(2) is not allowed here (SystemCallFilter= of the unit?) or "
            + "the kernel is too old", errno: EPERM)
      }
      if error != 0, error != -EOPNOTSUPP, error != -EDOM {
        throw SystemError("filter the system call", name, errno: -error)
      }
    }
    let allow = guardian_seccomp_allow()
    let writing = UInt64(O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
    let executing = UInt64(PROT_EXEC)
    for name in allowed + (network ? fetching : []) {
      try add(name) { unsafe guardian_seccomp_rule(filter, allow, $0) }
    }
    for name in deadly {
      try add(name) { unsafe guardian_seccomp_rule(filter, guardian_seccomp_kill(), $0) }
    }
    if !network {
      try add("openat") { unsafe guardian_seccomp_rule_without(filter, allow, $0, 2, writing) }
      try add("open") { unsafe guardian_seccomp_rule_without(filter, allow, $0, 1, writing) }
      try add("mmap") { unsafe guardian_seccomp_rule_without(filter, allow, $0, 2, executing) }
      try add("mprotect") { unsafe guardian_seccomp_rule_without(filter, allow, $0, 2, executing) }
    }
    // Sets no_new_privs too.
    let error = unsafe seccomp_load(filter)
    if error != 0 { throw SystemError("load the system call filter", errno: -error) }
  }
}
