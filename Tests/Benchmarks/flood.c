/* Writes as much to standard error as it can: flood MEBIBYTES. Prints the nanoseconds it took. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
  static char block[65536];
  for (size_t i = 0; i < sizeof block; i++) block[i] = i % 80 == 79 ? '\n' : (char)('a' + i % 26);
  long long left = (argc > 1 ? atoll(argv[1]) : 1024) << 20;
  struct timespec start, end;
  clock_gettime(CLOCK_MONOTONIC, &start);
  while (left > 0) {
    ssize_t written = write(2, block, sizeof block);
    if (written <= 0) return 1;
    left -= written;
  }
  clock_gettime(CLOCK_MONOTONIC, &end);
  printf("%lld\n", (end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec);
  return 0;
}
