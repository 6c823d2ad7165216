// Every limit of the capture, with its reason. The supervised program controls how many
// threads, mappings and modules it has and where its pointers point: nothing may grow without
// one of these.
import CLinux
import Glibc

/// Of memory, in bytes.
let pageSize = UInt64(sysconf(Int32(_SC_PAGESIZE)))

enum CaptureLimits {
  /// Threads beyond are named as a defect. A thread costs about 3 µs to stop and read.
  static let threads = 4096
  /// Rounds of listing /proc/PID/task: a program that starts threads as fast as we stop them
  /// must not hold us.
  static let threadRounds = 64
  /// Mappings read from /proc/PID/maps: the kernel's own default maximum (vm.max_map_count).
  static let mappings = 65_530
  static let mapsBytes = 16 << 20
  /// Modules that are examined; a big JVM or browser has 300.
  static let modules = 1024
  /// `link_map` entries over all namespaces: the list may be a circle.
  static let linkMaps = 2048
  static let linkNamespaces = 16

  /// Of one thread's stack: near end and oldest end. A waiting thread uses 2 to 8 KiB.
  static let stackNear: UInt64 = 64 << 10
  static let stackNearCrashing: UInt64 = 192 << 10
  static let stackOldest: UInt64 = 64 << 10
  /// Of all stacks together; then each thread gets its share, at least `stackLeast`.
  static let stacks: UInt64 = 16 << 20
  static let stackLeast: UInt64 = 8 << 10
  /// How far above sp the stack may begin: in an overflow sp lies in the guard, which
  /// some runtimes make 1 MiB wide.
  static let stackGuard: UInt64 = 1 << 20
  /// The red zone below sp (System V ABI for x86-64).
  static let redZone: UInt64 = 128

  /// Thread-local variables below and the thread's control block from the thread pointer on.
  static let threadLocalBelow: UInt64 = 4 << 10
  static let threadLocalAbove: UInt64 = 0xA00

  /// Modified pages of variables (.data, .bss, .got): the executable, another module, all.
  static let executableVariables: UInt64 = 1 << 20
  static let moduleVariables: UInt64 = 256 << 10
  static let variables: UInt64 = 8 << 20
  /// Pages asked of /proc/PID/pagemap (8 bytes each): 1 GiB of mappings.
  static let pagemapPages = 262_144
  /// Mappings of files that are no modules are checked for changes up to this size only.
  static let otherFileMapping: UInt64 = 4 << 20

  /// Read-only segments of replaced binaries: of one and of all.
  static let replacedModule: UInt64 = 4 << 20
  static let replacedModules: UInt64 = 12 << 20

  /// Around a register's value, and of the pages that pointers in the top frames name.
  static let windowBefore: UInt64 = 128
  static let windowAfter: UInt64 = 1024
  static let pointerWindowAfter: UInt64 = 256
  static let pointerPages = 96
  /// Of the crashing thread's stack, searched for pointers.
  static let topFrames = 4096

  /// Of the whole minicore.
  static let coreBytes: UInt64 = 64 << 20
  /// Program headers: with 65 535 the count no longer fits e_phnum.
  static let segments = 32_768
  /// Pages that could not be read one by one before the rest is given up.
  static let unreadablePages = 4096
  /// Pages kept by the reader that follows pointers.
  static let cachedPages = 4096

  /// Vector registers beyond SSE are kept for all threads only up to this many threads.
  static let extendedRegisterThreads = 128
  static let extendedRegisterBytes = 16 << 10

  /// A thread still not stopped after this, and sleeping uninterruptibly, is given up.
  static let uninterruptibleNanoseconds: Int64 = 10_000_000
}
