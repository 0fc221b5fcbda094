// GPU memory from C, against a real daemon (daemon.py), both on the fake driver (tests/fakes/cuda):
// its device memory is a memfd at its own address, so a test reads and writes it as its own.
#define _GNU_SOURCE
#include <cuda.h>
#include <kvkeep_kv.h>
#include <kvkeep_pin.h>
#include <poll.h>
#include <stddef.h>

#include "tests/client/c/engine.h"

enum { kBlock = 64 << 10, kMemory = 4 << 20 };

static kvkeep_client* client;
static kvkeep_error error;

static void must(CUresult result) { CHECK(result == CUDA_SUCCESS); }

static void use_the_gpu(void) {
  CUdevice device;
  CUcontext context;
  must(cuInit(0));
  must(cuDeviceGet(&device, 0));
  must(cuDevicePrimaryCtxRetain(&context, device));
  must(cuCtxSetCurrent(context));
}

typedef struct memory {
  CUdeviceptr address;
  kvkeep_gpu_region* region;
  uint64_t id;
} memory;

static unsigned char* block_at(memory of, uint64_t number) {
  return (unsigned char*)(uintptr_t)of.address + number * kBlock;
}

static kvkeep_gpu_run run_of(memory of, uint64_t number) {
  return (kvkeep_gpu_run){of.id, number * kBlock, kBlock};
}

static memory register_memory(kvkeep_client* with) {
  memory made = {0, NULL, 0};
  must(cuMemAlloc(&made.address, kMemory));
  memset(block_at(made, 0), 0, kMemory);
  // As a caller has it that was built before there were flags.
  kvkeep_gpu_range range = {
      .size = offsetof(kvkeep_gpu_range, flags), .address = made.address, .bytes = kMemory};
  CHECK_CODE(kvkeep_gpu_register(with, &range, &made.region, &error), KVKEEP_OK, &error);
  made.id = kvkeep_gpu_region_id(made.region);
  CHECK(made.region != NULL && made.id != 0);
  CHECK_CODE(kvkeep_gpu_region_usable(made.region, &error), KVKEEP_OK, &error);
  return made;
}

// The fake driver ends the process where memory is freed that the daemon has open.
static void unregister_memory(memory of) {
  CHECK(kvkeep_gpu_region_in_use(of.region) == 0);
  CHECK_CODE(kvkeep_gpu_unregister(of.region, 20000, &error), KVKEEP_OK, &error);
  CHECK(kvkeep_gpu_region_usable(of.region, &error) == KVKEEP_FAILED_PRECONDITION);
  must(cuMemFree(of.address));
  kvkeep_gpu_region_free(of.region);
}

static kvkeep_gpu_stats stats_of(const kvkeep_client* of) {
  kvkeep_gpu_stats stats = {.size = sizeof stats};
  CHECK_CODE(kvkeep_gpu_get_stats(of, &stats, &error), KVKEEP_OK, &error);
  return stats;
}

