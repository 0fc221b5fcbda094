// kvkeep.h: the C ABI of the kvkeep client, library libkvkeep-client.so. For C, Rust, Python's
// ctypes and other languages that bind to C; C++ programs of this repository use client/client.h.
// GPU memory: kvkeep_gpu.h, kvkeep_kv.h, kvkeep_pin.h.
//
//   kvkeep_error error;
//   kvkeep_client* client;
//   kvkeep_client_options options = {.size = sizeof options, .endpoint = "unix:///run/kv.sock"};
//   if (kvkeep_connect(&options, &client, &error)) return fail(error.message);
//   kvkeep_namespace* ns;
//   kvkeep_namespace_spec spec = {.size = sizeof spec, .model = "m", .tokens_per_chunk = 256};
//   if (kvkeep_namespace_open(client, &spec, 0, &ns, &error)) return fail(error.message);
//
//   uint32_t outcome;
//   kvkeep_const_buffer run = {kv, sizeof kv};
//   kvkeep_put_chunk chunk = {.key = key, .runs = &run, .run_count = 1};
//   kvkeep_put_request put = {.size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1,
//                             .outcomes = &outcome};
//   if (kvkeep_put(client, &put, &error)) return fail(error.message);
//
//   kvkeep_buffer to = {back, sizeof back};
//   kvkeep_get_outcome got;
//   kvkeep_get_request get = {.size = sizeof get, .keys = {ns, &key, 1}, .destinations = &to,
//                             .outcomes = &got, .chunk_count = 1};
//   if (kvkeep_get(client, &get, &error)) return fail(error.message);
//   if (got.status == KVKEEP_GET_HIT) use(back, got.bytes);
//
// Guarantees (more in client/client.h, which it wraps):
// * Never wrong bytes: a HIT is the whole bytes of one put under that key; all else is a miss.
// * Never a hang: every call ends by its deadline. While the daemon is known to be away, calls fail
//   at once with UNAVAILABLE: treat it as a miss. The client reconnects when the daemon comes back.
//
// Results. A function that returns int and takes `error` returns a kvkeep_code; 0 is OK. `error`
// may be NULL; else it gets the same code and a message: valid UTF-8, cut off to fit, with a zero
// at its end, or "". There is no state per thread, and no exception crosses the border.
//
// Two forms. kvkeep_X blocks. kvkeep_X_async returns when its request is on its way: at once, or by
// the call's deadline if the daemon reads nothing and more than a socket holds (some 100 KiB of
// keys) waits for it. OK: exactly one completion comes out of `queue`, with the call's code, its
// message and `user_data`. Not OK: the call was refused; nothing was started and no completion
// comes. A request struct is copied before the function returns. The memory it points to, and the
// reply, must stay in place until the completion. The reply and the array of outcomes are written
// before the completion can be seen. After a refusal neither is written. After any other error the
// fields of a reply are zero, and each chunk has its outcome.
//
// Memory. The caller owns each handle that it gets (by `out`, or in a reply) and ends it with the
// one function named for that; these functions take NULL. Handles may be ended in any order.
// Namespaces, leases, acquired chunks, staging and registered memory may outlive their client. They
// are useless then, but the memory that they show stays mapped. Two things must not be ended early:
// a queue with calls in flight (kvkeep_queue_destroy refuses), and anything given to such a call.
//
// Threads. Every function may be called on any thread, at the same time as others on the same
// handle, with two exceptions: no function may run on a handle that is being ended, and one lease
// is used by one thread at a time. A child of fork must not use or end what its parent opened.
//
// Versions. Structs that begin with `size` may grow at the end: set it to sizeof, and set the
// fields that you do not use to zero. A newer library reads the fields of your header. An older one
// refuses fields that it does not know, unless they are zero. All else is fixed for this
// KVKEEP_ABI_VERSION, enum values too.
#pragma once

#include <stdint.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

// ---------------------------------------------------------------- versions, codes

