// kvkeep_pin.h: the C ABI of the other way to a GPU: the worker itself copies, from the daemon's
// memory that it has pinned. Part of kvkeep.h. Without a GPU path, calls fail as kvkeep_gpu.h says.
#pragma once

#include <kvkeep_gpu.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

// This process's mapping of the daemon's memory, registered with the driver: asynchronous copies
// from the runs of acquired chunks then run at the speed of the bus. Only speed depends on it.
typedef struct kvkeep_pinned_arena kvkeep_pinned_arena;

typedef struct kvkeep_pin_request {
  uint32_t size;
  uint32_t device;     // the GPU's ordinal in this process
  const char* driver;  // as in kvkeep_gpu_range
} kvkeep_pin_request;

typedef struct kvkeep_pin_stats {
  uint32_t size;
  uint32_t finished;  // 1: every segment was tried
  uint64_t pinned_bytes;
  uint64_t refused_bytes;
  kvkeep_error first_refusal;  // OK: none
} kvkeep_pin_stats;

// Pins the memory in the background. End it with kvkeep_pinned_arena_free, when copies from it have
// ended.
int kvkeep_arena_pin(kvkeep_client* client, const kvkeep_pin_request* request,
                     kvkeep_pinned_arena** out, kvkeep_error* error);
// Waits until every segment was tried. Returns 0 if all is registered, else DEADLINE_EXCEEDED,
// FAILED_PRECONDITION (it is unregistered again), or the first refusal.
int kvkeep_pinned_arena_wait(const kvkeep_pinned_arena* arena, uint32_t timeout_ms,
                             kvkeep_error* error);
int kvkeep_pinned_arena_stats(const kvkeep_pinned_arena* arena, kvkeep_pin_stats* stats,
                              kvkeep_error* error);
// Returns 1 if all of the range is registered now, else 0. It is 0 after the daemon came back with
// another arena: pin again.
int kvkeep_pinned_arena_covers(const kvkeep_pinned_arena* arena, const void* data, uint64_t bytes);
void kvkeep_pinned_arena_free(kvkeep_pinned_arena* arena);

#ifdef __cplusplus
}  // extern "C"
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
