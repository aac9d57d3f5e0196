#define _GNU_SOURCE
#include "tunnel.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent.h"
#include "loop.h"
#include "queue.h"

/* How long a socket may take the rest of an upload after its stream has ended. */
enum { LINGER_MS = 30000 };

struct tunnel {
  struct loop *loop;
  /* NULL once the stream has ended and only queued bytes are left to deliver. */
  struct request *request;
  struct watch watch;
  struct timer linger;
  struct queue queue;
  uint16_t port;
  bool is_connected;
  bool is_second_try;
  /* The host has ended its half. */
  bool is_ended;
  /* The socket takes no more: what comes from the host is dropped, what the function said is still delivered. */
  bool is_deaf;
};

static bool try_address(struct tunnel *tunnel);

static void free_tunnel(struct tunnel *tunnel) {
  int fd = tunnel->watch.fd;
  loop_remove(tunnel->loop, &tunnel->watch);
  loop_disarm(tunnel->loop, &tunnel->linger);
  if (fd >= 0) close(fd);
  queue_free(&tunnel->queue);
  free(tunnel);
}

static void on_linger(struct timer *timer) { free_tunnel(timer->owner); }

static void consumed(struct tunnel *tunnel, size_t length) {
  if (tunnel->request) request_consumed(tunnel->request, length);
}

static void drop_queue(struct tunnel *tunnel) {
  tunnel->is_deaf = true;
  consumed(tunnel, tunnel->queue.length);
  queue_free(&tunnel->queue);
}

static void flush(struct tunnel *tunnel) {
  struct queue *queue = &tunnel->queue;
  while (queue->length > 0) {
    ssize_t size = send(tunnel->watch.fd, queue_front(queue), queue->length, MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size < 0) {
      drop_queue(tunnel);
      break;
    }
    queue_pop(queue, (size_t)size);
    consumed(tunnel, (size_t)size);
  }
  if (tunnel->is_ended && !tunnel->is_deaf) {
    tunnel->is_deaf = true;
    shutdown(tunnel->watch.fd, SHUT_WR);
  }
}

static ssize_t pull(struct request *request, uint8_t *buffer, size_t length, bool *is_last) {
  struct tunnel *tunnel = request->state;
  ssize_t size;
  do size = recv(tunnel->watch.fd, buffer, length, 0);
  while (size < 0 && errno == EINTR);
  if (size < 0) return errno == EAGAIN ? 0 : -1;
  /*
   * Servers that write head and body apart, as Python's http.server does, wait for our acknowledgement in between (Nagle),
   * which would be held back for 40 ms. The kernel forgets this option, so it is set after each read.
   */
  int on = 1;
  setsockopt(tunnel->watch.fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
  *is_last = size == 0;
  return size;
}

static void refuse(struct tunnel *tunnel, int error) {
  struct request *request = tunnel->request;
  int fd = tunnel->watch.fd;
  loop_remove(tunnel->loop, &tunnel->watch);
  if (fd >= 0) close(fd);
  drop_queue(tunnel);
  request_fail(request, FAIL_PORT_CLOSED, "port %u: %s", tunnel->port, strerror(error));
}

static void settle(struct tunnel *tunnel) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(tunnel->watch.fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error) {
    int fd = tunnel->watch.fd;
    loop_remove(tunnel->loop, &tunnel->watch);
    close(fd);
    if (!tunnel->is_second_try) {
      tunnel->is_second_try = true;
      if (try_address(tunnel)) return;
    }
    refuse(tunnel, error);
    return;
  }
  tunnel->is_connected = true;
  request_stream(tunnel->request, NULL, NULL, 0, pull);
  flush(tunnel);
}

static void on_event(struct watch *watch, uint32_t events) {
  struct tunnel *tunnel = watch->owner;
  if (!tunnel->is_connected) {
    settle(tunnel);
    return;
  }
  if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) flush(tunnel);
  if (tunnel->request) request_wake(tunnel->request);
  else if (tunnel->queue.length == 0) free_tunnel(tunnel);
}

