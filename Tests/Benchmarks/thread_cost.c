/* What a thread costs: prints the ns of each of COUNT times pthread_create and pthread_join. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void *nothing(void *unused) { return unused; }

int main(int argc, char **argv) {
  for (int left = argc > 1 ? atoi(argv[1]) : 1000; left > 0; left--) {
    struct timespec start, end;
    pthread_t thread;
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (pthread_create(&thread, NULL, nothing, NULL) != 0) return 1;
    pthread_join(thread, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    printf("%lld\n", (end.tv_sec - start.tv_sec) * 1000000000LL + end.tv_nsec - start.tv_nsec);
  }
  return 0;
}
