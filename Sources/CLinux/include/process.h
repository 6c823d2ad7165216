/* Waiting for processes and pointing at them: calls without a C library wrapper, and unions that
 * Swift cannot import. Return -1 with errno, like the calls themselves. */
#ifndef GUARDIAN_CLINUX_PROCESS_H
#define GUARDIAN_CLINUX_PROCESS_H
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct guardian_wait {
  pid_t pid;  /* 0: nobody */
  int code;   /* CLD_EXITED, CLD_KILLED, CLD_DUMPED */
  int status; /* exit status or signal */
};

/* Looks at one child that ended, and leaves it there. */
int guardian_wait_look(struct guardian_wait *result);
/* Takes this child; pid 0 in the result: it has not ended. */
int guardian_wait_take(pid_t pid, struct guardian_wait *result);

/* The signal that stopped this child since it was last asked; 0: it was not stopped. */
int guardian_wait_stopped(pid_t pid);

int guardian_pidfd_open(pid_t pid);
int guardian_pidfd_send_signal(int pidfd, int signal);
/* Wait status of a process that ended, as any holder may ask (PIDFD_GET_INFO with
 * PIDFD_INFO_EXIT, Linux 6.15). -1 ENOTTY/EINVAL: this kernel cannot say. -1 EAGAIN: not ended. */
int guardian_pidfd_exit_status(int pidfd, int *status);

/* Closes nothing: marks every descriptor from `first` on close-on-exec, so that what guardian's
 * own parent left open does not reach anybody. */
void guardian_close_on_exec_from(int first);

/* ioctl numbers that are expressions to the preprocessor. */
extern const unsigned long guardian_tiocsptlck;
extern const unsigned long guardian_tiocgptpeer;

/* PR_SET_CHILD_SUBREAPER. */
void guardian_become_subreaper(void);

/* Lets go of the code and constants that only start-up needed: clean pages of files, which come
 * back from the page cache when they are touched. */
void guardian_forget_start_up(void);

/* memmem(3), a GNU extension. */
bool guardian_contains(const void *bytes, size_t size, const void *pattern, size_t length);
#endif
