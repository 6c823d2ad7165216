/* Runs a command where newer system calls do not exist, as on an old kernel or in a strict sandbox.
 *
 *   old_kernel 5.10 COMMAND...      only what Linux 5.10 has
 *   old_kernel sandbox COMMAND...   nor what sandboxes are known to take away */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/ioctl.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef __x86_64__
#error "system call numbers of another architecture"
#endif

enum { LAST_OF_5_10 = 440 /* process_madvise */ };
#define NUMBER offsetof(struct seccomp_data, nr)
#define ARGUMENT(n) (offsetof(struct seccomp_data, args) + 8 * (n))
#define LOAD(what) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (what))
#define ANSWER(what) BPF_STMT(BPF_RET | BPF_K, (what))
#define ERROR(number) ANSWER(SECCOMP_RET_ERRNO | (number))

int main(int argc, char **argv) {
  if (argc < 3) return 64;
  struct sock_filter filter[] = {
      LOAD(NUMBER),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, LAST_OF_5_10, 0, 1),
      ERROR(ENOSYS),
      /* PIDFD_GET_INFO, of 6.13: _IOWR(0xFF, 11, …), whatever the size. */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 5),
      LOAD(ARGUMENT(1)),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0xff0b, 0, 1),
      ERROR(ENOTTY),
      LOAD(NUMBER),
      /* From here on the sandbox. */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 4, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_close_range, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_madvise, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_faccessat2, 0, 1),
      ERROR(ENOSYS),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 3, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3),
      LOAD(ARGUMENT(0)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_PIDFD, 0, 1),
      ERROR(EINVAL),
      ANSWER(SECCOMP_RET_ALLOW),
  };
  unsigned short length = sizeof filter / sizeof *filter;
  if (strcmp(argv[1], "5.10") == 0) {
    filter[9] = (struct sock_filter)ANSWER(SECCOMP_RET_ALLOW);
    length = 10;
  } else if (strcmp(argv[1], "sandbox") != 0) {
    return 64;
  }
  struct sock_fprog program = {length, filter};
  if (geteuid() != 0) prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    perror("old_kernel: seccomp");
    return 71;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
