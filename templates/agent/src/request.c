#include "request.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

static ssize_t pull_reply(struct request *request, uint8_t *buffer, size_t length, bool *is_last) {
  size_t left = request->reply.length - request->reply_at;
  size_t size = left < length ? left : length;
  if (size > 0) memcpy(buffer, request->reply.data + request->reply_at, size);
  request->reply_at += size;
  *is_last = size == left;
  return (ssize_t)size;
}

static ssize_t read_source(nghttp2_session *h2, int32_t stream_id, uint8_t *buffer, size_t length, uint32_t *flags,
                           nghttp2_data_source *source, void *user) {
  (void)h2;
  (void)stream_id;
  (void)user;
  struct request *request = source->ptr;
  bool is_last = false;
  ssize_t size = request->pull(request, buffer, length, &is_last);
  if (size < 0) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  if (is_last) *flags |= NGHTTP2_DATA_FLAG_EOF;
  else if (size == 0) return NGHTTP2_ERR_DEFERRED;
  return size;
}

static nghttp2_nv header(const char *name, const char *value) {
  return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static void answer(struct request *request, int status, const char *type, const char *name, const char *value,
                   request_pull_fn *pull) {
  struct session *session = request->session;
  if (request->is_answered || !session || !session->h2) return;
  request->is_answered = true;
  /* An answer to HEAD has no body, not even the reason of a refusal: nghttp2 would end the client's session. */
  if (request->method == METHOD_HEAD) pull = NULL;
  request->pull = pull;
  char digits[8];
  snprintf(digits, sizeof digits, "%d", status);
  nghttp2_nv headers[3] = {header(":status", digits)};
  size_t count = 1;
  if (type) headers[count++] = header("content-type", type);
  if (name) headers[count++] = header(name, value);
  nghttp2_data_provider provider = {.source.ptr = request, .read_callback = read_source};
  if (nghttp2_submit_response(session->h2, request->stream_id, headers, count, pull ? &provider : NULL) != 0)
    request_reset(request);
}

void request_json(struct request *request, int status, struct text *body) {
  if (request->is_answered) {
    text_reset(body);
    return;
  }
  if (body->failed) {
    text_reset(body);
    request_fail(request, FAIL_NO_MEMORY, "the answer does not fit into memory");
    return;
  }
  text_reset(&request->reply);
  request->reply = *body;
  *body = (struct text){0};
  answer(request, status, "application/json", NULL, NULL, pull_reply);
}

void request_fail(struct request *request, enum failure failure, const char *format, ...) {
  if (request->is_answered) return;
  char message[256];
  va_list list;
  va_start(list, format);
  vsnprintf(message, sizeof message, format, list);
  va_end(list);
  struct text body = {0};
  text_addf(&body, "{\"error\":\"%s\",\"message\":", failure_code(failure));
  text_add_json_string(&body, message);
  text_addf(&body, "}");
  if (body.failed) {
    /* Not even memory for the reason: the status alone says it. */
    text_reset(&body);
    answer(request, failure_status(failure), NULL, NULL, NULL, NULL);
    return;
  }
  request_json(request, failure_status(failure), &body);
}

void request_fail_errno(struct request *request, int error, const char *what) {
  request_fail(request, failure_of_errno(error), "%s: %s", what, strerror(error));
}

void request_no_content(struct request *request) { answer(request, 204, NULL, NULL, NULL, NULL); }

void request_stream(struct request *request, const char *type, const char *name, uint64_t value,
                    request_pull_fn *pull) {
  char digits[24];
  snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
  answer(request, 200, type, name, digits, pull);
}

void request_wake(struct request *request) {
  if (request->session && request->session->h2 && request->is_answered)
    nghttp2_session_resume_data(request->session->h2, request->stream_id);
}

void request_consumed(struct request *request, size_t length) {
  if (request->session && request->session->h2 && length > 0)
    nghttp2_session_consume_stream(request->session->h2, request->stream_id, length);
}

void request_reset(struct request *request) {
  if (request->session && request->session->h2)
    nghttp2_submit_rst_stream(request->session->h2, NGHTTP2_FLAG_NONE, request->stream_id, NGHTTP2_CONNECT_ERROR);
}
