/* libseccomp, and what Swift cannot import of it and of the kernel beside it: macros with
 * arguments and variadic calls. Each function is one call. */
#ifndef GUARDIAN_CSECCOMP_H
#define GUARDIAN_CSECCOMP_H
#include <errno.h>
#include <linux/capability.h>
#include <seccomp.h>
#include <stdint.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

static inline uint32_t guardian_seccomp_refuse(void) { return SCMP_ACT_ERRNO(EPERM); }
static inline uint32_t guardian_seccomp_allow(void) { return SCMP_ACT_ALLOW; }
static inline uint32_t guardian_seccomp_kill(void) { return SCMP_ACT_KILL_PROCESS; }

static inline int guardian_seccomp_rule(scmp_filter_ctx filter, uint32_t action, int call) {
  return seccomp_rule_add_array(filter, action, call, 0, NULL);
}

/* Only while the argument has none of these bits. */
static inline int guardian_seccomp_rule_without(scmp_filter_ctx filter, uint32_t action, int call,
                                                unsigned argument, uint64_t bits) {
  struct scmp_arg_cmp none = {argument, SCMP_CMP_MASKED_EQ, bits, 0};
  return seccomp_rule_add_array(filter, action, call, 1, &none);
}

/* The name of a system call on that processor, to be freed; NULL: unknown. */
static inline char *guardian_seccomp_call_name(uint32_t architecture, int number) {
  return seccomp_syscall_resolve_num_arch(architecture, number);
}

/* ioprio_set(2) has no wrapper: IOPRIO_WHO_PROCESS, this one, IOPRIO_CLASS_IDLE. */
static inline int guardian_ioprio_idle(void) {
  return (int)syscall(SYS_ioprio_set, 1, 0, 3 << 13);
}

/* setresgid(2) and setresuid(2) of all three, for a process of one thread. */
static inline int guardian_become_group(uint32_t gid) {
  return (int)syscall(SYS_setresgid, gid, gid, gid);
}
static inline int guardian_become_user(uint32_t uid) {
  return (int)syscall(SYS_setresuid, uid, uid, uid);
}

/* PR_SET_PDEATHSIG of prctl(2), which is variadic. */
static inline int guardian_die_with_parent(void) {
  return prctl(PR_SET_PDEATHSIG, 9 /* SIGKILL */, 0, 0, 0);
}

/* capset(2) to none at all: effective, permitted and inheritable. Always allowed. */
static inline int guardian_drop_capabilities(void) {
  struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  struct __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3] = {{0, 0, 0}, {0, 0, 0}};
  return (int)syscall(SYS_capset, &header, none);
}

/* memfd_create(2), close-on-exec. */
static inline int guardian_memory_file(const char *name) {
  return (int)syscall(SYS_memfd_create, name, 1u);
}

static inline int guardian_pidfd_open(int pid) {
  return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* close_range(2), Linux 5.9. */
static inline void guardian_close_range(unsigned first, unsigned last) {
  (void)syscall(SYS_close_range, first, last, 0u);
}

/* The names of limits are macros over an anonymous enumeration. */
enum guardian_limit {
  GUARDIAN_LIMIT_ADDRESS_SPACE = RLIMIT_AS,
  GUARDIAN_LIMIT_CPU_SECONDS = RLIMIT_CPU,
  GUARDIAN_LIMIT_FILE_BYTES = RLIMIT_FSIZE,
  GUARDIAN_LIMIT_FILES = RLIMIT_NOFILE,
  GUARDIAN_LIMIT_CORE_BYTES = RLIMIT_CORE,
};

/* setrlimit(2) of both values, never above the hard one. */
static inline int guardian_set_limit(enum guardian_limit what, uint64_t value) {
  struct rlimit now;
  if (getrlimit((int)what, &now) != 0) return -1;
  if (now.rlim_max > value) now.rlim_max = value;
  now.rlim_cur = now.rlim_max;
  return setrlimit((int)what, &now);
}
#endif
