/* An alternate stack for every thread, so that a stack overflow is reported.
 *
 * Context: the constructor, pthread_create()'s caller, the start and the end of
 * a thread; never in a signal. No malloc. Calls: the real pthread_create,
 * thrd_create, pthread_key_create and pthread_setspecific, getauxval, and system calls.
 *
 * A block is one mapping: a guard page, the stack, and at its top the few words
 * that the new thread starts from. Blocks of ended threads are kept for the next
 * ones. A thread that sets an alternate stack of its own keeps that one. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <threads.h>

#include "internal.h"
#include "kernel.h"

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

enum {
  /* What a handler may use beyond the kernel's own frames. Programs' handlers
   * with SA_ONSTACK run here too where they had a whole thread stack before (a
   * JVM writes its error log from there), so it is generous; untouched pages
   * cost nothing. */
  HANDLER_NEEDS = 192 * 1024,
  /* Our handler, and a fault within it. */
  NESTED_FRAMES = 3,
  KEPT_BLOCKS = 64,
};

struct block {
  union {
    void *(*posix)(void *);
    int (*c11)(void *);
  } start;
  void *argument;
  char *mapping; /* where the guard page begins */
  size_t size;   /* of the whole mapping */
  int rounds;    /* of key destructors this thread has gone through */
};

typedef int (*pthread_create_function)(pthread_t *, const pthread_attr_t *, void *(*)(void *),
                                       void *);
typedef int (*thrd_create_function)(thrd_t *, thrd_start_t, void *);
static pthread_create_function real_pthread_create;
static thrd_create_function real_thrd_create;
static int (*real_setspecific)(pthread_key_t, const void *);

static pthread_key_t key;
static uint32_t key_state; /* 0 none, 1 being made, 2 made; atomic */
static struct block *kept[KEPT_BLOCKS];

static size_t page_size(void) {
  size_t size = getauxval(AT_PAGESZ);
  return size ? size : 4096;
}

static size_t block_size(void) {
  static size_t size;
  size_t known = __atomic_load_n(&size, __ATOMIC_RELAXED);
  if (known == 0) {
    size_t frame = getauxval(AT_MINSIGSTKSZ);
    if (frame < 4096) frame = 4096;
    size_t page = page_size();
    known = (page + NESTED_FRAMES * frame + HANDLER_NEEDS + page - 1) & ~(page - 1);
    __atomic_store_n(&size, known, __ATOMIC_RELAXED);
  }
  return known;
}

