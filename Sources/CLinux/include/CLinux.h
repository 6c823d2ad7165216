/* What Swift cannot import by itself: macros and variadic calls of Linux. Nothing here decides
 * anything; each function is one call. */
#ifndef GUARDIAN_CLINUX_H
#define GUARDIAN_CLINUX_H
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "errands.h"
#include "handover.h"
#include "linux_trace.h"
#include "message.h"
#include "process.h"
#include "stream.h"

/* open(2) without a mode: a variadic call. */
int guardian_open(const char *path, int flags);
/* SIGRTMIN: glibc keeps some for itself, so it is a call. */
int guardian_sigrtmin(void);

/* GNU's additions to the C library: asked for here, their names would give Swift a second view of
 * its types. NULL: no such signal. */
const char *guardian_signal_abbreviation(int signal);
/* fcntl(2), F_SETPIPE_SZ. */
int guardian_set_pipe_size(int pipe, int bytes);
/* tee(2) and splice(2) of a pipe, without waiting. */
ssize_t guardian_tee(int from, int to, size_t bytes);
ssize_t guardian_splice(int from, int to, size_t bytes);
/* O_PATH, a GNU name. */
extern const int guardian_open_path;
/* process_vm_readv(2) into one buffer. */
ssize_t guardian_read_process(pid_t pid, const struct iovec *into, const struct iovec *from,
                              unsigned long from_count);

#endif