static void runs_are_put_and_come_back_into_other_runs(void) {
  kvkeep_namespace* ns = open_namespace(client, "runs", 1);
  memory kv = register_memory(client);
  fill(block_at(kv, 3), kBlock, 1);
  fill(block_at(kv, 9), kBlock, 2);
  const kvkeep_gpu_stats before = stats_of(client);
  const kvkeep_gpu_run from[] = {run_of(kv, 3), run_of(kv, 9)};
  const kvkeep_gpu_put_chunk chunk = {
      .key = key_of(1), .runs = from, .run_count = 2, .metadata = "tail", .metadata_bytes = 4};
  uint32_t stored = 77;
  kvkeep_gpu_put_request put = {
      .size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &stored};
  CHECK_CODE(kvkeep_gpu_put(client, &put, &error), KVKEEP_OK, &error);
  CHECK_CODE(stored, KVKEEP_PUT_STORED, &error);

  const kvkeep_gpu_run to[] = {run_of(kv, 40), run_of(kv, 20)};
  const kvkeep_gpu_get_chunk wanted[] = {{.key = key_of(1), .runs = to, .run_count = 2},
                                         {.key = key_of(2), .runs = to, .run_count = 2}};
  kvkeep_get_outcome got[2];
  char text[16], none[16];
  const kvkeep_buffer texts[] = {{text, sizeof text}, {none, sizeof none}};
  kvkeep_gpu_get_request get = {.size = sizeof get,
                                .ns = ns,
                                .chunks = wanted,
                                .chunk_count = 2,
                                .outcomes = got,
                                .metadata = texts};
  CHECK_CODE(kvkeep_gpu_get(client, &get, &error), KVKEEP_OK, &error);
  CHECK(got[0].status == KVKEEP_GET_HIT && got[0].bytes == 2 * kBlock);
  CHECK(got[0].metadata_bytes == 4 && memcmp(text, "tail", 4) == 0);
  CHECK(got[1].status == KVKEEP_GET_MISS && got[1].bytes == 0);
  CHECK(is_payload(block_at(kv, 40), kBlock, 1) && is_payload(block_at(kv, 20), kBlock, 2));
  const kvkeep_gpu_stats after = stats_of(client);
  CHECK(after.bytes_put - before.bytes_put == 2 * kBlock);
  CHECK(after.bytes_got - before.bytes_got == 2 * kBlock);

  // The same chunk, by the calls for host memory.
  kvkeep_key key = key_of(1);
  unsigned char* back = malloc(2 * kBlock);
  const kvkeep_buffer room = {back, 2 * kBlock};
  kvkeep_get_request host = {.size = sizeof host,
                             .keys = {ns, &key, 1, 0, NULL},
                             .destinations = &room,
                             .outcomes = got,
                             .chunk_count = 1};
  CHECK_CODE(kvkeep_get(client, &host, &error), KVKEEP_OK, &error);
  CHECK(got[0].status == KVKEEP_GET_HIT && is_payload(back, kBlock, 1));
  CHECK(is_payload(back + kBlock, kBlock, 2));
  free(back);
  unregister_memory(kv);
  kvkeep_namespace_close(ns);
}

static void calls_complete_by_the_event_fd(void) {
  enum { kCalls = 16 };
  kvkeep_namespace* ns = open_namespace(client, "async", 1);
  memory kv = register_memory(client);
  kvkeep_queue* queue = NULL;
  CHECK_CODE(kvkeep_queue_create(2 * kCalls, &queue, &error), KVKEEP_OK, &error);
  static kvkeep_gpu_run runs[2 * kCalls];
  static uint32_t stored[kCalls];
  static kvkeep_get_outcome got[kCalls];
  for (int ways = 0; ways < 2; ++ways) {
    for (uint32_t i = 0; i < kCalls; ++i) {
      runs[i] = run_of(kv, i + (ways == 1 ? kCalls : 0));
      if (ways == 0) {
        fill(block_at(kv, i), kBlock, i);
        const kvkeep_gpu_put_chunk chunk = {.key = key_of(i), .runs = &runs[i], .run_count = 1};
        kvkeep_gpu_put_request put = {.size = sizeof put,
                                      .ns = ns,
                                      .chunks = &chunk,
                                      .chunk_count = 1,
                                      .outcomes = &stored[i]};
        CHECK_CODE(kvkeep_gpu_put_async(client, &put, queue, &stored[i], &error), KVKEEP_OK,
                   &error);
      } else {
        const kvkeep_gpu_get_chunk chunk = {.key = key_of(i), .runs = &runs[i], .run_count = 1};
        kvkeep_gpu_get_request get = {
            .size = sizeof get, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &got[i]};
        CHECK_CODE(kvkeep_gpu_get_async(client, &get, queue, &got[i], &error), KVKEEP_OK, &error);
      }
    }
    for (uint32_t seen = 0; seen < kCalls;) {
      kvkeep_completion ended[4];
      struct pollfd ready = {.fd = kvkeep_queue_fd(queue), .events = POLLIN};
      CHECK(poll(&ready, 1, 20000) == 1);
      const uint32_t taken = kvkeep_queue_poll(queue, ended, 4);
      for (uint32_t i = 0; i < taken; ++i, ++seen) {
        CHECK_CODE(ended[i].error.code, KVKEEP_OK, &ended[i].error);
        CHECK(ended[i].op == (uint32_t)(ways == 0 ? KVKEEP_OP_GPU_PUT : KVKEEP_OP_GPU_GET));
      }
    }
  }
  for (uint32_t i = 0; i < kCalls; ++i) {
    CHECK(stored[i] == KVKEEP_PUT_STORED && got[i].status == KVKEEP_GET_HIT);
    CHECK(is_payload(block_at(kv, kCalls + i), kBlock, i));
  }
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_OK);
  unregister_memory(kv);
  kvkeep_namespace_close(ns);
}

