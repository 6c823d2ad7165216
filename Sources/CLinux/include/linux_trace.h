/* Tracing another process and the structures of a core file: what guardian-capture needs of
 * Linux and Swift cannot import by itself, because ptrace is variadic, the layouts are found by
 * sizeof and offsetof, and CMSG_* are macros with code in them. Each function is one call. */
#ifndef GUARDIAN_LINUX_TRACE_H
#define GUARDIAN_LINUX_TRACE_H
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/procfs.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* All return -1 with errno, as ptrace(2) says. */
static inline long linux_ptrace_seize(pid_t tid) { return ptrace(PTRACE_SEIZE, tid, NULL, NULL); }
static inline long linux_ptrace_interrupt(pid_t tid) {
  return ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
}
/* `signal`: of a signal-delivery stop, handed on; else 0. */
static inline long linux_ptrace_detach(pid_t tid, int signal) {
  return ptrace(PTRACE_DETACH, tid, NULL, (void *)(uintptr_t)signal);
}
/* Reads register set `note` (NT_PRSTATUS …) and returns its size in bytes. */
static inline long linux_ptrace_register_set(pid_t tid, unsigned note, void *to, size_t size) {
  struct iovec vector = {to, size};
  long result = ptrace(PTRACE_GETREGSET, tid, (void *)(uintptr_t)note, &vector);
  return result == -1 ? -1 : (long)vector.iov_len;
}

/* The event half of a stop's wait status; PTRACE_EVENT_STOP is 128. */
static inline int linux_stop_event(int status) { return WIFSTOPPED(status) ? status >> 16 : 0; }
static inline int linux_stop_signal(int status) {
  return WIFSTOPPED(status) ? WSTOPSIG(status) : 0;
}

/* Waits for SIGCHLD, which must be blocked, at most `nanoseconds`; false: none came. */
static inline int linux_wait_for_child_signal(int64_t nanoseconds) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  struct timespec limit = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  return sigtimedwait(&set, NULL, &limit) == SIGCHLD;
}
/* A stop of a traced thread raises SIGCHLD only if it is neither ignored nor SA_NOCLDSTOP, and
 * it stays pending for the call above only while it is blocked. */
static inline void linux_block_child_signal(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &action, NULL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  sigprocmask(SIG_BLOCK, &set, NULL);
}

/* The lowest nice value that RLIMIT_NICE allows; 0 if it allows none. */
static inline int linux_lowest_nice(void) {
  struct rlimit limit;
  if (getrlimit(RLIMIT_NICE, &limit) == -1 || limit.rlim_cur <= 20) return 0;
  return limit.rlim_cur >= 40 ? -20 : 20 - (int)limit.rlim_cur;
}

/* The device number as /proc/PID/maps prints it (major and minor apart). */
static inline uint64_t linux_device(unsigned major_number, unsigned minor_number) {
  return makedev(major_number, minor_number);
}

/* One SOCK_SEQPACKET message with descriptors beside it. */
static inline long linux_send_with_descriptors(int to, const void *bytes, size_t size,
                                               const int *descriptors, size_t count) {
  enum { maximum = 16 };
  union {
    struct cmsghdr header;
    char room[CMSG_SPACE(sizeof(int) * maximum)];
  } control;
  if (count > maximum) {
    errno = EINVAL;
    return -1;
  }
  memset(&control, 0, sizeof control);
  struct iovec vector = {(void *)(uintptr_t)bytes, size};
  struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
  if (count > 0) {
    message.msg_control = control.room;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * count);
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * count);
    memcpy(CMSG_DATA(header), descriptors, sizeof(int) * count);
  }
  return sendmsg(to, &message, MSG_NOSIGNAL);
}

/* Where things lie in the kernel's core notes. */
enum {
  LINUX_PRSTATUS_SIZE = sizeof(struct elf_prstatus),
  LINUX_PRSTATUS_SIGNAL = offsetof(struct elf_prstatus, pr_cursig),
  LINUX_PRSTATUS_PID = offsetof(struct elf_prstatus, pr_pid),
  LINUX_PRSTATUS_REGISTERS = offsetof(struct elf_prstatus, pr_reg),
  LINUX_PRSTATUS_FPVALID = offsetof(struct elf_prstatus, pr_fpvalid),
  LINUX_REGISTERS_SIZE = sizeof(elf_gregset_t),
  LINUX_PRPSINFO_SIZE = sizeof(struct elf_prpsinfo),
  LINUX_PRPSINFO_STATE_NAME = offsetof(struct elf_prpsinfo, pr_sname),
  LINUX_PRPSINFO_UID = offsetof(struct elf_prpsinfo, pr_uid),
  LINUX_PRPSINFO_GID = offsetof(struct elf_prpsinfo, pr_gid),
  LINUX_PRPSINFO_PID = offsetof(struct elf_prpsinfo, pr_pid),
  LINUX_PRPSINFO_NAME = offsetof(struct elf_prpsinfo, pr_fname),
  LINUX_PRPSINFO_ARGUMENTS = offsetof(struct elf_prpsinfo, pr_psargs),
};
#endif
