/* The closed set of error codes which the agent answers with, and their HTTP status. */
#ifndef FAILURE_H
#define FAILURE_H

enum failure {
  FAIL_NONE,
  FAIL_INVALID_REQUEST,
  FAIL_NOT_FOUND,
  FAIL_METHOD,
  FAIL_EXISTS,
  FAIL_CONFLICT,
  FAIL_NOT_A_DIRECTORY,
  FAIL_IS_A_DIRECTORY,
  FAIL_NOT_EMPTY,
  FAIL_PERMISSION_DENIED,
  FAIL_TOO_LARGE,
  FAIL_PORT_CLOSED,
  FAIL_NO_MEMORY,
  FAIL_TOO_MANY_PROCESSES,
  FAIL_DISK_FULL,
  FAIL_UNSUPPORTED,
  FAIL_INTERNAL,
};

const char *failure_code(enum failure failure);
int failure_status(enum failure failure);
/* What an errno of a system call on behalf of a request means to the host. */
enum failure failure_of_errno(int error);

#endif
