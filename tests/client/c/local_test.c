// The local path from C, against a real daemon (daemon.py): chunks read in place, puts from staging
// and from a registered memfd.
#define _GNU_SOURCE
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/client/c/engine.h"

static kvkeep_client* client;
static kvkeep_error error;

static kvkeep_acquire_reply acquire(kvkeep_namespace* ns, const kvkeep_key* keys, uint32_t count,
                                    uint32_t flags) {
  kvkeep_acquire_request request = {
      .size = sizeof request, .keys = {ns, keys, count, 0, NULL}, .flags = flags};
  kvkeep_acquire_reply reply = {.size = sizeof reply};
  CHECK_CODE(kvkeep_acquire(client, &request, &reply, &error), KVKEEP_OK, &error);
  return reply;
}

// Compares a view with the payload of its number, in place.
static int shows(const kvkeep_chunk_view* view, uint32_t number, size_t bytes) {
  unsigned char* expected = payload_of(number, bytes);
  size_t at = 0;
  for (uint32_t i = 0; i < view->run_count; ++i) {
    if (at + view->runs[i].bytes > bytes) break;
    if (memcmp(expected + at, view->runs[i].data, view->runs[i].bytes) != 0) break;
    at += view->runs[i].bytes;
  }
  free(expected);
  return view->payload_bytes == bytes && at == bytes;
}

static void the_client_says_that_it_is_on_the_local_path(void) {
  kvkeep_path_info info = {.size = sizeof info};
  CHECK_CODE(kvkeep_client_path(client, &info, &error), KVKEEP_OK, &error);
  CHECK(info.path == KVKEEP_PATH_LOCAL && strncmp(info.why, "local: ", 7) == 0);
}

static void chunks_are_read_in_place_and_copied_out(void) {
  enum { kBytes = (2 << 20) + 321 };
  kvkeep_namespace* ns = open_namespace(client, "in place", 1);
  kvkeep_key keys[4];
  for (uint32_t i = 0; i < 4; ++i) {
    keys[i] = key_of(i);
    if (i != 2) put_numbered(client, ns, i, kBytes + i);
  }
  kvkeep_acquire_reply reply = acquire(ns, keys, 4, 0);
  CHECK(reply.leading_keys == 2 && reply.leased_keys == 2 && reply.chunk_count == 2);
  const kvkeep_chunk_view* chunks = kvkeep_acquired_chunks(reply.acquired);
  for (uint32_t i = 0; i < 2; ++i) {
    CHECK_CODE(kvkeep_acquired_wait(reply.acquired, i, UINT32_MAX, 20000, &error), KVKEEP_OK,
               &error);
    CHECK(chunks[i].chunk == i && kvkeep_acquired_ready(reply.acquired, i) == 3);
    CHECK(shows(&chunks[i], i, kBytes + i) && kvkeep_acquired_verify(reply.acquired, i));
  }
  CHECK(kvkeep_acquired_valid(reply.acquired));
  kvkeep_acquired_release(reply.acquired);

  reply = acquire(ns, keys, 4, KVKEEP_ACQUIRE_ALL_PRESENT);
  CHECK(reply.leading_keys == 2 && reply.chunk_count == 3);
  chunks = kvkeep_acquired_chunks(reply.acquired);
  CHECK(chunks[2].chunk == 3 && shows(&chunks[2], 3, kBytes + 3));
  kvkeep_acquired_release(reply.acquired);

  const kvkeep_key missing = key_of(2);
  reply = acquire(ns, &missing, 1, 0);
  CHECK(reply.leading_keys == 0 && reply.chunk_count == 0 && reply.acquired == NULL);
  kvkeep_namespace_close(ns);
}

