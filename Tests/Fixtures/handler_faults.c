/* The crash handler itself faults: the page of the record that takes the copy of the stack
 * is taken away, then the program divides by zero. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "guardian_ring.h"

static volatile int zero;

int main(void) {
  char line[512], *ring = NULL;
  FILE *maps = fopen("/proc/self/maps", "r");
  while (maps && fgets(line, sizeof line, maps))
    if (strstr(line, "/ring")) sscanf(line, "%p-", (void **)&ring);
  if (ring == NULL) return 99;
  size_t stack = GUARDIAN_RING_SLOT_OFFSET + offsetof(struct guardian_crash_record, stack);
  if (mprotect(ring + ((stack + 4095) & ~4095ul), 8192, PROT_NONE) != 0) return 98;
  return 10 / zero;
}
