/* What one guardian leaves for the program that it executes in its place. */
#ifndef GUARDIAN_CLINUX_HANDOVER_H
#define GUARDIAN_CLINUX_HANDOVER_H
#include <stdbool.h>
#include <stddef.h>

/* A memory file with these bytes that nobody can change any more (memfd_create(2)); it stays open
 * across exec. -1 with errno. */
int guardian_sealed_memory(const char *name, const void *bytes, size_t size);
/* Whether `number` is such a file. */
bool guardian_is_sealed_memory(int number);
/* FD_CLOEXEC. false: there is no such descriptor. */
bool guardian_set_close_on_exec(int number, bool on);

#endif
