/* The selection table: what one communicator needs of it. See docs/nccl.md for the grammar. */
#ifndef COLLBENCH_TABLE_H
#define COLLBENCH_TABLE_H

#include <stddef.h>
#include <stdint.h>

enum { CB_FUNCTIONS = 5, CB_ALGORITHMS = 7, CB_PROTOCOLS = 3, CB_MEASURED = 3, CB_VERSION_CHARS = 128 };
/* Index of what a table says it was measured under. */
enum { CB_NCCL = 0, CB_NET = 1, CB_DRIVER = 2 };

/* One rule of this communicator's shape; algorithm -1 leaves NCCL alone, channels 0 leaves NCCL's number. */
typedef struct {
  uint64_t first, last; /* bytes, both inclusive */
  int16_t algorithm, protocol;
  int32_t channels;
  int32_t line;
} cb_rule;

typedef struct {
  cb_rule* rules;  /* sorted by first, disjoint */
  size_t count, room;
} cb_rules;

typedef struct {
  cb_rules of[CB_FUNCTIONS]; /* by NCCL's number of the collective */
  size_t total;              /* rules in the file, those of other shapes included */
  char measured[CB_MEASURED][CB_VERSION_CHARS]; /* empty = the table does not say */
} cb_table;

/* Read the rules for a communicator of this shape. Returns 0; or -1 with a sentence in error and an empty table. */
int cb_table_read(const char* path, uint64_t ranks, uint64_t nodes, cb_table* table, char* error, size_t error_size);

void cb_table_free(cb_table* table);

/* The rule for a call, or NULL. Takes no lock and allocates nothing. */
static inline const cb_rule* cb_table_find(const cb_table* table, int function, uint64_t bytes) {
  if (function < 0 || function >= CB_FUNCTIONS) return NULL;
  const cb_rule* rules = table->of[function].rules;
  size_t low = 0, high = table->of[function].count;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (rules[middle].last < bytes) low = middle + 1;
    else high = middle;
  }
  return low < table->of[function].count && rules[low].first <= bytes ? &rules[low] : NULL;
}

#endif
