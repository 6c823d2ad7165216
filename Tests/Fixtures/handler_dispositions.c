/* Asks about, changes and restores the dispositions of the signals the crash handler
 * owns, and checks that it sees only what it set itself: exactly what it would see
 * without a handler. Prints each surprise and exits 1; exits 0 if there was none.
 *
 *   handler_dispositions           everything
 *   handler_dispositions ignored   SIGPIPE and SIGQUIT were ignored at exec */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static const int owned[] = {SIGABRT, SIGILL, SIGSEGV, SIGFPE, SIGBUS, SIGPIPE,
                            SIGTRAP, SIGSYS, SIGXCPU, SIGXFSZ, SIGQUIT, SIGSTKFLT};
enum { OWNED = sizeof owned / sizeof *owned };
static int surprises;
static int n; /* the signal in question */
#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) {                                                        \
      printf("line %d, signal %d: not so: %s\n", __LINE__, n, #condition);     \
      surprises++;                                                             \
    }                                                                          \
  } while (0)

typedef void (*handler)(int);
handler bsd_signal(int, handler);
handler __sysv_signal(int, handler);
int __sigaction(int, const struct sigaction *, struct sigaction *);

static volatile int calls;
static volatile int seen_default;
static void count(int number) { calls++; }
static void count_info(int number, siginfo_t *info, void *context) {
  calls += info->si_signo == number && context != NULL;
}
static void look_inside(int number) {
  struct sigaction now;
  calls++;
  sigaction(number, NULL, &now);
  seen_default = now.sa_handler == SIG_DFL;
}

static handler now(void) {
  struct sigaction act;
  memset(&act, 0xee, sizeof act);
  if (sigaction(n, NULL, &act) != 0) return SIG_ERR;
  return act.sa_handler;
}
/* The kernel's own answer. */
static void *kernel(void) {
  struct {
    void *handler;
    unsigned long flags;
    void *restorer;
    unsigned long mask;
  } act;
  syscall(SYS_rt_sigaction, n, NULL, &act, 8);
  return act.handler;
}

static void plain(void) {
  struct sigaction act, old;
  memset(&old, 0xee, sizeof old);
  CHECK(sigaction(n, NULL, &old) == 0);
  CHECK(old.sa_handler == SIG_DFL);
  CHECK(old.sa_flags == 0);
  for (int s = 1; s < 65; s++) CHECK(sigismember(&old.sa_mask, s) == 0);

  memset(&act, 0, sizeof act);
  act.sa_handler = count;
  act.sa_flags = SA_NODEFER | SA_RESTART;
  sigaddset(&act.sa_mask, SIGUSR2);
  CHECK(sigaction(n, &act, &old) == 0);
  CHECK(old.sa_handler == SIG_DFL);
  CHECK(kernel() == (void *)count); /* unchanged */
  CHECK(sigaction(n, NULL, &old) == 0);
  CHECK(old.sa_handler == count && sigismember(&old.sa_mask, SIGUSR2) == 1);
  CHECK((old.sa_flags & ~0x04000000) == (SA_NODEFER | SA_RESTART));
  calls = 0;
  raise(n);
  CHECK(calls == 1);

  /* A default with flags and a mask of its own comes back with them. */
  memset(&act, 0, sizeof act);
  act.sa_handler = SIG_DFL;
  act.sa_flags = SA_RESTART;
  sigaddset(&act.sa_mask, SIGUSR1);
  CHECK(sigaction(n, &act, &old) == 0);
  CHECK(old.sa_handler == count);
  CHECK(kernel() != (void *)count);
  CHECK(sigaction(n, NULL, &old) == 0);
  CHECK(old.sa_handler == SIG_DFL && (old.sa_flags & ~0x04000000) == SA_RESTART);
  CHECK(sigismember(&old.sa_mask, SIGUSR1) == 1 && sigismember(&old.sa_mask, SIGUSR2) == 0);

  /* Save, replace, restore: as every library does it. */
  struct sigaction saved;
  memset(&act, 0, sizeof act);
  act.sa_sigaction = count_info;
  act.sa_flags = SA_SIGINFO;
  CHECK(sigaction(n, &act, &saved) == 0);
  calls = 0;
  raise(n);
  CHECK(calls == 1);
  CHECK(sigaction(n, &saved, &old) == 0);
  CHECK(old.sa_sigaction == count_info);
  CHECK(now() == SIG_DFL);

  CHECK(signal(n, SIG_IGN) == SIG_DFL);
  CHECK(kernel() == (void *)SIG_IGN);
  raise(n);
  CHECK(signal(n, SIG_DFL) == SIG_IGN);
  CHECK(kernel() != (void *)SIG_IGN);

  errno = 0;
  CHECK(signal(n, SIG_ERR) == SIG_ERR && errno == EINVAL);
  CHECK(now() == SIG_DFL);
}