#define KVKEEP_ABI_VERSION 1  // also the number in the library's SONAME
#define KVKEEP_MESSAGE_BYTES 252
#define KVKEEP_MAX_METADATA_BYTES 16384u

uint32_t kvkeep_abi_version(void);  // of the library: KVKEEP_ABI_VERSION of its own header
const char* kvkeep_version(void);   // of the release, e.g. "0.1.0"

typedef enum kvkeep_code {
  KVKEEP_OK = 0,
  KVKEEP_CANCELLED = 1,  // the client is being destroyed
  KVKEEP_UNKNOWN = 2,
  KVKEEP_INVALID_ARGUMENT = 3,  // the message names the field
  KVKEEP_DEADLINE_EXCEEDED = 4,
  KVKEEP_NOT_FOUND = 5,
  KVKEEP_ALREADY_EXISTS = 6,
  KVKEEP_PERMISSION_DENIED = 7,
  KVKEEP_RESOURCE_EXHAUSTED = 8,   // the message names the limit
  KVKEEP_FAILED_PRECONDITION = 9,  // dead lease; not on the local path
  KVKEEP_ABORTED = 10,
  KVKEEP_OUT_OF_RANGE = 11,
  KVKEEP_UNIMPLEMENTED = 12,
  KVKEEP_INTERNAL = 13,
  KVKEEP_UNAVAILABLE = 14,     // the daemon is away, recovering or draining
  KVKEEP_DATA_LOSS = 15,       // the bytes are damaged: a miss
  KVKEEP_UNAUTHENTICATED = 16  // over TCP: the daemon does not know the client
} kvkeep_code;

const char* kvkeep_code_name(int code);  // "UNAVAILABLE"; never NULL

typedef struct kvkeep_error {
  int32_t code;
  char message[KVKEEP_MESSAGE_BYTES];
} kvkeep_error;

// ---------------------------------------------------------------- values

typedef struct kvkeep_client kvkeep_client;
typedef struct kvkeep_namespace kvkeep_namespace;
typedef struct kvkeep_queue kvkeep_queue;
typedef struct kvkeep_lease kvkeep_lease;

// A digest that covers the whole prefix. Shorter ones are filled up with zero bytes.
typedef struct kvkeep_key {
  uint8_t bytes[32];
} kvkeep_key;

typedef struct kvkeep_buffer {
  void* data;
  uint64_t bytes;
} kvkeep_buffer;

typedef struct kvkeep_const_buffer {
  const void* data;
  uint64_t bytes;
} kvkeep_const_buffer;

// The chunks of a call: the keys in prefix order, head of the prompt first, times the parts (none
// twice). Arrays "per chunk" are in the order keys x parts: chunk = key * parts + part.
typedef struct kvkeep_keys {
  const kvkeep_namespace* ns;
  const kvkeep_key* keys;
  uint32_t key_count;
  uint32_t part_count;    // 0: all parts of the namespace
  const uint32_t* parts;  // ignored when part_count is 0
} kvkeep_keys;

// ---------------------------------------------------------------- client

typedef enum kvkeep_path {
  KVKEEP_PATH_AUTO = 0,  // local if the daemon offers it, else gRPC
  KVKEEP_PATH_GRPC = 1,
  KVKEEP_PATH_LOCAL = 2  // shared memory and a socket of small messages; same host only
} kvkeep_path;

typedef struct kvkeep_client_options {
  uint32_t size;
  uint32_t default_deadline_ms;  // 0: 5,000
  const char* endpoint;          // "unix:///path" (path at most 107 bytes) or "host:port"
  const char* client_name;       // shown in the daemon's status; at most 128 bytes; NULL: none
  uint32_t backoff_min_ms;       // 0: 50. Before the first try to reconnect; doubles, with jitter
  uint32_t backoff_max_ms;       // 0: 2,000
  const char* local_socket;      // of the local path; NULL: local.sock beside the endpoint's socket
  uint32_t path;                 // kvkeep_path
  uint32_t reserved;
  // Over TCP, each or NULL. Files are read at every connect.
  const char* ca_file;      // PEM: the CA of the daemon's certificate; turns TLS on
  const char* cert_file;    // PEM: our certificate, for mutual TLS
  const char* key_file;     // PEM: its key
  const char* server_name;  // in the daemon's certificate, instead of the endpoint's host
  const char* token_file;   // holds the client's token
  const char* bulk;         // "unix:///path" or "host:port", as ClientOptions::bulk; NULL: none
} kvkeep_client_options;

