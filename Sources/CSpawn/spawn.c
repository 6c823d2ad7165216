#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "guardian_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x00001000
#endif

/* The kernel's struct sigaction, not the C library's: with it 32 and 33, which the library keeps
 * for itself, are restored too. */
struct kernel_sigaction {
  void *handler;
  unsigned long flags;
#ifdef __x86_64__
  void *restorer;
#endif
  uint64_t mask;
};

enum {
  SIGNAL_COUNT = 64,
  STACK_SIZE = 64 * 1024,
  /* No plan asks for this number or a higher one. */
  DESCRIPTOR_END = 64,
  /* Upper end of the loop where close_range is missing. */
  CLOSE_LOOP_END = 65536,
  MAX_DESCRIPTORS = 60,
  /* Half a minute in all: a program may lie on a slow disk. */
  FORK_WAIT_MILLISECONDS = 100,
  FORK_WAITS = 300,
};

/* guardian has one thread, so one stack is enough; it is made once. */
static char *child_stack;

struct child {
  const struct guardian_spawn_plan *plan;
  pid_t parent;
  int pipe; /* -1: memory is shared */
  volatile int step;
  volatile int error;
  volatile int detail;
};

static long sys_rt_sigprocmask(int how, const uint64_t *set, uint64_t *old) {
  return syscall(SYS_rt_sigprocmask, how, set, old, sizeof *set);
}

static long sys_rt_sigaction(int signal, const struct kernel_sigaction *new,
                             struct kernel_sigaction *old) {
  return syscall(SYS_rt_sigaction, signal, new, old, sizeof(uint64_t));
}

struct guardian_signal_state guardian_signal_state_save(void) {
  struct guardian_signal_state state = {0, 0, 0};
  for (int signal = 1; signal <= SIGNAL_COUNT; signal++) {
    struct kernel_sigaction action = {0};
    if (sys_rt_sigaction(signal, NULL, &action) == 0 && action.handler == (void *)SIG_IGN)
      state.ignored |= UINT64_C(1) << (signal - 1);
  }
  sys_rt_sigprocmask(SIG_BLOCK, NULL, &state.blocked);
  return state;
}

void guardian_signal_state_settle(struct guardian_signal_state *state) {
  struct guardian_signal_state now = guardian_signal_state_save();
  state->settled = ~(now.ignored ^ state->ignored);
}

static int fail(struct child *child, int step) {
  int error = errno;
  child->step = step;
  child->error = error;
  if (child->pipe >= 0) {
    int words[3] = {step, error, child->detail};
    while (write(child->pipe, words, sizeof words) < 0 && errno == EINTR) {
    }
  }
  _exit(127);
}

/* Decimal, without the C library's formatting. */
static void write_number(char *place, unsigned number) {
  char digits[GUARDIAN_SPAWN_PID_BYTES];
  int count = 0;
  do {
    digits[count++] = (char)('0' + number % 10);
    number /= 10;
  } while (number > 0 && count < GUARDIAN_SPAWN_PID_BYTES - 1);
  for (int i = 0; i < count; i++)
    place[i] = digits[count - 1 - i];
  place[count] = 0;
}

static void close_span(int pipe, unsigned first, unsigned last) {
  if (first > last)
    return;
  if (pipe >= 0 && (unsigned)pipe >= first && (unsigned)pipe <= last) {
    close_span(-1, first, (unsigned)pipe - 1);
    if ((unsigned)pipe < last)
      close_span(-1, (unsigned)pipe + 1, last);
    return;
  }
  if (syscall(SYS_close_range, first, last, 0) == 0)
    return;
  if (last > CLOSE_LOOP_END)
    last = CLOSE_LOOP_END;
  for (unsigned number = first; number <= last; number++)
    close((int)number);
}

static void place_descriptors(struct child *child) {
  const struct guardian_spawn_plan *plan = child->plan;
  int parked[MAX_DESCRIPTORS];
  if (plan->descriptor_count > MAX_DESCRIPTORS) {
    errno = E2BIG;
    fail(child, GUARDIAN_SPAWN_DESCRIPTORS);
  }
  /* First out of each other's way, above every number that is asked for and no higher: there may be a
   * low limit. Then into place. */
  int parking = 3;
  for (uint32_t i = 0; i < plan->descriptor_count; i++)
    if (plan->descriptors[i].to >= parking)
      parking = plan->descriptors[i].to + 1;
  for (uint32_t i = 0; i < plan->descriptor_count; i++) {
    child->detail = plan->descriptors[i].to;
    parked[i] = fcntl(plan->descriptors[i].from, F_DUPFD_CLOEXEC, parking);
    if (parked[i] < 0)
      fail(child, GUARDIAN_SPAWN_DESCRIPTORS);
  }
  if (child->pipe >= 0) {
    child->pipe = fcntl(child->pipe, F_DUPFD_CLOEXEC, parking);
    if (child->pipe < 0)
      _exit(127);
  }
  unsigned next = 0;
  for (uint32_t i = 0; i < plan->descriptor_count; i++) {
    unsigned to = (unsigned)plan->descriptors[i].to;
    child->detail = (int)to;
    if (to < next || to >= DESCRIPTOR_END) {
      errno = EINVAL;
      fail(child, GUARDIAN_SPAWN_DESCRIPTORS);
    }
    if (dup2(parked[i], (int)to) < 0)
      fail(child, GUARDIAN_SPAWN_DESCRIPTORS);
    if (to > next)
      close_span(child->pipe, next, to - 1);
    next = to + 1;
  }
  close_span(child->pipe, next, ~0u);
}

