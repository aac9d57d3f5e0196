/* The HTTP/2 server side of one host connection, over whatever carries its bytes. */
#ifndef SESSION_H
#define SESSION_H

#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "request.h"

enum {
  SESSION_STREAMS = 256,
  SESSION_STREAM_WINDOW = 256 * 1024,
  SESSION_WINDOW = 8 * 1024 * 1024,
  SESSION_OUT = 64 * 1024,
};

struct session {
  struct agent *agent;
  /* NULL while no host has said hello. */
  nghttp2_session *h2;
  struct request *requests;
  size_t request_count;
  /* The client's preface has come: only now may we write. */
  size_t received;
  uint8_t out[SESSION_OUT];
  size_t out_at;
  size_t out_length;
};

/* Begins a fresh session. False when memory is short. */
bool session_start(struct session *session, struct agent *agent);
/* Ends it now: every request is closed, queued output is dropped. Harmless without a session. */
void session_drop(struct session *session);
/* False after a protocol error: the caller flushes what says so and drops the session. */
bool session_receive(struct session *session, const uint8_t *bytes, size_t length);
/*
 * What is to be written next, up to SESSION_OUT bytes; NULL when there is nothing. `session_written` tells how much
 * of it was taken.
 */
const uint8_t *session_output(struct session *session, size_t *length);
void session_written(struct session *session, size_t length);
/* Puts raw bytes (the answer to a preamble) in front of everything else. */
void session_prepend(struct session *session, const void *bytes, size_t length);

#endif
