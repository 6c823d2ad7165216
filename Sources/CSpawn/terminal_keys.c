/* The process that tells of the terminal's interrupt key. It stands in the program's process group
 * while the program has the terminal: the kernel sends INT there and nowhere else, and only a member
 * learns of it.
 *
 * A plain fork of guardian with one thread; only system calls after it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include "guardian_spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* One byte for each INT that the kernel sent: kill(2) by anybody is no key. */
static void tell(int signals, int out) {
  struct signalfd_siginfo info;
  while (read(signals, &info, sizeof info) == (ssize_t)sizeof info)
    if (info.ssi_signo == SIGINT && info.ssi_code == SI_KERNEL && write(out, "i", 1) != 1)
      _exit(0);
}

static void watch(pid_t group, pid_t parent, int out) {
  sigset_t all, interrupt;
  sigfillset(&all);
  /* Whatever is sent to the program's group is not meant for this one. */
  sigprocmask(SIG_SETMASK, &all, NULL);
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  if (getppid() != parent || setpgid(0, group) != 0) _exit(0);
  prctl(PR_SET_NAME, "guardian-keys", 0, 0, 0);
  /* Nothing of guardian's is held open here. */
  if (out > 0) syscall(SYS_close_range, 0, out - 1, 0);
  syscall(SYS_close_range, out + 1, ~0u, 0);
  int signals = signalfd(-1, &interrupt, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) _exit(0);
  struct pollfd polled[2] = {{.fd = signals, .events = POLLIN}, {.fd = out, .events = POLLIN}};
  while (poll(polled, 2, -1) > 0 || errno == EINTR) {
    /* In this order: a key that came before the end is told before the end. */
    int over = polled[1].revents;
    tell(signals, out);
    if (over) break;
  }
  _exit(0);
}

pid_t guardian_watch_keys(pid_t group, int *end) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return -1;
  pid_t parent = getpid();
  pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (pid == 0) watch(group, parent, ends[1]);
  int error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    errno = error;
    return -1;
  }
  *end = ends[0];
  return pid;
}
