#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent.h"
#include "files.h"
#include "query.h"

bool file_actor_find(struct request *request, const char *user, struct file_actor *actor) {
  actor->is_named = true;
  if (!account_find(user, &actor->account)) {
    request_fail(request, FAIL_INVALID_REQUEST, "there is no such user");
    return false;
  }
  if (request->agent->is_rootless && actor->account.uid != geteuid()) {
    request_fail(request, FAIL_PERMISSION_DENIED, "this agent may not switch users");
    return false;
  }
  return true;
}

bool file_query(struct request *request, char path[PATH_MAX], struct file_actor *actor) {
  char user[64];
  actor->is_named = false;
  if (query_text(request->query, "path", path, PATH_MAX) != QUERY_FOUND || path[0] != '/') {
    request_fail(request, FAIL_INVALID_REQUEST, "path must be an absolute path");
    return false;
  }
  enum query_result result = query_text(request->query, "user", user, sizeof user);
  if (result == QUERY_MALFORMED) request_fail(request, FAIL_INVALID_REQUEST, "user is malformed");
  return result == QUERY_ABSENT || (result == QUERY_FOUND && file_actor_find(request, user, actor));
}

bool file_actor_enter(struct request *request, const struct file_actor *actor) {
  if (!actor->is_named || request->agent->is_rootless || account_assume(&actor->account)) return true;
  request_fail_errno(request, errno, "user");
  return false;
}

void file_actor_leave(const struct file_actor *actor) {
  if (actor->is_named) account_resume();
}

/* What is missing is missing for root too, so nothing is looked at that the owner may not see. */
static bool make_owned(const char *path, const struct file_actor *owner) {
  struct stat found;
  if (lstat(path, &found) == 0 || errno != ENOENT) return false;
  const struct account *account = &owner->account;
  account_resume();
  bool is_made = mkdir(path, 0755) == 0 && lchown(path, account->uid, account->gid) == 0;
  return account_assume(account) && is_made;
}

bool file_make_parents(char *path, const struct file_actor *owner) {
  for (char *at = strchr(path + 1, '/'); at; at = strchr(at + 1, '/')) {
    *at = 0;
    int result = mkdir(path, 0755), error = errno;
    if (result < 0 && error == EACCES && owner && make_owned(path, owner)) result = 0;
    *at = '/';
    /* A directory we may not write to (EACCES, EROFS) may exist all the same: the next step tells. */
    if (result < 0 && error != EEXIST && error != EACCES && error != EROFS) {
      errno = error;
      return false;
    }
  }
  return true;
}
