#include "CLinux.h"

#include <linux/sockios.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

static struct guardian_message receive(int socket, void *buffer, size_t size, int flags, int room) {
  struct guardian_message message = {.bytes = -1};
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(struct ucred)) +
               CMSG_SPACE(sizeof(int) * GUARDIAN_KEPT_DESCRIPTORS)];
  } control;
  struct iovec part = {buffer, size};
  struct msghdr header = {.msg_iov = &part,
                          .msg_iovlen = 1,
                          .msg_control = &control,
                          .msg_controllen = CMSG_SPACE(sizeof(struct ucred))};
  if (room > 0)
    header.msg_controllen = sizeof control;
  do
    message.bytes = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
  while (message.bytes < 0 && errno == EINTR);
  if (message.bytes < 0)
    return message;
  message.truncated = (header.msg_flags & MSG_TRUNC) != 0;
  message.has_descriptors = (header.msg_flags & MSG_CTRUNC) != 0;
  for (struct cmsghdr *part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET)
      continue;
    size_t length = part->cmsg_len - CMSG_LEN(0);
    if (part->cmsg_type == SCM_CREDENTIALS && length >= sizeof(struct ucred)) {
      struct ucred sender;
      memcpy(&sender, CMSG_DATA(part), sizeof sender);
      message.pid = sender.pid;
      message.uid = sender.uid;
    } else if (part->cmsg_type == SCM_RIGHTS) {
      int count = (int)(length / sizeof(int));
      /* Without SO_PASSCRED the room for the sender holds some more. */
      for (int i = 0; i < count; i++) {
        int number;
        memcpy(&number, CMSG_DATA(part) + (size_t)i * sizeof number, sizeof number);
        if (i < GUARDIAN_KEPT_DESCRIPTORS)
          message.descriptors[message.descriptor_count++] = number;
        else
          close(number);
      }
    }
  }
  return message;
}

struct guardian_message guardian_receive(int socket, void *buffer, size_t size) {
  return receive(socket, buffer, size, 0, GUARDIAN_KEPT_DESCRIPTORS);
}

struct guardian_message guardian_receive_text(int socket, void *buffer, size_t size, bool peek) {
  return receive(socket, buffer, size, peek ? MSG_PEEK : 0, 0);
}

ssize_t guardian_send(int socket, const void *bytes, size_t size, const int *descriptors,
                      int count) {
  union {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * GUARDIAN_KEPT_DESCRIPTORS)];
  } control;
  struct iovec part = {(void *)bytes, size};
  struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
  if (count > GUARDIAN_KEPT_DESCRIPTORS) {
    errno = EINVAL;
    return -1;
  }
  if (count > 0) {
    memset(&control, 0, sizeof control);
    header.msg_control = &control;
    header.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)count);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof(int) * (size_t)count);
    memcpy(CMSG_DATA(rights), descriptors, sizeof(int) * (size_t)count);
  }
  ssize_t sent;
  do
    sent = sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent;
}

/* Calls `use` (bind or connect) with the address of `path`. `hidden`: as a name in an opened folder,
 * for everybody may read in /proc/net/unix what a socket was bound to. */
static int with_address(int number, const char *path, bool hidden,
                        int (*use)(int, const struct sockaddr *, socklen_t)) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (!hidden && strlen(path) < sizeof address.sun_path) {
    strcpy(address.sun_path, path);
    return use(number, (struct sockaddr *)&address, sizeof address);
  }
  const char *name = strrchr(path, '/');
  if (!name) {
    errno = ENAMETOOLONG;
    return -1;
  }
  char *above = strndup(path, (size_t)(name - path));
  if (!above)
    return -1;
  int folder = open(above, O_PATH | O_DIRECTORY | O_CLOEXEC);
  free(above);
  if (folder < 0)
    return -1;
  int length =
      snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d%s", folder, name);
  int result = -1;
  if (length < 0 || (size_t)length >= sizeof address.sun_path)
    errno = ENAMETOOLONG;
  else
    result = use(number, (struct sockaddr *)&address, sizeof address);
  int error = errno;
  close(folder);
  errno = error;
  return result;
}

int guardian_bind_datagram(const char *path, bool descriptors) {
  struct sockaddr_un address;
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG; /* the other side could not reach it */
    return -1;
  }
  int number = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (number < 0)
    return -1;
  int yes = 1, no = 0;
  if (!descriptors) /* since Linux 6.16 */
    setsockopt(number, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
  if (setsockopt(number, SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0 ||
      with_address(number, path, true, bind) != 0) {
    int error = errno;
    close(number);
    errno = error;
    return -1;
  }
  return number;
}

int guardian_connect_datagram(const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return -1;
  }
  strcpy(address.sun_path, path);
  int number = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (number >= 0 && connect(number, (struct sockaddr *)&address, sizeof address) != 0) {
    int error = errno;
    close(number);
    errno = error;
    return -1;
  }
  return number;
}

bool guardian_send_parts(int socket, const struct iovec *parts, size_t count) {
  struct msghdr message = {.msg_iov = (struct iovec *)parts, .msg_iovlen = count};
  ssize_t sent;
  do
    sent = sendmsg(socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

bool guardian_is_unread(int socket) {
  int waiting = 0;
  return ioctl(socket, SIOCOUTQ, &waiting) == 0 && waiting > 0;
}

int guardian_packet_pair(int ends[2]) {
  return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
}

int guardian_listen_packet(const char *path, int backlog) {
  int number = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (number < 0)
    return -1;
  int no = 0;
  /* An accepted socket has it from here: no client's descriptor is ever closed by us. Linux 6.16. */
  setsockopt(number, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof no);
  /* Before `listen` nobody can connect, whatever the umask made of it. */
  if (with_address(number, path, false, bind) != 0 || chmod(path, 0600) != 0 ||
      listen(number, backlog) != 0) {
    int error = errno;
    close(number);
    errno = error;
    return -1;
  }
  return number;
}

int guardian_connect_packet(const char *path, int milliseconds) {
  int number = socket(
      AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | (milliseconds > 0 ? 0 : SOCK_NONBLOCK), 0);
  if (number < 0)
    return -1;
  struct timeval limit = {milliseconds / 1000, milliseconds % 1000 * 1000};
  setsockopt(number, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  if (with_address(number, path, false, connect) != 0) {
    int error = errno;
    close(number);
    errno = error;
    return -1;
  }
  return number;
}

bool guardian_accepts_stream(const char *path) {
  int number = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (number < 0)
    return false;
  bool accepted = with_address(number, path, false, connect) == 0;
  int error = errno;
  close(number);
  errno = error;
  return accepted;
}

bool guardian_peer_is(int socket, const char *path) {
  struct sockaddr_un address = {.sun_family = AF_UNSPEC};
  socklen_t size = sizeof address;
  if (getpeername(socket, (struct sockaddr *)&address, &size) != 0 || address.sun_family != AF_UNIX ||
      size <= offsetof(struct sockaddr_un, sun_path))
    return false;
  size_t length = strnlen(address.sun_path, size - offsetof(struct sockaddr_un, sun_path));
  return length == strlen(path) && memcmp(address.sun_path, path, length) == 0;
}

void guardian_deafen(int socket) { shutdown(socket, SHUT_RD); }

int guardian_accept(int socket) { return accept4(socket, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK); }

uid_t guardian_peer_user(int socket) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 ? peer.uid : (uid_t)-1;
}
