#include "json.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "utf8.h"

enum { JSON_DEPTH = 8, JSON_NODES = 4096 };

struct parser {
  struct json_document *document;
  char *at;
  char *end;
};

static struct json *parse_value(struct parser *parser, int depth);

static struct json *fail(struct parser *parser, const char *problem) {
  if (!parser->document->problem) parser->document->problem = problem;
  return NULL;
}

static void skip_space(struct parser *parser) {
  while (parser->at < parser->end && memchr(" \t\r\n", *parser->at, 4)) parser->at++;
}

static bool take(struct parser *parser, char byte) {
  skip_space(parser);
  if (parser->at >= parser->end || *parser->at != byte) return false;
  parser->at++;
  return true;
}

static struct json *node(struct parser *parser, enum json_kind kind) {
  struct json_document *document = parser->document;
  if (document->used == JSON_NODES) return fail(parser, "too many values");
  struct json *made = &document->nodes[document->used++];
  *made = (struct json){.kind = kind};
  return made;
}

static bool hex4(struct parser *parser, unsigned *out) {
  if (parser->end - parser->at < 4) return false;
  unsigned value = 0;
  for (int i = 0; i < 4; i++) {
    unsigned char digit = (unsigned char)*parser->at++;
    if (!isxdigit(digit)) return false;
    value = value * 16 + (unsigned)(isdigit(digit) ? digit - '0' : (digit | 32) - 'a' + 10);
  }
  *out = value;
  return true;
}

static char *put_utf8(char *to, unsigned value) {
  if (value < 0x80) {
    *to++ = (char)value;
  } else if (value < 0x800) {
    *to++ = (char)(0xc0 | value >> 6);
    *to++ = (char)(0x80 | (value & 63));
  } else if (value < 0x10000) {
    *to++ = (char)(0xe0 | value >> 12);
    *to++ = (char)(0x80 | (value >> 6 & 63));
    *to++ = (char)(0x80 | (value & 63));
  } else {
    *to++ = (char)(0xf0 | value >> 18);
    *to++ = (char)(0x80 | (value >> 12 & 63));
    *to++ = (char)(0x80 | (value >> 6 & 63));
    *to++ = (char)(0x80 | (value & 63));
  }
  return to;
}

/* Decodes one escape after its backslash; the decoded form is never longer than the escape. */
static char *parse_escape(struct parser *parser, char *to) {
  static const char from_letter[] = "\"\\/bfnrt", to_byte[] = "\"\\/\b\f\n\r\t";
  if (parser->at >= parser->end) return NULL;
  char letter = *parser->at++;
  const char *found = letter ? strchr(from_letter, letter) : NULL;
  if (found) {
    *to++ = to_byte[found - from_letter];
    return to;
  }
  unsigned value, low;
  if (letter != 'u' || !hex4(parser, &value) || value == 0) return NULL;
  if (value >= 0xdc00 && value <= 0xdfff) return NULL;
  if (value >= 0xd800 && value <= 0xdbff) {
    if (parser->end - parser->at < 6 || parser->at[0] != '\\' || parser->at[1] != 'u') return NULL;
    parser->at += 2;
    if (!hex4(parser, &low) || low < 0xdc00 || low > 0xdfff) return NULL;
    value = 0x10000 + ((value - 0xd800) << 10) + (low - 0xdc00);
  }
  return put_utf8(to, value);
}

/* Called after the opening quote; the terminating NUL takes the place of the closing quote at the latest. */
static const char *parse_string(struct parser *parser) {
  char *start = parser->at, *to = start;
  while (parser->at < parser->end) {
    unsigned char byte = (unsigned char)*parser->at;
    if (byte == '"') {
      parser->at++;
      *to = 0;
      return start;
    }
    if (byte < 0x20) break;
    if (byte == '\\') {
      parser->at++;
      to = parse_escape(parser, to);
      if (!to) break;
      continue;
    }
    size_t size = utf8_size((unsigned char *)parser->at, (size_t)(parser->end - parser->at));
    if (size == 0) break;
    memmove(to, parser->at, size);
    to += size;
    parser->at += size;
  }
  fail(parser, "a string is malformed");
  return NULL;
}

