/* What a program calls itself: breadcrumbs, annotations, heartbeat, readiness.
 *
 * Context: any thread of any process that shares the ring, also inside a signal
 * handler; any of them may be killed at any instruction. No lock, no malloc.
 * Calls: clock_gettime (the vDSO), memcpy, memcmp, strlen, strnlen, secure_getenv,
 * vsnprintf (guardian_breadcrumbf only), dl_iterate_phdr (guardian_set_exception in a
 * second copy only), and system calls. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>

#include "guardian.h"
#include "internal.h"
#include "kernel.h"

/* ---- who writes ---- */

/* A system call costs as much as a whole breadcrumb may: the ids are remembered
 * by each thread. A forked child must not believe its parent's, and a clone()
 * that the C library does not see is a fork as well: so the process id lies in a
 * page that the kernel wipes in every child. (The child of vfork() shares its
 * parent's memory, and its name.) */
struct identity {
  int32_t pid;
  int32_t tid;
};
static __thread struct identity mine;
static int32_t *process_page;

static int32_t *process_id_page(void) {
  int32_t *page = __atomic_load_n(&process_page, __ATOMIC_ACQUIRE);
  if (page != NULL) return page;
  long answer = guardian_call6(SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (answer < 0 && answer >= -4095) return NULL;
  int32_t *none = NULL;
  page = (int32_t *)answer;
  if (guardian_call3(SYS_madvise, page, 4096, MADV_WIPEONFORK) != 0 ||
      !__atomic_compare_exchange_n(&process_page, &none, page, false, __ATOMIC_ACQ_REL,
                                   __ATOMIC_ACQUIRE)) {
    guardian_call2(SYS_munmap, answer, 4096);
    return none;
  }
  return page;
}

static __attribute__((noinline)) struct identity ask_identity(int32_t *page) {
  struct identity now = {(int32_t)guardian_call0(SYS_getpid), (int32_t)guardian_call0(SYS_gettid)};
  if (page != NULL) {
    __atomic_store_n(page, now.pid, __ATOMIC_RELAXED);
    mine = now;
  }
  return now;
}

static inline struct identity identity(void) {
  int32_t *page = __atomic_load_n(&process_page, __ATOMIC_ACQUIRE);
  if (__builtin_expect(page != NULL, 1)) {
    int32_t pid = __atomic_load_n(page, __ATOMIC_RELAXED);
    if (__builtin_expect(pid != 0 && pid == mine.pid, 1)) return mine;
  }
  return ask_identity(process_id_page());
}

/* ---- text ---- */

/* How much of a text fits, without cutting a character in two. */
static inline size_t fitting(const char *text, size_t length, size_t limit) {
  if (__builtin_expect(length <= limit, 1)) return length;
  size_t end = limit;
  while (end > 0 && ((unsigned char)text[end] & 0xc0) == 0x80) end--;
  return end;
}

static inline uint64_t realtime_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The ring, noting that the program speaks for itself. */
static inline struct guardian_ring_header *speaking_ring(void) {
  struct guardian_ring_header *ring = guardian_ring();
  if (ring != NULL &&
      !(__atomic_load_n(&ring->handler_flags, __ATOMIC_RELAXED) & GUARDIAN_HANDLER_LIBRARY))
    __atomic_fetch_or(&ring->handler_flags, GUARDIAN_HANDLER_LIBRARY, __ATOMIC_RELAXED);
  return ring;
}

/* ---- breadcrumbs ---- */

GUARDIAN_EXPORT void guardian_breadcrumb_bytes(enum guardian_level level, const char *category,
                                               size_t category_length, const char *message,
                                               size_t message_length) {
  struct guardian_ring_header *ring = speaking_ring();
  if (ring == NULL) return;
  int error = errno;
  uint64_t n = __atomic_fetch_add(&ring->crumb_next, 1, __ATOMIC_RELAXED);
  struct guardian_crumb *crumb =
      (struct guardian_crumb *)((char *)ring + GUARDIAN_RING_CRUMB_OFFSET) +
      n % GUARDIAN_RING_CRUMB_COUNT;
  uint64_t writing = 2 * n + 1;
  uint64_t before = __atomic_load_n(&crumb->sequence, __ATOMIC_RELAXED);
  /* The place belongs to the youngest: one who slept for a whole round steps back,
   * and one who was killed here is overwritten. */
  do {
    if (before >= writing) return;
  } while (!__atomic_compare_exchange_n(&crumb->sequence, &before, writing, false,
                                        __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
  __atomic_store_n(&crumb->end, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
  struct identity who = identity();
  crumb->realtime_ns = realtime_ns();
  crumb->pid = who.pid;
  crumb->tid = who.tid;
  crumb->level = (uint8_t)level;
  category_length = fitting(category, category_length, GUARDIAN_RING_CRUMB_CATEGORY_SIZE);
  message_length = fitting(message, message_length, GUARDIAN_RING_CRUMB_MESSAGE_SIZE);
  crumb->category_length = (uint8_t)category_length;
  crumb->message_length = (uint16_t)message_length;
  memcpy(crumb->category, category, category_length);
  memcpy(crumb->message, message, message_length);
  __atomic_store_n(&crumb->end, writing + 1, __ATOMIC_RELEASE);
  uint64_t now = writing;
  if (__builtin_expect(!__atomic_compare_exchange_n(&crumb->sequence, &now, writing + 1, false,
                                                    __ATOMIC_RELEASE, __ATOMIC_RELAXED),
                       0)) {
    /* This thread slept so long in here that another one, a whole round later, took
     * the place over: its breadcrumb may hold bytes of ours. Odd means torn; one that
     * is still written is given a number that its writer will not find. */
    uint64_t torn = now & 1 ? now + 2 : now - 1;
    __atomic_compare_exchange_n(&crumb->sequence, &now, torn, false, __ATOMIC_RELEASE,
                                __ATOMIC_RELAXED);
  }
  errno = error;
}

GUARDIAN_EXPORT void guardian_breadcrumb(enum guardian_level level, const char *category,
                                         const char *message) {
  if (guardian_ring() == NULL) return;
  if (category == NULL) category = "";
  if (message == NULL) message = "";
  /* A byte more than fits, so that the cut finds the border of a character. */
  guardian_breadcrumb_bytes(level, category,
                            strnlen(category, GUARDIAN_RING_CRUMB_CATEGORY_SIZE + 1), message,
                            strnlen(message, GUARDIAN_RING_CRUMB_MESSAGE_SIZE + 1));
}

GUARDIAN_EXPORT void guardian_breadcrumbf(enum guardian_level level, const char *category,
                                          const char *format, ...) {
  if (guardian_ring() == NULL || format == NULL) return;
  int error = errno;
  char message[GUARDIAN_RING_CRUMB_MESSAGE_SIZE + 8];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  errno = error;
  if (length >= 0) guardian_breadcrumb(level, category, message);
}

/* ---- annotations ---- */

enum {
  /* An annotation is written in well under a microsecond. Who waits longer waits for a
   * writer that is not running: one that was put aside comes back within these
   * milliseconds, one that was killed does not. */
  ANNOTATION_SPINS = 2000,
  ANNOTATION_PAUSES = 100,
};

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

GUARDIAN_EXPORT bool guardian_annotate_bytes(const char *key, size_t key_length, const char *value,
                                             size_t value_length) {
  struct guardian_ring_header *ring = speaking_ring();
  if (ring == NULL || key == NULL || key_length == 0) return false;
  key_length = fitting(key, key_length, GUARDIAN_RING_ANNOTATION_KEY_SIZE);
  value_length = fitting(value, value_length, GUARDIAN_RING_ANNOTATION_VALUE_SIZE);
  struct guardian_annotation *all =
      (struct guardian_annotation *)((char *)ring + GUARDIAN_RING_ANNOTATION_OFFSET);
  /* Every writer of a key walks the places in the same order, and a key never
   * moves: so two who set a new one at once meet at the same place. */
  uint32_t start = 5381;
  for (size_t i = 0; i < key_length; i++) start = start * 33 + (unsigned char)key[i];
  for (uint32_t i = 0; i < GUARDIAN_RING_ANNOTATION_COUNT; i++) {
    struct guardian_annotation *place = &all[(start + i) % GUARDIAN_RING_ANNOTATION_COUNT];
    for (int turn = 0; turn < ANNOTATION_SPINS + ANNOTATION_PAUSES; turn++) {
      uint64_t before = __atomic_load_n(&place->sequence, __ATOMIC_ACQUIRE);
      if (before & 1) {
        if (turn < ANNOTATION_SPINS) {
          relax();
        } else {
          struct timespec pause = {0, 1000000};
          guardian_call2(SYS_nanosleep, &pause, NULL);
        }
        continue;
      }
      bool same = before != 0 && place->key_length == key_length &&
                  memcmp(place->key, key, key_length) == 0;
      if (before != 0 && !same) break; /* someone else's: on to the next */
      if (before == 0 && value_length == 0) return true; /* nothing to remove */
      if (!__atomic_compare_exchange_n(&place->sequence, &before, before + 1, false,
                                       __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
        continue;
      __atomic_thread_fence(__ATOMIC_RELEASE);
      place->key_length = (uint16_t)key_length;
      place->value_length = (uint16_t)value_length;
      memcpy(place->key, key, key_length);
      if (value_length != 0) memcpy(place->value, value, value_length);
      __atomic_store_n(&place->sequence, before + 2, __ATOMIC_RELEASE);
      return true;
    }
  }
  return false;
}

GUARDIAN_EXPORT bool guardian_annotate(const char *key, const char *value) {
  if (key == NULL) return false;
  if (value == NULL) value = "";
  return guardian_annotate_bytes(key, strnlen(key, GUARDIAN_RING_ANNOTATION_KEY_SIZE + 1), value,
                                 strnlen(value, GUARDIAN_RING_ANNOTATION_VALUE_SIZE + 1));
}

/* ---- life signs ---- */

GUARDIAN_EXPORT void guardian_heartbeat(void) {
  struct guardian_ring_header *ring = speaking_ring();
  if (ring != NULL) __atomic_fetch_add(&ring->heartbeat, 1, __ATOMIC_RELAXED);
}

GUARDIAN_EXPORT bool guardian_ready(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const char *path = secure_getenv("NOTIFY_SOCKET");
  const char *folder = secure_getenv(GUARDIAN_CHANNEL_VARIABLE);
  size_t length;
  if (path != NULL && (path[0] == '/' || path[0] == '@')) {
    length = strlen(path);
    if (length >= sizeof address.sun_path) return false;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@') address.sun_path[0] = '\0';
  } else if (folder != NULL && folder[0] == '/') {
    size_t name = sizeof "/" GUARDIAN_NOTIFY_FILE - 1;
    length = strlen(folder) + name;
    if (length >= sizeof address.sun_path) return false;
    memcpy(address.sun_path, folder, length - name);
    memcpy(address.sun_path + length - name, "/" GUARDIAN_NOTIFY_FILE, name);
  } else {
    return false;
  }
  int fd = (int)guardian_call3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return false;
  static const char text[] = "READY=1";
  long sent = guardian_call6(SYS_sendto, fd, text, sizeof text - 1, MSG_NOSIGNAL, &address,
                             offsetof(struct sockaddr_un, sun_path) + length);
  guardian_call1(SYS_close, fd);
  return sent == sizeof text - 1;
}

GUARDIAN_EXPORT bool guardian_is_present(void) { return guardian_ring() != NULL; }

GUARDIAN_EXPORT bool guardian_crashed_last_run(void) {
  const char *value = secure_getenv("GUARDIAN_CRASHED_LAST_RUN");
  return value != NULL && value[0] == '1' && value[1] == '\0';
}

GUARDIAN_EXPORT const char *guardian_last_report(void) {
  const char *value = secure_getenv("GUARDIAN_LAST_REPORT");
  return value != NULL && value[0] != '\0' ? value : NULL;
}

/* ---- a language's own error ---- */

/* One, of the thread that spoke last; it is read when that thread dies. It is not
 * in the ring: only a death makes it worth a place there. The owner is taken away
 * while it is written, so that a crash meanwhile finds none rather than half. */
static struct {
  uint64_t owner; /* pid << 32 | tid; 0: none */
  uint32_t busy;
  uint32_t type_length, reason_length, frame_count;
  char type[GUARDIAN_RING_EXCEPTION_TYPE_SIZE];
  char reason[GUARDIAN_RING_EXCEPTION_REASON_SIZE];
  uint64_t frames[GUARDIAN_RING_EXCEPTION_FRAME_COUNT];
} pending;

GUARDIAN_EXPORT void guardian_set_exception(const char *type, const char *reason,
                                            const uint64_t *frames, size_t frame_count) {
  if (speaking_ring() == NULL) return;
  if (__atomic_load_n(&guardian_state.phase, __ATOMIC_RELAXED) == GUARDIAN_PASSIVE) {
    /* The copy that will see the crash must know. */
    void (*other)(const char *, const char *, const uint64_t *, size_t) =
        guardian_next_symbol("guardian_set_exception");
    if (other != NULL) other(type, reason, frames, frame_count);
    return;
  }
  /* Two threads at once: the first one's stands. */
  if (__atomic_exchange_n(&pending.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
  __atomic_store_n(&pending.owner, 0, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_SEQ_CST);
  if (type != NULL) {
    if (reason == NULL) reason = "";
    size_t t = fitting(type, strnlen(type, GUARDIAN_RING_EXCEPTION_TYPE_SIZE + 1),
                       GUARDIAN_RING_EXCEPTION_TYPE_SIZE);
    size_t r = fitting(reason, strnlen(reason, GUARDIAN_RING_EXCEPTION_REASON_SIZE + 1),
                       GUARDIAN_RING_EXCEPTION_REASON_SIZE);
    if (frames == NULL) frame_count = 0;
    if (frame_count > GUARDIAN_RING_EXCEPTION_FRAME_COUNT)
      frame_count = GUARDIAN_RING_EXCEPTION_FRAME_COUNT;
    memcpy(pending.type, type, t);
    memcpy(pending.reason, reason, r);
    if (frame_count != 0) memcpy(pending.frames, frames, frame_count * sizeof *frames);
    pending.type_length = (uint32_t)t;
    pending.reason_length = (uint32_t)r;
    pending.frame_count = (uint32_t)frame_count;
    struct identity who = identity();
    __atomic_store_n(&pending.owner, (uint64_t)(uint32_t)who.pid << 32 | (uint32_t)who.tid,
                     __ATOMIC_RELEASE);
  }
  __atomic_store_n(&pending.busy, 0, __ATOMIC_RELEASE);
}

/* In the signal handler. */
void guardian_copy_exception(struct guardian_crash_record *record, int32_t pid, int32_t tid) {
  uint64_t self = (uint64_t)(uint32_t)pid << 32 | (uint32_t)tid;
  if (__atomic_load_n(&pending.owner, __ATOMIC_ACQUIRE) != self) return;
  memcpy(record->exception_type, pending.type, pending.type_length);
  memcpy(record->exception_reason, pending.reason, pending.reason_length);
  memcpy(record->exception_frames, pending.frames, pending.frame_count * sizeof(uint64_t));
  record->exception_type_length = pending.type_length;
  record->exception_reason_length = pending.reason_length;
  record->exception_frame_count = pending.frame_count;
  record->exception_language = GUARDIAN_EXCEPTION_API;
  __atomic_fetch_or(&record->parts, GUARDIAN_PART_EXCEPTION, __ATOMIC_RELEASE);
}
