/* After the signal: the crash record, the bell, the wait, the end.
 *
 * Context: a signal handler in a process that may be broken in every way: any
 * lock may be held, the heap may be corrupt, the stack may be exhausted, the
 * descriptors, the user, the root and the namespaces may have changed. It may
 * run in a forked, vforked or cloned child. Calls: system calls without the C
 * library, clock_gettime (the vDSO), memcpy, and nothing else. Big things go
 * straight into the ring: the whole of it needs less than a kilobyte of stack.
 *
 * The steps stand in order of rising risk, and each is marked in the record when
 * it is whole, so that a fault in one keeps the earlier ones. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/prctl.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <ucontext.h>

#include "internal.h"
#include "kernel.h"

enum {
  PAGE_BYTES = 4096, /* the smallest there is: a safe step for probing */
  /* A stack overflow's sp lies in the guard region; the stack begins above it. */
  STACK_SEARCH_BYTES = 1 << 20,
  RED_ZONE_BYTES = 128,
  /* The one who releases cannot wake a futex (it writes with pwrite). */
  WAIT_SLICE_NS = 2000000,
  /* Threads that crash beside the reporting one wait a little longer than it. */
  BYSTANDER_EXTRA_MS = 200,
};

/* Who is reporting: pid << 32 | tid; 0: nobody. A forked child inherits its
 * parent's value, which names another process and so means nobody. */
static uint64_t reporting;
/* What it is dying of, for a fault in the handler itself. */
static int dying_signal;
static siginfo_t dying_info;

