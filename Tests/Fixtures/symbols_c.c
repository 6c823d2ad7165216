// flags: -O2 -g -fomit-frame-pointer -pthread
/* Crashes in its second thread while ten are alive; the argument says how. The lines that a test
 * names carry a mark: their numbers are looked up by it. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
