// Every call against a real daemon (daemon.py), blocking and over an event fd. The last test kills
// the daemon.
#define _GNU_SOURCE
#include <dirent.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/types.h>
#include <unistd.h>

#include "tests/client/c/engine.h"

static kvkeep_client* client;
static kvkeep_error error;

static kvkeep_get_status get_one(kvkeep_namespace* ns, const kvkeep_get_request* more,
                                 const kvkeep_key* key, void* to, uint64_t room,
                                 kvkeep_get_outcome* outcome) {
  const kvkeep_buffer destination = {to, room};
  kvkeep_get_request get = {.size = sizeof get};
  if (more != NULL) get = *more;
  get.size = sizeof get;
  get.keys.ns = ns;
  get.keys.keys = key;
  get.keys.key_count = 1;
  get.destinations = &destination;
  get.outcomes = outcome;
  get.chunk_count = 1;
  CHECK_CODE(kvkeep_get(client, &get, &error), KVKEEP_OK, &error);
  return (kvkeep_get_status)outcome->status;
}

static void a_chunk_put_in_runs_comes_back_whole(void) {
  enum { kBytes = (3 << 20) + 17 };
  kvkeep_namespace* ns = open_namespace(client, "whole", 1);
  uint8_t digest[16] = {0}, zero[16] = {0};
  kvkeep_namespace_digest(ns, digest);
  CHECK(memcmp(digest, zero, sizeof zero) != 0);
  put_numbered(client, ns, 1, kBytes);
  unsigned char* back = malloc(kBytes);
  kvkeep_key key = key_of(1), other = key_of(2);
  kvkeep_get_outcome got;
  CHECK(get_one(ns, NULL, &key, back, kBytes, &got) == KVKEEP_GET_HIT);
  CHECK(got.payload_bytes == kBytes && got.bytes == kBytes && is_payload(back, kBytes, 1));
  CHECK(get_one(ns, NULL, &other, back, kBytes, &got) == KVKEEP_GET_MISS);
  CHECK(get_one(ns, NULL, &key, back, 100, &got) == KVKEEP_GET_TOO_SMALL);
  CHECK(got.payload_bytes == kBytes && got.bytes == 0);
  const kvkeep_get_request second_piece = {.first_piece = 1, .pieces = 1};
  CHECK(get_one(ns, &second_piece, &key, back, 1 << 20, &got) == KVKEEP_GET_HIT);
  unsigned char* whole = payload_of(1, kBytes);
  CHECK(got.bytes == 1 << 20 && memcmp(back, whole + (1 << 20), 1 << 20) == 0);
  free(whole);
  free(back);
  kvkeep_namespace_close(ns);
}

static void a_second_put_is_present_and_a_wrong_size_is_rejected_with_its_reason(void) {
  kvkeep_namespace_spec spec = {
      .size = sizeof spec, .model = "fixed", .tokens_per_chunk = 256, .bytes_per_part = 4096};
  kvkeep_namespace* ns = NULL;
  CHECK_CODE(kvkeep_namespace_open(client, &spec, 0, &ns, &error), KVKEEP_OK, &error);
  static const char payload[8192];
  const kvkeep_const_buffer right = {payload, 4096}, wrong = {payload, 8192};
  const kvkeep_put_chunk chunks[] = {{.key = key_of(1), .runs = &right, .run_count = 1},
                                     {.key = key_of(2), .runs = &wrong, .run_count = 1}};
  uint32_t outcomes[2] = {99, 99};
  kvkeep_put_request put = {
      .size = sizeof put, .ns = ns, .chunks = chunks, .chunk_count = 2, .outcomes = outcomes};
  CHECK_CODE(kvkeep_put(client, &put, &error), KVKEEP_OK, &error);
  CHECK(outcomes[0] == KVKEEP_PUT_STORED && outcomes[1] == KVKEEP_PUT_REJECTED);
  CHECK(strstr(error.message, "chunks[1]: ") == error.message && strlen(error.message) > 20);
  put.chunk_count = 1;
  CHECK_CODE(kvkeep_put(client, &put, &error), KVKEEP_OK, &error);
  CHECK(outcomes[0] == KVKEEP_PUT_PRESENT && error.message[0] == '\0');
  kvkeep_namespace_close(ns);
}

