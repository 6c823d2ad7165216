/* A program that talks to its guardian: readiness, heartbeat, descriptors, and all ways to hang.
 * It prints "pid N" when it has begun.
 *
 *   lively fd N               waits for USR1, then writes a newline to descriptor N
 *   lively say TEXT…          sends each TEXT to NOTIFY_SOCKET, the next one at each USR1
 *   lively beat ring|message MS  a heartbeat each MS milliseconds; after USR1 it spins
 *   lively spin               spins at once
 *   lively deaf               ignores TERM and spins
 *   lively serve N            answers connections on descriptor 3 with its life; after N of them
 *                             it crashes between two
 *   lively http               answers HTTP on descriptor 3 with 200, after USR1 with 503
 *   lively store              life 1 gives a file "cargo" and a pipe to keep and crashes; the
 *                             next prints what came back
 *   lively hoard N            gives N pipes to keep
 *   lively drop               gives "cargo", takes it back, crashes
 *   lively main               a child becomes the main process; after USR1 it exits with 7
 *   lively barrier            sends READY=1 and a barrier, waits for its end
 *   lively stranger           after USR1: asks for another's pid as MAINPID, prints "asked" */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* From the preloaded handler. */
extern void guardian_heartbeat(void) __attribute__((weak));

static void say_pid(void) {
  printf("pid %d\n", (int)getpid());
  fflush(stdout);
}

static void wait_for_usr1(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  int which;
  while (sigwait(&set, &which) != 0) {
  }
}

static void send_with(const char *text, const int *descriptors, int count) {
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  const char *path = getenv("NOTIFY_SOCKET");
  if (!path)
    exit(3);
  strncpy(to.sun_path, path, sizeof to.sun_path - 1);
  struct iovec part = {(void *)text, strlen(text)};
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * 32)];
  } control = {0};
  struct msghdr header = {
      .msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &part, .msg_iovlen = 1};
  if (count > 0) {
    header.msg_control = &control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(rights), descriptors, sizeof(int) * (size_t)count);
  }
  int number = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (sendmsg(number, &header, MSG_NOSIGNAL) < 0)
    exit(4);
  close(number);
}

static void say(const char *text) { send_with(text, NULL, 0); }

static volatile unsigned long turns;

__attribute__((noinline)) static void count_for_ever(void) {
  for (;;)
    turns++;  // it hangs here
}

__attribute__((noinline)) static void lose_the_order(int *order) { *order = 1; }

static void crash(void) { lose_the_order((int *)16); }