static void what_is_no_run_of_ours_is_refused(void) {
  kvkeep_namespace* ns = open_namespace(client, "refused", 1);
  memory kv = register_memory(client);
  kvkeep_gpu_run run = {kv.id, kMemory - 1, 2};
  kvkeep_gpu_put_chunk chunk = {.key = key_of(1), .runs = &run, .run_count = 1};
  uint32_t stored;
  kvkeep_gpu_put_request put = {
      .size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &stored};
#define REFUSED(call, words)                           \
  do {                                                 \
    CHECK_CODE(call, KVKEEP_INVALID_ARGUMENT, &error); \
    CHECK(strstr(error.message, words) != NULL);       \
  } while (0)
  REFUSED(kvkeep_gpu_put(client, &put, &error), "runs: 2 bytes at 4194303");
  run = (kvkeep_gpu_run){kv.id, UINT64_MAX, 2};
  REFUSED(kvkeep_gpu_put(client, &put, &error), "runs: 2 bytes at");
  run = (kvkeep_gpu_run){kv.id + 1000, 0, kBlock};
  REFUSED(kvkeep_gpu_put(client, &put, &error), "is not registered");
  run = run_of(kv, 0);
  put.flags = KVKEEP_PUT_CHECKSUM;
  REFUSED(kvkeep_gpu_put(client, &put, &error), "flags");
  put.flags = 0;
  chunk.run_count = KVKEEP_MAX_GPU_RUNS + 1;
  REFUSED(kvkeep_gpu_put(client, &put, &error), "chunks[0].run_count");
  chunk.run_count = 1;
  chunk.runs = NULL;
  REFUSED(kvkeep_gpu_put(client, &put, &error), "chunks[0].runs");
  put.chunks = NULL;
  REFUSED(kvkeep_gpu_put(client, &put, &error), "chunks: NULL");
  put.size = 4;
  REFUSED(kvkeep_gpu_put(client, &put, &error), "request.size");

  kvkeep_gpu_range range = {.size = sizeof range, .address = kv.address, .bytes = kMemory + 1};
  kvkeep_gpu_region* region = (kvkeep_gpu_region*)&error;
  REFUSED(kvkeep_gpu_register(client, &range, &region, &error), "");
  CHECK(region == NULL);
  range = (kvkeep_gpu_range){.size = sizeof range, .address = (uintptr_t)&range, .bytes = 4096};
  CHECK(kvkeep_gpu_register(client, &range, &region, &error) != KVKEEP_OK && region == NULL);
  range.address = 0;
  REFUSED(kvkeep_gpu_register(client, &range, &region, &error), "address");
  range = (kvkeep_gpu_range){
      .size = sizeof range, .address = kv.address, .bytes = kMemory, .driver = "libno-such.so"};
  CHECK_CODE(kvkeep_gpu_register(client, &range, &region, &error), KVKEEP_NOT_FOUND, &error);
  CHECK(kvkeep_gpu_region_id(NULL) == 0 && kvkeep_gpu_region_in_use(NULL) == 0);
  REFUSED(kvkeep_gpu_region_usable(NULL, &error), "region");
  REFUSED(kvkeep_gpu_unregister(NULL, 0, &error), "region");
  unregister_memory(kv);

  // Its number means nothing from then on.
  put = (kvkeep_gpu_put_request){
      .size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &stored};
  chunk.runs = &run;
  REFUSED(kvkeep_gpu_put(client, &put, &error), "is not registered");
  kvkeep_namespace_close(ns);
}

