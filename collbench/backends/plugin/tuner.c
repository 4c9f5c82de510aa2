/* collbench's NCCL tuner: where a rule matches, that combination's cost becomes 0; everywhere else nothing changes,
   NCCL's number of channels included. A faulty table is refused aloud and NCCL's own choices stay. */
#define _POSIX_C_SOURCE 200809L
#include "interface.h"
#include "table.h"
#include "versions.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define NAME "collbench"
#define MESSAGE 4608

static const char* const WHAT[CB_MEASURED] = {"NCCL", "network plugin", "driver"};

/* Say it through NCCL and, because NCCL is silent unless NCCL_DEBUG is set, once per process on stderr. */
static void say_aloud(cb_logger log, int* said, const char* format, ...) {
  char text[MESSAGE];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  if (log) log(CB_LOG_WARN, CB_LOG_INIT | CB_LOG_TUNING, __FILE__, __LINE__, "%s", text);
  if (!__atomic_exchange_n(said, 1, __ATOMIC_RELAXED)) fprintf(stderr, "%s\n", text);
}

static void warn_elsewhere(const cb_table* table, cb_logger log) {
  static int said[CB_MEASURED];
  char here[CB_MEASURED][CB_VERSION_CHARS];
  cb_versions(here);
  for (int i = 0; i < CB_MEASURED; i++) {
    if (!table->measured[i][0] || strcmp(table->measured[i], here[i]) == 0) continue;
    say_aloud(log, &said[i], "collbench tuner: the table was measured under %s %s, here it is %s: measure again",
              WHAT[i], table->measured[i], here[i][0] ? here[i] : "unknown");
  }
}

static cb_result load(void** context, size_t ranks, size_t nodes, cb_logger log) {
  static int refused, missing;
  char error[MESSAGE - 128];
  const char* path = getenv("COLLBENCH_NCCL_TABLE");
  cb_table* table = calloc(1, sizeof *table);
  *context = table;
  if (!table) return CB_SYSTEM_ERROR;
  if (!path || !*path) {
    say_aloud(log, &missing, "collbench tuner: COLLBENCH_NCCL_TABLE names no table, NCCL's own choices stay");
    return CB_SUCCESS;
  }
  if (cb_table_read(path, ranks, nodes, table, error, sizeof error)) {
    say_aloud(log, &refused, "collbench tuner: table refused, NCCL's own choices stay: %s", error);
    return CB_SUCCESS;
  }
  size_t mine = 0;
  for (int f = 0; f < CB_FUNCTIONS; f++) mine += table->of[f].count;
  if (log)
    log(CB_LOG_INFO, CB_LOG_INIT | CB_LOG_TUNING, __FILE__, __LINE__,
        "collbench tuner: %s: %zu of %zu rules are for %zu ranks on %zu nodes", path, mine, table->total, ranks, nodes);
  warn_elsewhere(table, log);
  return CB_SUCCESS;
}

static cb_result init_v4(size_t ranks, size_t nodes, cb_logger log, void** context) {
  return load(context, ranks, nodes, log);
}

static cb_result init_v5(void** context, uint64_t communicator, size_t ranks, size_t nodes, cb_logger log,
                         void* nvlink_domain, void* constants) {
  (void)communicator, (void)nvlink_domain, (void)constants;
  return load(context, ranks, nodes, log);
}

/* costs is one flat array [algorithms][protocols] in spite of its type; a negative cost is a disabled combination. */
static cb_result get_coll_info(void* context, int function, size_t bytes, int pipelined, float** costs, int algorithms,
                               int protocols, int registered, int* channels) {
  (void)pipelined, (void)registered;
  const cb_rule* rule = context ? cb_table_find(context, function, bytes) : NULL;
  if (!rule || rule->algorithm < 0 || rule->algorithm >= algorithms || rule->protocol >= protocols) return CB_SUCCESS;
  float* cost = (float*)(void*)costs + (size_t)rule->algorithm * (size_t)protocols + (size_t)rule->protocol;
  if (*cost < 0.0f) return CB_SUCCESS;
  *cost = 0.0f;
  if (rule->channels) *channels = rule->channels;
  return CB_SUCCESS;
}

static cb_result finalize(void* context) {
  if (context) cb_table_free(context);
  free(context);
  return CB_SUCCESS;
}

EXPORT const cb_tuner_v4 ncclTunerPlugin_v4 = {NAME, init_v4, get_coll_info, finalize};
EXPORT const cb_tuner_v5 ncclTunerPlugin_v5 = {NAME, init_v5, get_coll_info, finalize};
EXPORT const cb_tuner_v6 ncclTunerPlugin_v6 = {NAME, init_v5, get_coll_info, finalize, NULL};
EXPORT const cb_tuner_v6 ncclTunerPlugin_v7 = {NAME, init_v5, get_coll_info, finalize, NULL};
