#include "CLinux.h"

#include <sys/mman.h>

enum { SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

int guardian_sealed_memory(const char *name, const void *bytes, size_t size) {
  int number = memfd_create(name, MFD_ALLOW_SEALING);
  if (number < 0)
    return -1;
  size_t done = 0;
  while (done < size) {
    ssize_t count = write(number, (const char *)bytes + done, size - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      goto failed;
    done += (size_t)count;
  }
  if (lseek(number, 0, SEEK_SET) == 0 && fcntl(number, F_ADD_SEALS, SEALS) == 0)
    return number;
failed:;
  int error = errno;
  close(number);
  errno = error;
  return -1;
}

bool guardian_is_sealed_memory(int number) {
  int seals = fcntl(number, F_GET_SEALS);
  return seals >= 0 && (seals & SEALS) == SEALS;
}

bool guardian_set_close_on_exec(int number, bool on) {
  int flags = fcntl(number, F_GETFD);
  return flags >= 0 && fcntl(number, F_SETFD, on ? flags | FD_CLOEXEC : flags & ~FD_CLOEXEC) == 0;
}