static void copies_go_into_the_callers_buffers_across_pieces(void) {
  enum { kBytes = (2 << 20) + 321, kOffset = (1 << 20) - 5 };
  kvkeep_namespace* ns = open_namespace(client, "copies", 1);
  const kvkeep_key key = key_of(7);
  put_numbered(client, ns, 7, kBytes);
  kvkeep_acquire_reply reply = acquire(ns, &key, 1, 0);
  unsigned char* expected = payload_of(7, kBytes);
  static unsigned char first[100], second[kBytes];
  const kvkeep_buffer to[] = {{first, sizeof first}, {NULL, 0}, {second, kBytes - kOffset - 100}};
  kvkeep_copy_request copy = {
      .size = sizeof copy, .offset = kOffset, .to = to, .to_count = 3, .timeout_ms = 20000};
  CHECK_CODE(kvkeep_acquired_copy(reply.acquired, &copy, &error), KVKEEP_OK, &error);
  CHECK(memcmp(first, expected + kOffset, 100) == 0);
  CHECK(memcmp(second, expected + kOffset + 100, kBytes - kOffset - 100) == 0);
  copy.offset += 1;
  CHECK_CODE(kvkeep_acquired_copy(reply.acquired, &copy, &error), KVKEEP_OUT_OF_RANGE, &error);
  copy.offset = UINT64_MAX;
  CHECK_CODE(kvkeep_acquired_copy(reply.acquired, &copy, &error), KVKEEP_OUT_OF_RANGE, &error);
  copy.index = 1;
  CHECK_CODE(kvkeep_acquired_copy(reply.acquired, &copy, &error), KVKEEP_INVALID_ARGUMENT, &error);
  CHECK_CODE(kvkeep_acquired_wait(reply.acquired, 1, 1, 0, &error), KVKEEP_INVALID_ARGUMENT,
             &error);
  CHECK(kvkeep_acquired_ready(reply.acquired, 1) == 0);
  CHECK(kvkeep_acquired_verify(reply.acquired, 1) == 0);
  free(expected);
  kvkeep_acquired_release(reply.acquired);
  kvkeep_namespace_close(ns);
}

// Puts `run`, which holds the payload of `number`, and reads it back in place.
static void put_and_compare(kvkeep_namespace* ns, uint32_t number, const void* data, size_t bytes) {
  const kvkeep_const_buffer run = {data, bytes};
  const kvkeep_key key = key_of(number);
  const kvkeep_put_chunk chunk = {
      .key = key, .runs = &run, .run_count = 1, .metadata = "tail", .metadata_bytes = 4};
  uint32_t outcome;
  kvkeep_put_request put = {
      .size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &outcome};
  CHECK_CODE(kvkeep_put(client, &put, &error), KVKEEP_OK, &error);
  CHECK_CODE(outcome, KVKEEP_PUT_STORED, &error);
  kvkeep_acquire_reply reply = acquire(ns, &key, 1, 0);
  CHECK(reply.chunk_count == 1);
  const kvkeep_chunk_view* view = kvkeep_acquired_chunks(reply.acquired);
  CHECK(shows(view, number, bytes) && kvkeep_acquired_verify(reply.acquired, 0));
  CHECK(view->metadata_run_count == 1 && view->metadata[0].bytes == 4);
  CHECK(memcmp(view->metadata[0].data, "tail", 4) == 0);
  kvkeep_acquired_release(reply.acquired);
}

static void a_put_from_staging_memory_arrives(void) {
  enum { kBytes = 3 << 20 };
  kvkeep_namespace* ns = open_namespace(client, "staging", 1);
  kvkeep_staging* staging = NULL;
  kvkeep_buffer room = {NULL, 0};
  CHECK_CODE(kvkeep_staging_allocate(client, kBytes, &room, &staging, &error), KVKEEP_OK, &error);
  CHECK(staging != NULL && room.data != NULL && room.bytes >= kBytes);
  fill(room.data, kBytes, 1);
  put_and_compare(ns, 1, room.data, kBytes);
  CHECK(kvkeep_staging_in_use(staging) == 0);
  kvkeep_staging_free(staging);
  CHECK_CODE(kvkeep_staging_allocate(client, 1ull << 50, &room, &staging, &error),
             KVKEEP_RESOURCE_EXHAUSTED, &error);
  CHECK(staging == NULL);
  kvkeep_namespace_close(ns);
}

