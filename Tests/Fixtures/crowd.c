// flags: -O1 -g -fno-omit-frame-pointer
/* A server with N workers, all of which crash at the same moment when USR1 comes; the server itself
 * reaps them and serves on. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) static void spoil_the_crop(int *crop) { *crop = 1; }

int main(int argc, char **argv) {
  int count = argc > 1 ? atoi(argv[1]) : 8;
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR1);
  sigprocmask(SIG_BLOCK, &wanted, NULL);
  int ends[2];
  if (pipe(ends) != 0) return 1;
  for (int i = 0; i < count; i++) {
    pid_t worker = fork();
    if (worker < 0) return 1;
    if (worker > 0) continue;
    close(ends[1]);
    char byte;
    /* The end of the pipe wakes all of them. */
    if (read(ends[0], &byte, 1) == 0) spoil_the_crop((int *)16);
    _exit(0);
  }
  close(ends[0]);
  fprintf(stderr, "%d workers wait\n", count);
  int signal;
  sigwait(&wanted, &signal);
  close(ends[1]);
  int killed = 0;
  for (int i = 0; i < count; i++) {
    int status = 0;
    if (wait(&status) > 0 && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV) killed++;
  }
  fprintf(stderr, "%d workers died of SIGSEGV\n", killed);
  sigwait(&wanted, &signal);
  return 0;
}
