/* NCCL's tuner plugin interface, versions 4 to 7, as far as this plugin uses it. Declared anew: needs no CUDA.

   Layout facts: version 4 serves NCCL 2.24 to 2.26, 5 from 2.27, 6 from 2.30; 7 is in NCCL's development branch.
   The constants and the NVLink domain information are never touched, so they stay opaque. */
#ifndef COLLBENCH_INTERFACE_H
#define COLLBENCH_INTERFACE_H

#include <stddef.h>
#include <stdint.h>

typedef enum { CB_SUCCESS = 0, CB_SYSTEM_ERROR = 2 } cb_result; /* ncclResult_t */
enum { CB_LOG_WARN = 2, CB_LOG_INFO = 3 };                      /* ncclDebugLogLevel */
enum { CB_LOG_INIT = 0x1, CB_LOG_TUNING = 0x40 };               /* ncclDebugLogSubSys */
typedef void (*cb_logger)(int level, unsigned long flags, const char* file, int line, const char* format, ...);

typedef cb_result (*cb_init_v4)(size_t ranks, size_t nodes, cb_logger log, void** context);
typedef cb_result (*cb_init_v5)(void** context, uint64_t communicator, size_t ranks, size_t nodes, cb_logger log,
                                void* nvlink_domain, void* constants);
typedef cb_result (*cb_get)(void* context, int function, size_t bytes, int pipelined, float** costs, int algorithms,
                            int protocols, int registered, int* channels);
typedef cb_result (*cb_end)(void* context);
typedef cb_result (*cb_chunk)(void* context, int function, size_t bytes, int algorithm, int protocol, int channels,
                              size_t* chunk);

typedef struct {
  const char* name;
  cb_init_v4 init;
  cb_get get_coll_info;
  cb_end destroy;
} cb_tuner_v4;

typedef struct {
  const char* name;
  cb_init_v5 init;
  cb_get get_coll_info;
  cb_end finalize;
} cb_tuner_v5;

typedef struct {
  const char* name;
  cb_init_v5 init;
  cb_get get_coll_info;
  cb_end finalize;
  cb_chunk get_chunk_size; /* NULL: NCCL's chunks stay */
} cb_tuner_v6;

#endif
