/* guardian's C interface, for a program that wants more than to be watched.
 *
 * Every call works, and does nothing, when the program does not run under
 * guardian. All are safe from any thread and in a forked child, and in a signal
 * handler but for guardian_breadcrumbf, guardian_ready and guardian_set_exception,
 * which format, open a socket and look for a preloaded handler. None locks, none
 * allocates, none changes errno.
 *
 * Text is UTF-8; too long a text is cut at a character's border.
 *
 * To build with it: cc program.c $(pkg-config --cflags --libs guardian) */
#ifndef GUARDIAN_H
#define GUARDIAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How much a breadcrumb matters; the numbers stand in the ring. */
enum guardian_level {
  GUARDIAN_DEBUG = 0,
  GUARDIAN_INFO = 1,
  GUARDIAN_WARNING = 2,
  GUARDIAN_ERROR = 3,
  GUARDIAN_FATAL = 4,
};

/* Notes one event of the way to a crash. The last 1024 of a life, of all its
 * processes together, are in its report. Costs less than 100 ns.
 *
 * category: up to 24 bytes, as "http" or "database". message: up to 192 bytes. */
void guardian_breadcrumb(enum guardian_level level, const char *category, const char *message);

/* The same, for texts that are not null-terminated. */
void guardian_breadcrumb_bytes(enum guardian_level level, const char *category,
                               size_t category_length, const char *message,
                               size_t message_length);

/* The same, with printf's formats (and printf's cost; not for a signal handler). */
void guardian_breadcrumbf(enum guardian_level level, const char *category, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Sets what every report of this life says under `key` (up to 64 bytes), as
 * "tenant" or "release"; value: up to 432 bytes; NULL or "" removes it. 64 keys.
 * False: there is no guardian or no place left. */
bool guardian_annotate(const char *key, const char *value);
bool guardian_annotate_bytes(const char *key, size_t key_length, const char *value,
                             size_t value_length);

/* Says that the program is alive. With a watchdog set, guardian ends a program
 * that was silent for too long. */
void guardian_heartbeat(void);

/* Says that the program has started and serves (sd_notify's READY=1). False: nobody
 * listens. */
bool guardian_ready(void);

/* Whether the program runs under guardian and its channel is open. */
bool guardian_is_present(void);

/* Whether the life before this one ended in a crash. */
bool guardian_crashed_last_run(void);

/* The id of the last report of this program, or NULL. */
const char *guardian_last_report(void);

/* Tells what this thread is about to die of, if it dies: for a language whose
 * errors the handler cannot see. type: up to 256 bytes, as "ParseError"; reason:
 * up to 1024; frames: up to 64 return addresses, innermost first, or NULL.
 * A later call of any thread replaces it; type NULL takes it back. */
void guardian_set_exception(const char *type, const char *reason, const uint64_t *frames,
                            size_t frame_count);

#ifdef __cplusplus
}
#endif
#endif
