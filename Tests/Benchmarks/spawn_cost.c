/* What a preload adds to a program's start: spawns COMMAND by turns without and with the environment
 * NAME=VALUE… and prints both times of each turn, ns, from before the spawn to the end.
 *
 *   spawn_cost TURNS NAME=VALUE… -- COMMAND [ARG…] */
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

extern char **environ;

static long long once(char **command, char **environment) {
  struct timespec start, end;
  pid_t child;
  clock_gettime(CLOCK_MONOTONIC, &start);
  if (posix_spawn(&child, command[0], NULL, NULL, command, environment) != 0) exit(1);
  int status;
  waitpid(child, &status, 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  if (status != 0) exit(2);
  return (end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec;
}

int main(int argc, char **argv) {
  char *with[4096];
  int count = 0, at = 2;
  for (char **variable = environ; *variable != NULL && count < 4000; variable++) with[count++] = *variable;
  for (; at < argc && strcmp(argv[at], "--") != 0; at++) with[count++] = argv[at];
  with[count] = NULL;
  if (at + 1 >= argc) return 64;
  char **command = argv + at + 1;
  for (int i = 0; i < 20; i++) once(command, i % 2 ? with : environ);
  for (int turns = atoi(argv[1]); turns > 0; turns--) {
    /* Who goes first changes: what one turn leaves in the caches serves both alike. */
    long long first = once(command, turns % 2 ? with : environ);
    long long second = once(command, turns % 2 ? environ : with);
    printf("%lld %lld\n", turns % 2 ? second : first, turns % 2 ? first : second);
  }
  return 0;
}