static void parts_parents_and_metadata_go_along(void) {
  kvkeep_namespace* ns = open_namespace(client, "parts", 2);
  unsigned char* payload = payload_of(3, 5000);
  const kvkeep_const_buffer run = {payload, 5000};
  kvkeep_put_chunk chunks[3] = {{.key = key_of(1),
                                 .part = 0,
                                 .runs = &run,
                                 .run_count = 1,
                                 .metadata = "tokens",
                                 .metadata_bytes = 6},
                                {.key = key_of(1), .part = 1, .runs = &run, .run_count = 1},
                                {.key = key_of(2),
                                 .part = 1,
                                 .runs = &run,
                                 .run_count = 1,
                                 .parent_key = key_of(1),
                                 .has_parent = 1}};
  uint32_t outcomes[3];
  kvkeep_put_request put = {.size = sizeof put,
                            .ns = ns,
                            .chunks = chunks,
                            .chunk_count = 3,
                            .flags = KVKEEP_PUT_DURABLE | KVKEEP_PUT_CHECKSUM,
                            .outcomes = outcomes};
  CHECK_CODE(kvkeep_put(client, &put, &error), KVKEEP_OK, &error);
  for (int i = 0; i < 3; ++i) CHECK(outcomes[i] == KVKEEP_PUT_STORED);

  const kvkeep_key keys[] = {key_of(1), key_of(2)};
  uint8_t presence[4];
  kvkeep_lookup_request lookup = {.size = sizeof lookup,
                                  .keys = {ns, keys, 2, 0, NULL},
                                  .presence = presence,
                                  .presence_bytes = sizeof presence};
  kvkeep_lookup_reply found = {.size = sizeof found};
  CHECK_CODE(kvkeep_lookup(client, &lookup, &found, &error), KVKEEP_OK, &error);
  CHECK(found.leading_keys == 1 && found.leased_keys == 0 && found.lease == NULL);
  CHECK(presence[0] != 0 && presence[1] != 0 && presence[2] == 0 && presence[3] != 0);
  CHECK((presence[0] & KVKEEP_IN_G3) != 0);  // durable
  const uint32_t second[] = {1};
  lookup.keys.parts = second;
  lookup.keys.part_count = 1;
  CHECK_CODE(kvkeep_lookup(client, &lookup, &found, &error), KVKEEP_OK, &error);
  CHECK(found.leading_keys == 2 && presence[0] != 0 && presence[1] != 0);

  char back[2][5000], metadata[2][64];
  const kvkeep_buffer to[] = {{back[0], 5000}, {back[1], 5000}};
  kvkeep_buffer tails[] = {{metadata[0], 64}, {metadata[1], 64}};
  kvkeep_get_outcome got[2];
  kvkeep_get_request get = {.size = sizeof get,
                            .keys = {ns, keys, 1, 0, NULL},
                            .destinations = to,
                            .outcomes = got,
                            .metadata = tails,
                            .chunk_count = 2};
  CHECK_CODE(kvkeep_get(client, &get, &error), KVKEEP_OK, &error);
  CHECK(got[0].status == KVKEEP_GET_HIT && got[1].status == KVKEEP_GET_HIT);
  CHECK(got[0].metadata_bytes == 6 && memcmp(metadata[0], "tokens", 6) == 0);
  CHECK(got[1].metadata_bytes == 0 && memcmp(back[1], payload, 5000) == 0);
  tails[0].bytes = 5;
  CHECK_CODE(kvkeep_get(client, &get, &error), KVKEEP_OK, &error);
  CHECK(got[0].status == KVKEEP_GET_TOO_SMALL && got[0].metadata_bytes == 6 && got[0].bytes == 0);
  free(payload);
  kvkeep_namespace_close(ns);
}

