/* What the handler's files know of each other. Nothing here is exported. */
#ifndef GUARDIAN_INTERNAL_H
#define GUARDIAN_INTERNAL_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/un.h>

#include "guardian_ring.h"

#define GUARDIAN_EXPORT __attribute__((visibility("default")))

/* Marks a function of the C library that this library stands before. Weak: the
 * program's own definition wins. A fully static program (built with
 * -DGUARDIAN_STATIC) has no "next" definition to call: there the names are left
 * alone, the handler owns the signals that are at their default at the start, and
 * only the main thread has an alternate stack. */
#define GUARDIAN_INTERPOSER __attribute__((visibility("default"), weak))
#ifdef GUARDIAN_STATIC
#define GUARDIAN_INTERPOSED(name) guardian_not_interposed_##name
#else
#define GUARDIAN_INTERPOSED(name) name
#endif

#pragma GCC visibility push(hidden)

enum guardian_phase {
  GUARDIAN_UNTRIED = 0,
  GUARDIAN_IN_PROGRESS = 1,
  GUARDIAN_INERT = 2,  /* no channel: every interposer passes through */
  GUARDIAN_PASSIVE = 3, /* a preloaded copy owns the signals; the API works */
  GUARDIAN_ACTIVE = 4,
};

/* glibc's own, GLIBC_PRIVATE, the same since 2.4. */
struct guardian_abort_message {
  unsigned int size;
  char text[];
};

/* Written once by guardian_initialise(), read by everything else. */
struct guardian_state {
  uint32_t phase; /* enum guardian_phase, atomic */
  bool yama;      /* PR_SET_PTRACER was understood */
  bool sandboxed; /* atomic: only the calls that every filter allows */
  int32_t initial_pid;
  struct guardian_ring_header *ring; /* NULL: no channel */
  /* The bell as it was opened: someone else's file may have its number by now. */
  int bell;
  uint64_t bell_device;
  uint64_t bell_inode;
  struct sockaddr_un bell_address; /* sun_family 0: its path is too long */
  struct guardian_abort_message **abort_message; /* NULL: this C library has none */
  /* From here to the end of the main thread's stack the kernel put the texts of arguments and
   * environment (create_elf_tables() of Linux puts AT_RANDOM's bytes right below them), the
   * program's path last. */
  uintptr_t texts;
  uintptr_t last_text;
};
extern struct guardian_state guardian_state;

/* channel.c */

/* Brings everything up, once. Cheap afterwards. True: this copy owns the signals. */
bool guardian_initialise(void);
/* The ring, or NULL: API calls do nothing. */
struct guardian_ring_header *guardian_ring(void);

/* symbols.c */

/* The next definition of `name` behind this library in the order of loading,
 * as dlsym(RTLD_NEXT) would find it, but without a lock of the loader's error
 * state and without malloc; NULL if there is none. */
void *guardian_next_symbol(const char *name);
/* Any definition of `name` outside of this library. */
void *guardian_any_symbol(const char *name);

/* dispositions.c */

bool guardian_find_real_dispositions(void);
void guardian_install_dispositions(void);
/* The number of signals the handler owns; bit n-1 for signal n. */
uint64_t guardian_owned_signals(void);

/* threads.c */

void guardian_main_thread_stack(void);

/* handler.c */

void guardian_on_crash(int signal_number, siginfo_t *info, void *context);

/* api.c */

/* Copies a pending exception of this thread into the record, if there is one. */
void guardian_copy_exception(struct guardian_crash_record *record, int32_t pid, int32_t tid);

#pragma GCC visibility pop

static inline struct guardian_crash_record *guardian_slot(struct guardian_ring_header *ring,
                                                          uint32_t slot) {
  return (struct guardian_crash_record *)((char *)ring + GUARDIAN_RING_SLOT_OFFSET +
                                          (size_t)slot * GUARDIAN_RING_SLOT_SIZE);
}

#endif
