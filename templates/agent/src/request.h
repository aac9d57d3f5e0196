/* One HTTP/2 stream: what was asked, how its body arrives, and how it is answered. */
#ifndef REQUEST_H
#define REQUEST_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "failure.h"
#include "text.h"

struct agent;
struct session;
struct request;

enum method { METHOD_OTHER, METHOD_GET, METHOD_PUT, METHOD_POST, METHOD_DELETE, METHOD_HEAD, METHOD_CONNECT };
enum { REQUEST_ARGS = 2, REQUEST_TARGET_MAX = 12 * 1024, REQUEST_JSON_MAX = 64 * 1024 };

/* Called for each piece of the body. Whoever sets it calls request_consumed for every byte, sooner or later. */
typedef void request_body_fn(struct request *request, const uint8_t *bytes, size_t length);
typedef void request_event_fn(struct request *request);
/*
 * Fills at most `length` bytes of the answer. Returns the number, 0 for "not now" (wake it with request_wake), or
 * -1 to reset the stream. Sets `*is_last` together with the last bytes (or none).
 */
typedef ssize_t request_pull_fn(struct request *request, uint8_t *buffer, size_t length, bool *is_last);

struct request {
  struct agent *agent;
  struct session *session;
  int32_t stream_id;
  struct request *next;

  enum method method;
  /* Path and query as received; the path is cut and decoded in place when it is routed. */
  char *target;
  size_t target_length;
  char authority[64];
  const char *args[REQUEST_ARGS];
  const char *query;
  bool is_malformed;

  /* Collected when the route wants the whole body. */
  struct text body;
  bool is_body_ended;
  request_body_fn *on_body;
  request_event_fn *on_body_end;

  struct text reply;
  size_t reply_at;
  request_pull_fn *pull;
  bool is_answered;

  /* Runs once, whatever ends the stream; `is_reset` tells that it did not end regularly. Frees `state`. */
  request_event_fn *on_close;
  bool is_reset;
  void *state;
};

/* Each of these answers the request; only the first call counts. */
void request_fail(struct request *request, enum failure failure, const char *format, ...)
  __attribute__((format(printf, 3, 4)));
/* The same for a failed system call: the code comes from `error`. */
void request_fail_errno(struct request *request, int error, const char *what);
void request_no_content(struct request *request);
/* Takes over the text and sends it as JSON. */
void request_json(struct request *request, int status, struct text *body);
/* Sends headers now and the body as `pull` gives it. `name` may be NULL. */
void request_stream(struct request *request, const char *type, const char *name, uint64_t value, request_pull_fn *pull);

/* There is something for `pull` again. */
void request_wake(struct request *request);
/* Gives the peer back window for body bytes which were dealt with. */
void request_consumed(struct request *request, size_t length);
/* Ends the stream with an error, for both directions. */
void request_reset(struct request *request);

#endif
