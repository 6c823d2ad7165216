// flags: -O1 -g -fno-omit-frame-pointer
/* A service for the tests under a real systemd: it says READY=1 and waits. USR1 makes it crash by a
 * real fault outside of any signal handler. With an argument it ends at once:
 *   crash      by that fault
 *   exit N     with status N */
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

__attribute__((noinline)) static void lose_the_order(int *order) { *order = 1; }

static void say_ready(void) {
  const char *path = getenv("NOTIFY_SOCKET");
  if (path == NULL) return;
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  strncpy(to.sun_path, path, sizeof to.sun_path - 1);
  if (to.sun_path[0] == '@') to.sun_path[0] = 0;
  int notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sendto(notify, "READY=1", 7, MSG_NOSIGNAL, (struct sockaddr *)&to,
         (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
  close(notify);
}

int main(int argc, char **argv) {
  if (argc > 2 && strcmp(argv[1], "exit") == 0) return atoi(argv[2]);
  if (argc > 1 && strcmp(argv[1], "crash") == 0) lose_the_order((int *)16);
  sigset_t crash;
  sigemptyset(&crash);
  sigaddset(&crash, SIGUSR1);
  sigprocmask(SIG_BLOCK, &crash, NULL);
  static const char line[] = "the service is up\n";
  if (write(2, line, sizeof line - 1) < 0) return 1;
  say_ready();
  int which;
  sigwait(&crash, &which);
  lose_the_order((int *)16);
}
