/* Requests below /v1/files. Each acts with the rights of `user` when one is named, otherwise as root. */
#ifndef FILES_H
#define FILES_H

#include <limits.h>
#include <stdbool.h>
#include <sys/stat.h>

#include "account.h"
#include "json.h"
#include "request.h"

request_event_fn file_route_read, file_route_write, file_route_stat, file_route_list, file_route_mkdir,
  file_route_move, file_route_delete, file_route_watch;

struct file_actor {
  struct account account;
  bool is_named;
};

/* False when the request was refused: the path is missing, relative or malformed, or the user is unknown. */
bool file_query(struct request *request, char path[PATH_MAX], struct file_actor *actor);
bool file_actor_find(struct request *request, const char *user, struct file_actor *actor);
/* Takes on the actor's rights until file_actor_leave. False when the request was refused. */
bool file_actor_enter(struct request *request, const struct file_actor *actor);
void file_actor_leave(const struct file_actor *actor);
/*
 * Makes the missing directories above `path` (which is changed and restored). Those that `owner` may not make are made by
 * root and given to it; NULL: they are not made. False with errno.
 */
bool file_make_parents(char *path, const struct file_actor *owner);

/* Extended attributes which an upload brings. */
struct file_attributes {
  char source[8 * 1024];
  struct json_document document;
  const struct json *first;
};
/* False when the request was refused. */
bool file_attributes_read(struct request *request, struct file_attributes *attributes);
/* False with errno. */
bool file_attributes_set(const struct file_attributes *attributes, int fd);
void file_attributes_free(struct file_attributes *attributes);
/* Whether rows shall tell attributes; false when the request was refused. */
bool file_attributes_wanted(struct request *request, bool *is_wanted);
/* Appends the member `attributes` of a row, if there are any. */
void file_row_attributes(struct text *text, const char *path);

/* Names for the rows of one listing. */
struct file_names {
  struct account_names users, groups;
  bool has_attributes;
};
void file_names_load(struct file_names *names);
void file_names_free(struct file_names *names);
/* Appends one stat row; `directory_fd` and `name` say where the target of a symbolic link is read. */
void file_row(struct text *text, const struct file_names *names, const char *path, int directory_fd, const char *name,
              const struct stat *found);

#endif
