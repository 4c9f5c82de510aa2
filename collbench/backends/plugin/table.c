/* Reading the table. Any fault refuses the whole file: half a table would be worse than none. */
#define _POSIX_C_SOURCE 200809L
#include "table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORDS_MAX 9
#define MAX_CHANNELS 64

typedef struct {
  uint64_t first, last;
} range;

static const char* const FUNCTIONS[CB_FUNCTIONS] = {"bcast", "reduce", "allgather", "reduce_scatter", "allreduce"};
static const char* const ALGORITHMS[CB_ALGORITHMS] = {"tree", "ring",      "collnet_direct", "collnet_chain",
                                                      "nvls", "nvls_tree", "pat"};
static const char* const PROTOCOLS[CB_PROTOCOLS] = {"ll", "ll128", "simple"};
static const char* const MEASURED[CB_MEASURED] = {"nccl", "net", "driver"};

/* Protocols (bit 0 ll, bit 1 ll128, bit 2 simple) that NCCL has for [collective][algorithm]. */
static const unsigned char VALID[CB_FUNCTIONS][CB_ALGORITHMS] = {
    {0, 7, 0, 0, 0, 0, 0}, /* bcast */
    {0, 7, 0, 0, 0, 0, 0}, /* reduce */
    {0, 7, 4, 0, 4, 0, 4}, /* allgather */
    {0, 7, 4, 0, 4, 0, 4}, /* reduce_scatter */
    {7, 7, 4, 4, 4, 4, 0}, /* allreduce */
};

static int index_of(const char* word, const char* const* names, int count) {
  for (int i = 0; i < count; i++)
    if (strcmp(word, names[i]) == 0) return i;
  return -1;
}

/* A number of digits only, below 2^64; end points behind it. */
static int number(const char* text, const char** end, uint64_t* value) {
  if (*text < '0' || *text > '9') return -1;
  uint64_t sum = 0;
  for (; *text >= '0' && *text <= '9'; text++) {
    uint64_t digit = (uint64_t)(*text - '0');
    if (sum > (UINT64_MAX - digit) / 10) return -1;
    sum = sum * 10 + digit;
  }
  *value = sum;
  *end = text;
  return 0;
}

static int parse_range(const char* word, range* out) {
  const char* end;
  if (strcmp(word, "*") == 0) {
    out->first = 0;
    out->last = UINT64_MAX;
    return 0;
  }
  if (number(word, &end, &out->first)) return -1;
  if (*end == '\0') {
    out->last = out->first;
    return 0;
  }
  if (*end != '-') return -1;
  if (end[1] == '\0') {
    out->last = UINT64_MAX;
    return 0;
  }
  if (number(end + 1, &end, &out->last) || *end != '\0') return -1;
  return out->last < out->first ? -1 : 0;
}

static int inside(range span, uint64_t value) { return span.first <= value && value <= span.last; }

static int split(char* line, char** words) {
  int count = 0;
  line[strcspn(line, "#")] = '\0';
  char* rest = NULL;
  for (char* word = strtok_r(line, " \t\r\n", &rest); word && count < WORDS_MAX; word = strtok_r(NULL, " \t\r\n", &rest))
    words[count++] = word;
  return count;
}

static int append(cb_rules* list, cb_rule rule) {
  if (list->count == list->room) {
    size_t room = list->room ? 2 * list->room : 16;
    cb_rule* more = realloc(list->rules, room * sizeof *more);
    if (!more) return -1;
    list->rules = more;
    list->room = room;
  }
  list->rules[list->count++] = rule;
  return 0;
}

