// What a caller can say wrong, and a daemon that is away. No daemon runs here.
#define _GNU_SOURCE
#include <poll.h>
#include <stddef.h>
#include <time.h>

#include "tests/client/c/engine.h"

static kvkeep_client* client;
static kvkeep_namespace* ns;
static kvkeep_error error;

// A path that nobody listens at.
#define NOWHERE "unix:///nonexistent/kvkeep.sock"

#define REFUSED(call, field)                                    \
  do {                                                          \
    memset(&error, 0x55, sizeof error);                         \
    CHECK_CODE(call, KVKEEP_INVALID_ARGUMENT, &error);          \
    CHECK(error.code == KVKEEP_INVALID_ARGUMENT);               \
    if (strstr(error.message, field) == NULL)                   \
      check_failed(__FILE__, __LINE__, "names " field, &error); \
  } while (0)

static kvkeep_key keys[4];

static kvkeep_keys four_keys(void) {
  kvkeep_keys four = {ns, keys, 4, 0, NULL};
  return four;
}

static void options_are_checked_and_named(void) {
  kvkeep_client* out = (kvkeep_client*)&error;
  kvkeep_client_options options = {.size = sizeof options, .endpoint = NOWHERE};
  REFUSED(kvkeep_connect(NULL, &out, &error), "options");
  CHECK(out == NULL);
  REFUSED(kvkeep_connect(&options, NULL, &error), "out");
  options.size = 0;
  REFUSED(kvkeep_connect(&options, &out, &error), "options.size");
  options.size = 4097;
  REFUSED(kvkeep_connect(&options, &out, &error), "options.size");
  options.size = sizeof options;
  options.endpoint = NULL;
  REFUSED(kvkeep_connect(&options, &out, &error), "endpoint");
  options.endpoint = NOWHERE;
  options.backoff_min_ms = 100;
  options.backoff_max_ms = 10;
  REFUSED(kvkeep_connect(&options, &out, &error), "backoff");
  options.backoff_max_ms = 0;
  options.path = 3;
  REFUSED(kvkeep_connect(&options, &out, &error), "path");
  CHECK(kvkeep_connect(NULL, &out, NULL) == KVKEEP_INVALID_ARGUMENT);
}

static void a_larger_struct_is_taken_when_what_is_new_is_zero(void) {
  struct {
    kvkeep_client_options known;
    uint64_t new_field;
  } newer = {.known = {.size = sizeof newer, .endpoint = NOWHERE}};
  kvkeep_client* out = NULL;
  newer.new_field = 1;
  REFUSED(kvkeep_connect(&newer.known, &out, &error), "options");
  newer.new_field = 0;
  CHECK_CODE(kvkeep_connect(&newer.known, &out, &error), KVKEEP_OK, &error);
  struct {
    kvkeep_client_stats known;
    uint64_t new_field;
  } stats = {.known = {.size = sizeof stats, .calls = 99}, .new_field = 99};
  CHECK_CODE(kvkeep_stats(out, &stats.known, &error), KVKEEP_OK, &error);
  CHECK(stats.known.size == sizeof stats && stats.known.calls == 0 && stats.new_field == 0);
  kvkeep_client_destroy(out);
}

static void a_struct_of_the_first_version_is_taken_and_what_came_since_is_not_looked_at(void) {
  kvkeep_client_options older = {.endpoint = NOWHERE, .key_file = "beyond what it knows"};
  kvkeep_client* out = NULL;
  older.size = offsetof(kvkeep_client_options, ca_file);
  CHECK_CODE(kvkeep_connect(&older, &out, &error), KVKEEP_OK, &error);
  kvkeep_client_destroy(out);
  older.size -= 1;
  REFUSED(kvkeep_connect(&older, &out, &error), "options.size");
  older.size = sizeof older;
  REFUSED(kvkeep_connect(&older, &out, &error), "key_file");
  // With the daemon away what is well-formed is taken.
  kvkeep_namespace* ns = NULL;
  kvkeep_namespace_spec spec = {.model = "old", .tokens_per_chunk = 1, .tenant = (const char*)1};
  spec.size = offsetof(kvkeep_namespace_spec, tenant);
  CHECK_CODE(kvkeep_namespace_open(client, &spec, 0, &ns, &error), KVKEEP_OK, &error);
  kvkeep_namespace_close(ns);
  spec.size -= 1;
  REFUSED(kvkeep_namespace_open(client, &spec, 0, &ns, &error), "spec.size");
}

