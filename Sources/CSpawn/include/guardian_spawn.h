/* From clone to exec: the only code that runs between the two.
 *
 * Context: the child shares guardian's memory (CLONE_VM) and runs on a small stack of its own
 * while guardian is suspended (CLONE_VFORK). Nothing here may allocate, lock, touch stdio or
 * locale, or call what keeps state in the process; ids are changed by raw system calls, because
 * the C library's wrappers would do it to guardian's threads as well. Everything is prepared in
 * the plan before. */
#ifndef GUARDIAN_SPAWN_H
#define GUARDIAN_SPAWN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* Where a start failed. The order is the order of the steps. */
enum guardian_spawn_step {
  GUARDIAN_SPAWN_NONE = 0,
  GUARDIAN_SPAWN_CLONE,
  GUARDIAN_SPAWN_GROUP,
  GUARDIAN_SPAWN_TERMINAL,
  GUARDIAN_SPAWN_DESCRIPTORS,
  GUARDIAN_SPAWN_OOM_SCORE,
  GUARDIAN_SPAWN_NICE,
  GUARDIAN_SPAWN_LIMIT,
  GUARDIAN_SPAWN_GROUPS,
  GUARDIAN_SPAWN_GID,
  GUARDIAN_SPAWN_UID,
  GUARDIAN_SPAWN_DIRECTORY,
  GUARDIAN_SPAWN_DEATH_SIGNAL,
  GUARDIAN_SPAWN_EXEC,
};

/* Signal state as guardian itself was started with: bit n-1 is signal n. */
struct guardian_signal_state {
  uint64_t ignored;
  uint64_t blocked;
  uint64_t settled; /* an exec now gives the program what it is to have: nothing to set. 0 is right */
};

struct guardian_spawn_descriptor {
  int from;
  int to; /* ascending through the array */
};

struct guardian_spawn_limit {
  int resource;
  uint64_t soft;
  uint64_t hard;
};

enum guardian_spawn_flag {
  /* setpgid(0, 0): a process group of its own. */
  GUARDIAN_SPAWN_OWN_GROUP = 1u << 0,
  /* Change the user to `uid`; what of guardian's own capabilities would outlive that goes too. */
  GUARDIAN_SPAWN_SET_UID = 1u << 1,
  GUARDIAN_SPAWN_SET_NICE = 1u << 2,
  GUARDIAN_SPAWN_SET_UMASK = 1u << 3,
  /* Write the child's own pid over the places in `pid_places`. */
  GUARDIAN_SPAWN_WRITE_PID = 1u << 4,
  /* Fork instead of sharing memory: what a kernel or sandbox without the fast way gets; tests
   * force it. */
  GUARDIAN_SPAWN_PLAIN_FORK = 1u << 5,
  /* Change the group to `gid`. */
  GUARDIAN_SPAWN_SET_GID = 1u << 6,
  /* Change the supplementary groups to `groups`. */
  GUARDIAN_SPAWN_SET_GROUPS = 1u << 7,
};

enum {
  GUARDIAN_SPAWN_PID_PLACES = 2,
  /* Room for a decimal pid and its end, in every place of `pid_places`. */
  GUARDIAN_SPAWN_PID_BYTES = 12,
};

struct guardian_spawn_plan {
  const char *path; /* as execve takes it: the search is over */
  char *const *argv;
  char *const *envp;
  uint32_t flags; /* enum guardian_spawn_flag */
  int terminal;   /* make the child's group the terminal's foreground; -1: do not */
  struct guardian_signal_state signals;
  /* Everything else from 0 upwards is closed. */
  const struct guardian_spawn_descriptor *descriptors;
  uint32_t descriptor_count;
  uint32_t limit_count;
  const struct guardian_spawn_limit *limits;
  const char *oom_score_adjust; /* decimal text; null: leave */
  int nice;
  mode_t umask;
  uid_t uid;
  gid_t gid;
  const gid_t *groups;
  uint32_t group_count;
  int death_signal; /* PR_SET_PDEATHSIG; 0: none */
  const char *directory; /* null: guardian's own */
  char *pid_places[GUARDIAN_SPAWN_PID_PLACES];
  int cgroup; /* the folder of a cgroup to be born in; 0: guardian's own */
};

struct guardian_spawn_result {
  pid_t pid;  /* -1: nothing was cloned. Else it must be reaped, also after a failure. */
  int pidfd;  /* close-on-exec; -1 without a child */
  int step;   /* enum guardian_spawn_step: NONE when the program runs */
  int error;  /* errno of that step */
  int detail; /* DESCRIPTORS: the number in the child; LIMIT: the index in `limits` */
};

/* Call it first thing in main: what nobody has changed yet. */
struct guardian_signal_state guardian_signal_state_save(void);

/* Finds out which signals are settled, once guardian has changed what it changes. */
void guardian_signal_state_settle(struct guardian_signal_state *state);

/* Returns when the program runs (exec is done) or a step failed. All signals are blocked
 * meanwhile, so none is lost between clone and exec. Call it from the thread that lives longest:
 * the death signal is tied to the thread. */
struct guardian_spawn_result guardian_spawn(const struct guardian_spawn_plan *plan);

/* Starts a process in `group` that writes one byte for each INT that the kernel itself sends there:
 * the terminal's interrupt key. It ends when the other end of its socket is shut down, or with
 * guardian. Returns its pid, which must be reaped, and guardian's end; or -1 and errno. */
pid_t guardian_watch_keys(pid_t group, int *end);

/* Whether a process that is born in this cgroup lives. Tries it out. */
bool guardian_spawn_may_enter(int cgroup);

#endif