/* words[1..7] of a rule; returns a fault in words, or NULL. */
static const char* add_rule(char** words, int line, uint64_t ranks, uint64_t nodes, cb_table* table) {
  cb_rule rule = {.algorithm = -1, .protocol = -1, .channels = 0, .line = line};
  range bytes, rank_span, node_span;
  int function = index_of(words[1], FUNCTIONS, CB_FUNCTIONS);
  if (function < 0) return "unknown collective";
  if (parse_range(words[2], &bytes)) return "bytes are not a range (N, N-M, N- or *)";
  if (parse_range(words[3], &rank_span)) return "ranks are not a range (N, N-M, N- or *)";
  if (parse_range(words[4], &node_span)) return "nodes are not a range (N, N-M, N- or *)";
  if (strcmp(words[5], "default") == 0) {
    if (strcmp(words[6], "-") || strcmp(words[7], "-")) return "'default' takes neither protocol nor channels";
  } else {
    const char* end;
    uint64_t channels = 0;
    rule.algorithm = (int16_t)index_of(words[5], ALGORITHMS, CB_ALGORITHMS);
    rule.protocol = (int16_t)index_of(words[6], PROTOCOLS, CB_PROTOCOLS);
    if (rule.algorithm < 0) return "unknown algorithm";
    if (rule.protocol < 0) return "unknown protocol";
    if (!(VALID[function][rule.algorithm] & (1u << rule.protocol)))
      return "NCCL has no such algorithm and protocol for this collective";
    if (strcmp(words[7], "-") != 0 &&
        (number(words[7], &end, &channels) || *end || channels < 1 || channels > MAX_CHANNELS))
      return "channels are neither 1 to 64 nor '-'";
    rule.channels = (int32_t)channels;
  }
  table->total++;
  if (!inside(rank_span, ranks) || !inside(node_span, nodes)) return NULL;
  rule.first = bytes.first;
  rule.last = bytes.last;
  return append(&table->of[function], rule) ? "out of memory" : NULL;
}

static const char* add_measured(char** words, cb_table* table) {
  int which = index_of(words[1], MEASURED, CB_MEASURED);
  if (which < 0) return "'measured' knows nccl, net and driver";
  if (strlen(words[2]) >= CB_VERSION_CHARS) return "the version is too long";
  strcpy(table->measured[which], words[2]);
  return NULL;
}

static const char* add_line(char** words, int count, int line, uint64_t ranks, uint64_t nodes, cb_table* table) {
  if (line == 1) {
    int right = count == 2 && !strcmp(words[0], "collbench-nccl-table") && !strcmp(words[1], "1");
    return right ? NULL : "a table starts with 'collbench-nccl-table 1'";
  }
  if (count == 0) return NULL;
  if (count == 8 && !strcmp(words[0], "rule")) return add_rule(words, line, ranks, nodes, table);
  if (count == 3 && !strcmp(words[0], "measured")) return add_measured(words, table);
  return "neither 'measured NAME VERSION' nor a rule of 8 words";
}

static int by_first(const void* one, const void* two) {
  uint64_t a = ((const cb_rule*)one)->first, b = ((const cb_rule*)two)->first;
  return a < b ? -1 : a > b;
}

/* Sort each collective's rules; two rules for the same call are a fault of the table. */
static int order(const char* path, cb_table* table, char* error, size_t size) {
  for (int f = 0; f < CB_FUNCTIONS; f++) {
    cb_rules* list = &table->of[f];
    if (list->count) qsort(list->rules, list->count, sizeof *list->rules, by_first);
    for (size_t i = 1; i < list->count; i++) {
      if (list->rules[i].first <= list->rules[i - 1].last) {
        snprintf(error, size, "%s: lines %d and %d cover the same call", path, list->rules[i - 1].line,
                 list->rules[i].line);
        return -1;
      }
    }
  }
  return 0;
}

int cb_table_read(const char* path, uint64_t ranks, uint64_t nodes, cb_table* table, char* error, size_t size) {
  memset(table, 0, sizeof *table);
  FILE* file = fopen(path, "re");
  if (!file) {
    snprintf(error, size, "cannot read %s: %s", path, strerror(errno));
    return -1;
  }
  char* line = NULL;
  size_t room = 0;
  int count = 0, status = 0;
  ssize_t length;
  errno = 0;
  while (status == 0 && (length = getline(&line, &room, file)) >= 0) {
    char* words[WORDS_MAX];
    count++;
    const char* fault = strlen(line) != (size_t)length ? "a NUL byte"
                                                       : add_line(words, split(line, words), count, ranks, nodes, table);
    if (fault) {
      snprintf(error, size, "%s, line %d: %s", path, count, fault);
      status = -1;
    }
  }
  if (status == 0 && (ferror(file) || count == 0)) {
    snprintf(error, size, "cannot read %s: %s", path, ferror(file) ? strerror(errno) : "it is empty");
    status = -1;
  }
  free(line);
  fclose(file);
  if (status == 0) status = order(path, table, error, size);
  if (status) cb_table_free(table);
  return status;
}

void cb_table_free(cb_table* table) {
  for (int f = 0; f < CB_FUNCTIONS; f++) free(table->of[f].rules);
  memset(table, 0, sizeof *table);
}
