/* Stream sockets: socket addresses are casts all through. */
#ifndef GUARDIAN_CLINUX_STREAM_H
#define GUARDIAN_CLINUX_STREAM_H
#include <stdbool.h>
#include <stdint.h>

/* A listening socket on a numeric address; close-on-exec, blocking, SO_REUSEADDR. -1 with errno. */
int guardian_listen_tcp(const char *host, uint16_t port, int backlog);
/* The same on a path (≤ 107 bytes) that is not there. */
int guardian_listen_unix(const char *path, int backlog);
/* Whether this socket takes connections: any holder of it may have shut it down (shutdown(2)). */
bool guardian_still_listens(int socket);
/* Listens on a socket that has its address. -1 with errno: one of a path cannot be mended. */
int guardian_listen_again(int socket, int backlog);
/* Whether somebody listens on this path: 1, 0 (a socket that nobody has), -1 with errno. */
int guardian_somebody_listens(const char *path);
/* Begins to connect to a numeric address; close-on-exec, non-blocking. Writable when it is done:
 * then ask guardian_socket_error. -1 with errno. */
int guardian_connect_tcp(const char *host, uint16_t port);
/* SO_ERROR: 0 or an errno. */
int guardian_socket_error(int socket);
/* Whether both numbers mean one open file. */
bool guardian_same_file(int first, int second);
/* pipe2(2), close-on-exec; the reading end does not block. */
int guardian_pipe(int ends[2]);

#endif
