/* Makes a channel folder as guardian does, so that the handler's own cost can be measured without
 * guardian: channel FOLDER. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guardian_ring.h"

int main(int argc, char **argv) {
  if (argc != 2 || chdir(argv[1]) != 0) return 64;
  struct guardian_ring_header header = {
      .magic = GUARDIAN_RING_MAGIC,
      .version = GUARDIAN_RING_VERSION,
      .size = GUARDIAN_RING_SIZE,
      .life = 1,
      .guardian_pid = getppid(),
      .capture_timeout_ms = 2000,
      .handler_runs_max = 64,
  };
  int ring = open(GUARDIAN_RING_FILE, O_RDWR | O_CREAT | O_TRUNC, 0666);
  return ring < 0 || ftruncate(ring, GUARDIAN_RING_SIZE) != 0 ||
         pwrite(ring, &header, sizeof header, 0) != (ssize_t)sizeof header;
}