// Waits for the first session at most the default deadline; a daemon that is away is not an error.
// End it with kvkeep_client_destroy.
int kvkeep_connect(const kvkeep_client_options* options, kvkeep_client** out, kvkeep_error* error);
// Cancels what is in flight and ends the session, which gives back all leases. Completions come out
// of the queues as usual, with CANCELLED or UNAVAILABLE. Returns when this process uses no memory
// of the caller any more.
void kvkeep_client_destroy(kvkeep_client* client);

// Returns 1 if a session is open, else 0. A hint: the next call may find the daemon away.
int kvkeep_connected(const kvkeep_client* client);
// Waits until a session is open. Returns 1, or 0 if the time passed first.
int kvkeep_wait_connected(const kvkeep_client* client, uint32_t timeout_ms);

typedef struct kvkeep_path_info {
  uint32_t size;
  uint32_t path;  // KVKEEP_PATH_GRPC or KVKEEP_PATH_LOCAL: the one that calls take now
  char why[256];  // for people: "grpc: no local socket at ..."
} kvkeep_path_info;

int kvkeep_client_path(const kvkeep_client* client, kvkeep_path_info* info, kvkeep_error* error);

typedef struct kvkeep_client_stats {
  uint32_t size;
  uint32_t reserved;
  uint64_t sessions_opened;  // more than one: the daemon was away in between
  uint64_t calls;
  uint64_t failed_fast;     // calls refused because the daemon was known to be away
  uint64_t corrupt_chunks;  // dropped here: bytes did not match their checksums
  uint64_t bytes_received;  // payload delivered by gets
  uint64_t bytes_sent;      // payload of finished puts
} kvkeep_client_stats;

int kvkeep_stats(const kvkeep_client* client, kvkeep_client_stats* stats, kvkeep_error* error);

// ---------------------------------------------------------------- namespaces

// The meaning and owner of the bytes under a key: the fields of its digest. NULL texts are empty.
typedef struct kvkeep_namespace_spec {
  uint32_t size;
  uint32_t tokens_per_chunk;  // required
  const char* model;          // required
  const char* dtype;
  const char* layout;
  const char* hash_algorithm;
  const char* hash_seed;
  uint64_t bytes_per_part;  // every put must have exactly this size; 0: sizes vary
  uint32_t parts;           // 0: 1
  uint32_t reserved;
  // Added later: read only if `size` covers it. The name of another tenant that lets ours read
  // ("default": the default tenant); puts and deletes there are PERMISSION_DENIED. NULL: ours.
  const char* tenant;
} kvkeep_namespace_spec;

// Declares a namespace, now and after every reconnect; while the daemon is away it succeeds too.
// deadline_ms 0: the client's. End it with kvkeep_namespace_close, at any time: calls in flight go
// on.
int kvkeep_namespace_open(kvkeep_client* client, const kvkeep_namespace_spec* spec,
                          uint32_t deadline_ms, kvkeep_namespace** out, kvkeep_error* error);
void kvkeep_namespace_close(kvkeep_namespace* ns);
// Writes the digest that the daemon computed; zero while it has not been reached yet.
void kvkeep_namespace_digest(const kvkeep_namespace* ns, uint8_t digest[16]);

// ---------------------------------------------------------------- completions