static int32_t get_pid(void) { return (int32_t)guardian_call0(SYS_getpid); }
static int32_t get_tid(void) { return (int32_t)guardian_call0(SYS_gettid); }
static uint64_t clock_ns(clockid_t clock) {
  struct timespec now = {0};
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static bool is_fault(const siginfo_t *info) { return info->si_code > 0; }

/* Whether eight bytes at an address can be read, without a fault: the kernel
 * copies the set before it refuses the unknown `how`. Every sandbox allows it. */
static bool readable(uintptr_t address) {
  return guardian_call4(SYS_rt_sigprocmask, -1, address, 0, 8) != -EFAULT;
}

static bool is_sandboxed(void) {
  return __atomic_load_n(&guardian_state.sandboxed, __ATOMIC_RELAXED);
}

/* ---- the end ---- */

/* Makes the program die of `n` when the handler returns, exactly as if there had
 * been no handler: same wait status, same siginfo in the core, same registers. */
static void end_by(int n, siginfo_t *info, ucontext_t *context) {
  struct guardian_kernel_action action = {0}; /* SIG_DFL */
  int32_t pid = get_pid(), tid = get_tid();
  guardian_call4(SYS_rt_sigaction, n, &action, 0, sizeof action.mask);
  /* A signal that only sigsuspend() or ppoll() let in is blocked outside of it. */
  sigdelset(&context->uc_sigmask, n);
#if defined(__x86_64__)
  greg_t *registers = context->uc_mcontext.gregs;
  /* Instructions that were executed already, and how long they are: int3, and the
   * system call that a filter turned into a signal. */
  int step_back = 0;
  if (n == SIGTRAP && is_fault(info) && registers[REG_TRAPNO] == 3) step_back = 1;
  if (n == SIGSYS && is_fault(info)) step_back = 2;
#else
  int step_back = n == SIGSYS && is_fault(info) ? 4 : 0;
#endif
  /* The first process of a pid namespace is immune to what it sends itself, but
   * not to a fault: let it happen again. */
  bool faults_again = is_fault(info) && n != SIGXCPU;
  if (!(pid == 1 && faults_again)) {
    if (!is_sandboxed() &&
        guardian_call4(SYS_rt_tgsigqueueinfo, pid, tid, n, info) == 0 && pid != 1)
      return;
    if (!faults_again) {
      if (guardian_call3(SYS_tgkill, pid, tid, n) == 0 && pid != 1) return;
      guardian_call1(SYS_exit_group, 128 + n);
    }
  }
#if defined(__x86_64__)
  registers[REG_RIP] -= step_back;
#else
  context->uc_mcontext.pc -= (unsigned)step_back;
#endif
}

/* ---- the record ---- */

static void finish(struct guardian_crash_record *record, uint32_t part) {
  __atomic_fetch_or(&record->parts, part, __ATOMIC_RELEASE);
}

static void write_registers(struct guardian_crash_record *record, const ucontext_t *context) {
#if defined(__x86_64__)
  const greg_t *registers = context->uc_mcontext.gregs;
  _Static_assert(NGREG <= GUARDIAN_RING_REGISTER_COUNT, "registers");
  for (int i = 0; i < NGREG; i++) record->registers[i] = (uint64_t)registers[i];
  record->architecture = GUARDIAN_ARCHITECTURE_X86_64;
  record->register_count = NGREG;
  record->pc = (uint64_t)registers[REG_RIP];
  record->sp = (uint64_t)registers[REG_RSP];
  record->trap_number = (uint64_t)registers[REG_TRAPNO];
  record->error_code = (uint64_t)registers[REG_ERR];
#else
  const mcontext_t *machine = &context->uc_mcontext;
  for (int i = 0; i < 31; i++) record->registers[i] = machine->regs[i];
  record->registers[31] = machine->sp;
  record->registers[32] = machine->pc;
  record->registers[33] = machine->pstate;
  record->architecture = GUARDIAN_ARCHITECTURE_AARCH64;
  record->register_count = 34;
  record->pc = machine->pc;
  record->sp = machine->sp;
#endif
  record->context_address = (uint64_t)(uintptr_t)context;
  if (!(context->uc_stack.ss_flags & SS_DISABLE)) {
    record->altstack_address = (uint64_t)(uintptr_t)context->uc_stack.ss_sp;
    record->altstack_size = context->uc_stack.ss_size;
  }
}

static void write_abort_message(struct guardian_crash_record *record) {
  struct guardian_abort_message **place = guardian_state.abort_message;
  if (place == NULL || *place == NULL) return;
  const char *text = (*place)->text;
  if (!readable((uintptr_t)*place)) return;
  uint32_t length = 0;
  while (length < GUARDIAN_RING_ABORT_MESSAGE_SIZE) {
    uintptr_t at = (uintptr_t)(text + length);
    if (at % PAGE_BYTES == 0 && !readable(at)) break;
    if (text[length] == '\0') break;
    record->abort_message[length] = text[length];
    length++;
  }
  record->abort_message_length = length;
}

static void write_stack(struct guardian_crash_record *record) {
  uintptr_t sp = record->sp;
  if (sp < PAGE_BYTES || sp > UINTPTR_MAX - 2 * STACK_SEARCH_BYTES) return;
  uintptr_t start = (sp - RED_ZONE_BYTES) & ~(uintptr_t)15;
  if (!readable(start)) {
    uintptr_t end = sp + STACK_SEARCH_BYTES;
    start = (start | (PAGE_BYTES - 1)) + 1;
    while (!readable(start)) {
      start += PAGE_BYTES;
      if (start >= end) return;
    }
  }
  /* Arguments and environment may hold secrets, and no frame lies among them. */
  uintptr_t texts = guardian_state.texts;
  if (texts != 0 && start >= texts && start <= guardian_state.last_text) return;
  uint32_t limit = GUARDIAN_RING_STACK_SIZE;
  if (texts > start && texts - start < limit) limit = (uint32_t)(texts - start);
  record->stack_address = start;
  uint32_t length = 0;
  while (length < limit) {
    uintptr_t at = start + length;
    if (!readable(at)) break;
    uint32_t piece = PAGE_BYTES - (uint32_t)(at % PAGE_BYTES);
    if (piece > limit - length) piece = limit - length;
    memcpy(record->stack + length, (const void *)at, piece);
    length += piece;
    record->stack_length = length;
  }
}

static void write_record(struct guardian_crash_record *record, int n, const siginfo_t *info,
                         const ucontext_t *context, int32_t pid, int32_t tid) {
  record->pid = pid;
  record->tid = tid;
  record->signal = n;
  record->code = info->si_code;
  record->error = info->si_errno;
  record->sender_pid = info->si_pid;
  record->sender_uid = info->si_uid;
  record->address = (uint64_t)(uintptr_t)info->si_addr;
  memcpy(record->siginfo, info, sizeof *info);
  record->realtime_ns = clock_ns(CLOCK_REALTIME);
  record->monotonic_ns = clock_ns(CLOCK_MONOTONIC);
  finish(record, GUARDIAN_PART_SIGNAL);
  write_registers(record, context);
  finish(record, GUARDIAN_PART_REGISTERS);
  write_abort_message(record);
  finish(record, GUARDIAN_PART_ABORT_MESSAGE);
  guardian_copy_exception(record, pid, tid);
  write_stack(record);
  finish(record, GUARDIAN_PART_STACK);
  /* Last: of these calls it is the one that a sandbox is likeliest to punish. */
  if (!is_sandboxed() && guardian_call2(SYS_prctl, PR_GET_NAME, record->thread_name) == 0)
    finish(record, GUARDIAN_PART_THREAD);
  __atomic_store_n(&record->state, GUARDIAN_SLOT_COMPLETE, __ATOMIC_RELEASE);
}

_Static_assert(sizeof(siginfo_t) == GUARDIAN_RING_SIGINFO_SIZE, "siginfo");

static void rest(void) {
  struct timespec timeout = {0, WAIT_SLICE_NS};
  if (guardian_call2(SYS_nanosleep, &timeout, 0) != 0) guardian_call0(SYS_sched_yield);
}

/* From this state into our hands, emptied. */
static bool take_slot(struct guardian_crash_record *record, uint32_t state) {
  if (!__atomic_compare_exchange_n(&record->state, &state, GUARDIAN_SLOT_WRITING, false,
                                   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
    return false;
  record->parts = 0;
  record->release = 0;
  memset((char *)record + offsetof(struct guardian_crash_record, architecture), 0,
         offsetof(struct guardian_crash_record, stack) -
             offsetof(struct guardian_crash_record, architecture));
  return true;
}

/* A slot of the ring, or -1. Guardian gives one back when the process is dead and its report
 * written: a server's workers may crash many times in one life, and all at once, and then wait
 * for each other. Where nobody gives one back, the oldest whole one is taken that was released so
 * long ago that it has been read. */
static int claim_slot(struct guardian_ring_header *ring, uint64_t deadline) {
  __atomic_fetch_add(&ring->slot_next, 1, __ATOMIC_RELAXED);
  uint64_t settled = (uint64_t)ring->capture_timeout_ms * 1000000u;
  for (;;) {
    for (int i = 0; i < GUARDIAN_RING_SLOT_COUNT; i++)
      if (take_slot(guardian_slot(ring, (uint32_t)i), GUARDIAN_SLOT_FREE)) return i;
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    int oldest = -1;
    for (int i = 0; i < GUARDIAN_RING_SLOT_COUNT; i++) {
      struct guardian_crash_record *record = guardian_slot(ring, (uint32_t)i);
      if (__atomic_load_n(&record->state, __ATOMIC_ACQUIRE) != GUARDIAN_SLOT_COMPLETE) continue;
      if (__atomic_load_n(&record->release, __ATOMIC_RELAXED) == 0) continue;
      if (now - record->monotonic_ns < settled) continue;
      if (oldest < 0 ||
          record->monotonic_ns < guardian_slot(ring, (uint32_t)oldest)->monotonic_ns)
        oldest = i;
    }
    if (oldest >= 0 &&
        take_slot(guardian_slot(ring, (uint32_t)oldest), GUARDIAN_SLOT_COMPLETE))
      return oldest;
    if (now >= deadline) return -1;
    rest();
  }
}

/* ---- the bell ---- */

static bool is_the_bell(int fd) {
  struct stat status;
  return fd >= 0 && guardian_call2(SYS_fstat, fd, &status) == 0 &&
         status.st_dev == guardian_state.bell_device && status.st_ino == guardian_state.bell_inode;
}

/* A new connection, for a program that closed ours. Negative: there is none. */
static __attribute__((noinline)) int open_bell_again(void) {
  const struct sockaddr_un *address = &guardian_state.bell_address;
  if (address->sun_family == 0) return -ENOENT;
  int type = SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
  int fd = (int)guardian_call3(SYS_socket, AF_UNIX, type, 0);
  if (fd == -EMFILE) {
    /* None left. Let go of one that is nobody else's: in a table of our own. */
    if (guardian_call1(SYS_unshare, CLONE_FILES) != 0) return fd;
    for (int victim = 3; victim < 4096; victim++)
      if (guardian_call1(SYS_close, victim) == 0) break;
    fd = (int)guardian_call3(SYS_socket, AF_UNIX, type, 0);
  }
  if (fd < 0) return fd;
  int result = (int)guardian_call3(SYS_connect, fd, address, sizeof *address);
  return result == 0 ? fd : result;
}

static void slice(uint32_t *word) {
  struct timespec timeout = {0, WAIT_SLICE_NS};
  long result = guardian_call6(SYS_futex, word, FUTEX_WAIT, 0, &timeout, 0, 0);
  if (result == 0 || result == -EAGAIN || result == -ETIMEDOUT || result == -EINTR) return;
  rest(); /* refused by a sandbox */
}

/* False: there is no guardian to wait for. */
static bool ring_bell(struct guardian_crash_record *record, int slot, uint64_t deadline) {
  struct guardian_bell message = {
      .magic = GUARDIAN_BELL_MAGIC,
      .version = GUARDIAN_RING_VERSION,
      .slot = (uint32_t)slot,
      .tid = record->tid,
      .signal = record->signal,
  };
  int fd = guardian_state.bell;
  if (!is_the_bell(fd)) fd = open_bell_again();
  while (fd >= 0) {
    /* write(), not send(): sandboxes know it. A datagram raises no SIGPIPE. */
    long result = guardian_call3(SYS_write, fd, &message, sizeof message);
    if (result == sizeof message) return true;
    /* Guardian was started anew beside the program that it kept: a new bell hangs there. */
    if (result == -ECONNREFUSED && fd == guardian_state.bell) {
      fd = open_bell_again();
      continue;
    }
    /* The queue holds few datagrams; guardian is emptying it. */
    if (result != -EAGAIN && result != -ENOBUFS && result != -EINTR) return false;
    if (clock_ns(CLOCK_MONOTONIC) >= deadline) return false;
    slice(&record->release);
  }
  return false;
}

static uint64_t wait_limit_ns(const struct guardian_ring_header *ring) {
  uint32_t ms = ring->capture_timeout_ms;
  if (ms > 60000) ms = 60000; /* the ring is shared: not for ever, whatever it says */
  return (uint64_t)ms * 1000000u;
}

static void report(int n, const siginfo_t *info, const ucontext_t *context, int32_t pid,
                   int32_t tid) {
  struct guardian_ring_header *ring = guardian_state.ring;
  if (__atomic_fetch_add(&ring->handler_runs, 1, __ATOMIC_RELAXED) >= ring->handler_runs_max)
    return;
  uint64_t deadline = clock_ns(CLOCK_MONOTONIC) + wait_limit_ns(ring);
  int slot = claim_slot(ring, deadline);
  if (slot < 0) return;
  struct guardian_crash_record *record = guardian_slot(ring, (uint32_t)slot);
  write_record(record, n, info, context, pid, tid);
  /* Yama's permission is given process by process and not inherited by fork(). */
  if (guardian_state.yama && !is_sandboxed() && pid != guardian_state.initial_pid)
    guardian_call3(SYS_prctl, PR_SET_PTRACER, ring->guardian_pid, 0);
  if (!ring_bell(record, slot, deadline)) return;
  while (__atomic_load_n(&record->release, __ATOMIC_ACQUIRE) == 0 &&
         clock_ns(CLOCK_MONOTONIC) < deadline)
    slice(&record->release);
}

/* Ends of a descendant that nobody calls a crash: `yes | head`, a limit, a signal
 * that another process sent. They must not use up the slots of real ones. */
static bool is_worth_a_report(int n, const siginfo_t *info, int32_t pid) {
  if ((uint32_t)pid == guardian_state.ring->main_pid) return true;
  if (n == SIGPIPE || n == SIGXCPU || n == SIGXFSZ) return false;
  return is_fault(info) || info->si_pid == pid;
}

/* ---- the handler ---- */

static void crash(int n, siginfo_t *info, ucontext_t *context) {
  int32_t pid = get_pid(), tid = get_tid();
  /* What the first process of a pid namespace is sent, it would not have noticed. */
  if (pid == 1 && !is_fault(info)) return;
  uint64_t self = (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid;
  uint64_t owner = __atomic_load_n(&reporting, __ATOMIC_ACQUIRE);
  if (owner == self) {
    /* In the handler itself. */
    if (!is_fault(info)) return; /* it is dying already */
#if defined(__x86_64__)
    if (n == SIGSYS) { /* a sandbox refused a call of ours: it failed, no more */
      context->uc_mcontext.gregs[REG_RAX] = -ENOSYS;
      return;
    }
#endif
    struct guardian_kernel_action action = {0}; /* SIG_DFL, should it come back here */
    guardian_call4(SYS_rt_sigaction, n, &action, 0, sizeof action.mask);
    end_by(dying_signal, &dying_info, context);
    return;
  }
  uint64_t limit = 0;
  while (owner >> 32 == (uint32_t)pid ||
         !__atomic_compare_exchange_n(&reporting, &owner, self, false, __ATOMIC_ACQ_REL,
                                      __ATOMIC_ACQUIRE)) {
    /* Another thread was first. Its death is this one's. */
    uint64_t now = clock_ns(CLOCK_MONOTONIC);
    if (limit == 0)
      limit = now + wait_limit_ns(guardian_state.ring) + BYSTANDER_EXTRA_MS * UINT64_C(1000000);
    if (now >= limit) {
      end_by(n, info, context);
      return;
    }
    uint32_t never = 0;
    slice(&never);
    owner = __atomic_load_n(&reporting, __ATOMIC_ACQUIRE);
  }
  dying_info = *info;
  dying_signal = n;
  if (is_worth_a_report(n, info, pid)) report(n, info, context, pid, tid);
  end_by(n, info, context);
}

void guardian_on_crash(int n, siginfo_t *info, void *context) {
#if defined(__x86_64__)
  /* Alignment checks stay on inside a handler, and then every ordinary access of
   * the compiler's may fault. The red zone is stepped over. */
  __asm__ volatile(
      "lea -128(%%rsp), %%rsp\n\t"
      "pushfq\n\t"
      "andl $~0x40000, (%%rsp)\n\t"
      "popfq\n\t"
      "lea 128(%%rsp), %%rsp" ::
          : "memory", "cc");
#endif
  int error = errno;
  crash(n, info, context);
  errno = error;
}
