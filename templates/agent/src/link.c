#define _GNU_SOURCE
#include "link.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"

/* The port takes at most this much per write; more would only be copied again. */
enum { PORT_WRITE = 32 * 1024 };

static void on_event(struct watch *watch, uint32_t events) {
  struct link *link = watch->owner;
  (void)events;
  link->is_readable = true;
}

static void on_retry(struct timer *timer) {
  struct link *link = timer->owner;
  link->is_readable = true;
}

static bool has_name(const char *port, const char *name) {
  char path[320], found[64];
  snprintf(path, sizeof path, "/sys/class/virtio-ports/%s/name", port);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  ssize_t size = read(fd, found, sizeof found);
  close(fd);
  while (size > 0 && found[size - 1] == '\n') size--;
  return size == (ssize_t)strlen(name) && memcmp(found, name, (size_t)size) == 0;
}

static bool find_port(const char *name, char *path, size_t size) {
  DIR *directory = opendir("/sys/class/virtio-ports");
  if (!directory) return false;
  bool is_found = false;
  for (struct dirent *entry; !is_found && (entry = readdir(directory));) {
    if (entry->d_name[0] == '.' || !has_name(entry->d_name, name)) continue;
    is_found = snprintf(path, size, "/dev/%s", entry->d_name) < (int)size;
  }
  closedir(directory);
  if (!is_found) errno = ENODEV;
  return is_found;
}

bool link_open_port(struct link *link, struct loop *loop, const char *name) {
  *link = (struct link){.loop = loop, .is_port = true, .is_readable = true};
  link->watch = (struct watch){.fd = -1, .fn = on_event, .owner = link};
  link->listener.fd = -1;
  link->retry = (struct timer){.fn = on_retry, .owner = link};
  char path[288];
  if (!find_port(name, path, sizeof path)) return false;
  int fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  /* Edge-triggered, because a port without a host reports POLLIN and POLLHUP for as long as nobody connects. */
  if (fchmod(fd, 0600) == 0 && loop_add(loop, &link->watch, fd, EPOLLIN | EPOLLOUT | EPOLLET)) return true;
  close(fd);
  return false;
}

static void on_connection(struct watch *watch, uint32_t events) {
  struct link *link = watch->owner;
  (void)events;
  int fd = accept4(watch->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd < 0) return;
  /* Its bytes must not reach the session of the one before it. */
  link->is_replaced = link->watch.fd >= 0;
  link_hang_up(link);
  if (loop_add(link->loop, &link->watch, fd, EPOLLIN | EPOLLOUT | EPOLLET)) link->is_readable = true;
  else close(fd);
}

bool link_listen(struct link *link, struct loop *loop, const char *path) {
  *link = (struct link){.loop = loop, .path = path};
  link->watch = (struct watch){.fd = -1, .fn = on_event, .owner = link};
  link->listener = (struct watch){.fd = -1, .fn = on_connection, .owner = link};
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) {
    errno = ENAMETOOLONG;
    return false;
  }
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return false;
  unlink(path);
  mode_t mask = umask(0177);
  bool is_bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
  umask(mask);
  if (is_bound && listen(fd, 8) == 0 && loop_add(loop, &link->listener, fd, EPOLLIN)) return true;
  close(fd);
  return false;
}

/*
 * The port's hang-up is late news: the kernel handles it in a work queue, bytes in the interrupt. After a restore it may
 * come behind the next host's preamble, whose session it must not end. So it is believed only when it lasts; a new
 * host needs no hang-up before it, because its preamble begins a new session anyway.
 */
static ssize_t hung_up(struct link *link) {
  if (!link->is_port) {
    link_hang_up(link);
    return -1;
  }
  uint64_t now = monotonic_ms();
  if (link->hung_up_at == 0) link->hung_up_at = now;
  loop_arm(link->loop, &link->retry, LINK_RETRY_MS);
  return now - link->hung_up_at >= LINK_RETRY_MS ? -1 : 0;
}

static void note_host(struct link *link) {
  link->hung_up_at = 0;
  loop_disarm(link->loop, &link->retry);
}

ssize_t link_read(struct link *link, void *buffer, size_t length) {
  if (link->watch.fd < 0) {
    link->is_readable = false;
    return 0;
  }
  if (link->is_replaced) {
    link->is_replaced = false;
    return -1;
  }
  ssize_t size = read(link->watch.fd, buffer, length);
  if (size > 0) {
    note_host(link);
    return size;
  }
  if (size < 0 && errno == EINTR) return 0;
  link->is_readable = false;
  if (size < 0 && errno == EAGAIN) {
    note_host(link);
    return 0;
  }
  return hung_up(link);
}

size_t link_write(struct link *link, const void *bytes, size_t length) {
  if (link->watch.fd < 0) return 0;
  if (link->is_port && length > PORT_WRITE) length = PORT_WRITE;
  ssize_t size = link->is_port ? write(link->watch.fd, bytes, length)
                               : send(link->watch.fd, bytes, length, MSG_NOSIGNAL);
  /* An error other than "full" is met again by the next read, which then hangs up. */
  return size < 0 ? 0 : (size_t)size;
}

void link_hang_up(struct link *link) {
  if (link->is_port || link->watch.fd < 0) return;
  int fd = link->watch.fd;
  loop_remove(link->loop, &link->watch);
  close(fd);
}

void link_close(struct link *link) {
  link_hang_up(link);
  int fds[] = {link->watch.fd, link->listener.fd};
  loop_disarm(link->loop, &link->retry);
  loop_remove(link->loop, &link->watch);
  loop_remove(link->loop, &link->listener);
  for (int i = 0; i < 2; i++)
    if (fds[i] >= 0) close(fds[i]);
  if (link->path) unlink(link->path);
}
