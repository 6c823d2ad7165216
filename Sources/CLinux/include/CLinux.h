/* What Swift cannot import by itself: macros and variadic calls of Linux. Nothing here decides
 * anything; each function is one call. */
#ifndef GUARDIAN_CLINUX_H
#define GUARDIAN_CLINUX_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
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
#include <sys/xattr.h>
#include <unistd.h>

#include "linux_trace.h"
#include "message.h"
#include "process.h"

/* open(2) without a mode: a variadic call. */
int guardian_open(const char *path, int flags);
/* SIGRTMIN: glibc keeps some for itself, so it is a call. */
int guardian_sigrtmin(void);

#endif
