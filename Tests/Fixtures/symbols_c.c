// flags: -O2 -g -fomit-frame-pointer -pthread
/* Crashes in its second thread while ten are alive; the argument says how. The lines that a test
 * names carry a mark: their numbers are looked up by it. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_barrier_t everybody;
static volatile int sink;

struct order {
  int pieces;
  int *price;
};

static inline __attribute__((always_inline)) int price_of(struct order *order) {
  return *(volatile int *)order->price; /* mark: price */
}

static inline __attribute__((always_inline)) int total(struct order *order) {
  return order->pieces * price_of(order); /* mark: total */
}

__attribute__((noinline)) int charge(struct order *order) {
  sink += 1;
  int sum = total(order); /* mark: charge */
  sink += sum;
  return sum;
}

__attribute__((noinline)) int call_it(int (*function)(int)) {
  sink += 1;
  return function(7) + sink; /* mark: call */
}

__attribute__((noinline)) int recurse(volatile char *before) {
  volatile char here[200];
  here[0] = before[0];
  return recurse(here) + here[1]; /* mark: recurse */
}

static char data_page[4096];

__attribute__((noinline)) void called_by_generated_code(void) {
  *(volatile int *)NULL = 1; /* mark: generated */
}

__attribute__((noinline)) void run_generated_code(void) {
#ifdef __x86_64__
  /* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3};
#else
  /* stp x29,x30,[sp,#-16]!; mov x29,sp; blr x0; ldp x29,x30,[sp],#16; ret */
  static const unsigned code[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0000, 0xa8c17bfd, 0xd65f03c0};
#endif
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  mprotect(page, 4096, PROT_READ | PROT_EXEC);
  __builtin___clear_cache(page, (char *)page + sizeof code);
  ((void (*)(void (*)(void)))page)(called_by_generated_code); /* mark: run */
  sink += 1;
}

static void *work(void *argument) {
  const char *how = argument;
  pthread_barrier_wait(&everybody);
  if (how == NULL)
    for (;;)
      pause();
  if (strcmp(how, "null") == 0) {
    struct order order = {3, NULL};
    sink += charge(&order); /* mark: work */
  } else if (strcmp(how, "null-call") == 0) {
    sink += call_it(NULL);
  } else if (strcmp(how, "data-call") == 0) {
    sink += call_it((int (*)(int))(uintptr_t)data_page);
  } else if (strcmp(how, "recursion") == 0) {
    char first[1] = {0};
    sink += recurse(first);
  } else if (strcmp(how, "generated") == 0) {
    run_generated_code();
  } else if (strcmp(how, "abort") == 0) {
    abort(); /* mark: abort */
  }
  return NULL;
}

int main(int count, char **arguments) {
  enum { THREADS = 10 };
  pthread_t threads[THREADS];
  pthread_barrier_init(&everybody, NULL, THREADS + 1);
  for (int index = 0; index < THREADS; index++)
    pthread_create(&threads[index], NULL, work,
                   index == 0 ? (void *)(count > 1 ? arguments[1] : "null") : NULL);
  pthread_barrier_wait(&everybody);
  pthread_join(threads[0], NULL);
  for (;;)
    pause(); /* mark: main */
}
