#define _GNU_SOURCE
#include "account.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LINE = 4096, NAMES = 4096 };

/* Splits at colons in place; true when there are at least `count` fields. */
static bool split(char *line, char **fields, size_t count) {
  line[strcspn(line, "\n")] = 0;
  size_t used = 0;
  for (char *at = line; used < count; at = strchr(at, ':')) {
    if (!at) return false;
    if (used > 0) *at++ = 0;
    fields[used++] = at;
  }
  return true;
}

static bool parse_id(const char *text, unsigned *id) {
  char *end;
  errno = 0;
  unsigned long value = strtoul(text, &end, 10);
  if (end == text || *end || errno || value >= 0xffffffffUL) return false;
  *id = (unsigned)value;
  return true;
}

static void copy(char *to, const char *from, size_t size) { snprintf(to, size, "%s", from); }

static bool find_user(const char *name, struct account *account) {
  FILE *file = fopen("/etc/passwd", "re");
  if (!file) return false;
  char line[LINE], *fields[7];
  bool is_found = false;
  while (!is_found && fgets(line, sizeof line, file)) {
    if (!split(line, fields, 7) || strcmp(fields[0], name) != 0) continue;
    is_found = parse_id(fields[2], &account->uid) && parse_id(fields[3], &account->gid);
    copy(account->name, fields[0], sizeof account->name);
    copy(account->home, fields[5][0] == '/' ? fields[5] : "/", sizeof account->home);
    /* A field after the last colon we asked for would still hang on the shell: there is none in a passwd line. */
    copy(account->shell, fields[6][0] == '/' ? fields[6] : "/bin/sh", sizeof account->shell);
  }
  fclose(file);
  return is_found;
}

static bool has_member(char *members, const char *name) {
  for (char *rest = members, *member; (member = strsep(&rest, ","));)
    if (strcmp(member, name) == 0) return true;
  return false;
}

static void find_groups(struct account *account) {
  account->groups[0] = account->gid;
  account->group_count = 1;
  FILE *file = fopen("/etc/group", "re");
  if (!file) return;
  char line[LINE], *fields[4];
  while (account->group_count < ACCOUNT_GROUPS && fgets(line, sizeof line, file)) {
    unsigned id;
    if (!split(line, fields, 4) || !parse_id(fields[2], &id) || id == account->gid) continue;
    if (has_member(fields[3], account->name)) account->groups[account->group_count++] = id;
  }
  fclose(file);
}

bool account_find(const char *name, struct account *account) {
  memset(account, 0, sizeof *account);
  if (!find_user(name, account)) return false;
  find_groups(account);
  return true;
}

void account_names_load(struct account_names *names, const char *path) {
  *names = (struct account_names){0};
  FILE *file = fopen(path, "re");
  if (!file) return;
  char line[LINE], *fields[3];
  size_t capacity = 0;
  while (names->count < NAMES && fgets(line, sizeof line, file)) {
    unsigned id;
    if (!split(line, fields, 3)) continue;
    fields[2][strcspn(fields[2], ":")] = 0;
    if (!parse_id(fields[2], &id)) continue;
    if (names->count == capacity) {
      size_t wanted = capacity ? capacity * 2 : 32;
      struct account_name *rows = realloc(names->rows, wanted * sizeof *rows);
      if (!rows) break;
      names->rows = rows;
      capacity = wanted;
    }
    names->rows[names->count].id = id;
    copy(names->rows[names->count++].name, fields[0], sizeof names->rows->name);
  }
  fclose(file);
}

const char *account_name(const struct account_names *names, unsigned id) {
  for (size_t i = 0; i < names->count; i++)
    if (names->rows[i].id == id) return names->rows[i].name;
  return NULL;
}

void account_names_free(struct account_names *names) {
  free(names->rows);
  *names = (struct account_names){0};
}

bool account_assume(const struct account *account) {
  if (geteuid() != 0) {
    if (account->uid == geteuid()) return true;
    errno = EPERM;
    return false;
  }
  /* The system calls themselves: we have one thread, and glibc's wrapper for setgroups signals all threads. */
  if (syscall(SYS_setgroups, account->group_count, account->groups) < 0) return false;
  setfsgid(account->gid);
  setfsuid(account->uid);
  return true;
}

void account_resume(void) {
  if (geteuid() != 0) return;
  setfsuid(0);
  setfsgid(0);
  syscall(SYS_setgroups, 0, NULL);
}
