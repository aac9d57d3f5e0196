/* Extended attributes `user.*` of files: set with an upload, told in stat rows when a request has `attributes=1`. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

#include "files.h"
#include "query.h"

enum { NAMES_MAX = 8192, VALUE_MAX = 4096, TOTAL_MAX = 8192 };

static const char prefix[] = "user.";

bool file_attributes_wanted(struct request *request, bool *is_wanted) {
  int64_t flag = 0;
  if (query_integer(request->query, "attributes", 0, 1, &flag) == QUERY_MALFORMED) {
    request_fail(request, FAIL_INVALID_REQUEST, "attributes must be 0 or 1");
    return false;
  }
  *is_wanted = flag == 1;
  return true;
}

void file_row_attributes(struct text *text, const char *path) {
  char names[NAMES_MAX], value[VALUE_MAX];
  ssize_t size = llistxattr(path, names, sizeof names);
  size_t total = 0;
  const char *separator = ",\"attributes\":{";
  for (const char *name = names; size > 0 && name < names + size; name += strlen(name) + 1) {
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) continue;
    ssize_t length = lgetxattr(path, name, value, sizeof value);
    if (length < 0 || (total += strlen(name) + (size_t)length) > TOTAL_MAX) continue;
    text_addf(text, "%s", separator);
    text_add_json_string(text, name);
    text_add(text, ":", 1);
    text_add_json(text, value, (size_t)length);
    separator = ",";
  }
  if (*separator == ',' && separator[1] == 0) text_add(text, "}", 1);
}

/* The value of the query: {"user.name": "value"}, kept until the file is there. */
bool file_attributes_read(struct request *request, struct file_attributes *attributes) {
  enum query_result result =
    query_text(request->query, "set-attributes", attributes->source, sizeof attributes->source);
  if (result == QUERY_ABSENT) return true;
  struct json *root =
    result == QUERY_FOUND ? json_parse(&attributes->document, attributes->source, strlen(attributes->source)) : NULL;
  bool is_right = root && root->kind == JSON_OBJECT;
  for (const struct json *item = is_right ? root->children : NULL; item; item = item->next)
    is_right = is_right && item->kind == JSON_STRING && strncmp(item->key, prefix, sizeof prefix - 1) == 0 &&
               item->key[sizeof prefix - 1];
  if (!is_right)
    request_fail(request, FAIL_INVALID_REQUEST, "set-attributes must be an object of strings whose names begin with user.");
  else attributes->first = root->children;
  return is_right;
}

bool file_attributes_set(const struct file_attributes *attributes, int fd) {
  for (const struct json *item = attributes->first; item; item = item->next)
    if (fsetxattr(fd, item->key, item->string, strlen(item->string), 0) < 0) return false;
  return true;
}

void file_attributes_free(struct file_attributes *attributes) { json_free(&attributes->document); }