typedef enum kvkeep_op {
  KVKEEP_OP_LOOKUP = 1,
  KVKEEP_OP_GET = 2,
  KVKEEP_OP_PUT = 3,
  KVKEEP_OP_TOUCH = 4,
  KVKEEP_OP_PREFETCH = 5,
  KVKEEP_OP_DELETE = 6,
  KVKEEP_OP_RELEASE = 7,
  KVKEEP_OP_SERVER_INFO = 8,
  KVKEEP_OP_ACQUIRE = 9,
  KVKEEP_OP_GPU_PUT = 10,  // kvkeep_gpu.h
  KVKEEP_OP_GPU_GET = 11
} kvkeep_op;

typedef struct kvkeep_completion {
  void* user_data;
  uint32_t op;  // kvkeep_op
  uint32_t reserved;
  kvkeep_error error;
} kvkeep_completion;

#define KVKEEP_MAX_QUEUE_CAPACITY 65536u

// A queue takes the completions of asynchronous calls, of one client or of several. `capacity`: the
// most calls in flight and completions that wait, 1 to KVKEEP_MAX_QUEUE_CAPACITY. A call beyond it
// is refused with RESOURCE_EXHAUSTED.
int kvkeep_queue_create(uint32_t capacity, kvkeep_queue** out, kvkeep_error* error);
// FAILED_PRECONDITION, and the queue stays, while calls are in flight: destroy their client first,
// or wait for them. Completions that wait are dropped; their replies were written.
int kvkeep_queue_destroy(kvkeep_queue* queue, kvkeep_error* error);
// Returns a descriptor for epoll and the like: readable while completions wait. Only
// kvkeep_queue_poll and _wait may read it; it may be readable when they find nothing. Do not close
// it: the queue does.
int kvkeep_queue_fd(const kvkeep_queue* queue);
// Takes up to `max` completions, in the order in which calls ended. Returns how many, at once.
uint32_t kvkeep_queue_poll(kvkeep_queue* queue, kvkeep_completion* out, uint32_t max);
// Like poll, but waits until there is a completion. Returns 0 when the time has passed.
uint32_t kvkeep_queue_wait(kvkeep_queue* queue, kvkeep_completion* out, uint32_t max,
                           uint32_t timeout_ms);

// ---------------------------------------------------------------- lookup and leases

typedef enum kvkeep_lease_mode {
  KVKEEP_LEASE_NONE = 0,         // only report
  KVKEEP_LEASE_LEADING_RUN = 1,  // lease the leading keys with all of their parts
  KVKEEP_LEASE_ALL_PRESENT = 2   // lease every chunk that is there
} kvkeep_lease_mode;

#define KVKEEP_IN_G2 1u  // host DRAM
#define KVKEEP_IN_G3 2u  // NVMe
#define KVKEEP_COMING 4u  // on its way from beyond the node

typedef struct kvkeep_lookup_request {
  uint32_t size;
  uint32_t deadline_ms;  // 0: the client's
  kvkeep_keys keys;
  uint32_t lease_mode;
  uint32_t transient;       // 1: chunks promoted for it are the first to be evicted
  uint8_t* presence;        // per chunk: KVKEEP_IN_ bits, 0 is a miss; NULL: not wanted
  uint64_t presence_bytes;  // its room, at least one byte a chunk
  // How long, at most, to search beyond the node for keys after the leading ones, which are then
  // brought into DRAM; 0: no search; at most 10 s.
  uint32_t remote_wait_us;
  // Time to recompute a missing key: a chunk that takes over 0.7 of that is not brought. 0: not
  // known; 60 s, the most: it cannot be computed, so even a single missing chunk is searched for.
  uint32_t recompute_us_per_key;
} kvkeep_lookup_request;

typedef struct kvkeep_lookup_reply {
  uint32_t size;
  uint32_t leading_keys;  // keys from the head with all of the parts asked for
  // Keys whose chunks are leased. Less than leading_keys when the promise did not fit: get these,
  // release, look the rest up again.
  uint32_t leased_keys;
  // Estimated time until the leading keys are all readable in DRAM; 0: they are.
  uint32_t promotion_us;
  uint64_t leased_bytes;
  kvkeep_lease* lease;  // the caller's; NULL: nothing was leased
  // With remote_wait_us: keys after the leading ones that are on their way, and the estimated time
  // until they are in DRAM. Leased like the leading ones; a chunk that does not come is a miss.
  uint32_t remote_keys;
  uint32_t remote_us;
  uint32_t remote_asked;  // 1: there was a search; 0: none was worth it, or possible
  uint32_t reserved;
} kvkeep_lookup_reply;

