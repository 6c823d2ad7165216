// flags: -O2 -g -pthread
/* Ten threads; the second one dies of a real fault, two inlined calls deep. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

static pthread_barrier_t all_alive;

static inline __attribute__((always_inline)) void store_price(volatile int *price, int value) {
  *price = value;  // top frame
}

static inline __attribute__((always_inline)) void fill_shelf(uintptr_t shelf, int value) {
  store_price((volatile int *)shelf, value);  // inlined caller
}

static __attribute__((noinline)) void restock(uintptr_t shelf) {
  fill_shelf(shelf, (int)shelf + 3);  // function
  __asm__ volatile("" ::: "memory");
}

static void *work(void *number) {
  char name[16];
  snprintf(name, sizeof name, "worker-%d", (int)(intptr_t)number);
  pthread_setname_np(pthread_self(), name);
  pthread_barrier_wait(&all_alive);
  if ((intptr_t)number == 2) restock(16);
  for (;;) pause();
  return NULL;
}

int main(void) {
  pthread_barrier_init(&all_alive, NULL, 10);
  for (intptr_t number = 2; number <= 10; number++) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, (void *)number);
  }
  pthread_barrier_wait(&all_alive);
  for (;;) pause();
}
