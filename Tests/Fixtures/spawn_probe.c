/* Says how it was started, and then does what it is told.
 *
 *   spawn_probe state        signal masks, descriptors, group, parent, user, directory, umask
 *   spawn_probe env NAME…    values of variables ("NAME=value", "NAME unset"), then its pid
 *   spawn_probe wait         prints "pid PID" and waits
 *   spawn_probe stubborn     the same, ignoring TERM
 *   spawn_probe flood BYTES  writes so much to standard error, then leaves with 0
 *   spawn_probe notify TEXT  sends TEXT to NOTIFY_SOCKET, prints "sent" and waits
 *   spawn_probe terminal     prints whether it is the terminal's foreground group */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
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