static void a_put_from_a_registered_memfd_arrives(void) {
  enum { kBytes = 3 << 20 };
  kvkeep_namespace* ns = open_namespace(client, "memfd", 1);
  const int fd = memfd_create("test", MFD_CLOEXEC);
  CHECK(fd >= 0 && ftruncate(fd, kBytes) == 0);
  unsigned char* mapping = mmap(NULL, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(mapping != MAP_FAILED);
  kvkeep_memory* memory = NULL;
  CHECK_CODE(kvkeep_memory_register(client, fd, mapping, kBytes, &memory, &error), KVKEEP_OK,
             &error);
  fill(mapping + 4096, 1 << 20, 5);
  put_and_compare(ns, 5, mapping + 4096, 1 << 20);
  CHECK(kvkeep_memory_in_use(memory) == 0);
  kvkeep_memory_unregister(memory);
  munmap(mapping, kBytes);
  close(fd);
  kvkeep_namespace_close(ns);
}

static void acquires_complete_by_the_event_fd(void) {
  enum { kCalls = 200 };
  kvkeep_namespace* ns = open_namespace(client, "async", 1);
  put_numbered(client, ns, 1, 10000);
  kvkeep_queue* queue = NULL;
  CHECK_CODE(kvkeep_queue_create(kCalls, &queue, &error), KVKEEP_OK, &error);
  const kvkeep_key key = key_of(1);
  kvkeep_acquire_request request = {.size = sizeof request, .keys = {ns, &key, 1, 0, NULL}};
  static kvkeep_acquire_reply replies[kCalls];
  for (int i = 0; i < kCalls; ++i) {
    replies[i].size = sizeof replies[i];
    CHECK_CODE(kvkeep_acquire_async(client, &request, &replies[i], queue, &replies[i], &error),
               KVKEEP_OK, &error);
  }
  int seen = 0;
  while (seen < kCalls) {
    kvkeep_completion ended[16];
    struct pollfd ready = {.fd = kvkeep_queue_fd(queue), .events = POLLIN};
    CHECK(poll(&ready, 1, 20000) == 1);
    const uint32_t taken = kvkeep_queue_poll(queue, ended, 16);
    for (uint32_t i = 0; i < taken; ++i, ++seen) {
      CHECK_CODE(ended[i].error.code, KVKEEP_OK, &ended[i].error);
      CHECK(ended[i].op == KVKEEP_OP_ACQUIRE);
      const kvkeep_acquire_reply* reply = ended[i].user_data;
      CHECK(shows(kvkeep_acquired_chunks(reply->acquired), 1, 10000));
      kvkeep_acquired_release(reply->acquired);
    }
  }
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_OK);
  kvkeep_namespace_close(ns);
}

static void what_is_in_place_may_outlive_the_client(void) {
  kvkeep_client* doomed = connect_by(KVKEEP_PATH_LOCAL, endpoint());
  kvkeep_namespace* ns = open_namespace(doomed, "outlive", 1);
  put_numbered(doomed, ns, 1, 4096);
  kvkeep_client* const kept = client;
  client = doomed;
  const kvkeep_key key = key_of(1);
  kvkeep_acquire_reply reply = acquire(ns, &key, 1, 0);
  client = kept;
  kvkeep_staging* staging = NULL;
  kvkeep_buffer room;
  CHECK_CODE(kvkeep_staging_allocate(doomed, 4096, &room, &staging, &error), KVKEEP_OK, &error);
  kvkeep_client_destroy(doomed);
  CHECK(kvkeep_acquired_valid(reply.acquired) == 0);
  const volatile unsigned char* bytes = kvkeep_acquired_chunks(reply.acquired)->runs[0].data;
  (void)bytes[0];  // still mapped
  memset(room.data, 1, 4096);
  kvkeep_copy_request copy = {.size = sizeof copy};
  CHECK_CODE(kvkeep_acquired_copy(reply.acquired, &copy, &error), KVKEEP_FAILED_PRECONDITION,
             &error);
  kvkeep_acquired_release(reply.acquired);
  kvkeep_staging_free(staging);
  kvkeep_namespace_close(ns);
}

int main(void) {
  client = connect_by(KVKEEP_PATH_LOCAL, endpoint());
  CHECK(kvkeep_wait_connected(client, 20000));
  static const test_case tests[] = {
      {"the client says that it is on the local path",
       the_client_says_that_it_is_on_the_local_path},
      {"chunks are read in place and copied out", chunks_are_read_in_place_and_copied_out},
      {"copies go into the caller's buffers, across pieces",
       copies_go_into_the_callers_buffers_across_pieces},
      {"a put from staging memory arrives", a_put_from_staging_memory_arrives},
      {"a put from a registered memfd arrives", a_put_from_a_registered_memfd_arrives},
      {"acquires complete by the event fd", acquires_complete_by_the_event_fd},
      {"what is in place may outlive the client", what_is_in_place_may_outlive_the_client},
  };
  const int status = RUN_TESTS(tests);
  kvkeep_client_destroy(client);
  return status;
}