static void a_lease_is_used_shrunk_and_released(void) {
  kvkeep_namespace* ns = open_namespace(client, "lease", 1);
  kvkeep_key keys[4];
  for (uint32_t i = 0; i < 4; ++i) {
    keys[i] = key_of(i);
    if (i < 3) put_numbered(client, ns, i, 4096);
  }
  kvkeep_lookup_request lookup = {.size = sizeof lookup,
                                  .keys = {ns, keys, 4, 0, NULL},
                                  .lease_mode = KVKEEP_LEASE_LEADING_RUN};
  kvkeep_lookup_reply found = {.size = sizeof found};
  CHECK_CODE(kvkeep_lookup(client, &lookup, &found, &error), KVKEEP_OK, &error);
  CHECK(found.leading_keys == 3 && found.leased_keys == 3 && found.leased_bytes >= 3 * 4096);
  CHECK(found.promotion_us == 0);  // all of it is in DRAM
  CHECK(kvkeep_lease_alive(found.lease));
  char back[4096];
  kvkeep_get_outcome got;
  const kvkeep_get_request with_lease = {.lease = found.lease, .first_key = 1};
  CHECK(get_one(ns, &with_lease, &keys[1], back, sizeof back, &got) == KVKEEP_GET_HIT);
  CHECK(is_payload(back, sizeof back, 1));
  kvkeep_lease_shrink(found.lease, 1);
  CHECK(kvkeep_lease_alive(found.lease));
  CHECK_CODE(kvkeep_release(client, found.lease, &error), KVKEEP_OK, &error);

  CHECK_CODE(kvkeep_lookup(client, &lookup, &found, &error), KVKEEP_OK, &error);
  kvkeep_namespace_close(ns);
  kvkeep_lease_release(found.lease);
}

static void touch_prefetch_delete_count_and_the_daemon_tells_of_itself(void) {
  kvkeep_namespace* ns = open_namespace(client, "counts", 1);
  kvkeep_key keys[3];
  for (uint32_t i = 0; i < 3; ++i) {
    keys[i] = key_of(i);
    if (i < 2) put_numbered(client, ns, i, 1000);
  }
  kvkeep_keys_request request = {.size = sizeof request, .keys = {ns, keys, 3, 0, NULL}};
  kvkeep_count_reply count = {.size = sizeof count};
  kvkeep_prefetch_reply prefetch = {.size = sizeof prefetch};
  CHECK_CODE(kvkeep_touch(client, &request, &count, &error), KVKEEP_OK, &error);
  CHECK(count.chunks == 2 && count.size == sizeof count);
  CHECK_CODE(kvkeep_prefetch(client, &request, &prefetch, &error), KVKEEP_OK, &error);
  CHECK(prefetch.ready_chunks == 2 && prefetch.started_chunks == 0);
  CHECK_CODE(kvkeep_delete(client, &request, &count, &error), KVKEEP_OK, &error);
  CHECK(count.chunks == 2);
  CHECK_CODE(kvkeep_touch(client, &request, &count, &error), KVKEEP_OK, &error);
  CHECK(count.chunks == 0);

  kvkeep_server_info info = {.size = sizeof info};
  CHECK_CODE(kvkeep_get_server_info(client, 0, &info, &error), KVKEEP_OK, &error);
  CHECK(strcmp(info.state, "serving") == 0 && info.incarnation != 0 && info.version[0] != '\0');
  CHECK(info.max_keys_per_call > 0 && info.size == sizeof info);
  kvkeep_client_stats stats = {.size = sizeof stats};
  CHECK_CODE(kvkeep_stats(client, &stats, &error), KVKEEP_OK, &error);
  CHECK(stats.sessions_opened == 1 && stats.calls > 5 && stats.bytes_received > 3 << 20);
  kvkeep_namespace_close(ns);
}

static void on_the_grpc_path_what_is_in_place_is_a_failed_precondition(void) {
  kvkeep_client* remote = connect_by(KVKEEP_PATH_GRPC, endpoint());
  kvkeep_namespace* ns = open_namespace(remote, "remote", 1);
  kvkeep_path_info info = {.size = sizeof info};
  CHECK_CODE(kvkeep_client_path(remote, &info, &error), KVKEEP_OK, &error);
  CHECK(info.path == KVKEEP_PATH_GRPC && strncmp(info.why, "grpc: ", 6) == 0);
  const kvkeep_key key = key_of(1);
  kvkeep_acquire_request request = {.size = sizeof request, .keys = {ns, &key, 1, 0, NULL}};
  kvkeep_acquire_reply reply = {.size = sizeof reply, .chunk_count = 9};
  kvkeep_staging* staging = NULL;
  kvkeep_memory* memory = NULL;
  kvkeep_buffer room;
  CHECK_CODE(kvkeep_acquire(remote, &request, &reply, &error), KVKEEP_FAILED_PRECONDITION, &error);
  CHECK(reply.acquired == NULL && reply.chunk_count == 0 && error.message[0] != '\0');
  CHECK_CODE(kvkeep_staging_allocate(remote, 4096, &room, &staging, &error),
             KVKEEP_FAILED_PRECONDITION, &error);
  CHECK_CODE(kvkeep_memory_register(remote, 0, &key, sizeof key, &memory, &error),
             KVKEEP_FAILED_PRECONDITION, &error);
  CHECK(staging == NULL && memory == NULL);
  kvkeep_namespace_close(ns);
  kvkeep_client_destroy(remote);
}

