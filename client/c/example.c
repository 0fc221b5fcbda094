// Example: put one chunk into the daemon and get it back.
//   kvkeep_c_example unix:///run/kvkeep/kvkeep.sock
#include <kvkeep.h>
#include <stdio.h>
#include <string.h>

static int failed(const char* what, const kvkeep_error* error) {
  fprintf(stderr, "%s: %s: %s\n", what, kvkeep_code_name(error->code), error->message);
  return 1;
}

static int put_and_get(kvkeep_client* client, kvkeep_namespace* ns) {
  static unsigned char kv[1 << 20], back[1 << 20];
  memset(kv, 7, sizeof kv);
  const kvkeep_key key = {"a digest of the prefix"};
  kvkeep_error error;

  uint32_t outcome;
  kvkeep_const_buffer run = {kv, sizeof kv};
  kvkeep_put_chunk chunk = {.key = key, .runs = &run, .run_count = 1};
  kvkeep_put_request put = {
      .size = sizeof put, .ns = ns, .chunks = &chunk, .chunk_count = 1, .outcomes = &outcome};
  if (kvkeep_put(client, &put, &error) != KVKEEP_OK) return failed("put", &error);
  if (outcome != KVKEEP_PUT_STORED && outcome != KVKEEP_PUT_PRESENT) return failed("put", &error);

  kvkeep_buffer to = {back, sizeof back};
  kvkeep_get_outcome got;
  kvkeep_get_request get = {.size = sizeof get,
                            .keys = {ns, &key, 1, 0, NULL},
                            .destinations = &to,
                            .outcomes = &got,
                            .chunk_count = 1};
  if (kvkeep_get(client, &get, &error) != KVKEEP_OK) return failed("get", &error);
  const int same = got.status == KVKEEP_GET_HIT && memcmp(kv, back, sizeof kv) == 0;
  printf("%s\n", same ? "the same bytes" : "a miss");
  return same ? 0 : 1;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: kvkeep_c_example ENDPOINT\n");
    return 2;
  }
  kvkeep_error error;
  kvkeep_client* client = NULL;
  kvkeep_namespace* ns = NULL;
  kvkeep_client_options options = {
      .size = sizeof options, .endpoint = argv[1], .client_name = "example"};
  if (kvkeep_connect(&options, &client, &error) != KVKEEP_OK) return failed("connect", &error);
  kvkeep_namespace_spec spec = {.size = sizeof spec, .model = "example", .tokens_per_chunk = 256};
  int status = 0;
  if (kvkeep_namespace_open(client, &spec, 0, &ns, &error) != KVKEEP_OK) {
    status = failed("namespace", &error);
  } else {
    status = put_and_get(client, ns);
  }
  kvkeep_namespace_close(ns);
  kvkeep_client_destroy(client);
  return status;
}
