// kvkeep_gpu.h: the C ABI of the GPU path, for workers on the daemon's host. Part of kvkeep.h, in
// the same library: its conventions (codes, struct sizes, the two forms of a call, threads) hold.
//
//   kvkeep_gpu_range range = {.size = sizeof range, .address = kv, .bytes = kv_bytes};
//   kvkeep_gpu_region* region;  // once: the daemon opens the engine's KV memory
//   if (kvkeep_gpu_register(client, &range, &region, &error)) {
//     return use_host_memory(error.message);
//   }
//
//   kvkeep_gpu_run run = {kvkeep_gpu_region_id(region), offset, bytes};  // or of a planner, below
//   kvkeep_gpu_put_chunk chunk = {.key = key, .runs = &run, .run_count = 1};
//   kvkeep_gpu_put_request put = {.size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1,
//                                 .outcomes = &outcome};
//   if (kvkeep_gpu_put(client, &put, &error)) return fail(error.message);
//
// The daemon copies; the bytes never pass this process. Order: synchronise the stream that wrote a
// put's source, or last used a get's target, before the call. Leave those bytes alone until the
// call has ended. If it ended with DEADLINE_EXCEEDED or UNAVAILABLE, leave them alone until
// kvkeep_gpu_region_in_use is 0 for each region that it named, or until its kvkeep_gpu_use_in_use
// is 0; bytes of a put in KVKEEP_GPU_REUSED regions only until its deadline. A get that is not HIT
// may leave anything in its runs.
//
// If there is no GPU path, the call that registers or pins fails with the reason, and so does every
// call after it. NOT_FOUND: no driver, or no such device. UNIMPLEMENTED: this driver, device,
// daemon or build cannot. FAILED_PRECONDITION: not on the local path, or the daemon has its GPU
// path off. INVALID_ARGUMENT: this memory cannot be given away. The calls of kvkeep.h then serve
// the same chunks.
#pragma once

#include <kvkeep.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------- registered memory

typedef struct kvkeep_gpu_region kvkeep_gpu_region;

// The source of a put may be written again once its call has ended and its deadline is over, even
// if it was not answered: the daemon stores nothing that it read later. A put to a daemon that
// cannot guarantee that (protocol before 8, or another CLOCK_MONOTONIC) is FAILED_PRECONDITION.
#define KVKEEP_GPU_REUSED 1u

// Memory of this process on one of its GPUs, within one allocation of at least 2 MiB.
typedef struct kvkeep_gpu_range {
  uint32_t size;
  uint32_t deadline_ms;  // 0: the client's
  uint64_t address;      // the driver's: a CUdeviceptr, a torch tensor's data_ptr()
  uint64_t bytes;
  const char* driver;  // a name that the loader looks up, or a path; NULL: libcuda.so.1
  uint32_t flags;      // KVKEEP_GPU_
  uint32_t reserved;
} kvkeep_gpu_range;

// Makes the range known to the daemon, now and after every reconnect. REQUIRES: a context of its
// device is current on this thread. The daemon sees all of the allocation. End it with
// kvkeep_gpu_region_free. If the call ends with DEADLINE_EXCEEDED or UNAVAILABLE, the daemon may
// have opened the memory anyway. It copies none of it, but keeps it open until it sees the end of
// its session with this client (kvkeep_client_destroy ends it), or until its process ends. Nothing
// tells when that is: keep the memory for as long as both may live.
int kvkeep_gpu_register(kvkeep_client* client, const kvkeep_gpu_range* range,
                        kvkeep_gpu_region** out, kvkeep_error* error);
// Returns the number by which runs name the region. Numbers are not reused: a run of a region that
// is gone is INVALID_ARGUMENT.
uint64_t kvkeep_gpu_region_id(const kvkeep_gpu_region* region);  // 0: NULL
// Returns 1 if the daemon may still read or write the region, because a call that named it has no
// answer.
int kvkeep_gpu_region_in_use(const kvkeep_gpu_region* region);
// Returns OK if, as far as is known, the next call finds the region registered, or registers it.
// Otherwise the error says why not.
int kvkeep_gpu_region_usable(const kvkeep_gpu_region* region, kvkeep_error* error);
// Returns when the daemon has closed the region: only after an OK may the memory be freed.
// FAILED_PRECONDITION: in use. DEADLINE_EXCEEDED: the daemon has not answered yet, to this or to a
// registration that was under way; an answer that comes later counts. UNAVAILABLE: the session is
// over, and the daemon's process may still have it open. Call again later; a timeout of 0 does not
// wait. The handle stays, but has no other use.
int kvkeep_gpu_unregister(kvkeep_gpu_region* region, uint32_t timeout_ms, kvkeep_error* error);
// Ends the handle; unregisters the region in the background unless that was done.
void kvkeep_gpu_region_free(kvkeep_gpu_region* region);