static struct block *take_block(void) {
  for (int i = 0; i < KEPT_BLOCKS; i++)
    if (__atomic_load_n(&kept[i], __ATOMIC_RELAXED) != NULL) {
      struct block *block = __atomic_exchange_n(&kept[i], NULL, __ATOMIC_ACQUIRE);
      if (block != NULL) return block;
    }
  size_t size = block_size(), page = page_size();
  /* Reserved without rights, then opened above the guard page. */
  long mapping = guardian_call6(SYS_mmap, 0, size, PROT_NONE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (mapping < 0 && mapping >= -4095) return NULL;
  long open = guardian_call3(SYS_mprotect, mapping + (long)page, size - page,
                             PROT_READ | PROT_WRITE);
  if (open != 0) {
    guardian_call2(SYS_munmap, mapping, size);
    return NULL;
  }
  struct block *block =
      (struct block *)((uintptr_t)(mapping + (long)size - (long)sizeof(struct block)) & ~15ul);
  block->mapping = (char *)mapping;
  block->size = size;
  return block;
}

static void give_back(struct block *block) {
  for (int i = 0; i < KEPT_BLOCKS; i++) {
    struct block *none = NULL;
    if (__atomic_load_n(&kept[i], __ATOMIC_RELAXED) == NULL &&
        __atomic_compare_exchange_n(&kept[i], &none, block, false, __ATOMIC_RELEASE,
                                    __ATOMIC_RELAXED))
      return;
  }
  guardian_call2(SYS_munmap, block->mapping, block->size);
}

static stack_t stack_of(const struct block *block) {
  char *bottom = block->mapping + page_size();
  stack_t stack = {.ss_sp = bottom, .ss_size = (size_t)((char *)block - bottom)};
  return stack;
}

/* The key's destructor. The other destructors of a thread may crash as well, so
 * the stack is kept until the last round. */
static void thread_ends(void *value) {
  struct block *block = value;
  if (++block->rounds < PTHREAD_DESTRUCTOR_ITERATIONS && real_setspecific(key, block) == 0) return;
  stack_t now = {0}, none = {.ss_flags = SS_DISABLE};
  guardian_call2(SYS_sigaltstack, 0, &now);
  /* In use at this moment: the thread ends out of a signal handler. It is lost. */
  if (now.ss_flags & SS_ONSTACK) return;
  if (now.ss_sp == stack_of(block).ss_sp) guardian_call2(SYS_sigaltstack, &none, 0);
  give_back(block);
}

/* False: this C library has no threads here (glibc before 2.34 without libpthread). */
static bool find_real(void) {
  uint32_t state = __atomic_load_n(&key_state, __ATOMIC_ACQUIRE);
  if (state == 2) return true;
  if (real_pthread_create == NULL) real_pthread_create = guardian_next_symbol("pthread_create");
  if (real_thrd_create == NULL) real_thrd_create = guardian_next_symbol("thrd_create");
  if (guardian_state.phase != GUARDIAN_ACTIVE) return false;
  int (*key_create)(pthread_key_t *, void (*)(void *)) =
      guardian_any_symbol("pthread_key_create");
  real_setspecific = guardian_any_symbol("pthread_setspecific");
  if (key_create == NULL || real_setspecific == NULL || real_pthread_create == NULL) return false;
  state = 0;
  if (!__atomic_compare_exchange_n(&key_state, &state, 1, false, __ATOMIC_ACQUIRE,
                                   __ATOMIC_RELAXED))
    return false; /* another thread is at it: this one goes without a stack */
  state = key_create(&key, thread_ends) == 0 ? 2 : 0;
  __atomic_store_n(&key_state, state, __ATOMIC_RELEASE);
  return state == 2;
}

static inline void thread_begins(struct block *block) {
  stack_t stack = stack_of(block);
  block->rounds = 0;
  guardian_call2(SYS_sigaltstack, &stack, 0);
  if (real_setspecific(key, block) != 0) {
    /* No one would give it back: do without. */
    stack_t none = {.ss_flags = SS_DISABLE};
    guardian_call2(SYS_sigaltstack, &none, 0);
  }
}

/* Both end in a jump, not a call: no frame of ours is in the thread's stack. */
static void *posix_thread(void *value) {
  struct block *block = value;
  void *(*start)(void *) = block->start.posix;
  void *argument = block->argument;
  thread_begins(block);
  return start(argument);
}
static int c11_thread(void *value) {
  struct block *block = value;
  int (*start)(void *) = block->start.c11;
  void *argument = block->argument;
  thread_begins(block);
  return start(argument);
}

static struct block *block_for_thread(void) {
  guardian_initialise();
  if (!find_real()) return NULL;
  struct block *block = take_block();
  if (block == NULL)
    __atomic_fetch_or(&guardian_state.ring->handler_flags, GUARDIAN_HANDLER_NO_MEMORY,
                      __ATOMIC_RELAXED);
  return block;
}

GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(pthread_create)(pthread_t *thread,
                                                            const pthread_attr_t *attributes,
                                                            void *(*start)(void *),
                                                            void *argument) {
  struct block *block = block_for_thread();
  if (block == NULL)
    return real_pthread_create ? real_pthread_create(thread, attributes, start, argument) : ENOSYS;
  block->start.posix = start;
  block->argument = argument;
  int result = real_pthread_create(thread, attributes, posix_thread, block);
  if (result != 0) give_back(block);
  return result;
}

GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(thrd_create)(thrd_t *thread, thrd_start_t start,
                                                         void *argument) {
  struct block *block = block_for_thread();
  if (real_thrd_create == NULL) {
    if (block) give_back(block);
    return thrd_error;
  }
  if (block == NULL) return real_thrd_create(thread, start, argument);
  block->start.c11 = start;
  block->argument = argument;
  int result = real_thrd_create(thread, c11_thread, block);
  if (result != thrd_success) give_back(block);
  return result;
}

void guardian_main_thread_stack(void) {
  stack_t now = {0};
  if (guardian_call2(SYS_sigaltstack, 0, &now) != 0 || !(now.ss_flags & SS_DISABLE)) return;
  struct block *block = take_block();
  uint32_t flag = GUARDIAN_HANDLER_NO_MEMORY;
  if (block != NULL) {
    stack_t stack = stack_of(block);
    if (guardian_call2(SYS_sigaltstack, &stack, 0) == 0) flag = GUARDIAN_HANDLER_ALTSTACK;
  }
  __atomic_fetch_or(&guardian_state.ring->handler_flags, flag, __ATOMIC_RELAXED);
}