int kvkeep_lookup(kvkeep_client* client, const kvkeep_lookup_request* request,
                  kvkeep_lookup_reply* reply, kvkeep_error* error);
int kvkeep_lookup_async(kvkeep_client* client, const kvkeep_lookup_request* request,
                        kvkeep_lookup_reply* reply, kvkeep_queue* queue, void* user_data,
                        kvkeep_error* error);

// A lease is the promise that the chunks of a lookup's keys stay readable. Returns 1 if the lease
// holds; 0 if it is released, or its session is over.
int kvkeep_lease_alive(const kvkeep_lease* lease);
// Keeps the chunks of the first `keep_keys` keys and gives the others back, in the background. A
// get under way misses the chunks that are given back.
void kvkeep_lease_shrink(kvkeep_lease* lease, uint32_t keep_keys);
// Gives all back in the background and ends the handle. Gets that use it must have completed.
void kvkeep_lease_release(kvkeep_lease* lease);
// Like kvkeep_lease_release, but reports when the daemon has the lease back. Any code ends the
// handle, except INVALID_ARGUMENT or a refusal of the call.
int kvkeep_release(kvkeep_client* client, kvkeep_lease* lease, kvkeep_error* error);
int kvkeep_release_async(kvkeep_client* client, kvkeep_lease* lease, kvkeep_queue* queue,
                         void* user_data, kvkeep_error* error);

// ---------------------------------------------------------------- get

typedef enum kvkeep_get_status {
  KVKEEP_GET_UNFINISHED = 0,  // the call ended before this chunk was whole; its code says why
  KVKEEP_GET_HIT = 1,         // the destination holds the whole bytes (or range) of one put
  KVKEEP_GET_MISS = 2,
  KVKEEP_GET_CORRUPT = 3,   // did not match its checksums: use none of it
  KVKEEP_GET_BUSY = 4,      // present, but there is no room in DRAM to read it into now
  KVKEEP_GET_TOO_SMALL = 5  // the destination cannot hold it; payload_bytes says what it needs
} kvkeep_get_status;

typedef struct kvkeep_get_outcome {
  uint32_t status;  // kvkeep_get_status
  uint32_t metadata_bytes;
  uint64_t payload_bytes;  // of the whole chunk
  uint64_t bytes;          // delivered to the destination; 0 unless HIT
} kvkeep_get_outcome;

#define KVKEEP_GET_TRANSIENT 1u  // chunks promoted for it are the first to be evicted
#define KVKEEP_GET_NO_VERIFY 2u  // do not verify checksums in the client, too
#define KVKEEP_GET_NO_REMOTE 4u  // chunks beyond the node (G4) are misses at once

typedef struct kvkeep_get_request {
  uint32_t size;
  uint32_t deadline_ms;
  kvkeep_keys keys;
  const kvkeep_lease* lease;  // or NULL; keys must then be the lease's keys [first_key, ...)
  uint32_t first_key;
  uint32_t flags;
  uint32_t first_piece;  // range in pieces of 1 MiB, the same for every chunk
  uint32_t pieces;       // 0: to the end
  // Per chunk. Destinations of chunks that are not a HIT may hold anything afterwards.
  const kvkeep_buffer* destinations;
  kvkeep_get_outcome* outcomes;
  const kvkeep_buffer* metadata;  // or NULL: not wanted. A HIT whose metadata does not fit is
                                  // TOO_SMALL; KVKEEP_MAX_METADATA_BYTES always suffice
  uint64_t chunk_count;           // of these arrays: keys x parts
  // The number of `destinations` that each chunk fills, one after the other; NULL: one each. The
  // bytes for a buffer whose data is NULL are skipped.
  const uint32_t* run_counts;
  // Without a lease, chunks that the node does not have are searched for beyond it, for at most
  // this long and half of the deadline, and got once they have come. 0: 1 s; at most 10 s.
  uint32_t remote_wait_us;
  uint32_t reserved;
} kvkeep_get_request;

