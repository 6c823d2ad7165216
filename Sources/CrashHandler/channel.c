/* Opens the channel to guardian: the ring and the bell.
 *
 * Context: once a process image, in the constructor or in the first interposed
 * call, whichever is first; never in a signal. Calls: secure_getenv, strlen,
 * memcpy, and system calls. No malloc, no lock.
 *
 * Without GUARDIAN_CHANNEL, or if anything about the ring is not as it must be,
 * the library stays inert: the program runs as if it were not there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <linux/prctl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "internal.h"
#include "kernel.h"

/* The bell's descriptor lies above what programs count on ("the next one is 3",
 * select()'s tables, loops that close everything up to some number). */
enum { BELL_DESCRIPTOR_MIN = 201 };

struct guardian_state guardian_state = {.bell = -1};

/* folder + "/" + name, or false if it does not fit. */
static bool join(char *out, size_t size, const char *folder, const char *name) {
  size_t a = strlen(folder), b = strlen(name);
  if (a + 1 + b + 1 > size) return false;
  memcpy(out, folder, a);
  out[a] = '/';
  memcpy(out + a + 1, name, b + 1);
  return true;
}

static struct guardian_ring_header *map_ring(const char *folder) {
  char path[4096];
  if (folder[0] != '/' || !join(path, sizeof path, folder, GUARDIAN_RING_FILE)) return NULL;
  int fd = (int)guardian_call4(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
  if (fd < 0) return NULL;
  struct stat status;
  void *map = NULL;
  if (guardian_call2(SYS_fstat, fd, &status) == 0 && S_ISREG(status.st_mode) &&
      status.st_size == GUARDIAN_RING_SIZE) {
    /* Its pages are there: guardian took them when it made the file. */
    long answer =
        guardian_call6(SYS_mmap, 0, GUARDIAN_RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (answer > 0 || answer < -4095) map = (void *)answer;
  }
  guardian_call1(SYS_close, fd);
  struct guardian_ring_header *ring = map;
  if (ring == NULL) return NULL;
  if (ring->magic != GUARDIAN_RING_MAGIC || ring->version != GUARDIAN_RING_VERSION ||
      ring->size != GUARDIAN_RING_SIZE) {
    guardian_call2(SYS_munmap, ring, GUARDIAN_RING_SIZE);
    return NULL;
  }
  guardian_call3(SYS_madvise, ring, GUARDIAN_RING_SIZE, MADV_DONTDUMP);
  return ring;
}

static bool open_bell(const char *folder) {
  struct guardian_state *state = &guardian_state;
  struct sockaddr_un *address = &state->bell_address;
  if (!join(address->sun_path, sizeof address->sun_path, folder, GUARDIAN_BELL_FILE)) return false;
  address->sun_family = AF_UNIX;
  int fd = (int)guardian_call3(SYS_socket, AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  if (guardian_call3(SYS_connect, fd, address, sizeof *address) != 0) {
    guardian_call1(SYS_close, fd);
    return false;
  }
  /* Under a low limit on descriptors, as high as it allows. */
  for (int lowest = BELL_DESCRIPTOR_MIN; lowest > fd; lowest = lowest * 3 / 4) {
    int high = (int)guardian_call3(SYS_fcntl, fd, F_DUPFD_CLOEXEC, lowest);
    if (high < 0) continue;
    guardian_call1(SYS_close, fd);
    fd = high;
    break;
  }
  struct stat status;
  if (guardian_call2(SYS_fstat, fd, &status) != 0) {
    guardian_call1(SYS_close, fd);
    return false;
  }
  state->bell_device = status.st_dev;
  state->bell_inode = status.st_ino;
  state->bell = fd;
  return true;
}

static uint32_t bring_up(void) {
  struct guardian_state *state = &guardian_state;
  const char *folder = secure_getenv(GUARDIAN_CHANNEL_VARIABLE);
  /* Even without a channel the interposers must be able to pass through. */
  bool dispositions = guardian_find_real_dispositions();
  if (folder == NULL) return GUARDIAN_INERT;
  struct guardian_ring_header *ring = map_ring(folder);
  if (ring == NULL) return GUARDIAN_INERT;
  state->initial_pid = (int32_t)guardian_call0(SYS_getpid);
  state->ring = ring;
  uint32_t nobody = 0;
  __atomic_compare_exchange_n(&ring->main_pid, &nobody, (uint32_t)state->initial_pid, false,
                              __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  /* Linked into the program and preloaded too: the preloaded copy came first. */
  if (!dispositions || guardian_next_symbol("guardian_handler_version") != NULL)
    return GUARDIAN_PASSIVE;
  uint32_t flags = GUARDIAN_HANDLER_LOADED;
  if (open_bell(folder)) flags |= GUARDIAN_HANDLER_BELL;
  state->abort_message = guardian_any_symbol("__abort_msg");
  state->texts = getauxval(AT_RANDOM);
  state->last_text = getauxval(AT_EXECFN);
  /* Only Yama knows this call; without Yama there is nothing to allow. */
  state->yama = guardian_call3(SYS_prctl, PR_SET_PTRACER, ring->guardian_pid, 0) == 0;
  __atomic_fetch_or(&ring->handler_flags, flags, __ATOMIC_RELAXED);
  guardian_main_thread_stack();
  guardian_install_dispositions();
  return GUARDIAN_ACTIVE;
}

bool guardian_initialise(void) {
  uint32_t phase = __atomic_load_n(&guardian_state.phase, __ATOMIC_ACQUIRE);
  if (__builtin_expect(phase == GUARDIAN_UNTRIED, 0) &&
      __atomic_compare_exchange_n(&guardian_state.phase, &phase, GUARDIAN_IN_PROGRESS, false,
                                  __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
    phase = bring_up();
    __atomic_store_n(&guardian_state.phase, phase, __ATOMIC_RELEASE);
  }
  return phase == GUARDIAN_ACTIVE;
}

struct guardian_ring_header *guardian_ring(void) {
  guardian_initialise();
  return guardian_state.ring;
}

/* Tells a copy of this code that another is loaded. */
GUARDIAN_EXPORT unsigned guardian_handler_version(void) { return GUARDIAN_RING_VERSION; }

__attribute__((constructor(101))) static void construct(void) { guardian_initialise(); }
