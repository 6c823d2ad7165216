/* The program that the conformance cases run under guardian and under its peers: it does one small
 * thing and tells of it in a file, one line an event, each line one write(2). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int book = -1;

static void tell(const char *format, ...) {
  char line[512];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  if (length < 0)
    return;
  line[length++] = '\n';
  if (write(book, line, (size_t)length) < 0)
    _exit(99);
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void wait_for_ever(void) {
  for (;;)
    pause();
}

int main(int count, char **word) {
  if (count < 3)
    return 98;
  const char *what = word[1];
  book = open(word[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (book < 0)
    return 97;
  long number = count > 3 ? strtol(word[3], NULL, 10) : 0;

  if (!strcmp(what, "exit")) {
    tell("start %d %.6f", getpid(), now());
    _exit((int)number);
  }
  if (!strcmp(what, "die")) {
    tell("start %d %.6f", getpid(), now());
    signal((int)number, SIG_DFL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    raise((int)number);
    wait_for_ever();
  }
  if (!strcmp(what, "wait")) {
    tell("start %d %.6f", getpid(), now());
    wait_for_ever();
  }
  if (!strcmp(what, "deaf")) {
    for (int signal_number = 1; signal_number < 32; signal_number++)
      signal(signal_number, SIG_IGN);
    signal(SIGCHLD, SIG_DFL);
    tell("start %d %.6f", getpid(), now());
    wait_for_ever();
  }
  if (!strcmp(what, "listen")) { /* one line for each signal that arrives */
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    tell("start %d %.6f", getpid(), now());
    for (;;) {
      siginfo_t info;
      int got = sigwaitinfo(&all, &info);
      if (got < 0)
        continue;
      tell("signal %d", got);
      if (got == SIGTERM)
        _exit(0);
    }
  }
  if (!strcmp(what, "listen-both")) { /* the same in a child of the same group */
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, NULL);
    int ends[2];
    if (pipe(ends) != 0)
      _exit(95);
    if (fork() == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(ends[1]);
      close(ends[0]);
    } else {
      char end;
      close(ends[1]);
      if (read(ends[0], &end, 1) != 0)
        _exit(94);
      tell("start %d %.6f", getpid(), now());
      tell("ready");
    }
    for (;;) {
      siginfo_t info;
      if (sigwaitinfo(&all, &info) > 0)
        tell("signal %d", info.si_signo);
    }
  }
  if (!strcmp(what, "first")) { /* in a container: orphans, USR1 told, USR2 left to its default */
    tell("start %d %.6f", getpid(), now());
    tell("parent %d", getppid());
    for (int i = 0; i < 5; i++) {
      pid_t middle = fork();
      if (middle == 0) {
        if (fork() == 0)
          _exit(0);
        _exit(0);
      }
      waitpid(middle, NULL, 0);
    }
    if (fork() == 0) { /* must not outlive the first process */
      setsid();
      wait_for_ever();
    }
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    sigprocmask(SIG_BLOCK, &one, NULL);
    tell("ready");
    int got;
    if (sigwait(&one, &got) == 0)
      tell("usr1");
    wait_for_ever();
  }
  if (!strcmp(what, "state")) { /* what it was started with */
    char line[512];
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status))
      if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6)) {
        line[strcspn(line, "\n")] = 0;
        tell("%s", line);
      }
    for (int fd = 0; fd < 1024; fd++)
      if (fd != book && (!status || fd != fileno(status)) && fcntl(fd, F_GETFD) >= 0)
        tell("fd %d %s", fd, fcntl(fd, F_GETFD) & FD_CLOEXEC ? "close-on-exec" : "inherited");
    tell("group %d %d %d", getpid(), getpgid(0), getppid());
    tell("terminal %d %d", isatty(0), isatty(0) ? (int)tcgetpgrp(0) : -1);
    tell("start %d %.6f", getpid(), now());
    if (number)
      wait_for_ever();
    _exit(0);
  }
  if (!strcmp(what, "family")) { /* a child, and a grandchild in a session of its own */
    tell("start %d %.6f", getpid(), now());
    pid_t child = fork();
    if (child == 0) {
      signal(SIGTERM, SIG_IGN);
      tell("child %d", getpid());
      wait_for_ever();
    }
    pid_t middle = fork();
    if (middle == 0) {
      setsid();
      if (fork() == 0) {
        signal(SIGTERM, SIG_IGN);
        signal(SIGHUP, SIG_IGN);
        tell("orphan %d", getpid());
        wait_for_ever();
      }
      _exit(0);
    }
    waitpid(middle, NULL, 0);
    tell("ready");
    if (number == 0)
      wait_for_ever();
    _exit((int)number);
  }
  if (!strcmp(what, "orphans")) { /* NUMBER orphans that end at once: are they reaped? */
    tell("start %d %.6f", getpid(), now());
    for (long i = 0; i < number; i++) {
      pid_t middle = fork();
      if (middle == 0) {
        pid_t last = fork();
        if (last == 0) {
          usleep(1000);
          _exit(0);
        }
        tell("orphan %d", last);
        _exit(0);
      }
      waitpid(middle, NULL, 0);
    }
    tell("ready");
    wait_for_ever();
  }
  if (!strcmp(what, "lines")) { /* NUMBER lines on stderr, then dead at once */
    tell("start %d %.6f", getpid(), now());
    for (long i = 1; i <= number; i++) {
      char line[64];
      int length = snprintf(line, sizeof line, "line %ld of %ld\n", i, number);
      if (write(2, line, (size_t)length) < 0)
        tell("write failed %d", errno);
    }
    kill(getpid(), SIGKILL);
  }
  if (!strcmp(what, "chatter")) { /* writes on stderr for NUMBER rounds, then says so */
    char block[4096];
    memset(block, 'x', sizeof block);
    block[sizeof block - 1] = '\n';
    tell("start %d %.6f", getpid(), now());
    for (long i = 0; i < number; i++)
      if (write(2, block, sizeof block) < 0) {
        tell("write failed %d", errno);
        break;
      }
    tell("done %.6f", now());
    wait_for_ever();
  }
  if (!strcmp(what, "holder")) { /* leaves a child behind that holds stderr, then dies */
    tell("start %d %.6f", getpid(), now());
    if (fork() == 0) {
      setsid();
      tell("orphan %d", getpid());
      sleep(20);
      _exit(0);
    }
    usleep(20000);
    kill(getpid(), SIGKILL);
  }
  if (!strcmp(what, "lives")) { /* the n-th life lasts the n-th number of milliseconds, the last ones too */
    char earlier[65536];
    int again = open(word[2], O_RDONLY | O_CLOEXEC);
    ssize_t length = read(again, earlier, sizeof earlier - 1);
    close(again);
    int life = 3;
    earlier[length > 0 ? length : 0] = 0;
    for (const char *at = earlier; (at = strstr(at, "start ")); at++)
      life++;
    long lasting = strtol(word[life < count ? life : count - 1], NULL, 10);
    tell("start %d %.6f", getpid(), now());
    usleep((useconds_t)lasting * 1000);
    _exit(3);
  }
  if (!strcmp(what, "late")) { /* lives NUMBER milliseconds, then fails */
    tell("start %d %.6f", getpid(), now());
    usleep((useconds_t)number * 1000);
    _exit(3);
  }
  return 96;
}
