#include "CLinux.h"

#include <dirent.h>
#include <link.h>
#include <linux/close_range.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int wait_for(idtype_t type, pid_t pid, int options, struct guardian_wait *result) {
  siginfo_t info;
  int outcome;
  memset(&info, 0, sizeof info);
  do
    outcome = waitid(type, (id_t)pid, &info, WEXITED | WNOHANG | options);
  while (outcome != 0 && errno == EINTR);
  if (outcome != 0)
    return -1;
  *result = (struct guardian_wait){info.si_pid, info.si_code, info.si_status};
  return 0;
}

int guardian_wait_look(struct guardian_wait *result) { return wait_for(P_ALL, 0, WNOWAIT, result); }

int guardian_wait_take(pid_t pid, struct guardian_wait *result) {
  return wait_for(P_PID, pid, 0, result);
}

int guardian_wait_stopped(pid_t pid) {
  siginfo_t info;
  memset(&info, 0, sizeof info);
  if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOHANG) != 0 || info.si_pid == 0)
    return 0;
  return info.si_status;
}

int guardian_pidfd_open(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

int guardian_pidfd_send_signal(int pidfd, int signal) {
  return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

/* linux/pidfd.h of 6.15; Debian 12's headers do not have it. */
struct pidfd_info {
  uint64_t mask;
  uint64_t cgroupid;
  uint32_t pid, tgid, ppid;
  uint32_t ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
  int32_t exit_code;
};
#define PIDFD_GET_INFO_CALL _IOWR(0xFF, 11, struct pidfd_info)
#define PIDFD_INFO_EXIT_BIT (UINT64_C(1) << 3)

int guardian_pidfd_exit_status(int pidfd, int *status) {
  struct pidfd_info info;
  memset(&info, 0, sizeof info);
  info.mask = PIDFD_INFO_EXIT_BIT;
  if (ioctl(pidfd, PIDFD_GET_INFO_CALL, &info) != 0)
    return -1;
  if (!(info.mask & PIDFD_INFO_EXIT_BIT)) {
    errno = EAGAIN;
    return -1;
  }
  *status = info.exit_code;
  return 0;
}

void guardian_close_on_exec_from(int first) {
  if (syscall(SYS_close_range, (unsigned)first, ~0u, CLOSE_RANGE_CLOEXEC) == 0)
    return;
  DIR *folder = opendir("/proc/self/fd"); /* the flag is of Linux 5.11 */
  if (!folder)
    return;
  for (struct dirent *entry; (entry = readdir(folder));) {
    int number = atoi(entry->d_name);
    if (number >= first)
      fcntl(number, F_SETFD, FD_CLOEXEC);
  }
  closedir(folder);
}

bool guardian_contains(const void *bytes, size_t size, const void *pattern, size_t length) {
  return memmem(bytes, size, pattern, length) != NULL;
}

const unsigned long guardian_tiocsptlck = TIOCSPTLCK;
const unsigned long guardian_tiocgptpeer = TIOCGPTPEER;

void guardian_become_subreaper(void) { prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

static int forget_segments(struct dl_phdr_info *object, size_t size, void *context) {
  (void)size;
  (void)context;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  for (int i = 0; i < object->dlpi_phnum; i++) {
    const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
    if (segment->p_type != PT_LOAD || segment->p_flags & PF_W)
      continue;
    uintptr_t start = (object->dlpi_addr + segment->p_vaddr + page - 1) & ~(page - 1);
    uintptr_t end = (object->dlpi_addr + segment->p_vaddr + segment->p_memsz) & ~(page - 1);
    if (start < end)
      madvise((void *)start, end - start, MADV_DONTNEED);
  }
  return 0;
}

void guardian_forget_start_up(void) { dl_iterate_phdr(forget_segments, NULL); }