// Not OK: the call broke off; chunks whose outcome is not UNFINISHED are still good.
int kvkeep_get(kvkeep_client* client, const kvkeep_get_request* request, kvkeep_error* error);
int kvkeep_get_async(kvkeep_client* client, const kvkeep_get_request* request, kvkeep_queue* queue,
                     void* user_data, kvkeep_error* error);

// ---------------------------------------------------------------- put

typedef enum kvkeep_put_status {
  KVKEEP_PUT_UNFINISHED = 0,  // the call ended first; its code says why
  KVKEEP_PUT_STORED = 1,
  KVKEEP_PUT_PRESENT = 2,  // was present already, or another writer won: as good as stored
  KVKEEP_PUT_REJECTED = 3  // not stored, or not durable: the message says why, for the first one
} kvkeep_put_status;

typedef struct kvkeep_put_chunk {
  kvkeep_key key;
  kvkeep_key parent_key;  // the key before this one in its prefix, if has_parent
  uint32_t part;
  uint32_t has_parent;
  // The payload, gathered from one or several runs; 1 byte to 256 MiB.
  const kvkeep_const_buffer* runs;
  uint64_t run_count;
  const void* metadata;
  uint64_t metadata_bytes;  // at most KVKEEP_MAX_METADATA_BYTES
} kvkeep_put_chunk;

#define KVKEEP_PUT_DURABLE 1u    // answered after the chunks are on stable storage
#define KVKEEP_PUT_TRANSIENT 2u  // first to be evicted
#define KVKEEP_PUT_NO_G3 4u      // keep in DRAM only
#define KVKEEP_PUT_CHECKSUM 8u   // send a checksum, which the daemon checks

typedef struct kvkeep_put_request {
  uint32_t size;
  uint32_t deadline_ms;
  const kvkeep_namespace* ns;
  const kvkeep_put_chunk* chunks;
  uint32_t chunk_count;
  uint32_t flags;
  uint32_t* outcomes;  // kvkeep_put_status of each chunk
} kvkeep_put_request;

// The payload is read until the completion, in any memory; runs in staging or registered memory
// (below) reach the daemon without a copy by this process. OK says that every chunk has an outcome,
// not that it is stored; its message may say why the first rejected chunk was rejected.
int kvkeep_put(kvkeep_client* client, const kvkeep_put_request* request, kvkeep_error* error);
int kvkeep_put_async(kvkeep_client* client, const kvkeep_put_request* request, kvkeep_queue* queue,
                     void* user_data, kvkeep_error* error);

// ---------------------------------------------------------------- touch, prefetch, delete

typedef struct kvkeep_keys_request {
  uint32_t size;
  uint32_t deadline_ms;
  kvkeep_keys keys;
} kvkeep_keys_request;

typedef struct kvkeep_count_reply {
  uint32_t size;
  uint32_t reserved;
  uint64_t chunks;
} kvkeep_count_reply;

typedef struct kvkeep_prefetch_reply {
  uint32_t size;
  uint32_t reserved;
  uint64_t started_chunks;  // being read from G3 now
  uint64_t ready_chunks;    // in G2 already
} kvkeep_prefetch_reply;

// "Still hot in HBM": makes the chunks recently used. The reply says how many were there.
int kvkeep_touch(kvkeep_client* client, const kvkeep_keys_request* request,
                 kvkeep_count_reply* reply, kvkeep_error* error);
int kvkeep_touch_async(kvkeep_client* client, const kvkeep_keys_request* request,
                       kvkeep_count_reply* reply, kvkeep_queue* queue, void* user_data,
                       kvkeep_error* error);
int kvkeep_prefetch(kvkeep_client* client, const kvkeep_keys_request* request,
                    kvkeep_prefetch_reply* reply, kvkeep_error* error);
