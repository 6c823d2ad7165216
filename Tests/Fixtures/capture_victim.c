/* A program to take snapshots of. It plays the part of the in-process handler in the smallest
 * way: writes its crash record into the ring and waits for the release.
 *
 *   capture_victim RING THREADS WHAT [LIBRARY]
 *
 * WHAT: crash (a null pointer in a second thread), overflow (of the main thread's stack),
 * hang (wait for ever), stuck (like crash, but one thread waits for a vfork child, which no
 * tracer can stop), spin (like crash, the other threads compute).
 * Prints `ready TID`, and `released` if it was let go by the ring. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include "guardian_ring.h"

struct node {
  int value;
  struct node *next;
};

volatile int changed_global = 1;
volatile int unchanged_global = 1234;
volatile int zero_global;
volatile int many_zeros[4096];
static char *volatile far_memory;
struct node *volatile list;
static __thread volatile int thread_number;

static unsigned char *ring;
static volatile int stop_spinning;

static void say(const char *word, int number) {
  char line[64];
  int size = snprintf(line, sizeof line, "%s %d\n", word, number);
  if (write(1, line, size) != size) _exit(3);
}

static void handler(int signal, siginfo_t *info, void *context_) {
  ucontext_t *context = context_;
  struct guardian_crash_record *record = (void *)(ring + GUARDIAN_RING_SLOT_OFFSET);
  record->state = GUARDIAN_SLOT_WRITING;
  record->architecture = GUARDIAN_ARCHITECTURE_X86_64;
  record->pid = getpid();
  record->tid = syscall(SYS_gettid);
  record->signal = signal;
  record->code = info->si_code;
  record->address = (uintptr_t)info->si_addr;
  memcpy(record->siginfo, info, sizeof record->siginfo);
  record->register_count = 23;
  memcpy(record->registers, context->uc_mcontext.gregs, 23 * 8);
  record->context_address = (uintptr_t)context;
  record->parts = GUARDIAN_PART_SIGNAL | GUARDIAN_PART_REGISTERS;
  __atomic_store_n(&record->state, GUARDIAN_SLOT_COMPLETE, __ATOMIC_RELEASE);
  say("ready", record->tid);
  struct timespec slice = {0, 2000000};
  for (int i = 0; i < 10000 && !__atomic_load_n(&record->release, __ATOMIC_ACQUIRE); i++)
    syscall(SYS_futex, &record->release, FUTEX_WAIT, 0, &slice, NULL, 0);
  if (record->release) say("released", record->tid);
  struct sigaction plain = {.sa_handler = SIG_DFL};
  sigaction(signal, &plain, NULL);
}

__attribute__((noinline)) static int waiting_work(int depth) {
  if (depth > 0) return waiting_work(depth - 1) + 1;
  for (;;) pause();
}
__attribute__((noinline)) static void spinning_work(void) {
  while (!stop_spinning) changed_global = 4242;
}

static pthread_barrier_t barrier;
static const char *what;

static void *waiter(void *number) {
  thread_number = (int)(intptr_t)number;
  pthread_barrier_wait(&barrier);
  if (strcmp(what, "spin") == 0) spinning_work();
  waiting_work(3);
  return NULL;
}

static void *stuck(void *unused) {
  (void)unused;
  pthread_barrier_wait(&barrier);
  if (vfork() == 0) {
    /* The child goes when its parent is dead, or after a minute. */
    pid_t parent = getppid();
    for (int i = 0; i < 1200 && getppid() == parent; i++) usleep(50000);
    _exit(0);
  }
  return NULL;
}

__attribute__((noinline)) static int crash_here(struct node *node, int *target) {
  int local_value = node->value + 1000;
  *target = local_value;
  return local_value + node->next->value;
}

static void *crasher(void *unused) {
  (void)unused;
  thread_number = 99;
  struct node *second = malloc(sizeof *second), *first = malloc(sizeof *first);
  *second = (struct node){22, NULL};
  *first = (struct node){11, second};
  list = first;
  pthread_barrier_wait(&barrier);
  return (void *)(intptr_t)crash_here(first, NULL);
}

__attribute__((noinline)) static int overflow(int depth, volatile char *before) {
  volatile char room[512];
  room[0] = before ? before[0] : 1;
  return overflow(depth + 1, room) + room[0];
}

int main(int count, char **words) {
  if (count < 4) return 2;
  int file = open(words[1], O_RDWR);
  ring = mmap(NULL, GUARDIAN_RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (ring == MAP_FAILED) return 2;
  close(file);
  int threads = atoi(words[2]);
  what = words[3];
  if (count > 4) {
    void *library = dlopen(words[4], RTLD_NOW);
    int (*touch)(int) = library ? (int (*)(int))dlsym(library, "library_touch") : NULL;
    if (!touch || touch(5151) != 5151) return 4;
  }
  changed_global = 4242;
  zero_global = 77;
  many_zeros[2000] = 2000;
  far_memory = malloc(64 << 20);
  far_memory[32 << 20] = 7;

  size_t stack_size = 128 << 10;
  stack_t stack = {.ss_sp = malloc(stack_size), .ss_size = stack_size};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
  sigaction(SIGSEGV, &action, NULL);

  int crashes = strcmp(what, "crash") == 0 || strcmp(what, "stuck") == 0 ||
                strcmp(what, "spin") == 0;
  int is_stuck = strcmp(what, "stuck") == 0;
  pthread_barrier_init(&barrier, NULL, threads + 1 + crashes + is_stuck);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, 256 << 10);
  pthread_t thread;
  for (int i = 0; i < threads; i++)
    pthread_create(&thread, &attributes, waiter, (void *)(intptr_t)(i + 1));
  if (is_stuck) pthread_create(&thread, &attributes, stuck, NULL);
  if (crashes) pthread_create(&thread, &attributes, crasher, NULL);
  pthread_barrier_wait(&barrier);
  if (strcmp(what, "overflow") == 0) return overflow(0, NULL);
  if (strcmp(what, "hang") == 0) say("ready", getpid());
  waiting_work(2);
}
