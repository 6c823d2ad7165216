/* A program with the handler linked into it, as the module Guardian links it, that uses
 * every call of guardian.h.
 *
 *   handler_linked speak             every call once, then exit 0
 *   handler_linked crash             tells its exception, then a null read
 *   handler_linked crash-thread      in a second thread, by stack overflow
 *   handler_linked torn ROUNDS       a child dies inside a breadcrumb, then ROUNDS further ones
 *   handler_linked crowd P T N       P processes of T threads write N breadcrumbs each, while
 *                                    another process that writes too is killed
 *   handler_linked annotate P        P processes set the same and their own annotations at once
 *   handler_linked forked            a breadcrumb in the parent, in a fork, in a raw clone
 *   handler_linked full              a hundred annotations */
#define _GNU_SOURCE
#include "../api.c"
#include "../channel.c"
#include "../dispositions.c"
#include "../handler.c"
#include "../sandbox.c"
#include "../symbols.c"
#include "../threads.c"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline, noclone)) static void die_linked(void) {
  int *volatile p = NULL;
  *(volatile int *)p = 1;
}
__attribute__((noinline, noclone)) static long deeper(long depth) {
  volatile char block[512];
  block[depth & 511] = 1;
  return deeper(depth + 1) + block[depth & 511];
}
static void *overflow(void *unused) { return (void *)deeper((long)unused); }

static long per_thread;
static void *write_crumbs(void *unused) {
  int pid = getpid(), tid = gettid();
  for (long i = 0; i < per_thread; i++)
    guardian_breadcrumbf(GUARDIAN_WARNING, "crowd", "%d/%d says %ld %.*s", pid, tid, i,
                         (int)(i % 100),
                         "----------------------------------------------------------------------"
                         "------------------------------");
  return unused;
}

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  long a = argc > 2 ? atol(argv[2]) : 0, b = argc > 3 ? atol(argv[3]) : 0;
  if (strcmp(what, "speak") == 0) {
    errno = 77;
    guardian_breadcrumb(GUARDIAN_INFO, "category", "message");
    guardian_breadcrumb(GUARDIAN_FATAL, NULL, NULL);
    guardian_breadcrumbf(GUARDIAN_DEBUG, "number", "%d is %s", 42, "it");
    char longer[400];
    memset(longer, 'x', sizeof longer);
    longer[399] = '\0';
    memcpy(longer + 191, "\xc3\xa4", 2); /* two bytes across the border */
    guardian_breadcrumb(GUARDIAN_ERROR, "a category that is far too long", longer);
    guardian_annotate("tenant", "seven");
    guardian_annotate("tenant", "eight");
    guardian_annotate("gone", "soon");
    guardian_annotate("gone", NULL);
    guardian_heartbeat();
    guardian_heartbeat();
    int kept = errno == 77;
    int ready = guardian_ready();
    const char *last = guardian_last_report();
    printf("present %d ready %d crashed %d last %s errno %d\n", guardian_is_present(), ready,
           guardian_crashed_last_run(), last ? last : "none", kept);
  } else if (strcmp(what, "crash") == 0) {
    uint64_t frames[] = {0x1111, 0x2222};
    guardian_set_exception("First", "is replaced", NULL, 0);
    guardian_set_exception("ParseError", "line 7: no such thing", frames, 2);
    die_linked();
  } else if (strcmp(what, "crash-thread") == 0) {
    pthread_t thread;
    guardian_set_exception("Elsewhere", "of another thread", NULL, 0);
    pthread_create(&thread, NULL, overflow, NULL);
    pthread_join(thread, NULL);
  } else if (strcmp(what, "torn") == 0) {
    guardian_breadcrumb(GUARDIAN_INFO, "torn", "before");
    if (fork() == 0) guardian_breadcrumb_bytes(GUARDIAN_INFO, "torn", 4, (const char *)16, 50);
    wait(NULL);
    for (long i = 0; i < a; i++) guardian_breadcrumb(GUARDIAN_INFO, "torn", "after");
  } else if (strcmp(what, "crowd") == 0) {
    per_thread = argc > 4 ? atol(argv[4]) : 1000;
    pid_t victim = fork();
    if (victim == 0) {
      per_thread = 1L << 40;
      write_crumbs(NULL);
    }
    for (long p = 0; p < a; p++)
      if (fork() == 0) {
        pthread_t threads[64];
        for (long t = 0; t < b; t++) pthread_create(&threads[t], NULL, write_crumbs, NULL);
        for (long t = 0; t < b; t++) pthread_join(threads[t], NULL);
        _exit(0);
      }
    /* In the middle of the others' work. */
    struct guardian_ring_header *ring = guardian_ring();
    while (ring != NULL && __atomic_load_n(&ring->crumb_next, __ATOMIC_RELAXED) < 3000) sched_yield();
    kill(victim, SIGKILL);
    while (wait(NULL) > 0) {}
  } else if (strcmp(what, "annotate") == 0) {
    for (long p = 0; p < a; p++)
      if (fork() == 0) {
        char key[32], value[32];
        for (int i = 0; i < 1000; i++) {
          snprintf(value, sizeof value, "%ld-%d", p, i);
          guardian_annotate("shared", value);
          guardian_annotate("other", value);
          snprintf(key, sizeof key, "own-%ld", p);
          guardian_annotate(key, value);
        }
        _exit(0);
      }
    while (wait(NULL) > 0) {}
  } else if (strcmp(what, "full") == 0) {
    int accepted = 0;
    for (int i = 0; i < 100; i++) {
      char key[32];
      snprintf(key, sizeof key, "key-%d", i);
      accepted += guardian_annotate(key, "value");
    }
    printf("accepted %d\n", accepted);
  } else if (strcmp(what, "forked") == 0) {
    guardian_breadcrumb(GUARDIAN_INFO, "forked", "parent");
    if (fork() == 0) {
      guardian_breadcrumb(GUARDIAN_INFO, "forked", "fork");
      _exit(0);
    }
    wait(NULL);
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
      guardian_breadcrumb(GUARDIAN_INFO, "forked", "clone");
      _exit(0);
    }
    wait(NULL);
  } else {
    return 64;
  }
  return 0;
}
