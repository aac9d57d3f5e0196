#include "identity.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/random.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent.h"
#include "json.h"
#include "log.h"

enum { ENTROPY_LEAST = 32, ENTROPY_MOST = 512 };

struct identity {
  int64_t wall_clock_ms;
  const char *entropy;
  const char *hostname;
  const char *machine_id;
  const char *token;
};

static long long wall_clock_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void identity_ping(struct request *request) {
  struct text body = {0};
  text_addf(&body, "{\"version\":\"%s\",\"protocol\":%d,\"uptimeMs\":%llu,\"wallClockMs\":%lld}", AGENT_VERSION,
            AGENT_PROTOCOL, (unsigned long long)monotonic_ms(), wall_clock_ms());
  request_json(request, 200, &body);
}

/*
 * What a clone rewrites when it resumes lies in memory, mounted over its place in /etc as container runtimes do it, and stays
 * open: the first write to a file of the overlay would copy it up, and each path looked up runs kernel code that no
 * translation cache has yet. Together they were two thirds of a restore's time under emulation (measured).
 */
static struct kept_file {
  const char *const kept, *const place;
  int fd;
  size_t length;
  char content[512];
} hostname_file = {.kept = "/run/snapgate/hostname", .place = "/etc/hostname", .fd = -1},
  hosts_file = {.kept = "/run/snapgate/hosts", .place = "/etc/hosts", .fd = -1},
  machine_id_file = {.kept = "/run/snapgate/machine-id", .place = "/etc/machine-id", .fd = -1};
static int urandom = -1;

