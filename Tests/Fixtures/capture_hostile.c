// flags: -O1 -g -fno-omit-frame-pointer -pthread
/* A program that does all it can to confuse who looks at it: stack pointers that point nowhere,
 * a circle in the dynamic linker's list, tens of thousands of mappings, names with newlines,
 * threads that come and go. Prints `ready PID` and waits. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *stack_pointer_nowhere(void *value) {
  __asm__ volatile("mov %0, %%rsp\n1: pause\njmp 1b" ::"r"(value) : "memory");
  return NULL;
}

static void *nothing(void *unused) { return unused; }
static void *comes_and_goes(void *unused) {
  (void)unused;
  for (;;) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, nothing, NULL) == 0) pthread_join(thread, NULL);
  }
}

int main(int count, char **words) {
  (void)count;
  long page = sysconf(_SC_PAGESIZE);
  prctl(PR_SET_NAME, "a\nb) R 1 (");
  int file = open(words[1], O_RDWR | O_CREAT, 0600); /* a name with a newline */
  if (file < 0 || ftruncate(file, 2 * page) != 0) return 2;
  mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
  /* Beyond the file's end: reading it is an error, not a value. */
  mmap(NULL, 16 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);

  int mappings = 40000;
  char *many = mmap(NULL, mappings * page, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  for (int i = 0; many != MAP_FAILED && i < mappings; i += 2)
    mprotect(many + i * page, page, PROT_READ);

  unsigned long values[] = {0, 1, ~0ul, ~0ul - 4096, 1ul << 63, 0x7ffffffff000, 0x800000000000,
                            (unsigned long)many + page, (unsigned long)main};
  for (unsigned i = 0; i < sizeof values / sizeof *values; i++) {
    pthread_t thread;
    pthread_create(&thread, NULL, stack_pointer_nowhere, (void *)values[i]);
  }
  pthread_t thread;
  pthread_create(&thread, NULL, comes_and_goes, NULL);

  struct link_map *first = _r_debug.r_map;
  if (first && first->l_next) {
    first->l_next->l_name = (char *)~0ul;
    first->l_next->l_next = first;
  }
  char line[32];
  int size = snprintf(line, sizeof line, "ready %d\n", getpid());
  if (write(1, line, size) != size) return 3;
  for (;;) syscall(SYS_pause);
}
