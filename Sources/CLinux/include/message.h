/* One datagram with what the kernel says about it: control messages are macros all through. */
#ifndef GUARDIAN_CLINUX_MESSAGE_H
#define GUARDIAN_CLINUX_MESSAGE_H
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <sys/uio.h>

enum {
  /* The kernel's own limit (SCM_MAX_FD). What there is no room for it would close at once, in the
   * receiver, which may wait for ever. */
  GUARDIAN_MESSAGE_DESCRIPTORS = 253,
  /* As many as guardian takes itself. */
  GUARDIAN_KEPT_DESCRIPTORS = 32,
};

struct guardian_message {
  ssize_t bytes; /* -1: errno */
  bool truncated;
  pid_t pid; /* of the sender, in our pid namespace; 0: outside of it, or not told */
  uid_t uid;
  bool has_descriptors; /* some came along that were not taken */
  int descriptor_count;
  int descriptors[GUARDIAN_KEPT_DESCRIPTORS]; /* close-on-exec; the caller closes them */
};

/* Never blocks. For a socket that only guardian's own processes can send to. */
struct guardian_message guardian_receive(int socket, void *buffer, size_t size);
/* The same without descriptors. `peek`: the message stays, and those that came with it are not
 * touched. Else it must be one that has none, as a peek just told: the kernel would close them here. */
struct guardian_message guardian_receive_text(int socket, void *buffer, size_t size, bool peek);
/* Sends one message with descriptors; `count` ≤ GUARDIAN_KEPT_DESCRIPTORS. Never blocks. */
ssize_t guardian_send(int socket, const void *bytes, size_t size, const int *descriptors, int count);

/* A datagram socket bound to `path` (≤ 107 bytes), non-blocking, close-on-exec; with SO_PASSCRED.
 * `descriptors`: whether any may come with a message; before Linux 6.16 they may in any case. */
int guardian_bind_datagram(const char *path, bool descriptors);
/* A datagram socket connected to `path`, non-blocking, close-on-exec. */
int guardian_connect_datagram(const char *path);
/* Sends one datagram of these parts without waiting, on a socket of guardian_connect_datagram. */
bool guardian_send_parts(int socket, const struct iovec *parts, size_t count);
/* Whether the other side has not yet read all that was sent on this socket. */
bool guardian_is_unread(int socket);
/* Two ends of a SOCK_SEQPACKET pair, close-on-exec. */
int guardian_packet_pair(int ends[2]);
/* SOCK_SEQPACKET, close-on-exec. A path that an address has no room for goes by way of its
 * folder. The listener does not block and is closed to others than its owner; connect waits at
 * most so long where the other side's queue is full (0: not at all). -1 with errno. */
int guardian_listen_packet(const char *path, int backlog);
int guardian_connect_packet(const char *path, int milliseconds);
/* Whether a stream socket at `path` takes a connection without waiting; else errno. The one that
 * was tried is closed. */
bool guardian_accepts_stream(const char *path);
/* Whether the other end of this stream socket is the one that listens at `path`, or was before it
 * went away. */
bool guardian_peer_is(int socket, const char *path);
/* Nobody can send to this datagram socket any more; what waits in it stays. */
void guardian_deafen(int socket);
/* Close-on-exec and non-blocking. */
int guardian_accept(int socket);
/* The user at the other end when it connected; (uid_t)-1: not told. */
uid_t guardian_peer_user(int socket);

#endif
