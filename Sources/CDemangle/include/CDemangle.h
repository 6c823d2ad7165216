/* Names as people wrote them, from names as compilers wrote them. The names come from hostile
 * files: input, output and recursion are bounded. */
#ifndef CDEMANGLE_H
#define CDEMANGLE_H

#include <stddef.h>

enum cdemangle_language {
  CDEMANGLE_CXX = 1,  /* Itanium: _Z… */
  CDEMANGLE_RUST = 2, /* legacy _ZN…17h…E and v0 _R… */
  CDEMANGLE_SWIFT = 3 /* $s… */
};

/* Writes the name into `output`, without a terminating zero, and returns its length; 0 if
 * `name` (zero-terminated) is not of that language or its readable form is longer than
 * `capacity`. Uses memory only from the stack, except for Swift. */
size_t cdemangle(enum cdemangle_language language, const char *name, char *output,
                 size_t capacity);

#endif
