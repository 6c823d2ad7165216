#include "CLinux.h"

#include <arpa/inet.h>
#include <linux/kcmp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

static int closed(int number) {
  int error = errno;
  close(number);
  errno = error;
  return -1;
}

/* The address's length; 0: it is not numeric. */
static socklen_t numeric(const char *host, uint16_t port, struct sockaddr_storage *address) {
  struct sockaddr_in *four = (struct sockaddr_in *)address;
  struct sockaddr_in6 *six = (struct sockaddr_in6 *)address;
  memset(address, 0, sizeof *address);
  if (inet_pton(AF_INET, host, &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    return sizeof *four;
  }
  if (inet_pton(AF_INET6, host, &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    return sizeof *six;
  }
  errno = EINVAL;
  return 0;
}

static int listen_on(const struct sockaddr *address, socklen_t length, int backlog) {
  int number = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (number < 0)
    return -1;
  int yes = 1;
  if (address->sa_family != AF_UNIX &&
      setsockopt(number, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0)
    return closed(number);
  if (bind(number, address, length) != 0 || listen(number, backlog) != 0)
    return closed(number);
  return number;
}

int guardian_listen_tcp(const char *host, uint16_t port, int backlog) {
  struct sockaddr_storage address;
  socklen_t length = numeric(host, port, &address);
  return length ? listen_on((struct sockaddr *)&address, length, backlog) : -1;
}

static bool path_address(const char *path, struct sockaddr_un *address) {
  memset(address, 0, sizeof *address);
  address->sun_family = AF_UNIX;
  if (strlen(path) >= sizeof address->sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(address->sun_path, path);
  return true;
}

int guardian_listen_unix(const char *path, int backlog) {
  struct sockaddr_un address;
  if (!path_address(path, &address))
    return -1;
  return listen_on((struct sockaddr *)&address, sizeof address, backlog);
}

bool guardian_still_listens(int socket) {
  int listens = 0;
  socklen_t size = sizeof listens;
  if (getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || !listens)
    return false;
  /* One of a path goes on saying so after a shutdown. */
  struct pollfd state = {.fd = socket, .events = POLLRDHUP};
  return poll(&state, 1, 0) == 0;
}

int guardian_listen_again(int socket, int backlog) {
  if (listen(socket, backlog) != 0)
    return -1;
  if (guardian_still_listens(socket))
    return 0;
  errno = ENOTCONN;
  return -1;
}

int guardian_somebody_listens(const char *path) {
  struct sockaddr_un address;
  if (!path_address(path, &address))
    return -1;
  int number = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (number < 0)
    return -1;
  /* A full queue (EAGAIN) and another type of socket (EPROTOTYPE) have an owner too. */
  int result = connect(number, (struct sockaddr *)&address, sizeof address) == 0 ||
               errno != ECONNREFUSED;
  close(number);
  return result;
}

int guardian_connect_tcp(const char *host, uint16_t port) {
  struct sockaddr_storage address;
  socklen_t length = numeric(host, port, &address);
  if (!length)
    return -1;
  int number = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (number < 0)
    return -1;
  if (connect(number, (struct sockaddr *)&address, length) != 0 && errno != EINPROGRESS)
    return closed(number);
  return number;
}

int guardian_socket_error(int socket) {
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

bool guardian_same_file(int first, int second) {
  pid_t self = getpid();
  long order = syscall(SYS_kcmp, self, self, KCMP_FILE, first, second);
  if (order >= 0)
    return order == 0;
  /* A kernel or sandbox without kcmp: the same inode will do, but for those that many share. */
  struct stat a, b;
  return fstat(first, &a) == 0 && fstat(second, &b) == 0 && a.st_dev == b.st_dev &&
         a.st_ino == b.st_ino && (S_ISSOCK(a.st_mode) || S_ISFIFO(a.st_mode));
}

int guardian_pipe(int ends[2]) {
  if (pipe2(ends, O_CLOEXEC) != 0)
    return -1;
  int flags = fcntl(ends[0], F_GETFL);
  fcntl(ends[0], F_SETFL, flags | O_NONBLOCK);
  return 0;
}
