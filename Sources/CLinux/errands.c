#include "CLinux.h"

#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum {
  CHANNEL_DIGITS = 32,
  PIECE = 64 * 1024,
  /* Longer environments and maps are not looked through to their end. */
  ENVIRONMENT_MOST = 2 << 20,
  MAPS_MOST = 4 << 20,
  /* Upper end of the loop where close_range is missing. */
  CLOSE_LOOP_END = 65536,
};

/* In the child: 0. What is sent to guardian's process group is not meant for it, and it has nothing to
 * do when guardian is gone. */
static pid_t fork_plainly(void) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  pid_t parent = getpid();
  pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if ((pid_t)syscall(SYS_getppid) != parent)
      _exit(0);
    prctl(PR_SET_NAME, "guardian-errand", 0, 0, 0);
    return 0;
  }
  int error = errno;
  sigprocmask(SIG_SETMASK, &before, NULL);
  errno = error;
  return pid;
}

static void close_span(unsigned first, unsigned last) {
  if (first > last || syscall(SYS_close_range, first, last, 0) == 0)
    return;
  if (last > CLOSE_LOOP_END)
    last = CLOSE_LOOP_END;
  for (unsigned number = first; number <= last; number++)
    close((int)number);
}

/* All but these, which ascend: nothing of guardian's is held open by a child that hangs. */
static void close_others(const int *numbers, int count) {
  unsigned next = 0;
  for (int i = 0; i < count; i++) {
    if ((unsigned)numbers[i] > next)
      close_span(next, (unsigned)numbers[i] - 1);
    next = (unsigned)numbers[i] + 1;
  }
  close_span(next, ~0u);
}

/* The parent's half: keeps one end. */
static pid_t parted(pid_t pid, int own, int others, int *end) {
  int error = errno;
  close(others);
  if (pid < 0)
    close(own);
  else
    *end = own;
  errno = error;
  return pid;
}

/* Asked without a call that could reach a file system. */
static bool is_harmless(int number) {
  int type;
  socklen_t size = sizeof type;
  if (getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &size) == 0)
    return true;
  if (fcntl(number, F_GET_SEALS) >= 0) /* memfd_create(2), a file of tmpfs */
    return true;
  static const char *const names[] = {"pipe:[", "anon_inode:[eventfd]", "anon_inode:[timerfd]",
                                      "anon_inode:[signalfd]", "anon_inode:[pidfd]", "pidfd:[",
                                      "anon_inode:inotify"};
  char path[40], link[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", number);
  ssize_t length = readlink(path, link, sizeof link - 1);
  if (length <= 0)
    return false;
  link[length] = 0;
  /* Everything that has a name in a file system begins with a slash. */
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(link, names[i], strlen(names[i])) == 0)
      return true;
  return false;
}

static void take(int socket, int room, int out) {
  /* What does not fit into the table would be closed at once, before the answer. */
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) +
               CMSG_SPACE(sizeof(int) * GUARDIAN_MESSAGE_DESCRIPTORS)];
  } control;
  char text;
  struct iovec part = {&text, 1};
  struct msghdr header = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  ssize_t got;
  do
    got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  while (got < 0 && errno == EINTR);
  if (got < 0)
    _exit(1);
  struct guardian_taken answer = {0, 0};
  int numbers[GUARDIAN_MESSAGE_DESCRIPTORS], kept[GUARDIAN_KEPT_DESCRIPTORS], count = 0, keeps = 0;
  for (struct cmsghdr *part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part))
    if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS) {
      count = (int)((part->cmsg_len - CMSG_LEN(0)) / sizeof(int));
      memcpy(numbers, CMSG_DATA(part), (size_t)count * sizeof(int));
    }
  if (room > GUARDIAN_KEPT_DESCRIPTORS)
    room = GUARDIAN_KEPT_DESCRIPTORS;
  for (int i = 0; i < count; i++) {
    if (!is_harmless(numbers[i]))
      answer.refused++;
    else if (keeps == room)
      answer.beyond++;
    else
      kept[keeps++] = numbers[i];
  }
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * GUARDIAN_KEPT_DESCRIPTORS)];
  } rights;
  struct iovec words = {&answer, sizeof answer};
  struct msghdr reply = {.msg_iov = &words, .msg_iovlen = 1};
  if (keeps > 0) {
    memset(&rights, 0, sizeof rights);
    reply.msg_control = &rights;
    reply.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)keeps);
    struct cmsghdr *part = CMSG_FIRSTHDR(&reply);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)keeps);
    memcpy(CMSG_DATA(part), kept, sizeof(int) * (size_t)keeps);
  }
  if (sendmsg(out, &reply, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
    _exit(1);
  /* The kernel gives numbers in ascending order. */
  close_others(numbers, count);
  _exit(0);
}

pid_t guardian_errand_take(int socket, int room, int *end) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return -1;
  pid_t pid = fork_plainly();
  if (pid == 0)
    take(socket, room, ends[1]);
  return parted(pid, ends[0], ends[1], end);
}

