// toml++ reads; this lays its tree out as a flat list in the order of the file.
#include "ctoml.h"

namespace {
struct AssertionFailed {};
}  // namespace

// Some wrong texts trip toml++'s own assertions ("a = }" deep inside a table): that is a text
// that cannot be read, not the end of guardian. With NDEBUG they would be promises to the compiler.
#undef NDEBUG
#define TOML_ASSERT(expression)                     \
  do {                                              \
    if (!(expression)) throw AssertionFailed();     \
  } while (0)
#define TOML_HEADER_ONLY 1
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

// Deeper than any configuration; toml++ itself recurses for each level.
constexpr size_t depth_limit = 64;

struct Entry {
  const toml::key *key;
  const toml::node *node;
};

void put(char *to, size_t size, std::string_view text) {
  size_t length = std::min(size - 1, text.size());
  // A cut inside a character would leave bytes that are not UTF-8.
  if (length < text.size())
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) --length;
  std::memcpy(to, text.data(), length);
  to[length] = 0;
}

void fail(ctoml_error *error, std::string_view text, toml::source_position at) {
  put(error->text, sizeof error->text, text);
  error->line = at.line;
  error->column = at.column;
}

// toml++ closes dotted keys by recursion without a limit ("a.a.a…"): refuse what would use up the
// stack. A run is keys, bare or quoted, joined by dots on one line.
bool too_many_dots(std::string_view text, toml::source_position &at) {
  size_t dots = 0;
  uint32_t line = 1, column = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char c = static_cast<unsigned char>(text[i]);
    ++column;
    if (c == '\n') {
      ++line;
      column = 0;
      dots = 0;
    } else if (c == '.') {
      if (++dots > depth_limit) {
        at = {line, column};
        return true;
      }
    } else if (c == '"' || c == '\'') {
      for (size_t end = i + 1; end < text.size() && text[end] != '\n'; ++end) {
        if (c == '"' && text[end] == '\\') {
          ++end;
        } else if (static_cast<unsigned char>(text[end]) == c) {
          column += static_cast<uint32_t>(end - i);
          i = end;
          break;
        }
      }
    } else if (!(c == ' ' || c == '\t' || c == '_' || c == '-' || c >= 0x80 ||
                 (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))) {
      dots = 0;
    }
  }
  return false;
}

// Where toml++ tripped over itself: it reads from left to right, so the shortest beginning of the
// text that trips it ends there.
toml::source_position where_it_trips(std::string_view text) {
  size_t good = 0, bad = text.size();
  while (bad - good > 1) {
    size_t middle = good + (bad - good) / 2;
    try {
      (void)toml::parse(text.substr(0, middle));
      good = middle;
    } catch (const toml::parse_error &) {
      good = middle;
    } catch (const AssertionFailed &) {
      bad = middle;
    }
  }
  toml::source_position at{1, 0};
  for (size_t i = 0; i < bad; ++i) {
    if (text[i] == '\n' && i + 1 < bad) {
      at.line++;
      at.column = 0;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      at.column++;
    }
  }
  return at;
}

}  // namespace

struct ctoml_document {
  toml::table root;
  // Texts that toml++ does not hold as such.
  std::vector<std::string *> texts;
  std::vector<ctoml_node> nodes;

  ~ctoml_document() {
    for (auto *text : texts) delete text;
  }

  bool add(const toml::node &node, const toml::key *key, size_t parent, size_t depth,
           ctoml_error *error) {
    if (depth > depth_limit) {
      fail(error, "it is nested too deeply", node.source().begin);
      return false;
    }
    ctoml_node entry{};
    entry.parent = parent;
    entry.line = node.source().begin.line;
    entry.column = node.source().begin.column;
    entry.key = "";
    entry.text = "";
    if (key) {
      entry.key = key->str().data();
      entry.key_length = key->str().size();
      entry.key_line = key->source().begin.line;
      entry.key_column = key->source().begin.column;
    }
    std::vector<Entry> children;
    if (auto *table = node.as_table()) {
      entry.kind = CTOML_TABLE;
      for (auto &&[name, child] : *table) children.push_back({&name, &child});
      // toml++ sorts by name; people want the first mistake in the file first.
      std::stable_sort(children.begin(), children.end(), [](const Entry &a, const Entry &b) {
        return a.key->source().begin < b.key->source().begin;
      });
    } else if (auto *array = node.as_array()) {
      entry.kind = CTOML_ARRAY;
      entry.array_of_tables = array->is_array_of_tables();
      for (auto &child : *array) children.push_back({nullptr, &child});
    } else if (auto *text = node.as_string()) {
      entry.kind = CTOML_STRING;
      entry.text = text->get().data();
      entry.text_length = text->get().size();
    } else if (auto *integer = node.as_integer()) {
      entry.kind = CTOML_INTEGER;
      entry.integer = integer->get();
    } else if (auto *number = node.as_floating_point()) {
      entry.kind = CTOML_FLOAT;
      entry.number = number->get();
    } else if (auto *boolean = node.as_boolean()) {
      entry.kind = CTOML_BOOLEAN;
      entry.boolean = boolean->get();
    } else {
      entry.kind = CTOML_TIME;
      std::ostringstream stream;
      node.visit([&](auto &value) {
        if constexpr (toml::is_chronological<decltype(value)>) stream << value.get();
      });
      texts.push_back(new std::string(stream.str()));
      entry.text = texts.back()->data();
      entry.text_length = texts.back()->size();
    }
    size_t here = nodes.size();
    nodes.push_back(entry);
    for (auto &child : children)
      if (!add(*child.node, child.key, here, depth + 1, error)) return false;
    return true;
  }
};

extern "C" {

ctoml_document *ctoml_parse(const char *bytes, size_t length, ctoml_error *error) {
  *error = {};
  std::string_view text(bytes, length);
  try {
    toml::source_position at{};
    if (too_many_dots(text, at)) {
      fail(error, "it is nested too deeply", at);
      return nullptr;
    }
    auto *document = new ctoml_document{toml::parse(text), {}, {}};
    if (!document->add(document->root, nullptr, SIZE_MAX, 0, error)) {
      delete document;
      return nullptr;
    }
    return document;
  } catch (const toml::parse_error &wrong) {
    fail(error, wrong.description(), wrong.source().begin);
    return nullptr;
  } catch (const AssertionFailed &) {
    fail(error, "a value is missing or out of place", where_it_trips(text));
    return nullptr;
  } catch (const std::bad_alloc &) {
    fail(error, "there is not enough memory to read it", {});
    return nullptr;
  }
}

size_t ctoml_count(const ctoml_document *document) { return document->nodes.size(); }

const ctoml_node *ctoml_nodes(const ctoml_document *document) { return document->nodes.data(); }

void ctoml_free(ctoml_document *document) { delete document; }
}
