/* Says how it was started, and then does what it is told.
 *
 *   spawn_probe state        signal masks, descriptors, group, parent, user, directory, umask
 *   spawn_probe ids          user, group and supplementary groups, nice, OOM score, capabilities
 *   spawn_probe limits       soft and hard limits of nofile and core
 *   spawn_probe reopen       opens /dev/stdout and /dev/stderr and writes a line to each
 *   spawn_probe log          writes "out N pid PID" and "err N", and the next pair at each HUP
 *   spawn_probe env NAME…    values of variables ("NAME=value", "NAME unset"), then its pid
 *   spawn_probe wait         prints "pid PID" and waits
 *   spawn_probe stubborn     the same, ignoring TERM
 *   spawn_probe flood BYTES  writes so much to standard error, then leaves with 0
 *   spawn_probe numbers COUNT  writes so many numbered lines there in large pieces, leaves with 1
 *   spawn_probe notify TEXT  sends TEXT to NOTIFY_SOCKET, prints "sent" and waits
 *   spawn_probe terminal     prints whether it is the terminal's foreground group */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static void state(void) {
  char line[512];
  FILE *status = fopen("/proc/self/status", "re");
  while (fgets(line, sizeof line, status))
    if (!strncmp(line, "SigBlk", 6) || !strncmp(line, "SigIgn", 6))
      fputs(line, stdout);
  fclose(status);
  DIR *folder = opendir("/proc/self/fd");
  for (struct dirent *entry; (entry = readdir(folder));) {
    int number = atoi(entry->d_name);
    if (entry->d_name[0] != '.' && number != dirfd(folder))
      printf("descriptor %d\n", number);
  }
  closedir(folder);
  int death = 0;
  prctl(PR_GET_PDEATHSIG, &death);
  mode_t mask = umask(0);
  umask(mask);
  char *directory = getcwd(NULL, 0);
  printf("death signal %d\nleader %d\nuser %d\numask %03o\ndirectory %s\nstderr tty %d\n", death,
         getpgrp() == getpid(), (int)getuid(), (unsigned)mask, directory, isatty(2));
  free(directory);
}

static void ids(void) {
  gid_t groups[256];
  uid_t user[3];
  gid_t group[3];
  getresuid(&user[0], &user[1], &user[2]);
  getresgid(&group[0], &group[1], &group[2]);
  printf("users %d %d %d\ngroup %d %d %d\ngroups", (int)user[0], (int)user[1], (int)user[2],
         (int)group[0], (int)group[1], (int)group[2]);
  int count = getgroups(256, groups);
  for (int i = 0; i < count; i++)
    printf(" %d", (int)groups[i]);
  int death = 0;
  prctl(PR_GET_PDEATHSIG, &death);
  printf("\nnice %d\ndeath signal %d\ndumpable %d\n", getpriority(PRIO_PROCESS, 0), death,
         prctl(PR_GET_DUMPABLE, 0, 0, 0, 0));
  char line[512];
  FILE *file = fopen("/proc/self/oom_score_adj", "re");
  if (file && fgets(line, sizeof line, file))
    printf("oom %s", line);
  file = fopen("/proc/self/status", "re");
  while (file && fgets(line, sizeof line, file))
    if (!strncmp(line, "Cap", 3))
      fputs(line, stdout);
}

static void limits(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  printf("nofile %llu %llu\n", (unsigned long long)limit.rlim_cur,
         (unsigned long long)limit.rlim_max);
  getrlimit(RLIMIT_CORE, &limit);
  printf("core %llu %llu\n", (unsigned long long)limit.rlim_cur,
         (unsigned long long)limit.rlim_max);
}

static void reopen(const char *path, const char *text) {
  int number = open(path, O_WRONLY | O_APPEND);
  if (number < 0)
    printf("%s: %s\n", path, strerror(errno));
  else
    dprintf(number, "%s\n", text);
}

static volatile sig_atomic_t hups;
static void count_hup(int signal) {
  (void)signal;
  hups++;
}

/* Numbered lines, one pair for each HUP. */
static void log_lines(void) {
  struct sigaction action = {.sa_handler = count_hup};
  sigset_t mask, none;
  sigemptyset(&none);
  sigemptyset(&mask);
  sigaddset(&mask, SIGHUP);
  sigprocmask(SIG_BLOCK, &mask, NULL);
  sigaction(SIGHUP, &action, NULL);
  for (int number = 0;; number++) {
    dprintf(1, "out %d pid %d\n", number, (int)getpid());
    dprintf(2, "err %d\n", number);
    while (hups <= number)
      sigsuspend(&none);
  }
}

static void wait_for_ever(void) {
  printf("pid %d\n", (int)getpid());
  fflush(stdout);
  for (;;)
    pause();
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "state";
  if (!strcmp(what, "state")) {
    state();
  } else if (!strcmp(what, "ids")) {
    ids();
  } else if (!strcmp(what, "limits")) {
    limits();
  } else if (!strcmp(what, "reopen")) {
    reopen("/dev/stdout", "to stdout");
    reopen("/dev/stderr", "to stderr");
  } else if (!strcmp(what, "log")) {
    log_lines();
  } else if (!strcmp(what, "env")) {
    for (int i = 2; i < count; i++) {
      const char *value = getenv(words[i]);
      if (value)
        printf("%s=%s\n", words[i], value);
      else
        printf("%s unset\n", words[i]);
    }
    printf("pid %d\n", (int)getpid());
  } else if (!strcmp(what, "wait")) {
    wait_for_ever();
  } else if (!strcmp(what, "stubborn")) {
    signal(SIGTERM, SIG_IGN);
    wait_for_ever();
  } else if (!strcmp(what, "flood")) {
    static char block[1 << 18];
    for (size_t i = 0; i < sizeof block; i++)
      block[i] = i % 80 == 79 ? '\n' : 'x';
    long long left = count > 2 ? atoll(words[2]) : 0;
    while (left > 0) {
      ssize_t done = write(2, block, left < (long long)sizeof block ? (size_t)left : sizeof block);
      if (done < 0 && errno != EINTR)
        return 1;
      if (done > 0)
        left -= done;
    }
    dprintf(2, "the last line\n");
  } else if (!strcmp(what, "numbers")) {
    static char block[1 << 16];
    setvbuf(stderr, block, _IOFBF, sizeof block);
    int lines = count > 2 ? atoi(words[2]) : 0;
    for (int i = 0; i < lines; i++)
      fprintf(stderr, "%08d\n", i);
    return fflush(stderr) ? 2 : 1;
  } else if (!strcmp(what, "notify")) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = getenv("NOTIFY_SOCKET");
    if (!path)
      return 3;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int number = socket(AF_UNIX, SOCK_DGRAM, 0);
    if (sendto(number, words[2], strlen(words[2]), 0, (struct sockaddr *)&address,
               sizeof address) < 0)
      return 4;
    puts("sent");
    fflush(stdout);
    wait_for_ever();
  } else if (!strcmp(what, "terminal")) {
    printf("foreground %d\n", tcgetpgrp(0) == getpgrp());
    fflush(stdout);
    fprintf(stderr, "tty %d\n", isatty(2));
  } else {
    return 64;
  }
  return 0;
}
