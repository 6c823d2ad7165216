#include "CLinux.h"

int guardian_open(const char *path, int flags) { return open(path, flags); }

int guardian_sigrtmin(void) { return SIGRTMIN; }