static void specs_are_checked_and_named(void) {
  kvkeep_namespace* out = NULL;
  kvkeep_namespace_spec spec = {.size = sizeof spec, .model = "m", .tokens_per_chunk = 1};
  REFUSED(kvkeep_namespace_open(NULL, &spec, 0, &out, &error), "client");
  REFUSED(kvkeep_namespace_open(client, NULL, 0, &out, &error), "spec");
  REFUSED(kvkeep_namespace_open(client, &spec, 0, NULL, &error), "out");
  spec.model = NULL;
  REFUSED(kvkeep_namespace_open(client, &spec, 0, &out, &error), "model");
  spec.model = "m";
  spec.tokens_per_chunk = 0;
  REFUSED(kvkeep_namespace_open(client, &spec, 0, &out, &error), "tokens_per_chunk");
}

static void keys_of_every_call_are_checked_and_named(void) {
  kvkeep_keys_request request = {.size = sizeof request, .keys = four_keys()};
  kvkeep_count_reply count = {.size = sizeof count, .chunks = 5};
  kvkeep_prefetch_reply prefetch = {.size = sizeof prefetch};
  REFUSED(kvkeep_touch(NULL, &request, &count, &error), "client");
  REFUSED(kvkeep_touch(client, NULL, &count, &error), "request");
  REFUSED(kvkeep_delete(client, &request, NULL, &error), "reply");
  REFUSED(kvkeep_prefetch(client, &request, NULL, &error), "reply");
  count.size = 3;
  REFUSED(kvkeep_delete(client, &request, &count, &error), "reply.size");
  count.size = sizeof count;
  request.keys.ns = NULL;
  REFUSED(kvkeep_touch(client, &request, &count, &error), "keys.ns");
  request.keys = four_keys();
  request.keys.keys = NULL;
  REFUSED(kvkeep_delete(client, &request, &count, &error), "keys.keys");
  request.keys = four_keys();
  request.keys.key_count = 0;
  REFUSED(kvkeep_prefetch(client, &request, &prefetch, &error), "keys.key_count");
  request.keys = four_keys();
  request.keys.part_count = 1;
  REFUSED(kvkeep_touch(client, &request, &count, &error), "keys.parts");
  CHECK(count.chunks == 5);  // a refused call writes no reply
}

static void lookups_are_checked_and_named(void) {
  uint8_t presence[4];
  kvkeep_lookup_request request = {
      .size = sizeof request, .keys = four_keys(), .presence = presence, .presence_bytes = 3};
  kvkeep_lookup_reply reply = {.size = sizeof reply};
  REFUSED(kvkeep_lookup(client, &request, &reply, &error), "presence_bytes");
  request.presence_bytes = 4;
  request.lease_mode = 3;
  REFUSED(kvkeep_lookup(client, &request, &reply, &error), "lease_mode");
  request.lease_mode = 0;
  REFUSED(kvkeep_lookup(client, &request, NULL, &error), "reply");
  REFUSED(kvkeep_release(client, NULL, &error), "lease");
}

