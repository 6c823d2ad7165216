/* Context: the reporter's worker, one thread. C because libiberty's callback interface can be
 * stopped only by longjmp: a name of a few hundred bytes may stand for one of terabytes
 * (substitutions that double), and the callback is the one place to see that. The callback
 * forms allocate nothing on the heap, so that the jump leaks nothing. */
#include "CDemangle.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <libiberty/demangle.h>

/* libswiftCore's own; its headers are not installed. Bounds its recursion itself. */
extern char *swift_demangle(const char *name, size_t length, char *output,
                            size_t *output_size, unsigned flags);

/* libiberty takes stack in proportion to the name's length (64 bytes a character). */
enum { LONGEST_NAME = 16384, MOST_CALLS = 200000 };

struct output {
  char *bytes;
  size_t capacity;
  size_t length;
  unsigned calls;
  jmp_buf full;
};

static void append(const char *piece, size_t length, void *opaque) {
  struct output *output = opaque;
  /* Empty pieces count too: an empty pack expanded without end prints nothing. */
  if (length > output->capacity - output->length || ++output->calls > MOST_CALLS)
    longjmp(output->full, 1);
  memcpy(output->bytes + output->length, piece, length);
  output->length += length;
}

size_t cdemangle(enum cdemangle_language language, const char *name, char *bytes,
                 size_t capacity) {
  size_t length = strnlen(name, LONGEST_NAME + 1);
  if (length == 0 || length > LONGEST_NAME)
    return 0;

  if (language == CDEMANGLE_SWIFT) {
    char *text = swift_demangle(name, length, NULL, NULL, 0);
    if (text == NULL)
      return 0;
    size_t size = strlen(text);
    if (size > capacity)
      size = 0;
    memcpy(bytes, text, size);
    free(text);
    return size;
  }

  struct output output = {.bytes = bytes, .capacity = capacity};
  if (setjmp(output.full) != 0)
    return 0;
  int known = language == CDEMANGLE_RUST
                  ? rust_demangle_callback(name, DMGL_PARAMS | DMGL_RET_DROP, append, &output)
                  : cplus_demangle_v3_callback(name, DMGL_PARAMS | DMGL_ANSI | DMGL_RET_DROP,
                                               append, &output);
  return known ? output.length : 0;
}
