/* The program that is restarted over and over: it writes down when its first own instruction ran and
 * when it was about to end, into a file that the benchmark maps as well.
 *
 *   stamp FILE ENDING LIFE-µs [THREADS waiting|spinning]
 *
 * ENDING: exit (status 1), kill (SIGKILL by itself), segv, pause (never). Builds dynamic and static;
 * needs libc only. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct life {
  int64_t start; /* CLOCK_MONOTONIC, ns */
  int64_t end;
  int64_t end_realtime;
  int64_t pid;
};
struct file {
  _Atomic int64_t count;
  int64_t limit; /* from this life on it does not end by itself; 0: none */
  int64_t reserved[2];
  struct life lives[32767];
};

static struct file *file;
static struct life *life;

static int64_t now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* The first instruction that is the program's own: before main, behind the loader. */
__attribute__((constructor)) static void stamp_start(int argc, char **argv) {
  int64_t start = now(CLOCK_MONOTONIC);
  if (argc < 4) _exit(64);
  int descriptor = open(argv[1], O_RDWR | O_CLOEXEC);
  file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (descriptor < 0 || file == MAP_FAILED) _exit(65);
  close(descriptor);
  int64_t index = atomic_fetch_add(&file->count, 1);
  life = &file->lives[index % 32767];
  life->start = start;
  life->end = 0;
  life->pid = getpid();
}

__attribute__((noinline)) static void wait_deep(volatile int depth) {
  if (depth > 0) {
    wait_deep(depth - 1);
    __asm__ volatile("");
    return;
  }
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
  pthread_mutex_lock(&mutex);
  for (;;) pthread_cond_wait(&never, &mutex);
}

static void *wait_thread(void *depth) {
  wait_deep((int)(intptr_t)depth);
  return NULL;
}

static void *spin_thread(void *unused) {
  (void)unused;
  for (volatile uint64_t turns = 0;; turns++) {
  }
}

static const char *ending;

static void *end_thread(void *unused) {
  (void)unused;
  life->end_realtime = now(CLOCK_REALTIME);
  life->end = now(CLOCK_MONOTONIC);
  if (strcmp(ending, "exit") == 0) _exit(1);
  if (strcmp(ending, "kill") == 0) kill(getpid(), SIGKILL);
  if (strcmp(ending, "segv") == 0) *(volatile int *)16 = 1;
  return NULL;
}

int main(int argc, char **argv) {
  ending = argv[2];
  if (file->limit > 0 && file->count >= file->limit) ending = "pause";
  if (strcmp(ending, "pause") == 0)
    for (;;) pause();
  int threads = argc > 5 ? atoi(argv[4]) : 0;
  int spinning = threads > 0 && strcmp(argv[5], "spinning") == 0;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  for (int i = 1; i < threads; i++) {
    pthread_t thread;
    pthread_create(&thread, &attributes, spinning ? spin_thread : wait_thread, (void *)(intptr_t)(4 + i % 8));
  }
  int64_t microseconds = atoll(argv[3]);
  struct timespec time = {microseconds / 1000000, microseconds % 1000000 * 1000};
  nanosleep(&time, NULL);
  end_thread(NULL);
  return 0;
}