int kvkeep_prefetch_async(kvkeep_client* client, const kvkeep_keys_request* request,
                          kvkeep_prefetch_reply* reply, kvkeep_queue* queue, void* user_data,
                          kvkeep_error* error);
// The reply says how many chunks were deleted.
int kvkeep_delete(kvkeep_client* client, const kvkeep_keys_request* request,
                  kvkeep_count_reply* reply, kvkeep_error* error);
int kvkeep_delete_async(kvkeep_client* client, const kvkeep_keys_request* request,
                        kvkeep_count_reply* reply, kvkeep_queue* queue, void* user_data,
                        kvkeep_error* error);

// ------------------------------ in place: the local path only, FAILED_PRECONDITION on the other

// Leased chunks that are read in place, in the daemon's memory. As in any mapped memory, a page
// with an uncorrectable error raises SIGBUS in the thread that reads it. This can happen here, and
// in gets by the local path, which copy from there. The library handles no signal: a process that
// must not get SIGBUS takes the gRPC path (KVKEEP_PATH_GRPC).
typedef struct kvkeep_acquired kvkeep_acquired;

#define KVKEEP_ACQUIRE_ALL_PRESENT 1u  // lease every present chunk, not only the leading run
#define KVKEEP_ACQUIRE_TRANSIENT 2u    // chunks promoted for it are the first to be evicted

typedef struct kvkeep_acquire_request {
  uint32_t size;
  uint32_t deadline_ms;
  kvkeep_keys keys;
  uint32_t flags;
  uint32_t reserved;
} kvkeep_acquire_request;

typedef struct kvkeep_acquire_reply {
  uint32_t size;
  uint32_t leading_keys;  // as kvkeep_lookup_reply
  uint32_t leased_keys;
  uint32_t chunk_count;       // of kvkeep_acquired_chunks
  kvkeep_acquired* acquired;  // the caller's; NULL: nothing was leased
} kvkeep_acquire_reply;

int kvkeep_acquire(kvkeep_client* client, const kvkeep_acquire_request* request,
                   kvkeep_acquire_reply* reply, kvkeep_error* error);
int kvkeep_acquire_async(kvkeep_client* client, const kvkeep_acquire_request* request,
                         kvkeep_acquire_reply* reply, kvkeep_queue* queue, void* user_data,
                         kvkeep_error* error);
// Gives the lease back and ends the handle: nothing it showed may be read any more.
void kvkeep_acquired_release(kvkeep_acquired* acquired);

// One chunk. Its memory is read-only: a write is a SIGSEGV.
typedef struct kvkeep_chunk_view {
  uint32_t chunk;  // key * parts + part, within the request
  uint32_t run_count;
  uint64_t payload_bytes;
  const kvkeep_const_buffer* runs;      // the payload in order, nearly always one run
  const kvkeep_const_buffer* metadata;  // likewise; readable with the last piece
  uint32_t metadata_run_count;
  uint32_t reserved;
} kvkeep_chunk_view;

// Returns the leased chunks, in the order keys x parts: `chunk_count` views, which live as long as
// the handle. They can be read as far as kvkeep_acquired_ready says.
const kvkeep_chunk_view* kvkeep_acquired_chunks(const kvkeep_acquired* acquired);
// Returns how many pieces (1 MiB, the last one shorter) of chunk `index` can be read now, from the
// first: all of them for a chunk that was in G2. Makes no call to the daemon.
uint32_t kvkeep_acquired_ready(const kvkeep_acquired* acquired, uint32_t index);
// Waits until that many pieces can be read; UINT32_MAX: all. DATA_LOSS: the chunk is damaged or its
// device failed: a miss. FAILED_PRECONDITION: the lease is revoked.
int kvkeep_acquired_wait(const kvkeep_acquired* acquired, uint32_t index, uint32_t pieces,
                         uint32_t timeout_ms, kvkeep_error* error);
