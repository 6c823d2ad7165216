/* What the handler costs a program that does not crash.
 *
 *   cc -O2 -pthread -o handler_cost Tests/Benchmarks/handler_cost.c -ldl
 *   handler_cost start RUNS LIBRARY CHANNEL   fork, exec and end of this program, without and
 *                                             with the handler preloaded, alternating: µs each
 *   handler_cost threads N                    creates and joins N threads one by one: µs each
 *   handler_cost many N                       N threads alive at once, then joined: µs each
 *   handler_cost breadcrumb N                 ns a breadcrumb, one thread
 *   handler_cost breadcrumbs N T              ns a breadcrumb, T threads at once
 *
 * LIBRARY is .build/release/libguardian-handler.so, CHANNEL a folder with a ring and a bell
 * as guardian makes it. All but `start` are to be run as they are, and once more with
 * LD_PRELOAD=LIBRARY GUARDIAN_CHANNEL=CHANNEL; the difference is the cost. The breadcrumb
 * rows need the library. Each prints one line: "name value unit". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static double now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}
static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}
static double median(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, by_value);
  return values[count / 2];
}

static double one_start(char *self, char **variables) {
  char *arguments[] = {self, "nothing", NULL};
  pid_t pid;
  double before = now_us();
  if (posix_spawn(&pid, self, NULL, NULL, arguments, variables) != 0) exit(1);
  waitpid(pid, NULL, 0);
  return now_us() - before;
}

static void *nothing(void *value) { return value; }
static pthread_barrier_t all;
static void *wait_for_all(void *value) {
  pthread_barrier_wait(&all);
  return value;
}

static void (*breadcrumb)(int, const char *, const char *);
static long per_thread;
static void *write_crumbs(void *value) {
  for (long i = 0; i < per_thread; i++)
    breadcrumb(1, "bench", "a message of an ordinary length, as programs write them");
  return value;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  int n = argc > 2 ? atoi(argv[2]) : 1000;
  if (strcmp(what, "nothing") == 0) _exit(0);
  if (strcmp(what, "start") == 0 && argc == 5) {
    static char preload[4096], channel[4096];
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", argv[3]);
    snprintf(channel, sizeof channel, "GUARDIAN_CHANNEL=%s", argv[4]);
    char *bare[] = {NULL}, *with[] = {preload, channel, NULL};
    double *a = malloc(sizeof *a * (size_t)n), *b = malloc(sizeof *b * (size_t)n);
    for (int i = 0; i < n; i++) {
      a[i] = one_start(argv[0], bare);
      b[i] = one_start(argv[0], with);
    }
    double without = median(a, n), preloaded = median(b, n);
    printf("start-without %.1f us\nstart-preloaded %.1f us\nstart-added %.1f us\n", without,
           preloaded, preloaded - without);
  } else if (strcmp(what, "threads") == 0) {
    double *values = malloc(sizeof *values * (size_t)n);
    for (int i = 0; i < n; i++) {
      pthread_t thread;
      double before = now_us();
      pthread_create(&thread, NULL, nothing, NULL);
      pthread_join(thread, NULL);
      values[i] = now_us() - before;
    }
    printf("thread-create-join %.2f us\n", median(values, n));
  } else if (strcmp(what, "many") == 0) {
    pthread_t *threads = malloc(sizeof *threads * (size_t)n);
    pthread_barrier_init(&all, NULL, (unsigned)n + 1);
    double before = now_us();
    for (int i = 0; i < n; i++)
      if (pthread_create(&threads[i], NULL, wait_for_all, NULL) != 0) return 1;
    double created = now_us();
    pthread_barrier_wait(&all);
    for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
    printf("threads-at-once-create %.2f us\n", (created - before) / n);
  } else if (strncmp(what, "breadcrumb", 10) == 0) {
    breadcrumb = (void (*)(int, const char *, const char *))dlsym(RTLD_DEFAULT, "guardian_breadcrumb");
    if (breadcrumb == NULL) {
      fprintf(stderr, "handler_cost: the handler is not preloaded\n");
      return 1;
    }
    int count = argc > 3 ? atoi(argv[3]) : 1;
    pthread_t threads[256];
    if (count > 256) count = 256;
    per_thread = 10000;
    write_crumbs(NULL);
    per_thread = n;
    double before = now_us();
    for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, write_crumbs, NULL);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
    printf("breadcrumb-%d-threads %.1f ns\n", count, (now_us() - before) * 1e3 / ((double)n * count));
  } else {
    fprintf(stderr, "handler_cost: see the head of the source\n");
    return 64;
  }
  return 0;
}