static void gets_are_checked_and_named(void) {
  char room[4][8];
  kvkeep_buffer to[4];
  kvkeep_get_outcome outcomes[4];
  for (int i = 0; i < 4; ++i) {
    to[i].data = room[i];
    to[i].bytes = sizeof room[i];
  }
  const kvkeep_get_request good = {.size = sizeof good,
                                   .keys = four_keys(),
                                   .destinations = to,
                                   .outcomes = outcomes,
                                   .chunk_count = 4};
  kvkeep_get_request request = good;
  request.chunk_count = 3;
  REFUSED(kvkeep_get(client, &request, &error), "chunk_count");
  request = good;
  request.destinations = NULL;
  REFUSED(kvkeep_get(client, &request, &error), "destinations");
  request = good;
  request.outcomes = NULL;
  REFUSED(kvkeep_get(client, &request, &error), "outcomes");
  request = good;
  request.flags = 8;
  REFUSED(kvkeep_get(client, &request, &error), "flags");
  request = good;
  to[2].data = NULL;
  REFUSED(kvkeep_get(client, &request, &error), "destinations[2].data");
  const uint32_t run_counts[4] = {1, 0, 65537, 1};
  request.run_counts = run_counts;
  REFUSED(kvkeep_get(client, &request, &error), "run_counts[2]");
  request.run_counts = NULL;
  to[2].data = room[2];
  kvkeep_buffer metadata[4] = {{room[0], 8}, {NULL, 8}, {NULL, 0}, {NULL, 0}};
  request.metadata = metadata;
  REFUSED(kvkeep_get(client, &request, &error), "metadata[1].data");
}

static void puts_are_checked_and_named(void) {
  char payload[8] = "payload";
  kvkeep_const_buffer run = {payload, sizeof payload};
  kvkeep_put_chunk chunks[2] = {{.runs = &run, .run_count = 1}, {.runs = &run, .run_count = 1}};
  uint32_t outcomes[2];
  const kvkeep_put_request good = {
      .size = sizeof good, .ns = ns, .chunks = chunks, .chunk_count = 2, .outcomes = outcomes};
  kvkeep_put_request request = good;
  request.ns = NULL;
  REFUSED(kvkeep_put(client, &request, &error), "ns");
  request = good;
  request.chunks = NULL;
  REFUSED(kvkeep_put(client, &request, &error), "chunks");
  request = good;
  request.chunk_count = 0;
  REFUSED(kvkeep_put(client, &request, &error), "chunk_count");
  request = good;
  request.outcomes = NULL;
  REFUSED(kvkeep_put(client, &request, &error), "outcomes");
  request = good;
  request.flags = 16;
  REFUSED(kvkeep_put(client, &request, &error), "flags");
  request = good;
  chunks[1].runs = NULL;
  REFUSED(kvkeep_put(client, &request, &error), "chunks[1].runs");
  chunks[1].runs = &run;
  chunks[1].run_count = 65537;
  REFUSED(kvkeep_put(client, &request, &error), "chunks[1].run_count");
  chunks[1].run_count = 1;
  chunks[1].metadata_bytes = 1;
  REFUSED(kvkeep_put(client, &request, &error), "chunks[1].metadata");
  chunks[1].metadata = payload;
  chunks[1].metadata_bytes = KVKEEP_MAX_METADATA_BYTES + 1;
  REFUSED(kvkeep_put(client, &request, &error), "chunks[1].metadata_bytes");
  chunks[1].metadata_bytes = 0;
  run.data = NULL;
  REFUSED(kvkeep_put(client, &request, &error), "chunks[0].runs");
}

static void what_the_local_path_adds_is_checked_and_named(void) {
  kvkeep_acquire_request request = {.size = sizeof request, .keys = four_keys(), .flags = 4};
  kvkeep_acquire_reply reply = {.size = sizeof reply};
  REFUSED(kvkeep_acquire(client, &request, &reply, &error), "flags");
  request.flags = 0;
  REFUSED(kvkeep_acquire(client, &request, NULL, &error), "reply");
  request.keys.key_count = 0;
  REFUSED(kvkeep_acquire(client, &request, &reply, &error), "keys.key_count");
  kvkeep_copy_request copy = {.size = sizeof copy};
  REFUSED(kvkeep_acquired_copy(NULL, &copy, &error), "acquired");
  REFUSED(kvkeep_acquired_copy(NULL, NULL, &error), "request");
  REFUSED(kvkeep_acquired_wait(NULL, 0, 1, 0, &error), "acquired");
  kvkeep_staging* staging = NULL;
  kvkeep_memory* memory = NULL;
  kvkeep_buffer room;
  REFUSED(kvkeep_staging_allocate(NULL, 1, &room, &staging, &error), "client");
  REFUSED(kvkeep_staging_allocate(client, 1, NULL, &staging, &error), "memory");
  REFUSED(kvkeep_staging_allocate(client, 1, &room, NULL, &error), "out");
  REFUSED(kvkeep_memory_register(client, -1, keys, sizeof keys, &memory, &error), "fd");
  REFUSED(kvkeep_memory_register(client, 0, NULL, 1, &memory, &error), "mapping");
  REFUSED(kvkeep_memory_register(client, 0, keys, 0, &memory, &error), "bytes");
  REFUSED(kvkeep_memory_register(client, 0, keys, 1, NULL, &error), "out");
  REFUSED(kvkeep_memory_register_reused(client, -1, keys, sizeof keys, &memory, &error), "fd");
}