// Waits by epoll, as an event loop does, and takes few at a time, so that the fd must stay
// readable.
static uint32_t await_completions(kvkeep_queue* queue, uint32_t wanted,
                                  void (*each)(const kvkeep_completion*)) {
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event event = {.events = EPOLLIN};
  CHECK(epoll_ctl(loop, EPOLL_CTL_ADD, kvkeep_queue_fd(queue), &event) == 0);
  uint32_t seen = 0;
  while (seen < wanted && epoll_wait(loop, &event, 1, 20000) == 1) {
    kvkeep_completion ended[7];
    const uint32_t taken = kvkeep_queue_poll(queue, ended, 7);
    for (uint32_t i = 0; i < taken; ++i) each(&ended[i]);
    seen += taken;
  }
  close(loop);
  return seen;
}

enum { kGets = 1000, kGetBytes = 8192 };
static struct {
  kvkeep_key key;
  kvkeep_buffer to;
  kvkeep_get_outcome outcome;
  unsigned char back[kGetBytes];
  int ended;
} gets[kGets];

static void get_ended(const kvkeep_completion* completion) {
  CHECK_CODE(completion->error.code, KVKEEP_OK, &completion->error);
  CHECK(completion->op == KVKEEP_OP_GET);
  const size_t index = (size_t)(uintptr_t)completion->user_data;
  CHECK(index < kGets && ++gets[index].ended == 1);
  CHECK(gets[index].outcome.status == KVKEEP_GET_HIT);
  CHECK(is_payload(gets[index].back, kGetBytes, (uint32_t)index % 50));
}

static void a_thousand_gets_in_flight_complete_by_the_event_fd(void) {
  kvkeep_namespace* ns = open_namespace(client, "many", 1);
  kvkeep_queue* queue = NULL;
  CHECK_CODE(kvkeep_queue_create(kGets, &queue, &error), KVKEEP_OK, &error);
  for (uint32_t i = 0; i < 50; ++i) put_numbered(client, ns, i, kGetBytes);
  for (uint32_t i = 0; i < kGets; ++i) {
    gets[i].key = key_of(i % 50);
    gets[i].to.data = gets[i].back;
    gets[i].to.bytes = kGetBytes;
    kvkeep_get_request get = {.size = sizeof get,
                              .keys = {ns, &gets[i].key, 1, 0, NULL},
                              .destinations = &gets[i].to,
                              .outcomes = &gets[i].outcome,
                              .chunk_count = 1};
    CHECK_CODE(kvkeep_get_async(client, &get, queue, (void*)(uintptr_t)i, &error), KVKEEP_OK,
               &error);
    memset(&get, 0x55, sizeof get);  // the request itself was copied
  }
  kvkeep_namespace_close(ns);
  CHECK(await_completions(queue, kGets, get_ended) == kGets);
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_OK);
}

static uint32_t ops_seen;
static void op_ended(const kvkeep_completion* completion) {
  CHECK_CODE(completion->error.code, KVKEEP_OK, &completion->error);
  CHECK(completion->user_data == &ops_seen);
  ops_seen |= 1u << completion->op;
}