/*
 * First 127.0.0.1, then ::1: a server that was told to listen on "localhost" may be on either. Edge-triggered, because
 * both directions are drained until the socket says EAGAIN.
 */
static bool try_address(struct tunnel *tunnel) {
  struct sockaddr_in four = {.sin_family = AF_INET,
                             .sin_port = htons(tunnel->port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  struct sockaddr_in6 six = {
    .sin6_family = AF_INET6, .sin6_port = htons(tunnel->port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
  bool is_six = tunnel->is_second_try;
  int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), on = 1;
  if (fd < 0) return false;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int result = is_six ? connect(fd, (struct sockaddr *)&six, sizeof six)
                      : connect(fd, (struct sockaddr *)&four, sizeof four);
  bool is_trying = result == 0 || errno == EINPROGRESS;
  if (is_trying && loop_add(tunnel->loop, &tunnel->watch, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)) return true;
  int error = errno;
  close(fd);
  errno = error;
  return false;
}

static void on_body(struct request *request, const uint8_t *bytes, size_t length) {
  struct tunnel *tunnel = request->state;
  if (tunnel->is_deaf) {
    request_consumed(request, length);
    return;
  }
  size_t sent = 0;
  if (tunnel->is_connected && tunnel->queue.length == 0) {
    ssize_t size = send(tunnel->watch.fd, bytes, length, MSG_NOSIGNAL);
    if (size > 0) sent = (size_t)size;
    request_consumed(request, sent);
  }
  if (sent == length) return;
  if (!queue_push(&tunnel->queue, bytes + sent, length - sent)) {
    request_consumed(request, length - sent);
    request_reset(request);
  }
}

static void on_body_end(struct request *request) {
  struct tunnel *tunnel = request->state;
  tunnel->is_ended = true;
  if (tunnel->is_connected) flush(tunnel);
}

static void on_close(struct request *request) {
  struct tunnel *tunnel = request->state;
  tunnel->request = NULL;
  if (request->is_reset && tunnel->watch.fd >= 0) {
    /* The function must see a reset too, not a regular end. */
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    setsockopt(tunnel->watch.fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  /* Only an upload that was complete is still delivered; of one that was given up, nobody wants the rest. */
  bool has_rest = tunnel->is_ended && tunnel->queue.length > 0 && tunnel->watch.fd >= 0;
  if (!request->is_reset && has_rest) loop_arm(tunnel->loop, &tunnel->linger, LINGER_MS);
  else free_tunnel(tunnel);
}

static bool parse_authority(const char *authority, uint16_t *port) {
  static const char host[] = "127.0.0.1:";
  if (strncmp(authority, host, sizeof host - 1) != 0) return false;
  const char *digits = authority + sizeof host - 1;
  size_t length = strspn(digits, "0123456789");
  if (length == 0 || length > 5 || digits[length]) return false;
  long value = strtol(digits, NULL, 10);
  *port = (uint16_t)value;
  return value >= 1 && value <= 65535;
}

void tunnel_open(struct request *request) {
  uint16_t port;
  if (!parse_authority(request->authority, &port)) {
    request_fail(request, FAIL_INVALID_REQUEST, ":authority must be 127.0.0.1:PORT");
    return;
  }
  struct tunnel *tunnel = calloc(1, sizeof *tunnel);
  if (!tunnel) {
    request_fail(request, FAIL_NO_MEMORY, "no memory for a tunnel");
    return;
  }
  tunnel->loop = &request->agent->loop;
  tunnel->request = request;
  tunnel->port = port;
  tunnel->watch = (struct watch){.fd = -1, .fn = on_event, .owner = tunnel};
  tunnel->linger = (struct timer){.fn = on_linger, .owner = tunnel};
  request->state = tunnel;
  request->on_body = on_body;
  request->on_body_end = on_body_end;
  request->on_close = on_close;
  if (!try_address(tunnel)) refuse(tunnel, errno);
}
