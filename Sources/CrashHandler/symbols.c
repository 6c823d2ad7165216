/* Finds the functions that the interposers stand before.
 *
 * Context: initialisation only, before or in the first interposed call; never
 * in a signal. Calls: dl_iterate_phdr, strcmp.
 *
 * Not dlsym: up to glibc 2.33 it lives in libdl, which the library must not
 * need, its version there is another one, and it may allocate. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <elf.h>
#include <link.h>
#include <string.h>

#include "internal.h"

struct search {
  const char *name;
  bool skip_to_self; /* look only behind this library */
  bool seen_self;
  void *found;
};

struct tables {
  const ElfW(Sym) *symbols;
  const char *strings;
  const uint32_t *gnu_hash;
  const uint32_t *hash;
  const ElfW(Half) *versions;
};

static uint32_t gnu_hash(const char *name) {
  uint32_t h = 5381;
  for (; *name; name++) h = h * 33 + (unsigned char)*name;
  return h;
}

static bool is_definition(const struct tables *t, uint32_t index, const char *name) {
  const ElfW(Sym) *symbol = &t->symbols[index];
  unsigned char type = ELF64_ST_TYPE(symbol->st_info);
  if (symbol->st_shndx == SHN_UNDEF || symbol->st_value == 0) return false;
  if (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE) return false;
  /* The high bit marks an old version of a symbol: not what a new program gets. */
  if (t->versions && (t->versions[index] & 0x8000)) return false;
  return strcmp(t->strings + symbol->st_name, name) == 0;
}

static const ElfW(Sym) *look_up(const struct tables *t, const char *name) {
  if (t->symbols == NULL || t->strings == NULL) return NULL;
  if (t->gnu_hash) {
    uint32_t buckets = t->gnu_hash[0], first = t->gnu_hash[1], bloom = t->gnu_hash[2];
    const uint32_t *bucket =
        (const uint32_t *)((const char *)(t->gnu_hash + 4) + bloom * sizeof(ElfW(Addr)));
    const uint32_t *chain = bucket + buckets;
    uint32_t h = gnu_hash(name);
    if (buckets == 0) return NULL;
    for (uint32_t i = bucket[h % buckets]; i >= first && i != 0; i++) {
      uint32_t entry = chain[i - first];
      if ((entry | 1) == (h | 1) && is_definition(t, i, name)) return &t->symbols[i];
      if (entry & 1) break;
    }
    return NULL;
  }
  if (t->hash)
    for (uint32_t i = 1, count = t->hash[1]; i < count; i++)
      if (is_definition(t, i, name)) return &t->symbols[i];
  return NULL;
}

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
  struct search *search = data;
  (void)size;
  const ElfW(Dyn) *dynamic = NULL;
  bool is_self = false;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) *header = &info->dlpi_phdr[i];
    ElfW(Addr) start = info->dlpi_addr + header->p_vaddr;
    if (header->p_type == PT_DYNAMIC) dynamic = (const ElfW(Dyn) *)start;
    if (header->p_type == PT_LOAD && (ElfW(Addr))&guardian_state >= start &&
        (ElfW(Addr))&guardian_state < start + header->p_memsz)
      is_self = true;
  }
  if (is_self) {
    search->seen_self = true;
    return 0;
  }
  if (dynamic == NULL || (search->skip_to_self && !search->seen_self)) return 0;
  /* The vDSO's dynamic section is not relocated; nothing of ours is in it. */
  if (info->dlpi_name && strcmp(info->dlpi_name, "linux-vdso.so.1") == 0) return 0;
  struct tables tables = {0};
  for (const ElfW(Dyn) *d = dynamic; d->d_tag != DT_NULL; d++) {
    ElfW(Addr) value = d->d_un.d_ptr;
    if (value < info->dlpi_addr) value += info->dlpi_addr;
    switch (d->d_tag) {
      case DT_SYMTAB: tables.symbols = (const ElfW(Sym) *)value; break;
      case DT_STRTAB: tables.strings = (const char *)value; break;
      case DT_GNU_HASH: tables.gnu_hash = (const uint32_t *)value; break;
      case DT_HASH: tables.hash = (const uint32_t *)value; break;
      case DT_VERSYM: tables.versions = (const ElfW(Half) *)value; break;
      default: break;
    }
  }
  const ElfW(Sym) *symbol = look_up(&tables, search->name);
  if (symbol == NULL) return 0;
  search->found = (void *)(info->dlpi_addr + symbol->st_value);
  return 1;
}

void *guardian_next_symbol(const char *name) {
  struct search search = {.name = name, .skip_to_self = true};
  dl_iterate_phdr(visit, &search);
  return search.found;
}

void *guardian_any_symbol(const char *name) {
  struct search search = {.name = name};
  dl_iterate_phdr(visit, &search);
  return search.found;
}
