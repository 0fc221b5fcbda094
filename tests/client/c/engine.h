// Helpers of the tests of calls: a client of the daemon that KVKEEP_ENDPOINT names (daemon.py sets
// it), numbered keys, and payloads that follow from the number.
#pragma once

#include <stdlib.h>

#include "tests/client/c/check.h"

static inline const char* endpoint(void) {
  const char* named = getenv("KVKEEP_ENDPOINT");
  CHECK(named != NULL);
  return named;
}

static inline kvkeep_client* connect_by(kvkeep_path path, const char* where) {
  kvkeep_client_options options = {.size = sizeof options,
                                   .endpoint = where,
                                   .client_name = "test",
                                   .default_deadline_ms = 20000,
                                   .path = (uint32_t)path};
  kvkeep_client* client = NULL;
  kvkeep_error error;
  CHECK_CODE(kvkeep_connect(&options, &client, &error), KVKEEP_OK, &error);
  CHECK(client != NULL && error.code == KVKEEP_OK && error.message[0] == '\0');
  return client;
}
// Connects by the path that KVKEEP_PATH names.
static inline kvkeep_client* connect_to(const char* where) {
  const char* path = getenv("KVKEEP_PATH");
  if (path == NULL) return connect_by(KVKEEP_PATH_AUTO, where);
  CHECK(strcmp(path, "grpc") == 0 || strcmp(path, "local") == 0);
  return connect_by(path[0] == 'g' ? KVKEEP_PATH_GRPC : KVKEEP_PATH_LOCAL, where);
}

static inline kvkeep_namespace* open_namespace(kvkeep_client* client, const char* model,
                                               uint32_t parts) {
  kvkeep_namespace_spec spec = {
      .size = sizeof spec, .model = model, .tokens_per_chunk = 256, .parts = parts};
  kvkeep_namespace* ns = NULL;
  kvkeep_error error;
  CHECK_CODE(kvkeep_namespace_open(client, &spec, 0, &ns, &error), KVKEEP_OK, &error);
  return ns;
}

static inline kvkeep_key key_of(uint32_t number) {
  kvkeep_key key = {"chunk"};
  memcpy(key.bytes + 8, &number, sizeof number);
  return key;
}

static inline void fill(unsigned char* to, size_t bytes, uint32_t number) {
  uint64_t x = number * 0x9E3779B97F4A7C15u + bytes;
  for (size_t i = 0; i < bytes; ++i) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    to[i] = (unsigned char)(x >> 56);
  }
}

static inline unsigned char* payload_of(uint32_t number, size_t bytes) {
  unsigned char* payload = malloc(bytes);
  CHECK(payload != NULL);
  fill(payload, bytes, number);
  return payload;
}

static inline int is_payload(const void* data, size_t bytes, uint32_t number) {
  unsigned char* expected = payload_of(number, bytes);
  const int same = memcmp(expected, data, bytes) == 0;
  free(expected);
  return same;
}

// Puts one chunk, part 0, in two runs.
static inline void put_numbered(kvkeep_client* client, kvkeep_namespace* ns, uint32_t number,
                                size_t bytes) {
  unsigned char* payload = payload_of(number, bytes);
  const kvkeep_const_buffer runs[] = {{payload, bytes / 3},
                                      {payload + bytes / 3, bytes - bytes / 3}};
  const kvkeep_put_chunk chunk = {.key = key_of(number), .runs = runs, .run_count = 2};
  uint32_t outcome = 77;
  kvkeep_put_request put = {
      .size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &outcome};
  kvkeep_error error;
  CHECK_CODE(kvkeep_put(client, &put, &error), KVKEEP_OK, &error);
  CHECK_CODE(outcome, KVKEEP_PUT_STORED, &error);
  free(payload);
}