static void every_call_has_an_asynchronous_form(void) {
  kvkeep_namespace* ns = open_namespace(client, "async", 1);
  kvkeep_queue* queue = NULL;
  CHECK_CODE(kvkeep_queue_create(16, &queue, &error), KVKEEP_OK, &error);
  put_numbered(client, ns, 1, 4096);
  const kvkeep_key key = key_of(1), fresh = key_of(2);
  const kvkeep_keys one = {ns, &key, 1, 0, NULL};
  kvkeep_keys_request keys = {.size = sizeof keys, .keys = one};
  kvkeep_lookup_request lookup = {
      .size = sizeof lookup, .keys = one, .lease_mode = KVKEEP_LEASE_ALL_PRESENT};
  kvkeep_lookup_reply found = {.size = sizeof found};
  kvkeep_count_reply touched = {.size = sizeof touched}, deleted = {.size = sizeof deleted};
  kvkeep_prefetch_reply prefetched = {.size = sizeof prefetched};
  kvkeep_server_info info = {.size = sizeof info};
  char back[4096];
  const kvkeep_buffer to = {back, sizeof back};
  kvkeep_get_outcome got;
  kvkeep_get_request get = {
      .size = sizeof get, .keys = one, .destinations = &to, .outcomes = &got, .chunk_count = 1};
  const kvkeep_const_buffer run = {"payload", 7};
  const kvkeep_put_chunk chunk = {.key = fresh, .runs = &run, .run_count = 1};
  uint32_t outcome;
  kvkeep_put_request put = {
      .size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &outcome};
  void* data = &ops_seen;
  CHECK(kvkeep_lookup_async(client, &lookup, &found, queue, data, &error) == KVKEEP_OK);
  CHECK(kvkeep_get_async(client, &get, queue, data, &error) == KVKEEP_OK);
  CHECK(kvkeep_put_async(client, &put, queue, data, &error) == KVKEEP_OK);
  CHECK(kvkeep_touch_async(client, &keys, &touched, queue, data, &error) == KVKEEP_OK);
  CHECK(kvkeep_prefetch_async(client, &keys, &prefetched, queue, data, &error) == KVKEEP_OK);
  CHECK(kvkeep_get_server_info_async(client, 0, &info, queue, data, &error) == KVKEEP_OK);
  CHECK(await_completions(queue, 6, op_ended) == 6);
  CHECK(found.lease != NULL && got.status == KVKEEP_GET_HIT && outcome == KVKEEP_PUT_STORED);
  CHECK(is_payload(back, sizeof back, 1) && touched.chunks == 1 && prefetched.ready_chunks == 1);
  CHECK(info.incarnation != 0);
  CHECK(kvkeep_release_async(client, found.lease, queue, data, &error) == KVKEEP_OK);
  CHECK(kvkeep_delete_async(client, &keys, &deleted, queue, data, &error) == KVKEEP_OK);
  CHECK(await_completions(queue, 2, op_ended) == 2);
  CHECK(deleted.chunks == 1 && ops_seen == 0x1FE);
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_OK);
  kvkeep_namespace_close(ns);
}

static int thread_is_stopped(pid_t daemon, const char* thread) {
  char path[300], line[512] = "";
  snprintf(path, sizeof path, "/proc/%d/task/%s/stat", (int)daemon, thread);
  FILE* stat = fopen(path, "r");
  if (stat == NULL) return 1;  // ended meanwhile
  const char* read = fgets(line, sizeof line, stat);
  fclose(stat);
  const char* name_end = read == NULL ? NULL : strrchr(line, ')');
  return name_end != NULL && name_end[2] == 'T';
}

// A signal is only sent when kill returns: waits until all threads stand still.
static pid_t stop_daemon(void) {
  const pid_t daemon = (pid_t)atoi(getenv("KVKEEPD_PID"));
  char tasks[64];
  snprintf(tasks, sizeof tasks, "/proc/%d/task", (int)daemon);
  CHECK(kill(daemon, SIGSTOP) == 0);
  for (int running = 1, tries = 0; running > 0; ++tries) {
    CHECK(tries < 10000);
    running = 0;
    DIR* threads = opendir(tasks);
    CHECK(threads != NULL);
    for (struct dirent* entry; (entry = readdir(threads)) != NULL;) {
      if (entry->d_name[0] != '.') running += !thread_is_stopped(daemon, entry->d_name);
    }
    closedir(threads);
  }
  return daemon;
}

// The daemon is stopped, so that the calls stay in flight until the client goes.
static void destroying_a_client_completes_its_calls_and_a_queue_in_use_stays(void) {
  kvkeep_client* doomed = connect_to(endpoint());
  kvkeep_namespace* ns = open_namespace(doomed, "doomed", 1);
  kvkeep_queue* queue = NULL;
  CHECK_CODE(kvkeep_queue_create(16, &queue, &error), KVKEEP_OK, &error);
  const pid_t daemon = stop_daemon();
  const kvkeep_key key = key_of(1);
  kvkeep_keys_request keys = {.size = sizeof keys, .keys = {ns, &key, 1, 0, NULL}};
  kvkeep_count_reply replies[16];
  for (int i = 0; i < 16; ++i) {
    replies[i].size = sizeof replies[i];
    CHECK_CODE(kvkeep_touch_async(doomed, &keys, &replies[i], queue, &replies[i], &error),
               KVKEEP_OK, &error);
  }
  CHECK(kvkeep_touch_async(doomed, &keys, &replies[0], queue, NULL, &error) ==
        KVKEEP_RESOURCE_EXHAUSTED);
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_FAILED_PRECONDITION);
  CHECK(strstr(error.message, "16 calls") != NULL);
  kvkeep_client_destroy(doomed);
  CHECK(kill(daemon, SIGCONT) == 0);
  kvkeep_completion ended[20];
  CHECK(kvkeep_queue_poll(queue, ended, 20) == 16);
  for (int i = 0; i < 16; ++i) {
    const int32_t code = ended[i].error.code;
    if (code != KVKEEP_UNAVAILABLE) CHECK_CODE(code, KVKEEP_CANCELLED, &ended[i].error);
  }
  CHECK(kvkeep_queue_destroy(queue, &error) == KVKEEP_OK);
  kvkeep_namespace_close(ns);
}