/* Groups first: without the old user's rights they could not be changed any more. Each call
 * changes this process alone: the C library's wrappers would change guardian too. */
static void change_user(struct child *child) {
  const struct guardian_spawn_plan *plan = child->plan;
  if (plan->flags & GUARDIAN_SPAWN_SET_GROUPS &&
      syscall(SYS_setgroups, plan->group_count, plan->groups) != 0)
    fail(child, GUARDIAN_SPAWN_GROUPS);
  if (plan->flags & GUARDIAN_SPAWN_SET_GID &&
      syscall(SYS_setresgid, plan->gid, plan->gid, plan->gid) != 0)
    fail(child, GUARDIAN_SPAWN_GID);
  if (plan->flags & GUARDIAN_SPAWN_SET_UID) {
    if (syscall(SYS_setresuid, plan->uid, plan->uid, plan->uid) != 0)
      fail(child, GUARDIAN_SPAWN_UID);
    /* Ambient capabilities, with which a guardian that is not root may change the user, would
     * pass the change and exec. Without any there is nothing to clear, and an old kernel has none. */
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  }
}

static int run_child(void *argument) {
  struct child *child = argument;
  const struct guardian_spawn_plan *plan = child->plan;
  pid_t self = (pid_t)syscall(SYS_getpid);

  if (plan->flags & GUARDIAN_SPAWN_OWN_GROUP) {
    if (setpgid(0, 0) != 0)
      fail(child, GUARDIAN_SPAWN_GROUP);
    /* TTOU is blocked, as everything is: the call succeeds from the background. A terminal that
     * went away is no reason not to start. */
    if (plan->terminal >= 0 && ioctl(plan->terminal, TIOCSPGRP, &self) != 0 && errno != ENOTTY &&
        errno != ENXIO && errno != EBADF && errno != EIO && errno != EPERM)
      fail(child, GUARDIAN_SPAWN_TERMINAL);
  }

  /* Dispositions are the child's own copy (no CLONE_SIGHAND). Handlers end with the exec. */
  for (int signal = 1; signal <= SIGNAL_COUNT; signal++) {
    if (plan->signals.settled >> (signal - 1) & 1)
      continue;
    bool ignored = plan->signals.ignored >> (signal - 1) & 1;
    struct kernel_sigaction action = {0};
    action.handler = ignored ? (void *)SIG_IGN : (void *)SIG_DFL;
    sys_rt_sigaction(signal, &action, NULL); /* KILL and STOP refuse: as it should be */
  }

  if (plan->oom_score_adjust) {
    int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    size_t length = 0;
    while (plan->oom_score_adjust[length])
      length++;
    if (file < 0 || write(file, plan->oom_score_adjust, length) != (ssize_t)length)
      fail(child, GUARDIAN_SPAWN_OOM_SCORE);
    close(file);
  }
  if (plan->flags & GUARDIAN_SPAWN_SET_NICE && setpriority(PRIO_PROCESS, 0, plan->nice) != 0)
    fail(child, GUARDIAN_SPAWN_NICE);
  if (plan->flags & GUARDIAN_SPAWN_SET_UMASK)
    umask(plan->umask);

  place_descriptors(child);

  /* After the descriptors, which a low limit would hinder, and before the change of user, which
   * would hinder raising one. */
  for (uint32_t i = 0; i < plan->limit_count; i++) {
    /* prlimit64's own struct: the same on every word size. */
    uint64_t limit[2] = {plan->limits[i].soft, plan->limits[i].hard};
    child->detail = (int)i;
    if (syscall(SYS_prlimit64, 0, plan->limits[i].resource, limit, NULL) != 0)
      fail(child, GUARDIAN_SPAWN_LIMIT);
  }

  change_user(child);
  if (plan->directory && chdir(plan->directory) != 0)
    fail(child, GUARDIAN_SPAWN_DIRECTORY);

  if (plan->death_signal) {
    /* After the change of user, which clears it. guardian may have died before the call: then
     * nobody is left to tell, and the child must not live on. */
    if (prctl(PR_SET_PDEATHSIG, plan->death_signal, 0, 0, 0) != 0)
      fail(child, GUARDIAN_SPAWN_DEATH_SIGNAL);
    if (getppid() != child->parent)
      _exit(127);
  }

  if (plan->flags & GUARDIAN_SPAWN_WRITE_PID)
    for (int i = 0; i < GUARDIAN_SPAWN_PID_PLACES; i++)
      if (plan->pid_places[i])
        write_number(plan->pid_places[i], (unsigned)self);

  sys_rt_sigprocmask(SIG_SETMASK, &plan->signals.blocked, NULL);
  execve(plan->path, plan->argv, plan->envp);
  fail(child, GUARDIAN_SPAWN_EXEC);
  return 127;
}