// Returns 1 if the bytes read so far are good; 0 once the daemon has revoked the lease (this
// process was stopped for long) or is gone. Call it after reading, before use.
int kvkeep_acquired_valid(const kvkeep_acquired* acquired);
// Returns 1 if chunk `index` is complete and matches its checksums, else 0.
int kvkeep_acquired_verify(const kvkeep_acquired* acquired, uint32_t index);

typedef struct kvkeep_copy_request {
  uint32_t size;
  uint32_t index;   // of the chunk
  uint64_t offset;  // in its payload
  const kvkeep_buffer* to;
  uint32_t to_count;
  uint32_t timeout_ms;  // for pieces that are not there yet
} kvkeep_copy_request;

// Copies the payload from `offset` on into the buffers, one after the other, each piece as soon as
// it is there. OUT_OF_RANGE: they need more bytes than there are. OK: the bytes are good, without a
// kvkeep_acquired_valid; not OK: the buffers may hold anything.
int kvkeep_acquired_copy(const kvkeep_acquired* acquired, const kvkeep_copy_request* request,
                         kvkeep_error* error);

// Memory shared with the daemon, to be filled and then named in kvkeep_put_chunk.runs.
typedef struct kvkeep_staging kvkeep_staging;

// RESOURCE_EXHAUSTED: no room now, or over the daemon's limit. End it with kvkeep_staging_free,
// when no put that names it is in flight.
int kvkeep_staging_allocate(kvkeep_client* client, uint64_t bytes, kvkeep_buffer* memory,
                            kvkeep_staging** out, kvkeep_error* error);
// Returns 1 if a put ended without an answer, and may still be read: do not change its bytes
// (freeing is safe). With a daemon of protocol 8 on our CLOCK_MONOTONIC: 0 after the put's
// deadline.
int kvkeep_staging_in_use(const kvkeep_staging* staging);
void kvkeep_staging_free(kvkeep_staging* staging);

// The caller's memfd or shm file, mapped from its beginning while the registration lives: runs of
// puts in `mapping` are read from the file itself. The descriptor stays the caller's. While the
// daemon is away puts are copied, and it is registered later. End it with kvkeep_memory_unregister.
typedef struct kvkeep_memory kvkeep_memory;
int kvkeep_memory_register(kvkeep_client* client, int fd, const void* mapping, uint64_t bytes,
                           kvkeep_memory** out, kvkeep_error* error);
// Registers memory that is written again once its put has ended and it is not in use, at the latest
// at the put's deadline. A daemon that cannot support it (kvkeep_staging_in_use) gets copies.
int kvkeep_memory_register_reused(kvkeep_client* client, int fd, const void* mapping,
                                  uint64_t bytes, kvkeep_memory** out, kvkeep_error* error);
int kvkeep_memory_in_use(const kvkeep_memory* memory);  // as kvkeep_staging_in_use
void kvkeep_memory_unregister(kvkeep_memory* memory);

// ---------------------------------------------------------------- the daemon

typedef struct kvkeep_server_info {
  uint32_t size;
  uint32_t reserved;
  uint64_t incarnation;
  uint64_t max_keys_per_call;  // limits; a longer call is several requests; 0: it did not say
  uint64_t max_parts_per_call;
  uint64_t max_payload_bytes;  // of a chunk: the daemon never stores a larger one
  uint64_t max_metadata_bytes;
  uint64_t max_leases_per_session;
  uint64_t max_leased_bytes;
  uint64_t max_sessions;
  char version[64];
  char state[32];      // "recovering", "serving", "draining" or "unknown"
  char features[256];  // names, separated by blanks
} kvkeep_server_info;

int kvkeep_get_server_info(kvkeep_client* client, uint32_t deadline_ms, kvkeep_server_info* info,
                           kvkeep_error* error);
int kvkeep_get_server_info_async(kvkeep_client* client, uint32_t deadline_ms,
                                 kvkeep_server_info* info, kvkeep_queue* queue, void* user_data,
                                 kvkeep_error* error);

#ifdef __cplusplus
}  // extern "C"
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
