/* Looks at the alternate signal stack of every kind of thread, as the program itself may.
 * Prints each surprise and exits 1; exits 0 if there was none. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <threads.h>
#include <unistd.h>

static int surprises;
#define CHECK(condition)                                  \
  do {                                                    \
    if (!(condition)) {                                   \
      printf("line %d: not so: %s\n", __LINE__, #condition); \
      surprises++;                                        \
    }                                                     \
  } while (0)

static stack_t now(void) {
  stack_t stack;
  memset(&stack, 0, sizeof stack);
  sigaltstack(NULL, &stack);
  return stack;
}
static int has_stack(void) { return !(now().ss_flags & SS_DISABLE) && now().ss_size >= 16384; }

static pthread_key_t key;
static void at_end(void *value) { CHECK(has_stack()); }
static void *plain(void *value) {
  CHECK(has_stack());
  CHECK(value == &key);
  pthread_setspecific(key, value);
  return (void *)42;
}
static int c11(void *value) {
  CHECK(has_stack());
  return value == &key ? 43 : 0;
}
static void *leaves(void *value) {
  CHECK(has_stack());
  pthread_setspecific(key, value);
  pthread_exit((void *)44);
}
static void *cancelled(void *value) {
  CHECK(has_stack());
  pthread_setspecific(key, value);
  for (;;) pause();
}
/* A stack of its own, which must be left alone also at the thread's end. */
static char own[1 << 16];
static void *with_own(void *value) {
  stack_t stack = {.ss_sp = own, .ss_size = sizeof own};
  CHECK(sigaltstack(&stack, NULL) == 0);
  CHECK(now().ss_sp == own);
  pthread_setspecific(key, value);
  return NULL;
}
static void *disabled(void *value) {
  stack_t none = {.ss_flags = SS_DISABLE};
  CHECK(sigaltstack(&none, NULL) == 0);
  return NULL;
}
static pthread_barrier_t both;
static void *detached(void *value) {
  CHECK(has_stack());
  pthread_barrier_wait(&both);
  return NULL;
}
/* No frame of the handler's own may lie under a thread's. */
static void *backtraced(void *value) {
  void *frames[16];
  char **names = backtrace_symbols(frames, backtrace(frames, 16));
  for (int i = 0; names && i < 3; i++) {
    /* "path/of/module(function+offset) [address]": the path may lie in a folder of any name. */
    char *name = strchr(names[i], '(');
    CHECK(strstr(name ? name : names[i], "guardian") == NULL);
    if (name) *name = 0;
    CHECK(strstr(names[i], "libguardian-handler") == NULL);
  }
  free(names);
  return NULL;
}
static volatile int on_stack;
static void look(int number) { on_stack = (now().ss_flags & SS_ONSTACK) != 0; }
static void *uses_it(void *value) {
  raise(SIGUSR1);
  CHECK(on_stack);
  /* The handler's needs are met: a big frame fits. */
  return NULL;
}

int main(void) {
  pthread_t thread;
  thrd_t other;
  void *result;
  int code = 0;
  pthread_key_create(&key, at_end);
  CHECK(has_stack());
  pthread_create(&thread, NULL, plain, &key);
  pthread_join(thread, &result);
  CHECK(result == (void *)42);
  CHECK(thrd_create(&other, c11, &key) == thrd_success);
  thrd_join(other, &code);
  CHECK(code == 43);
  pthread_create(&thread, NULL, leaves, &key);
  pthread_join(thread, &result);
  CHECK(result == (void *)44);
  pthread_create(&thread, NULL, cancelled, &key);
  pthread_cancel(thread);
  pthread_join(thread, &result);
  CHECK(result == PTHREAD_CANCELED);
  pthread_create(&thread, NULL, with_own, NULL);
  pthread_join(thread, NULL);
  own[0] = own[sizeof own - 1] = 1;
  pthread_create(&thread, NULL, disabled, NULL);
  pthread_join(thread, NULL);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_barrier_init(&both, NULL, 2);
  pthread_create(&thread, &attributes, detached, NULL);
  pthread_barrier_wait(&both);
  pthread_create(&thread, NULL, backtraced, NULL);
  pthread_join(thread, NULL);
  struct sigaction act = {.sa_handler = look, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &act, NULL);
  pthread_create(&thread, NULL, uses_it, NULL);
  pthread_join(thread, NULL);
  /* The smallest stack that a thread may have is not ours to use up. */
  pthread_attr_init(&attributes);
  CHECK(pthread_attr_setstacksize(&attributes, 16384) == 0);
  CHECK(pthread_create(&thread, &attributes, plain, &key) == 0);
  pthread_join(thread, NULL);
  /* A creation that fails gives its stack back. */
  pthread_attr_setstacksize(&attributes, 1L << 46);
  CHECK(pthread_create(&thread, &attributes, plain, &key) != 0);
  fflush(stdout);
  return surprises ? 1 : 0;
}