const char *identity_prepare(void) {
  struct kept_file *const files[] = {&hostname_file, &hosts_file, &machine_id_file};
  if (mkdir("/run/snapgate", 0755) < 0 && errno != EEXIST) return "/run/snapgate";
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    struct kept_file *file = files[i];
    file->fd = open(file->kept, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    int place = open(file->place, O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (file->fd < 0 || place < 0 || mount(file->kept, file->place, NULL, MS_BIND, NULL) < 0) return file->place;
    close(place);
  }
  urandom = open("/dev/urandom", O_WRONLY | O_CLOEXEC);
  return urandom < 0 ? "/dev/urandom" : NULL;
}

/* Leaves a file alone that says so already: a machine that only slept keeps its names. */
static bool put_file(struct kept_file *file, const char *content, size_t length) {
  if (length == file->length && memcmp(content, file->content, length) == 0) return true;
  if (pwrite(file->fd, content, length, 0) != (ssize_t)length) return false;
  if (length < file->length && ftruncate(file->fd, (off_t)length) < 0) return false;
  memcpy(file->content, content, length);
  file->length = length;
  return true;
}

static bool step_clock(const struct identity *identity) {
  const struct timespec now = {.tv_sec = identity->wall_clock_ms / 1000,
                               .tv_nsec = identity->wall_clock_ms % 1000 * 1000000};
  return clock_settime(CLOCK_REALTIME, &now) == 0;
}

static unsigned char nibble(char digit) { return (unsigned char)(digit <= '9' ? digit - '0' : digit - 'a' + 10); }

/* Adding alone is mixed in only at the next scheduled reseed: clones would agree on random bytes until then. */
static bool stir(const char *digits, size_t length) {
  struct {
    struct rand_pool_info info;
    unsigned char bytes[ENTROPY_MOST];
  } pool;
  for (size_t i = 0; i < length; i++)
    pool.bytes[i] = (unsigned char)(nibble(digits[2 * i]) << 4 | nibble(digits[2 * i + 1]));
  pool.info.entropy_count = (int)length * 8;
  pool.info.buf_size = (int)length;
  bool is_added = ioctl(urandom, RNDADDENTROPY, &pool) == 0 && ioctl(urandom, RNDRESEEDCRNG) == 0;
  int error = errno;
  explicit_bzero(&pool, sizeof pool);
  errno = error;
  return is_added;
}

static bool add_entropy(const struct identity *identity) {
  return stir(identity->entropy, strlen(identity->entropy) / 2);
}

long long identity_greeted(struct agent *agent, const char *clock, const char *entropy) {
  uint64_t asked_ms = 0;
  for (size_t i = 0; i < CLOCK_DIGITS; i++) asked_ms = asked_ms << 4 | nibble(clock[i]);
  if (asked_ms == 0 || !agent->is_guest) return wall_clock_ms();
  const struct identity identity = {.wall_clock_ms = (int64_t)(asked_ms & INT64_MAX)};
  if (step_clock(&identity) && stir(entropy, ENTROPY_DIGITS / 2)) return wall_clock_ms();
  agent_log("greeting: clock or entropy: %s", strerror(errno));
  return 0;
}

static bool set_names(const struct identity *identity) {
  if (!identity->hostname) return true;
  char hosts[512], line[80];
  size_t length = strlen(identity->hostname);
  int size = snprintf(line, sizeof line, "%s\n", identity->hostname);
  if (sethostname(identity->hostname, length) < 0) return false;
  if (!put_file(&hostname_file, line, (size_t)size)) return false;
  size = snprintf(hosts, sizeof hosts,
                  "127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost ip6-localhost ip6-loopback\n"
                  "ff02::1 ip6-allnodes\nff02::2 ip6-allrouters\n",
                  identity->hostname);
  return put_file(&hosts_file, hosts, (size_t)size);
}

static bool set_machine_id(const struct identity *identity) {
  if (!identity->machine_id) return true;
  char line[34];
  int size = snprintf(line, sizeof line, "%s\n", identity->machine_id);
  return put_file(&machine_id_file, line, (size_t)size);
}

/* Null when all steps worked, otherwise the name of the one that did not, with errno. */
static const char *take_on(const struct identity *identity) {
  static const struct {
    const char *name;
    bool (*run)(const struct identity *);
  } steps[] = {{"clock", step_clock}, {"entropy", add_entropy}, {"hostname", set_names}, {"machineId", set_machine_id}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
    if (!steps[i].run(identity)) return steps[i].name;
  return NULL;
}

static bool is_hostname(const char *name) {
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-.");
  return length >= 1 && length <= 63 && name[length] == 0 && name[0] != '-' && name[0] != '.';
}

static const char *text_of(const struct json *root, const char *key) {
  const struct json *value = json_get(root, key);
  return value && value->kind == JSON_STRING ? value->string : NULL;
}

static bool is_hex_of(const char *text, size_t least, size_t most) {
  size_t length = text ? strlen(text) : 0;
  return length >= least && length <= most && length % 2 == 0 && is_hex(text, length);
}

static const char *read_identity(const struct json *root, struct identity *identity) {
  static const char *const known[] = {"wallClockMs", "entropy", "hostname", "machineId", "token", NULL};
  if (root->kind != JSON_OBJECT || json_unknown_key(root, known)) return "the body has an unknown key";
  if (!json_integer(json_get(root, "wallClockMs"), 0, 1LL << 50, &identity->wall_clock_ms))
    return "wallClockMs must be a whole number";
  identity->entropy = text_of(root, "entropy");
  if (!is_hex_of(identity->entropy, 2 * ENTROPY_LEAST, 2 * ENTROPY_MOST))
    return "entropy must be 32 to 512 bytes in lower-case hex";
  identity->hostname = text_of(root, "hostname");
  identity->machine_id = text_of(root, "machineId");
  /* Both may wait for a second call: the first one after a restore is slow, and somebody is waiting. */
  if (json_get(root, "hostname") || json_get(root, "machineId")) {
    if (!identity->hostname || !is_hostname(identity->hostname)) return "hostname must be 1 to 63 letters, digits, - or .";
    if (!is_hex_of(identity->machine_id, 32, 32)) return "machineId must be 32 lower-case hex digits";
  }
  identity->token = text_of(root, "token");
  if (json_get(root, "token") && !is_hex_of(identity->token, TOKEN_DIGITS, TOKEN_DIGITS))
    return "token must be 64 lower-case hex digits";
  return NULL;
}

static void resume(struct request *request, const struct identity *identity) {
  struct agent *agent = request->agent;
  const char *failed = agent->is_guest ? take_on(identity) : NULL;
  if (failed) {
    request_fail(request, FAIL_INTERNAL, "%s: %s", failed, strerror(errno));
    return;
  }
  if (identity->token) memcpy(agent->preamble.token, identity->token, TOKEN_DIGITS);
  struct text body = {0};
  text_addf(&body, "{\"wallClockMs\":%lld}", wall_clock_ms());
  request_json(request, 200, &body);
}

void identity_resume(struct request *request) {
  struct json_document document;
  struct identity identity = {0};
  struct json *root = json_parse(&document, request->body.data, request->body.length);
  const char *problem = root ? read_identity(root, &identity) : document.problem;
  if (problem) request_fail(request, FAIL_INVALID_REQUEST, "%s", problem);
  else resume(request, &identity);
  json_free(&document);
  if (request->body.data) explicit_bzero(request->body.data, request->body.length);
}

void identity_sync(struct request *request) {
  sync();
  request_no_content(request);
}
