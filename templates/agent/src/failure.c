#include "failure.h"

#include <errno.h>
#include <stddef.h>

static const struct {
  const char *code;
  int status;
} facts[] = {
  [FAIL_NONE] = {"internal", 500},
  [FAIL_INVALID_REQUEST] = {"invalid_request", 400},
  [FAIL_NOT_FOUND] = {"not_found", 404},
  [FAIL_METHOD] = {"method_not_allowed", 405},
  [FAIL_EXISTS] = {"exists", 409},
  [FAIL_CONFLICT] = {"conflict", 409},
  [FAIL_NOT_A_DIRECTORY] = {"not_a_directory", 409},
  [FAIL_IS_A_DIRECTORY] = {"is_a_directory", 409},
  [FAIL_NOT_EMPTY] = {"not_empty", 409},
  [FAIL_PERMISSION_DENIED] = {"permission_denied", 403},
  [FAIL_TOO_LARGE] = {"too_large", 413},
  [FAIL_PORT_CLOSED] = {"port_closed", 502},
  [FAIL_NO_MEMORY] = {"no_memory", 503},
  [FAIL_TOO_MANY_PROCESSES] = {"too_many_processes", 503},
  [FAIL_DISK_FULL] = {"disk_full", 507},
  [FAIL_UNSUPPORTED] = {"unsupported", 501},
  [FAIL_INTERNAL] = {"internal", 500},
};

const char *failure_code(enum failure failure) { return facts[failure].code; }

int failure_status(enum failure failure) { return facts[failure].status; }

enum failure failure_of_errno(int error) {
  switch (error) {
    case ENOENT: return FAIL_NOT_FOUND;
    case EEXIST: return FAIL_EXISTS;
    case ENOTDIR: return FAIL_NOT_A_DIRECTORY;
    case EISDIR: return FAIL_IS_A_DIRECTORY;
    case ENOTEMPTY: return FAIL_NOT_EMPTY;
    case EACCES:
    case EPERM:
    case EROFS: return FAIL_PERMISSION_DENIED;
    case ENAMETOOLONG:
    case ELOOP:
    case EINVAL: return FAIL_INVALID_REQUEST;
    case EBUSY:
    case ETXTBSY: return FAIL_CONFLICT;
    case ENOSPC:
    case EDQUOT: return FAIL_DISK_FULL;
    case EFBIG: return FAIL_TOO_LARGE;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOBUFS: return FAIL_NO_MEMORY;
    case EAGAIN: return FAIL_TOO_MANY_PROCESSES;
    case EXDEV:
    case EOPNOTSUPP:
    case ENOSYS: return FAIL_UNSUPPORTED;
    default: return FAIL_INTERNAL;
  }
}
