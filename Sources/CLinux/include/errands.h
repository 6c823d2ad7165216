/* Errands: what may wait in the kernel for ever, because a stranger decides when it goes on (a file
 * system of his own, a socket that lingers, memory that nobody serves). Each is done by a child that
 * is a plain fork and makes nothing but system calls; whoever sent it waits for nothing longer than
 * he likes, and goes on when the child hangs and cannot even be killed.
 *
 * All return the child's pid, which must be reaped, and `*end`, close-on-exec; or -1 with errno. */
#ifndef GUARDIAN_CLINUX_ERRANDS_H
#define GUARDIAN_CLINUX_ERRANDS_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* What guardian_errand_take answers, with the descriptors of the kept ones beside it. */
struct guardian_taken {
  int refused; /* neither socket, pipe, memory file nor event */
  int beyond;  /* there was no room for them */
};

/* Takes the datagram that waits first at `socket`, with its descriptors: they end in the child and
 * never come to the caller. But for the first `room` of those that can do no harm: these come with a
 * struct guardian_taken, one packet at `*end`. What the datagram says is to be peeked at before. */
pid_t guardian_errand_take(int socket, int room, int *end);

/* Holds copies of these descriptors (ascending) until `*end` is closed: then the child closes them,
 * and if it was the last to have them, it is the one who waits. */
pid_t guardian_errand_hold(const int *numbers, int count, int *end);

/* Reads files, at most `limits[i]` bytes of each. `*end` is a pipe: of each file pieces with their
 * length before them (unsigned, the machine's own order), and a length of 0 behind the last. */
pid_t guardian_errand_read(const char *const *paths, const unsigned *limits, int count, int *end);

/* Looks through memory for the marks of guardian's programs. `threads[i]` is a thread of process
 * `pids[i]`. `*end` is a pipe: one byte for each, in order: GUARDIAN_SEARCH_….
 * A mark is followed by the name of a channel, and in the mappings by "/ring". `channels`: which names,
 * one behind the other; empty: any. */
enum {
  GUARDIAN_SEARCH_NOTHING = 0,
  GUARDIAN_SEARCH_FOUND = 1,
  /* It has no environment: it may be on its way through exec. */
  GUARDIAN_SEARCH_EMPTY = 2,
};
pid_t guardian_errand_search(const int *pids, const int *threads, int count,
                             const char *in_environment, const char *in_mappings,
                             const char *channels, int *end);

#endif