static struct json *parse_number(struct parser *parser) {
  char digits[40];
  size_t length = 0;
  char *at = parser->at;
  if (at < parser->end && *at == '-') at++;
  if (at >= parser->end || !isdigit((unsigned char)*at)) return fail(parser, "a value is malformed");
  if (*at == '0' && at + 1 < parser->end && isdigit((unsigned char)at[1]))
    return fail(parser, "a number starts with 0");
  for (at = parser->at; at < parser->end && memchr("+-.0123456789eE", *at, 15); at++) {
    if (length + 1 == sizeof digits) return fail(parser, "a number is too long");
    digits[length++] = *at;
  }
  digits[length] = 0;
  char *rest;
  double value = strtod(digits, &rest);
  /* strtod takes "1." and ".5"; JSON wants digits on both sides of the point. */
  char *point = strchr(digits, '.');
  if (*rest || (point && (!isdigit((unsigned char)point[1]))) || value != value || value - value != 0)
    return fail(parser, "a number is malformed");
  struct json *made = node(parser, JSON_NUMBER);
  if (!made) return NULL;
  made->number = value;
  parser->at = at;
  return made;
}

static struct json *parse_members(struct parser *parser, struct json *parent, int depth) {
  bool is_object = parent->kind == JSON_OBJECT;
  char close = is_object ? '}' : ']';
  struct json **tail = &parent->children;
  if (take(parser, close)) return parent;
  do {
    const char *key = NULL;
    if (is_object) {
      if (!take(parser, '"')) return fail(parser, "an object key is missing");
      key = parse_string(parser);
      if (!key) return NULL;
      if (json_get(parent, key)) return fail(parser, "a key appears twice");
      if (!take(parser, ':')) return fail(parser, "a colon is missing");
    }
    struct json *child = parse_value(parser, depth + 1);
    if (!child) return NULL;
    child->key = key;
    *tail = child;
    tail = &child->next;
  } while (take(parser, ','));
  return take(parser, close) ? parent : fail(parser, "a comma or a closing bracket is missing");
}

static struct json *parse_word(struct parser *parser, const char *word, enum json_kind kind) {
  size_t length = strlen(word);
  if ((size_t)(parser->end - parser->at) < length || memcmp(parser->at, word, length) != 0)
    return fail(parser, "a value is malformed");
  parser->at += length;
  return node(parser, kind);
}

static struct json *parse_value(struct parser *parser, int depth) {
  if (depth > JSON_DEPTH) return fail(parser, "values are nested too deeply");
  skip_space(parser);
  if (parser->at >= parser->end) return fail(parser, "a value is missing");
  struct json *made;
  switch (*parser->at) {
    case '{':
    case '[':
      made = node(parser, *parser->at++ == '{' ? JSON_OBJECT : JSON_ARRAY);
      return made ? parse_members(parser, made, depth) : NULL;
    case '"':
      parser->at++;
      made = node(parser, JSON_STRING);
      if (!made) return NULL;
      made->string = parse_string(parser);
      return made->string ? made : NULL;
    case 'n': return parse_word(parser, "null", JSON_NULL);
    case 't': return parse_word(parser, "true", JSON_TRUE);
    case 'f': return parse_word(parser, "false", JSON_FALSE);
    default: return parse_number(parser);
  }
}

struct json *json_parse(struct json_document *document, char *source, size_t length) {
  *document = (struct json_document){.nodes = calloc(JSON_NODES, sizeof(struct json))};
  if (!document->nodes) {
    document->problem = "out of memory";
    return NULL;
  }
  struct parser parser = {.document = document, .at = source, .end = source + length};
  struct json *root = parse_value(&parser, 0);
  if (!root) return NULL;
  skip_space(&parser);
  return parser.at == parser.end ? root : fail(&parser, "there is more after the value");
}

void json_free(struct json_document *document) {
  free(document->nodes);
  document->nodes = NULL;
}

const struct json *json_get(const struct json *object, const char *key) {
  for (const struct json *member = object->children; member; member = member->next)
    if (member->key && strcmp(member->key, key) == 0) return member;
  return NULL;
}

const char *json_unknown_key(const struct json *object, const char *const *known) {
  for (const struct json *member = object->children; member; member = member->next) {
    const char *const *name = known;
    while (*name && strcmp(*name, member->key) != 0) name++;
    if (!*name) return member->key;
  }
  return NULL;
}

bool json_integer(const struct json *value, int64_t least, int64_t most, int64_t *out) {
  if (!value || value->kind != JSON_NUMBER) return false;
  if (value->number < (double)least || value->number > (double)most) return false;
  int64_t whole = (int64_t)value->number;
  if ((double)whole != value->number) return false;
  *out = whole;
  return true;
}
