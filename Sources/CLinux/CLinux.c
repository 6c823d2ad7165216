#include "CLinux.h"

int guardian_open(const char *path, int flags) { return open(path, flags); }

const char *guardian_signal_abbreviation(int signal) { return sigabbrev_np(signal); }

int guardian_set_pipe_size(int pipe, int bytes) { return fcntl(pipe, F_SETPIPE_SZ, bytes); }

ssize_t guardian_tee(int from, int to, size_t bytes) {
  return tee(from, to, bytes, SPLICE_F_NONBLOCK);
}

ssize_t guardian_splice(int from, int to, size_t bytes) {
  return splice(from, NULL, to, NULL, bytes, SPLICE_F_NONBLOCK);
}

const int guardian_open_path = O_PATH;

ssize_t guardian_read_process(pid_t pid, const struct iovec *into, const struct iovec *from,
                              unsigned long from_count) {
  return process_vm_readv(pid, into, 1, from, from_count, 0);
}

int guardian_sigrtmin(void) { return SIGRTMIN; }
