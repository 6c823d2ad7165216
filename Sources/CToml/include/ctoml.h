/* TOML text to a list of nodes, by toml++; a C face because Swift's C++ interoperability would
 * spread over every target that imports it. Nothing here knows what a key means. */
#ifndef CTOML_H
#define CTOML_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum ctoml_kind {
  CTOML_TABLE,
  CTOML_ARRAY,
  CTOML_STRING,
  CTOML_INTEGER,
  CTOML_FLOAT,
  CTOML_BOOLEAN,
  CTOML_TIME, /* any of TOML's dates and times: its text is kept */
};

/* One node. Parents come before their children, and children stand in the order of the file. */
struct ctoml_node {
  enum ctoml_kind kind;
  /* Place of the parent in the list; SIZE_MAX: the root. */
  size_t parent;
  /* Empty in an array. Not ended by a NUL: keys and strings may hold any character. */
  const char *key;
  size_t key_length;
  const char *text;
  size_t text_length;
  int64_t integer;
  double number;
  int boolean;
  /* An array of tables as [[name]] makes it. */
  int array_of_tables;
  /* From 1; columns count characters. */
  uint32_t key_line, key_column;
  uint32_t line, column;
};

struct ctoml_error {
  char text[256];
  uint32_t line, column; /* 0: none */
};

struct ctoml_document;

/* NULL: `error` says why. */
struct ctoml_document *ctoml_parse(const char *bytes, size_t length, struct ctoml_error *error);
size_t ctoml_count(const struct ctoml_document *document);
const struct ctoml_node *ctoml_nodes(const struct ctoml_document *document);
void ctoml_free(struct ctoml_document *document);

#ifdef __cplusplus
}
#endif
#endif