static void null_handles_do_no_harm(void) {
  kvkeep_acquired_release(NULL);
  kvkeep_staging_free(NULL);
  kvkeep_memory_unregister(NULL);
  CHECK(kvkeep_acquired_chunks(NULL) == NULL && kvkeep_acquired_ready(NULL, 0) == 0);
  CHECK(kvkeep_acquired_valid(NULL) == 0 && kvkeep_acquired_verify(NULL, 0) == 0);
  CHECK(kvkeep_staging_in_use(NULL) == 0 && kvkeep_memory_in_use(NULL) == 0);
  kvkeep_client_destroy(NULL);
  kvkeep_namespace_close(NULL);
  kvkeep_lease_release(NULL);
  kvkeep_lease_shrink(NULL, 0);
  kvkeep_completion one;
  uint8_t digest[16];
  memset(digest, 1, sizeof digest);
  kvkeep_namespace_digest(NULL, digest);
  CHECK(digest[0] == 0 && digest[15] == 0);
  CHECK(kvkeep_lease_alive(NULL) == 0 && kvkeep_connected(NULL) == 0);
  CHECK(kvkeep_queue_fd(NULL) == -1 && kvkeep_queue_poll(NULL, &one, 1) == 0);
  CHECK(kvkeep_queue_wait(NULL, &one, 1, 1000) == 0);
  CHECK(kvkeep_queue_destroy(NULL, NULL) == KVKEEP_OK);
}

static void queues_are_checked_and_named(void) {
  kvkeep_queue* queue = NULL;
  kvkeep_server_info info = {.size = sizeof info};
  REFUSED(kvkeep_queue_create(0, &queue, &error), "capacity");
  REFUSED(kvkeep_queue_create(KVKEEP_MAX_QUEUE_CAPACITY + 1, &queue, &error), "capacity");
  REFUSED(kvkeep_queue_create(1, NULL, &error), "out");
  REFUSED(kvkeep_get_server_info_async(client, 0, &info, NULL, NULL, &error), "queue");
}

static int readable(int fd) {
  struct pollfd ready = {.fd = fd, .events = POLLIN};
  CHECK(poll(&ready, 1, 0) >= 0);
  return ready.revents == POLLIN;
}