static void a_deadline_ends_a_call_to_a_stopped_daemon(void) {
  kvkeep_namespace* ns = open_namespace(client, "deadline", 1);
  const kvkeep_key key = key_of(1);
  kvkeep_keys_request keys = {
      .size = sizeof keys, .deadline_ms = 50, .keys = {ns, &key, 1, 0, NULL}};
  kvkeep_count_reply count = {.size = sizeof count};
  const pid_t daemon = stop_daemon();
  const int code = kvkeep_touch(client, &keys, &count, &error);
  CHECK(kill(daemon, SIGCONT) == 0);
  CHECK_CODE(code, KVKEEP_DEADLINE_EXCEEDED, &error);
  CHECK(kvkeep_wait_connected(client, 20000) == 1);
  kvkeep_namespace_close(ns);
}

static void handles_may_outlive_the_client_and_its_daemon(void) {
  const pid_t daemon = (pid_t)atoi(getenv("KVKEEPD_PID"));
  kvkeep_client* doomed = connect_to(endpoint());
  kvkeep_namespace* ns = open_namespace(doomed, "outlive", 1);
  put_numbered(doomed, ns, 1, 4096);
  const kvkeep_key key = key_of(1);
  kvkeep_lookup_request lookup = {.size = sizeof lookup,
                                  .keys = {ns, &key, 1, 0, NULL},
                                  .lease_mode = KVKEEP_LEASE_LEADING_RUN};
  kvkeep_lookup_reply first = {.size = sizeof first}, second = {.size = sizeof second};
  CHECK_CODE(kvkeep_lookup(doomed, &lookup, &first, &error), KVKEEP_OK, &error);
  CHECK_CODE(kvkeep_lookup(doomed, &lookup, &second, &error), KVKEEP_OK, &error);
  kvkeep_client_destroy(doomed);
  CHECK(kvkeep_lease_alive(first.lease) == 0);
  kvkeep_lease_release(first.lease);
  CHECK(kill(daemon, SIGKILL) == 0);
  kvkeep_lease_release(second.lease);
  kvkeep_namespace_close(ns);
}

int main(void) {
  client = connect_to(endpoint());
  CHECK(kvkeep_wait_connected(client, 20000));
  static const test_case tests[] = {
      {"a chunk put in runs comes back whole", a_chunk_put_in_runs_comes_back_whole},
      {"a second put is present, a wrong size is rejected with its reason",
       a_second_put_is_present_and_a_wrong_size_is_rejected_with_its_reason},
      {"parts, parents and metadata go along", parts_parents_and_metadata_go_along},
      {"a lease is used, shrunk and released", a_lease_is_used_shrunk_and_released},
      {"touch, prefetch, delete count, and the daemon tells of itself",
       touch_prefetch_delete_count_and_the_daemon_tells_of_itself},
      {"on the gRPC path what is in place is a FAILED_PRECONDITION",
       on_the_grpc_path_what_is_in_place_is_a_failed_precondition},
      {"a thousand gets in flight complete by the event fd",
       a_thousand_gets_in_flight_complete_by_the_event_fd},
      {"every call has an asynchronous form", every_call_has_an_asynchronous_form},
      {"destroying a client completes its calls, and a queue in use stays",
       destroying_a_client_completes_its_calls_and_a_queue_in_use_stays},
      {"a deadline ends a call to a stopped daemon", a_deadline_ends_a_call_to_a_stopped_daemon},
      {"handles may outlive the client and its daemon",
       handles_may_outlive_the_client_and_its_daemon},
  };
  const int status = RUN_TESTS(tests);
  kvkeep_client_destroy(client);
  return status;
}
