// flags: -O1 -g -shared -fPIC
/* Preloaded before the crash handler: says "ALLOCATED name" on stderr when any allocator
 * is called on an alternate signal stack, which is where a crash handler runs. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);

static void look(const char *name) {
  stack_t now;
  if (syscall(SYS_sigaltstack, NULL, &now) != 0 || !(now.ss_flags & SS_ONSTACK)) return;
  (void)!write(2, "ALLOCATED ", 10);
  (void)!write(2, name, strlen(name));
  (void)!write(2, "\n", 1);
}

void *malloc(size_t size) { return look("malloc"), __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return look("calloc"), __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return look("realloc"), __libc_realloc(old, size); }
void free(void *old) { look("free"), __libc_free(old); }
void *memalign(size_t align, size_t size) { return look("memalign"), __libc_memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) {
  return look("aligned_alloc"), __libc_memalign(align, size);
}
int posix_memalign(void **result, size_t align, size_t size) {
  look("posix_memalign");
  *result = __libc_memalign(align, size);
  return *result ? 0 : ENOMEM;
}