/* Born there: a move would wait for every processor. Linux 5.7. */
static pid_t fork_into(int cgroup) {
  struct clone_args arguments = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD};
  arguments.cgroup = (uint64_t)cgroup;
  return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
}

bool guardian_spawn_may_enter(int cgroup) {
  pid_t pid = fork_into(cgroup);
  if (pid == 0)
    _exit(0);
  int status = -1;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status == 0;
}

/* Memory is a copy: a pipe that exec closes tells success by its end. */
static struct guardian_spawn_result spawn_by_fork(struct child *child) {
  struct guardian_spawn_result result = {-1, -1, GUARDIAN_SPAWN_CLONE, 0, 0};
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    result.error = errno;
    return result;
  }
  pid_t pid = child->plan->cgroup > 0 ? fork_into(child->plan->cgroup) : -1;
  /* A cgroup that went away is no reason not to start. */
  if (pid < 0)
    pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (pid == 0) {
    child->pipe = ends[1];
    run_child(child);
  }
  result.error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return result;
  }
  if (child->plan->flags & GUARDIAN_SPAWN_OWN_GROUP)
    setpgid(pid, pid); /* EACCES after exec: the child has done it itself */
  result.pid = pid;
  result.pidfd = (int)syscall(SYS_pidfd_open, pid, 0); /* not reaped yet: it is the right one */
  result.step = GUARDIAN_SPAWN_NONE;
  result.error = 0;
  int words[3] = {0, 0, 0};
  ssize_t count;
  /* Processes of the new user may stop the child before it has executed anything: it is woken
   * each time, and not waited for for ever. */
  for (int waits = 0; waits < FORK_WAITS; waits++) {
    struct pollfd end = {.fd = ends[0], .events = POLLIN};
    int ready = poll(&end, 1, FORK_WAIT_MILLISECONDS);
    if (ready > 0 || (ready < 0 && errno != EINTR))
      break;
    kill(pid, waits + 1 < FORK_WAITS ? SIGCONT : SIGKILL);
    if (waits + 1 == FORK_WAITS)
      words[0] = GUARDIAN_SPAWN_EXEC, words[1] = ETIMEDOUT;
  }
  do
    count = read(ends[0], words, sizeof words);
  while (count < 0 && errno == EINTR);
  if (count == (ssize_t)sizeof words || words[0] != GUARDIAN_SPAWN_NONE) {
    result.step = words[0];
    result.error = words[1];
    result.detail = words[2];
  }
  close(ends[0]);
  return result;
}

struct guardian_spawn_result guardian_spawn(const struct guardian_spawn_plan *plan) {
  struct child child = {plan, getpid(), -1, GUARDIAN_SPAWN_NONE, 0, 0};
  struct guardian_spawn_result result = {-1, -1, GUARDIAN_SPAWN_CLONE, 0, 0};
  uint64_t all = ~UINT64_C(0), before = 0;

  sys_rt_sigprocmask(SIG_SETMASK, &all, &before);
  if (!child_stack) {
    char *stack =
        mmap(NULL, STACK_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack != MAP_FAILED)
      child_stack = stack;
  }
  /* Memory is never shared with a process of another user: others of that user may signal it
   * (STOP would suspend guardian too), and the change makes shared memory undumpable, so that a
   * guardian that is not root could not open its own files in /proc any more. */
  if (plan->flags & (GUARDIAN_SPAWN_PLAIN_FORK | GUARDIAN_SPAWN_SET_UID | GUARDIAN_SPAWN_SET_GID) ||
      plan->cgroup > 0 || !child_stack) {
    result = spawn_by_fork(&child);
  } else {
    int pidfd = -1;
    /* The C library's clone, as it switches stacks; clone(2) has had CLONE_PIDFD since 5.2, and
     * sandboxes that answer ENOSYS to clone3 let it through. */
    pid_t pid = clone(run_child, child_stack + STACK_SIZE,
                      CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD, &child, &pidfd);
    if (pid >= 0) {
      result = (struct guardian_spawn_result){pid, pidfd, child.step, child.error, child.detail};
    } else if (errno == EINVAL || errno == ENOSYS || errno == EPERM) {
      result = spawn_by_fork(&child);
    } else {
      result.error = errno;
    }
  }
  sys_rt_sigprocmask(SIG_SETMASK, &before, NULL);
  return result;
}