static void away_is_unavailable_at_once_in_both_forms(void) {
  kvkeep_queue* queue = NULL;
  CHECK(kvkeep_queue_create(2, &queue, &error) == KVKEEP_OK);
  kvkeep_keys_request request = {.size = sizeof request, .keys = four_keys()};
  kvkeep_count_reply count = {.size = sizeof count, .chunks = 5};
  struct timespec before, after;
  CHECK(kvkeep_connected(client) == 0 && kvkeep_wait_connected(client, 1) == 0);
  clock_gettime(CLOCK_MONOTONIC, &before);
  for (int i = 0; i < 100; ++i) {
    CHECK_CODE(kvkeep_touch(client, &request, &count, &error), KVKEEP_UNAVAILABLE, &error);
  }
  clock_gettime(CLOCK_MONOTONIC, &after);
  CHECK(after.tv_sec - before.tv_sec <= 1);
  CHECK(error.code == KVKEEP_UNAVAILABLE && error.message[0] != '\0' && count.chunks == 0);
  kvkeep_client_stats stats = {.size = sizeof stats};
  CHECK(kvkeep_stats(client, &stats, &error) == KVKEEP_OK && stats.failed_fast >= 100);

  CHECK(!readable(kvkeep_queue_fd(queue)));
  CHECK_CODE(kvkeep_touch_async(client, &request, &count, queue, &count, &error), KVKEEP_OK,
             &error);
  CHECK(readable(kvkeep_queue_fd(queue)));
  kvkeep_completion ended[2];
  CHECK(kvkeep_queue_poll(queue, ended, 2) == 1);
  CHECK(ended[0].user_data == &count && ended[0].op == KVKEEP_OP_TOUCH);
  CHECK(ended[0].error.code == KVKEEP_UNAVAILABLE && ended[0].error.message[0] != '\0');
  CHECK(!readable(kvkeep_queue_fd(queue)) && kvkeep_queue_poll(queue, ended, 2) == 0);
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_OK);
}

static void a_full_queue_refuses_and_a_refused_call_takes_no_place(void) {
  kvkeep_queue* queue = NULL;
  CHECK(kvkeep_queue_create(2, &queue, &error) == KVKEEP_OK);
  kvkeep_keys_request request = {.size = sizeof request, .keys = four_keys()};
  kvkeep_count_reply count = {.size = sizeof count};
  for (int i = 0; i < 10; ++i) {
    REFUSED(kvkeep_touch_async(client, NULL, &count, queue, NULL, &error), "request");
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(kvkeep_touch_async(client, &request, &count, queue, NULL, &error) == KVKEEP_OK);
  }
  CHECK(kvkeep_touch_async(client, &request, &count, queue, NULL, &error) ==
        KVKEEP_RESOURCE_EXHAUSTED);
  CHECK(strstr(error.message, "capacity of 2") != NULL);
  kvkeep_completion ended[4];
  CHECK(kvkeep_queue_poll(queue, ended, 0) == 0);
  CHECK(kvkeep_queue_poll(queue, ended, 1) == 1 && readable(kvkeep_queue_fd(queue)));
  CHECK(kvkeep_touch_async(client, &request, &count, queue, NULL, &error) == KVKEEP_OK);
  CHECK(kvkeep_queue_wait(queue, ended, 4, 10000) == 2);
  CHECK(kvkeep_queue_wait(queue, ended, 4, 20) == 0);
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_OK);
}

int main(void) {
  for (uint32_t i = 0; i < 4; ++i) keys[i] = key_of(i);
  client = connect_to(NOWHERE);
  ns = open_namespace(client, "m", 1);
  static const test_case tests[] = {
      {"options are checked and named", options_are_checked_and_named},
      {"a larger struct is taken when what is new is zero",
       a_larger_struct_is_taken_when_what_is_new_is_zero},
      {"a struct of the first version is taken, and what came since is not looked at",
       a_struct_of_the_first_version_is_taken_and_what_came_since_is_not_looked_at},
      {"specs are checked and named", specs_are_checked_and_named},
      {"keys of every call are checked and named", keys_of_every_call_are_checked_and_named},
      {"lookups are checked and named", lookups_are_checked_and_named},
      {"gets are checked and named", gets_are_checked_and_named},
      {"puts are checked and named", puts_are_checked_and_named},
      {"what the local path adds is checked and named",
       what_the_local_path_adds_is_checked_and_named},
      {"NULL handles do no harm", null_handles_do_no_harm},
      {"queues are checked and named", queues_are_checked_and_named},
      {"away is UNAVAILABLE at once in both forms", away_is_unavailable_at_once_in_both_forms},
      {"a full queue refuses and a refused call takes no place",
       a_full_queue_refuses_and_a_refused_call_takes_no_place},
  };
  const int status = RUN_TESTS(tests);
  kvkeep_namespace_close(ns);
  kvkeep_client_destroy(client);
  return status;
}
