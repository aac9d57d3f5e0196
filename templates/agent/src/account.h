/* Users and groups, read from /etc/passwd and /etc/group. glibc's own look-ups load shared objects: not in a static binary. */
#ifndef ACCOUNT_H
#define ACCOUNT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum { ACCOUNT_GROUPS = 64 };

struct account {
  uid_t uid;
  gid_t gid;
  char name[64];
  char home[256];
  char shell[128];
  gid_t groups[ACCOUNT_GROUPS];
  size_t group_count;
};

/* False when there is no such user. */
bool account_find(const char *name, struct account *account);

/* Names of all users or groups by id, for listings. */
struct account_names {
  struct account_name {
    unsigned id;
    char name[64];
  } *rows;
  size_t count;
};

void account_names_load(struct account_names *names, const char *path);
/* The name, or NULL. */
const char *account_name(const struct account_names *names, unsigned id);
void account_names_free(struct account_names *names);

/* Acts on files as this account until account_resume; false with errno when we may not. */
bool account_assume(const struct account *account);
void account_resume(void);

#endif
