#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "agent.h"
#include "log.h"
#include "router.h"

static const size_t preface_size = 24;
/* The largest piece which nghttp2 hands out at once: one frame of 16 KiB and its header. */
enum { LARGEST_CHUNK = 17 * 1024 };

static struct request *request_of(nghttp2_session *h2, int32_t stream_id) {
  return nghttp2_session_get_stream_user_data(h2, stream_id);
}

static int on_begin_headers(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
  struct session *session = user;
  if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  struct request *request = calloc(1, sizeof *request);
  if (!request) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  request->agent = session->agent;
  request->session = session;
  request->stream_id = frame->hd.stream_id;
  if (nghttp2_session_set_stream_user_data(h2, frame->hd.stream_id, request) != 0) {
    free(request);
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
  }
  request->next = session->requests;
  session->requests = request;
  session->request_count++;
  return 0;
}

static enum method method_of(const char *name, size_t length) {
  static const struct {
    const char *name;
    enum method method;
  } methods[] = {{"GET", METHOD_GET},       {"PUT", METHOD_PUT},         {"POST", METHOD_POST},
                 {"DELETE", METHOD_DELETE}, {"HEAD", METHOD_HEAD},       {"CONNECT", METHOD_CONNECT}};
  for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
    if (strlen(methods[i].name) == length && memcmp(methods[i].name, name, length) == 0) return methods[i].method;
  return METHOD_OTHER;
}

static bool is_name(const uint8_t *name, size_t length, const char *wanted) {
  return length == strlen(wanted) && memcmp(name, wanted, length) == 0;
}

static int on_header(nghttp2_session *h2, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
                     const uint8_t *value, size_t length, uint8_t flags, void *user) {
  (void)flags;
  (void)user;
  struct request *request = request_of(h2, frame->hd.stream_id);
  if (!request || frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST) return 0;
  if (is_name(name, name_length, ":method")) {
    request->method = method_of((const char *)value, length);
  } else if (is_name(name, name_length, ":path")) {
    if (length > REQUEST_TARGET_MAX || !(request->target = strndup((const char *)value, length)))
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    request->target_length = length;
  } else if (is_name(name, name_length, ":authority")) {
    if (length >= sizeof request->authority) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    memcpy(request->authority, value, length);
  }
  return 0;
}

static int on_frame(nghttp2_session *h2, const nghttp2_frame *frame, void *user) {
  (void)user;
  if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
  struct request *request = request_of(h2, frame->hd.stream_id);
  if (!request) return 0;
  if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST) router_begin(request);
  if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) && !request->is_body_ended) {
    request->is_body_ended = true;
    if (request->on_body_end) request->on_body_end(request);
  }
  return 0;
}

static int on_data(nghttp2_session *h2, uint8_t flags, int32_t stream_id, const uint8_t *bytes, size_t length,
                   void *user) {
  (void)flags;
  (void)user;
  /* Connection window is returned at once: a stalled tunnel must not hold up the others. Its own window bounds it. */
  nghttp2_session_consume_connection(h2, length);
  struct request *request = request_of(h2, stream_id);
  if (request && request->on_body) request->on_body(request, bytes, length);
  else nghttp2_session_consume_stream(h2, stream_id, length);
  return 0;
}

static void request_free(struct request *request) {
  if (request->on_close) request->on_close(request);
  free(request->target);
  text_reset(&request->body);
  text_reset(&request->reply);
  free(request);
}

static int on_stream_close(nghttp2_session *h2, int32_t stream_id, uint32_t error, void *user) {
  struct session *session = user;
  struct request *request = request_of(h2, stream_id);
  if (!request) return 0;
  struct request **place = &session->requests;
  while (*place != request) place = &(*place)->next;
  *place = request->next;
  session->request_count--;
  request->is_reset = error != NGHTTP2_NO_ERROR;
  request->session = NULL;
  request_free(request);
  return 0;
}

static bool set_up(struct session *session) {
  nghttp2_session_callbacks *callbacks = NULL;
  nghttp2_option *option = NULL;
  bool is_up = false;
  if (nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0) {
    nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    nghttp2_option_set_no_auto_window_update(option, 1);
    is_up = nghttp2_session_server_new2(&session->h2, callbacks, session, option) == 0;
  }
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  return is_up;
}

bool session_start(struct session *session, struct agent *agent) {
  session->agent = agent;
  session->received = 0;
  session->out_at = session->out_length = 0;
  if (!set_up(session)) {
    session->h2 = NULL;
    return false;
  }
  const nghttp2_settings_entry settings[] = {
    {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, SESSION_STREAMS},
    {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, SESSION_STREAM_WINDOW},
    {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, 2 * REQUEST_TARGET_MAX},
  };
  if (nghttp2_submit_settings(session->h2, NGHTTP2_FLAG_NONE, settings, sizeof settings / sizeof *settings) != 0 ||
      nghttp2_session_set_local_window_size(session->h2, NGHTTP2_FLAG_NONE, 0, SESSION_WINDOW) != 0) {
    session_drop(session);
    return false;
  }
  return true;
}

void session_drop(struct session *session) {
  nghttp2_session *h2 = session->h2;
  /* Cleared first: what runs while requests are closed must find no session to talk to. */
  session->h2 = NULL;
  session->out_at = session->out_length = 0;
  while (session->requests) {
    struct request *request = session->requests;
    session->requests = request->next;
    request->session = NULL;
    request->is_reset = true;
    request_free(request);
  }
  session->request_count = 0;
  if (h2) nghttp2_session_del(h2);
}

bool session_receive(struct session *session, const uint8_t *bytes, size_t length) {
  ssize_t taken = nghttp2_session_mem_recv(session->h2, bytes, length);
  if (taken < 0) return false;
  session->received += length;
  return nghttp2_session_want_read(session->h2) || nghttp2_session_want_write(session->h2);
}

static bool refill(struct session *session) {
  session->out_at = session->out_length = 0;
  while (SESSION_OUT - session->out_length >= LARGEST_CHUNK) {
    const uint8_t *chunk;
    ssize_t size = nghttp2_session_mem_send(session->h2, &chunk);
    if (size <= 0) {
      if (size < 0) agent_log("session: cannot serialise: %s", nghttp2_strerror((int)size));
      break;
    }
    if ((size_t)size > SESSION_OUT - session->out_length) {
      agent_log("session: a frame of %zd bytes does not fit", size);
      break;
    }
    memcpy(session->out + session->out_length, chunk, (size_t)size);
    session->out_length += (size_t)size;
  }
  return session->out_length > 0;
}

const uint8_t *session_output(struct session *session, size_t *length) {
  if (session->out_at == session->out_length) {
    if (!session->h2 || session->received < preface_size || !refill(session)) return NULL;
  }
  *length = session->out_length - session->out_at;
  return session->out + session->out_at;
}

void session_written(struct session *session, size_t length) { session->out_at += length; }

void session_prepend(struct session *session, const void *bytes, size_t length) {
  memcpy(session->out, bytes, length);
  session->out_at = 0;
  session->out_length = length;
}