// Bytes of registered memory. In a get, a run with region 0 and offset 0 skips bytes of the payload
// (FAILED_PRECONDITION: the daemon's protocol is before 8). A chunk has at least one other run.
typedef struct kvkeep_gpu_run {
  uint64_t region;  // kvkeep_gpu_region_id
  uint64_t offset;  // in the registered range
  uint64_t bytes;
} kvkeep_gpu_run;

#define KVKEEP_MAX_GPU_RUNS 65536u  // of one chunk here; the daemon may take fewer, and says so

// ---------------------------------------------------------------- put and get

// Tells whether the daemon may still use memory of calls that ended without its answer. For one
// call, or for several. May be freed at any time.
typedef struct kvkeep_gpu_use kvkeep_gpu_use;
int kvkeep_gpu_use_create(kvkeep_gpu_use** out, kvkeep_error* error);
// Returns 0 once no ended call that was given it reads or writes any more: the daemon has answered,
// or its process has ended.
int kvkeep_gpu_use_in_use(const kvkeep_gpu_use* use);
// Returns 1 if an answer may still come, 0 if none will; after a broken connection the memory may
// still be in use.
int kvkeep_gpu_use_is_awaited(const kvkeep_gpu_use* use);
void kvkeep_gpu_use_free(kvkeep_gpu_use* use);

typedef struct kvkeep_gpu_put_chunk {
  kvkeep_key key;
  kvkeep_key parent_key;  // the key before this one in its prefix, if has_parent
  uint32_t part;
  uint32_t has_parent;
  const kvkeep_gpu_run* runs;  // the payload, in order; all runs of a call are of one GPU
  uint64_t run_count;
  const void* metadata;
  uint64_t metadata_bytes;  // at most KVKEEP_MAX_METADATA_BYTES
} kvkeep_gpu_put_chunk;

typedef struct kvkeep_gpu_put_request {
  uint32_t size;
  uint32_t deadline_ms;
  const kvkeep_namespace* ns;
  const kvkeep_gpu_put_chunk* chunks;
  uint32_t chunk_count;
  uint32_t flags;      // KVKEEP_PUT_; not CHECKSUM, as the bytes do not come here
  uint32_t* outcomes;  // kvkeep_put_status of each chunk
  const kvkeep_gpu_use* use;  // or NULL
} kvkeep_gpu_put_request;

// As kvkeep_put. A chunk whose bytes did not come in time is REJECTED.
int kvkeep_gpu_put(kvkeep_client* client, const kvkeep_gpu_put_request* request,
                   kvkeep_error* error);
int kvkeep_gpu_put_async(kvkeep_client* client, const kvkeep_gpu_put_request* request,
                         kvkeep_queue* queue, void* user_data, kvkeep_error* error);

typedef struct kvkeep_gpu_get_chunk {
  kvkeep_key key;
  uint32_t part;
  uint32_t reserved;
  const kvkeep_gpu_run* runs;  // of the payload's size: a chunk of another size is not a HIT
  uint64_t run_count;
} kvkeep_gpu_get_chunk;

typedef struct kvkeep_gpu_get_request {
  uint32_t size;
  uint32_t deadline_ms;
  const kvkeep_namespace* ns;
  const kvkeep_lease* lease;  // or NULL; chunks that it holds are found, even if deleted since
  const kvkeep_gpu_get_chunk* chunks;
  uint32_t chunk_count;
  uint32_t flags;                 // KVKEEP_GET_TRANSIENT: need not stay in DRAM
  kvkeep_get_outcome* outcomes;   // of each chunk
  const kvkeep_buffer* metadata;  // as in kvkeep_get_request
  const kvkeep_gpu_use* use;      // or NULL
} kvkeep_gpu_get_request;

// As kvkeep_get.
int kvkeep_gpu_get(kvkeep_client* client, const kvkeep_gpu_get_request* request,
                   kvkeep_error* error);
int kvkeep_gpu_get_async(kvkeep_client* client, const kvkeep_gpu_get_request* request,
                         kvkeep_queue* queue, void* user_data, kvkeep_error* error);

typedef struct kvkeep_gpu_stats {
  uint32_t size;
  uint32_t reserved;
  uint64_t registered;        // at first
  uint64_t registered_again;  // with a new session
  uint64_t refused;           // registrations, at first and again
  uint64_t unanswered;        // puts and gets that ended without the daemon's answer
  uint64_t bytes_put;         // of chunks that were stored, or were there already already
  uint64_t bytes_got;
} kvkeep_gpu_stats;

int kvkeep_gpu_get_stats(const kvkeep_client* client, kvkeep_gpu_stats* stats, kvkeep_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