static void pause_for(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

static int answer(const char *(*text)(void)) {
  int client = accept4(3, NULL, NULL, SOCK_CLOEXEC);
  if (client < 0)
    return -1;
  char request[2048];
  if (recv(client, request, sizeof request, 0) > 0) {
    const char *words = text();
    send(client, words, strlen(words), MSG_NOSIGNAL);
  }
  shutdown(client, SHUT_WR);
  /* Until the client has closed: nothing of the answer is lost by a reset. */
  while (recv(client, request, sizeof request, 0) > 0) {
  }
  close(client);
  return 0;
}

static const char *life(void) {
  static char text[64];
  snprintf(text, sizeof text, "life %s\n", getenv("GUARDIAN_LIFE"));
  return text;
}

static volatile sig_atomic_t ill;
static void become_ill(int signal) {
  (void)signal;
  ill = 1;
}
static const char *http(void) {
  return ill ? "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 3\r\n\r\nill"
             : "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";
}

static int passed(void) { return atoi(getenv("LISTEN_FDS") ?: "0"); }

static int cargo(void) {
  int file = memfd_create("cargo", MFD_CLOEXEC);
  if (write(file, "coffee", 6) != 6)
    exit(5);
  return file;
}

int main(int count, char **words) {
  const char *what = count > 1 ? words[1] : "";
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  if (strcmp(what, "http"))
    sigprocmask(SIG_BLOCK, &set, NULL);

  if (!strcmp(what, "fd")) {
    say_pid();
    wait_for_usr1();
    if (write(atoi(words[2]), "ready\n", 6) != 6)
      return 6;
    close(atoi(words[2]));
  } else if (!strcmp(what, "say")) {
    say_pid();
    for (int i = 2; i < count; i++) {
      if (i > 2)
        wait_for_usr1();
      say(words[i]);
    }
  } else if (!strcmp(what, "beat")) {
    say_pid();
    int by_ring = !strcmp(words[2], "ring");
    for (;;) {
      if (by_ring)
        guardian_heartbeat();
      else
        say("WATCHDOG=1");
      struct timespec none = {0, 0};
      if (sigtimedwait(&set, NULL, &none) == SIGUSR1)
        count_for_ever();
      pause_for(atol(words[3]));
    }
  } else if (!strcmp(what, "spin")) {
    say_pid();
    count_for_ever();
  } else if (!strcmp(what, "deaf")) {
    signal(SIGTERM, SIG_IGN);
    say_pid();
    count_for_ever();
  } else if (!strcmp(what, "serve")) {
    say_pid();
    for (int i = atoi(words[2]); i > 0; i--)
      answer(life);
    crash();
  } else if (!strcmp(what, "http")) {
    signal(SIGUSR1, become_ill);
    say_pid();
    for (;;)
      answer(http);
  } else if (!strcmp(what, "store")) {
    if (passed() == 0) {
      int things[2] = {cargo(), -1};
      int ends[2];
      if (pipe(ends) != 0)
        return 5;
      send_with("FDSTORE=1\nFDNAME=cargo", things, 1);
      send_with("FDSTORE=1\nFDNAME=gone", ends, 1);
      /* The other side goes, and with it what was given. */
      close(ends[1]);
      crash();
    }
    char text[16] = "";
    for (int number = 3; number < 3 + passed(); number++)
      if (pread(number, text, sizeof text - 1, 0) < 0)
        text[0] = 0;
    printf("passed %d named %s to %s holding %s\n", passed(), getenv("LISTEN_FDNAMES"),
           atoi(getenv("LISTEN_PID")) == getpid() ? "me" : "another", text);
    say_pid();
  } else if (!strcmp(what, "hoard")) {
    if (!strcmp(getenv("GUARDIAN_LIFE"), "1")) {
      for (int i = 0; i < atoi(words[2]); i++) {
        int thing = cargo();
        send_with("FDSTORE=1\nFDNAME=many", &thing, 1);
      }
      crash();
    }
    printf("passed %d\n", passed());
    say_pid();
  } else if (!strcmp(what, "drop")) {
    if (!strcmp(getenv("GUARDIAN_LIFE"), "1")) {
      int thing = cargo();
      send_with("FDSTORE=1\nFDNAME=cargo", &thing, 1);
      send_with("FDSTORE=1\nFDNAME=cargo", &thing, 1);
      say("FDSTOREREMOVE=1\nFDNAME=cargo");
      crash();
    }
    printf("passed %d\n", passed());
    say_pid();
  } else if (!strcmp(what, "main")) {
    pid_t child = fork();
    if (child > 0) {
      char text[64];
      snprintf(text, sizeof text, "MAINPID=%d\nREADY=1", (int)child);
      say(text);
      return 0;
    }
    setsid();
    say_pid();
    wait_for_usr1();
    return 7;
  } else if (!strcmp(what, "stranger")) {
    say_pid();
    wait_for_usr1();
    char text[64];
    snprintf(text, sizeof text, "MAINPID=%d", (int)getppid());
    say(text);
    say("MAINPID=1");
    int ends[2];
    if (pipe(ends) != 0)
      return 5;
    send_with("BARRIER=1", &ends[1], 1);
    close(ends[1]);
    struct pollfd end = {.fd = ends[0]};
    poll(&end, 1, -1);
    printf("asked\n");
    fflush(stdout);
  } else if (!strcmp(what, "barrier")) {
    int ends[2];
    if (pipe(ends) != 0)
      return 5;
    say("READY=1");
    send_with("BARRIER=1", &ends[1], 1);
    close(ends[1]);
    struct pollfd end = {.fd = ends[0]};
    printf("barrier %d\n", poll(&end, 1, 60000));
    say_pid();
  } else {
    return 64;
  }
  for (;;)
    pause();
}