static void over_grpc_it_says_that_there_is_no_gpu_path(void) {
  kvkeep_client* remote = connect_by(KVKEEP_PATH_GRPC, endpoint());
  CUdeviceptr address;
  must(cuMemAlloc(&address, kMemory));
  kvkeep_gpu_range range = {.size = sizeof range, .address = address, .bytes = kMemory};
  kvkeep_gpu_region* region = NULL;
  CHECK_CODE(kvkeep_gpu_register(remote, &range, &region, &error), KVKEEP_FAILED_PRECONDITION,
             &error);
  CHECK(error.message[0] != '\0');
  kvkeep_pin_request pin = {.size = sizeof pin};
  kvkeep_pinned_arena* arena = NULL;
  CHECK_CODE(kvkeep_arena_pin(remote, &pin, &arena, &error), KVKEEP_FAILED_PRECONDITION, &error);
  CHECK(region == NULL && arena == NULL && stats_of(remote).registered == 0);
  must(cuMemFree(address));
  kvkeep_client_destroy(remote);
}

static void a_region_may_outlive_its_client(void) {
  kvkeep_client* doomed = connect_by(KVKEEP_PATH_LOCAL, endpoint());
  memory kv = register_memory(doomed);
  kvkeep_client_destroy(doomed);
  // The daemon lives, and may still be closing it: the memory stays.
  CHECK_CODE(kvkeep_gpu_unregister(kv.region, 0, &error), KVKEEP_UNAVAILABLE, &error);
  kvkeep_gpu_region_free(kv.region);
}

static void the_arena_is_pinned_and_covers_what_was_acquired(void) {
  kvkeep_namespace* ns = open_namespace(client, "pinned", 1);
  put_numbered(client, ns, 1, kBlock);
  kvkeep_pin_request pin = {.size = sizeof pin};
  kvkeep_pinned_arena* arena = NULL;
  CHECK_CODE(kvkeep_arena_pin(client, &pin, &arena, &error), KVKEEP_OK, &error);
  CHECK_CODE(kvkeep_pinned_arena_wait(arena, 20000, &error), KVKEEP_OK, &error);
  kvkeep_pin_stats stats = {.size = sizeof stats};
  CHECK_CODE(kvkeep_pinned_arena_stats(arena, &stats, &error), KVKEEP_OK, &error);
  CHECK(stats.finished == 1 && stats.pinned_bytes > 0 && stats.refused_bytes == 0);
  CHECK(stats.first_refusal.code == KVKEEP_OK);
  const kvkeep_key key = key_of(1);
  kvkeep_acquire_request request = {.size = sizeof request, .keys = {ns, &key, 1, 0, NULL}};
  kvkeep_acquire_reply reply = {.size = sizeof reply};
  CHECK_CODE(kvkeep_acquire(client, &request, &reply, &error), KVKEEP_OK, &error);
  const kvkeep_const_buffer run = kvkeep_acquired_chunks(reply.acquired)->runs[0];
  CHECK(kvkeep_pinned_arena_covers(arena, run.data, run.bytes) == 1);
  CHECK(kvkeep_pinned_arena_covers(arena, &stats, sizeof stats) == 0);
  kvkeep_acquired_release(reply.acquired);
  kvkeep_pinned_arena_free(arena);
  pin.device = 7;
  CHECK_CODE(kvkeep_arena_pin(client, &pin, &arena, &error), KVKEEP_NOT_FOUND, &error);
  CHECK(arena == NULL);
  pin.device = UINT32_MAX;
  REFUSED(kvkeep_arena_pin(client, &pin, &arena, &error), "device");
  kvkeep_namespace_close(ns);
}

int main(void) {
  use_the_gpu();
  client = connect_by(KVKEEP_PATH_LOCAL, endpoint());
  CHECK(kvkeep_wait_connected(client, 20000));
  static const test_case tests[] = {
      {"runs are put, and come back into other runs", runs_are_put_and_come_back_into_other_runs},
      {"calls complete by the event fd", calls_complete_by_the_event_fd},
      {"what is no run of ours is refused", what_is_no_run_of_ours_is_refused},
      {"over gRPC it says that there is no GPU path", over_grpc_it_says_that_there_is_no_gpu_path},
      {"a region may outlive its client", a_region_may_outlive_its_client},
      {"the arena is pinned, and covers what was acquired",
       the_arena_is_pinned_and_covers_what_was_acquired},
  };
  const int status = RUN_TESTS(tests);
  kvkeep_client_destroy(client);
  return status;
}
