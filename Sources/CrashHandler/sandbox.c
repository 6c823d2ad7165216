/* Notices that the program puts itself into a sandbox.
 *
 * Context: any. Calls: system calls.
 *
 * A seccomp filter may answer an unknown call with death, and then a program that
 * faulted would seem to have died of SIGSYS. Whether there is a filter cannot be
 * asked without a call that it may forbid, so prctl() is watched: every unprivileged
 * filter begins with PR_SET_NO_NEW_PRIVS. From then on the handler keeps to what any
 * filter must allow for the C library's own abort() and stdio. (A filter that is
 * there from the start has already allowed what the constructor did.) */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <linux/prctl.h>
#include <stdarg.h>

#include "internal.h"
#include "kernel.h"

GUARDIAN_INTERPOSER int GUARDIAN_INTERPOSED(prctl)(int option, ...) {
  long a[4];
  va_list arguments;
  va_start(arguments, option);
  for (int i = 0; i < 4; i++) a[i] = va_arg(arguments, long);
  va_end(arguments);
  long result = guardian_syscall(SYS_prctl, option, a[0], a[1], a[2], a[3], 0);
  if (result < 0 && result >= -4095) {
    errno = (int)-result;
    return -1;
  }
  if (option == PR_SET_NO_NEW_PRIVS || option == PR_SET_SECCOMP)
    __atomic_store_n(&guardian_state.sandboxed, true, __ATOMIC_RELAXED);
  return (int)result;
}