static void spellings(void) {
  struct sigaction act;
  handler (*with_restart[])(int, handler) = {signal, bsd_signal, ssignal};
  for (int i = 0; i < 3; i++) {
    CHECK(with_restart[i](n, count) == SIG_DFL);
    CHECK(sigaction(n, NULL, &act) == 0);
    CHECK(act.sa_handler == count && (act.sa_flags & ~0x04000000) == SA_RESTART);
    CHECK(with_restart[i](n, SIG_DFL) == count);
  }
  handler (*once[])(int, handler) = {sysv_signal, __sysv_signal};
  for (int i = 0; i < 2; i++) {
    CHECK(once[i](n, look_inside) == SIG_DFL);
    CHECK(sigaction(n, NULL, &act) == 0);
    CHECK(act.sa_handler == look_inside);
    CHECK((act.sa_flags & (int)(SA_RESETHAND | SA_NODEFER | SA_RESTART)) ==
          (int)(SA_RESETHAND | SA_NODEFER));
    calls = seen_default = 0;
    raise(n);
    CHECK(calls == 1 && seen_default); /* by then it is the default again */
    CHECK(now() == SIG_DFL);
  }
  CHECK(sigset(n, count) == SIG_DFL);
  CHECK(now() == count);
  CHECK(sigset(n, SIG_HOLD) == count);
  calls = 0;
  raise(n);
  CHECK(calls == 0); /* held */
  CHECK(sigset(n, count) == SIG_HOLD);
  CHECK(calls == 1);
  CHECK(sigset(n, SIG_DFL) == count);
  CHECK(sigignore(n) == 0);
  CHECK(now() == SIG_IGN);
  CHECK(signal(n, SIG_DFL) == SIG_IGN);

  CHECK(siginterrupt(n, 1) == 0);
  CHECK(now() == SIG_DFL);
  CHECK(signal(n, count) == SIG_DFL);
  CHECK(sigaction(n, NULL, &act) == 0 && (act.sa_flags & SA_RESTART) == 0);
  CHECK(siginterrupt(n, 0) == 0);
  CHECK(sigaction(n, NULL, &act) == 0 && (act.sa_flags & SA_RESTART) != 0);
  CHECK(now() == count);
  CHECK(signal(n, SIG_DFL) == count);
  CHECK(now() == SIG_DFL);

  act.sa_handler = count;
  act.sa_flags = SA_RESETHAND | SA_SIGINFO;
  act.sa_sigaction = count_info;
  sigemptyset(&act.sa_mask);
  CHECK(__sigaction(n, &act, NULL) == 0);
  CHECK(sigaction(n, NULL, &act) == 0 && act.sa_sigaction == count_info);
  CHECK((act.sa_flags & ~0x04000000) == (int)(SA_RESETHAND | SA_SIGINFO));
  calls = 0;
  raise(n);
  CHECK(calls == 1);
  CHECK(now() == SIG_DFL);
}

/* The oldest of all; no new program can be linked with it, nor finds the C library's own. */
static void oldest(void) {
  struct old {
    handler handler;
    int mask, flags;
  } new = {count, 1 << (SIGUSR2 - 1), 4}, old;
  int (*sigvec)(int, struct old *, struct old *) = dlsym(RTLD_DEFAULT, "sigvec");
  if (sigvec == NULL) return;
  CHECK(sigvec(n, &new, &old) == 0);
  CHECK(old.handler == SIG_DFL);
  CHECK(now() == count);
  CHECK(sigvec(n, NULL, &old) == 0);
  CHECK(old.handler == count && old.mask == new.mask && old.flags == 4);
  calls = 0;
  raise(n);
  CHECK(calls == 1);
  CHECK(now() == SIG_DFL);
}

/* Its own handler before and after it started another program. */
static void children(void) {
  extern char **environ;
  char *arguments[] = {"sh", "-c", "exit 7", NULL};
  CHECK(signal(n, count) == SIG_DFL);
  int status = system("exit 3");
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  CHECK(now() == count);
  CHECK(signal(n, SIG_DFL) == count);
  status = system("exit 3");
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  CHECK(now() == SIG_DFL);
  pid_t pid;
  posix_spawnattr_t attributes;
  sigset_t set;
  posix_spawnattr_init(&attributes);
  sigfillset(&set);
  posix_spawnattr_setsigdefault(&attributes, &set);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  CHECK(posix_spawn(&pid, "/bin/sh", NULL, &attributes, arguments, environ) == 0);
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  CHECK(now() == SIG_DFL);
  pid = vfork();
  if (pid == 0) {
    signal(n, SIG_DFL);
    execv("/bin/sh", arguments);
    _exit(1);
  }
  CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
  CHECK(now() == SIG_DFL);
}

int main(int argc, char **argv) {
  if (argc > 1) {
    n = SIGPIPE;
    CHECK(now() == SIG_IGN && kernel() == (void *)SIG_IGN);
    n = SIGQUIT;
    CHECK(now() == SIG_IGN && kernel() == (void *)SIG_IGN);
    raise(SIGQUIT);
    n = SIGSEGV;
    CHECK(now() == SIG_DFL);
    n = SIGPIPE;
    CHECK(signal(n, SIG_DFL) == SIG_IGN); /* from here on it is the handler's */
    CHECK(now() == SIG_DFL);
    if (strcmp(argv[1], "expect-handler") == 0) CHECK(kernel() != (void *)SIG_DFL);
  } else {
    for (int i = 0; i < OWNED; i++) {
      n = owned[i];
      plain();
      spellings();
      oldest();
    }
    n = SIGQUIT;
    children();
    n = SIGPIPE;
    children();
    /* Others are none of its business. */
    n = SIGUSR1;
    plain();
    spellings();
    CHECK(kernel() == (void *)SIG_DFL);
    n = 0;
    CHECK(sigaction(0, NULL, NULL) == -1 && errno == EINVAL);
    n = 65;
    CHECK(signal(65, count) == SIG_ERR && errno == EINVAL);
    n = SIGKILL;
    CHECK(signal(SIGKILL, count) == SIG_ERR && errno == EINVAL);
  }
  fflush(stdout);
  return surprises ? 1 : 0;
}
