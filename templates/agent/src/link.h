/* What carries the host's bytes: the virtio-serial port in a guest, a unix socket in tests. */
#ifndef LINK_H
#define LINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "loop.h"

struct link {
  struct loop *loop;
  struct watch watch;
  struct watch listener;
  const char *path;
  /* Edge-triggered: set by an event, cleared when a read finds nothing more. */
  bool is_readable;
  /* Another host has connected, and the former one's end was not told yet. */
  bool is_replaced;
  bool is_port;
  /* When the port first reported that no host is there; 0 while one is. */
  uint64_t hung_up_at;
  struct timer retry;
};

/* A port that reported a hang-up is asked again this often, and believed when it still says so after that time. */
enum { LINK_RETRY_MS = 500 };

/* Finds the port by its name in sysfs and opens it, for root only. False with errno. */
bool link_open_port(struct link *link, struct loop *loop, const char *name);
/* Listens on a unix socket (mode 0600). A newer connection replaces the older one. */
bool link_listen(struct link *link, struct loop *loop, const char *path);
/* Bytes read; 0 for nothing at the moment; -1 when the host hung up. */
ssize_t link_read(struct link *link, void *buffer, size_t length);
/* Bytes written, 0 when it takes no more at the moment. */
size_t link_write(struct link *link, const void *bytes, size_t length);
/* Ends the present connection, where the carrier knows connections. */
void link_hang_up(struct link *link);
void link_close(struct link *link);

#endif