/* The pipe's end was opened last, but its number may be any. */
static void hold(const int *numbers, int count, int until) {
  int kept[GUARDIAN_MESSAGE_DESCRIPTORS + 1], all = 0;
  for (int i = 0; i < count && i < GUARDIAN_MESSAGE_DESCRIPTORS; i++) {
    if (until >= 0 && until < numbers[i]) {
      kept[all++] = until;
      until = -1;
    }
    kept[all++] = numbers[i];
  }
  if (until >= 0)
    kept[all++] = until;
  close_others(kept, all);
}

pid_t guardian_errand_hold(const int *numbers, int count, int *end) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return -1;
  pid_t pid = fork_plainly();
  if (pid == 0) {
    hold(numbers, count, ends[0]);
    char byte;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR) {
    }
    _exit(0);
  }
  return parted(pid, ends[1], ends[0], end);
}

static void put(int out, const void *bytes, size_t size) {
  while (size > 0) {
    ssize_t count = write(out, bytes, size);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      _exit(1);
    bytes = (const char *)bytes + count;
    size -= (size_t)count;
  }
}

static ssize_t get(int file, char *into, size_t size) {
  ssize_t count;
  do
    count = read(file, into, size);
  while (count < 0 && errno == EINTR);
  return count;
}

static char buffer[PIECE + 8192];

static void read_all(const char *const *paths, const unsigned *limits, int count, int out) {
  for (int i = 0; i < count; i++) {
    int file = open(paths[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    unsigned left = limits[i], none = 0;
    while (file >= 0 && left > 0) {
      ssize_t got = get(file, buffer, left < PIECE ? left : PIECE);
      if (got <= 0)
        break;
      unsigned size = (unsigned)got;
      put(out, &size, sizeof size);
      put(out, buffer, size);
      left -= size;
    }
    put(out, &none, sizeof none);
    if (file >= 0)
      close(file);
  }
  _exit(0);
}

/* The child's end blocks, the caller's does not. */
static pid_t with_pipe(int ends[2]) {
  if (pipe2(ends, O_CLOEXEC) != 0)
    return -1;
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  pid_t pid = fork_plainly();
  if (pid == 0)
    close_others(&ends[1], 1);
  return pid;
}

pid_t guardian_errand_read(const char *const *paths, const unsigned *limits, int count, int *end) {
  int ends[2];
  pid_t pid = with_pipe(ends);
  if (pid == 0)
    read_all(paths, limits, count, ends[1]);
  return parted(pid, ends[0], ends[1], end);
}

/* Whether the name of a channel follows, and `then` behind it. */
static bool continues(const char *at, const char *last, const char *channels, const char *then) {
  size_t length = strlen(then);
  if (last - at < CHANNEL_DIGITS + (ptrdiff_t)length)
    return false;
  for (int i = 0; i < CHANNEL_DIGITS; i++)
    if (!((at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'f')))
      return false;
  if (memcmp(at + CHANNEL_DIGITS, then, length) != 0)
    return false;
  for (const char *name = channels; *name; name += CHANNEL_DIGITS)
    if (memcmp(at, name, CHANNEL_DIGITS) == 0)
      return true;
  return !*channels;
}

/* *total: how much there was to read. */
static bool file_has(const char *path, size_t most, const char *mark, const char *channels,
                     const char *then, size_t *total) {
  const size_t length = strlen(mark), overlap = length + CHANNEL_DIGITS + 16;
  size_t kept = 0;
  bool found = false;
  *total = 0;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  while (file >= 0 && !found && overlap < sizeof buffer - PIECE && *total < most) {
    ssize_t got = get(file, buffer + kept, PIECE);
    if (got <= 0)
      break;
    *total += (size_t)got;
    const char *last = buffer + kept + got;
    for (const char *at = buffer; !found; at++) {
      at = memmem(at, (size_t)(last - at), mark, length);
      if (!at)
        break;
      found = continues(at + length, last, channels, then);
    }
    kept = (size_t)(last - buffer) < overlap ? (size_t)(last - buffer) : overlap;
    memmove(buffer, last - kept, kept);
  }
  if (file >= 0)
    close(file);
  return found;
}

static char search_one(int pid, int thread, const char *in_environment, const char *in_mappings,
                       const char *channels) {
  char path[64];
  size_t size, mapped;
  snprintf(path, sizeof path, "/proc/%d/task/%d/environ", pid, thread);
  if (file_has(path, ENVIRONMENT_MOST, in_environment, channels, "", &size))
    return GUARDIAN_SEARCH_FOUND;
  snprintf(path, sizeof path, "/proc/%d/task/%d/maps", pid, thread);
  if (file_has(path, MAPS_MOST, in_mappings, channels, "/ring", &mapped))
    return GUARDIAN_SEARCH_FOUND;
  return size == 0 ? GUARDIAN_SEARCH_EMPTY : GUARDIAN_SEARCH_NOTHING;
}

pid_t guardian_errand_search(const int *pids, const int *threads, int count,
                             const char *in_environment, const char *in_mappings,
                             const char *channels, int *end) {
  int ends[2];
  pid_t pid = with_pipe(ends);
  if (pid == 0) {
    for (int i = 0; i < count; i++) {
      char verdict = search_one(pids[i], threads[i], in_environment, in_mappings, channels);
      put(ends[1], &verdict, 1);
    }
    _exit(0);
  }
  return parted(pid, ends[0], ends[1], end);
}
