/* Spreads processes that are hard to get rid of. Every process appends "pid N" to FILE; the main
 * process prints it too and waits.
 *
 *   tree_probe double FILE     a grandchild in a session of its own, its parent gone
 *   tree_probe title FILE      the same, with its environment overwritten, as servers do that set
 *                              their title
 *   tree_probe naked FILE      the same, executed anew without environment and standard error
 *   tree_probe stubborn FILE   the same, ignoring TERM, INT and HUP; the main process obeys
 *   tree_probe leaderless FILE the same as stubborn; and its main thread ends, another goes on
 *   tree_probe headless FILE   the main process goes on without its main thread
 *   tree_probe forks FILE N    a chain: each forks the next in a session of its own and leaves, N
 *                              times in all, then the last waits
 *   tree_probe bomb FILE N     each forks two, up to a depth of N, and all wait
 *   tree_probe user FILE UID   changes its user, which clears the death signal
 *   tree_probe echo            answers each byte on a connection to the port that it prints
 *   tree_probe wait            nothing but waiting */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

extern char **environ;
static const char *file;
/* Held by the grandchild until it is where it wants to be. */
static int held = -1;

static void note(void) {
  char line[32];
  int length = snprintf(line, sizeof line, "pid %d\n", (int)getpid());
  int number = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (number < 0 || write(number, line, (size_t)length) != length)
    _exit(98);
  close(number);
  close(held);
}

static void wait_for_ever(void) {
  for (;;)
    pause();
}

/* Says where it is once its main thread is a zombie. */
static void *outlive(void *announce) {
  char path[64], text[512];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)getpid());
  for (;;) {
    int number = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = read(number, text, sizeof text - 1);
    close(number);
    text[length > 0 ? length : 0] = 0;
    char *end = strrchr(text, ')');
    if (end && end[1] == ' ' && end[2] == 'Z')
      break;
    usleep(1000);
  }
  if (announce) {
    printf("pid %d\n", (int)getpid());
    fflush(stdout);
  }
  note();
  wait_for_ever();
  return NULL;
}

static void leave_a_thread(int announces) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, outlive, announces ? &thread : NULL) != 0)
    _exit(93);
  syscall(SYS_exit, 0);
}

/* Returns in the grandchild only. */
static int in_grandchild(void) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    _exit(97);
  pid_t child = fork();
  if (child != 0) {
    /* Until the grandchild is where it wants to be. */
    char byte;
    close(ends[1]);
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
    }
    close(ends[0]);
    return 0;
  }
  setsid();
  if (fork() != 0)
    _exit(0);
  close(ends[0]);
  held = ends[1];
  return 1;
}

static void chain(long left) {
  while (left-- > 0) {
    pid_t next = fork();
    if (next > 0)
      _exit(0);
    if (next == 0)
      setsid();
  }
  note();
  wait_for_ever();
}

/* One connection, byte by byte. */
static int echo(void) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&address, &size) != 0)
    return 94;
  printf("pid %d\nport %d\n", (int)getpid(), ntohs(address.sin_port));
  fflush(stdout);
  int client = accept(listener, NULL, NULL);
  char byte;
  while (read(client, &byte, 1) == 1 && write(client, &byte, 1) == 1) {
  }
  wait_for_ever();
  return 0;
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "wait";
  file = count > 2 ? words[2] : "/dev/null";
  long number = count > 3 ? atol(words[3]) : 0;
  if (!strcmp(what, "echo"))
    return echo();
  if (!strcmp(what, "double")) {
    if (in_grandchild()) {
      note();
      wait_for_ever();
    }
  } else if (!strcmp(what, "title")) {
    if (in_grandchild()) {
      for (char **entry = environ; *entry; entry++)
        memset(*entry, 'x', strlen(*entry));
      close(2);
      note();
      wait_for_ever();
    }
  } else if (!strcmp(what, "naked")) {
    if (in_grandchild()) {
      char *none[] = {NULL};
      char *again[] = {words[0], "noted", words[2], NULL};
      close(2);
      execve("/proc/self/exe", again, none);
      _exit(96);
    }
  } else if (!strcmp(what, "noted")) {
    note();
    wait_for_ever();
  } else if (!strcmp(what, "stubborn") || !strcmp(what, "leaderless")) {
    if (in_grandchild()) {
      signal(SIGTERM, SIG_IGN);
      signal(SIGINT, SIG_IGN);
      signal(SIGHUP, SIG_IGN);
      if (!strcmp(what, "leaderless"))
        leave_a_thread(0);
      note();
      wait_for_ever();
    }
  } else if (!strcmp(what, "headless")) {
    leave_a_thread(1);
  } else if (!strcmp(what, "forks")) {
    if (fork() == 0)
      chain(number);
  } else if (!strcmp(what, "bomb")) {
    if (fork() == 0) {
      for (long depth = 0; depth < number; depth++)
        if (fork() < 0 || (depth % 2 == 0 && fork() < 0))
          break;
      note();
      wait_for_ever();
    }
  } else if (!strcmp(what, "user")) {
    if (setgroups(0, NULL) != 0 || setgid((gid_t)number) != 0 || setuid((uid_t)number) != 0)
      return 95;
  }
  printf("pid %d\n", (int)getpid());
  fflush(stdout);
  note();
  wait_for_ever();
}
