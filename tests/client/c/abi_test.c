// The binary contract as numbers: a change here breaks programs that are compiled already, so it
// takes a new KVKEEP_ABI_VERSION - except for structs that begin with `size`, which may grow at the
// end.
#include <kvkeep_kv.h>
#include <kvkeep_pin.h>
#include <kvkeep_watch.h>
#include <stddef.h>

#include "tests/client/c/check.h"

#define SIZE(type, bytes) CHECK(sizeof(type) == (bytes))
#define AT(type, field, offset) CHECK(offsetof(type, field) == (offset))

static void fixed_structs_keep_their_layout(void) {
  SIZE(kvkeep_error, 256);
  AT(kvkeep_error, message, 4);
  SIZE(kvkeep_key, 32);
  SIZE(kvkeep_buffer, 16);
  AT(kvkeep_buffer, bytes, 8);
  SIZE(kvkeep_const_buffer, 16);
  AT(kvkeep_const_buffer, bytes, 8);
  SIZE(kvkeep_keys, 32);
  AT(kvkeep_keys, keys, 8);
  AT(kvkeep_keys, key_count, 16);
  AT(kvkeep_keys, part_count, 20);
  AT(kvkeep_keys, parts, 24);
  SIZE(kvkeep_completion, 272);
  AT(kvkeep_completion, op, 8);
  AT(kvkeep_completion, error, 16);
  SIZE(kvkeep_get_outcome, 24);
  AT(kvkeep_get_outcome, metadata_bytes, 4);
  AT(kvkeep_get_outcome, payload_bytes, 8);
  AT(kvkeep_get_outcome, bytes, 16);
  SIZE(kvkeep_put_chunk, 104);
  AT(kvkeep_put_chunk, parent_key, 32);
  AT(kvkeep_put_chunk, part, 64);
  AT(kvkeep_put_chunk, has_parent, 68);
  AT(kvkeep_put_chunk, runs, 72);
  AT(kvkeep_put_chunk, run_count, 80);
  AT(kvkeep_put_chunk, metadata, 88);
  AT(kvkeep_put_chunk, metadata_bytes, 96);
}

static void structs_of_clients_and_namespaces_keep_their_layout(void) {
  SIZE(kvkeep_client_options, 96);
  AT(kvkeep_client_options, default_deadline_ms, 4);
  AT(kvkeep_client_options, endpoint, 8);
  AT(kvkeep_client_options, client_name, 16);
  AT(kvkeep_client_options, backoff_min_ms, 24);
  AT(kvkeep_client_options, backoff_max_ms, 28);
  AT(kvkeep_client_options, local_socket, 32);
  AT(kvkeep_client_options, path, 40);
  AT(kvkeep_client_options, ca_file, 48);
  AT(kvkeep_client_options, cert_file, 56);
  AT(kvkeep_client_options, key_file, 64);
  AT(kvkeep_client_options, server_name, 72);
  AT(kvkeep_client_options, token_file, 80);
  AT(kvkeep_client_options, bulk, 88);
  SIZE(kvkeep_path_info, 264);
  AT(kvkeep_path_info, path, 4);
  AT(kvkeep_path_info, why, 8);
  SIZE(kvkeep_client_stats, 56);
  AT(kvkeep_client_stats, sessions_opened, 8);
  AT(kvkeep_client_stats, bytes_sent, 48);
  SIZE(kvkeep_namespace_spec, 72);
  AT(kvkeep_namespace_spec, tokens_per_chunk, 4);
  AT(kvkeep_namespace_spec, model, 8);
  AT(kvkeep_namespace_spec, dtype, 16);
  AT(kvkeep_namespace_spec, layout, 24);
  AT(kvkeep_namespace_spec, hash_algorithm, 32);
  AT(kvkeep_namespace_spec, hash_seed, 40);
  AT(kvkeep_namespace_spec, bytes_per_part, 48);
  AT(kvkeep_namespace_spec, parts, 56);
  AT(kvkeep_namespace_spec, tenant, 64);
}

static void requests_and_replies_keep_their_layout(void) {
  SIZE(kvkeep_lookup_request, 72);
  AT(kvkeep_lookup_request, deadline_ms, 4);
  AT(kvkeep_lookup_request, keys, 8);
  AT(kvkeep_lookup_request, lease_mode, 40);
  AT(kvkeep_lookup_request, transient, 44);
  AT(kvkeep_lookup_request, presence, 48);
  AT(kvkeep_lookup_request, presence_bytes, 56);
  AT(kvkeep_lookup_request, remote_wait_us, 64);
  AT(kvkeep_lookup_request, recompute_us_per_key, 68);
  SIZE(kvkeep_lookup_reply, 48);
  AT(kvkeep_lookup_reply, leading_keys, 4);
  AT(kvkeep_lookup_reply, leased_keys, 8);
  AT(kvkeep_lookup_reply, promotion_us, 12);
  AT(kvkeep_lookup_reply, leased_bytes, 16);
  AT(kvkeep_lookup_reply, lease, 24);
  AT(kvkeep_lookup_reply, remote_keys, 32);
  AT(kvkeep_lookup_reply, remote_us, 36);
  AT(kvkeep_lookup_reply, remote_asked, 40);
  SIZE(kvkeep_get_request, 112);  // 104 later, 96 at first
  AT(kvkeep_get_request, keys, 8);
  AT(kvkeep_get_request, lease, 40);
  AT(kvkeep_get_request, first_key, 48);
  AT(kvkeep_get_request, flags, 52);
  AT(kvkeep_get_request, first_piece, 56);
  AT(kvkeep_get_request, pieces, 60);
  AT(kvkeep_get_request, destinations, 64);
  AT(kvkeep_get_request, outcomes, 72);
  AT(kvkeep_get_request, metadata, 80);
  AT(kvkeep_get_request, chunk_count, 88);
  AT(kvkeep_get_request, run_counts, 96);
  AT(kvkeep_get_request, remote_wait_us, 104);
  SIZE(kvkeep_put_request, 40);
  AT(kvkeep_put_request, ns, 8);
  AT(kvkeep_put_request, chunks, 16);
  AT(kvkeep_put_request, chunk_count, 24);
  AT(kvkeep_put_request, flags, 28);
  AT(kvkeep_put_request, outcomes, 32);
  SIZE(kvkeep_keys_request, 40);
  AT(kvkeep_keys_request, keys, 8);
  SIZE(kvkeep_count_reply, 16);
  AT(kvkeep_count_reply, chunks, 8);
  SIZE(kvkeep_prefetch_reply, 24);
  AT(kvkeep_prefetch_reply, ready_chunks, 16);
  SIZE(kvkeep_server_info, 424);
  AT(kvkeep_server_info, incarnation, 8);
  AT(kvkeep_server_info, max_sessions, 64);
  AT(kvkeep_server_info, version, 72);
  AT(kvkeep_server_info, state, 136);
  AT(kvkeep_server_info, features, 168);
}

static void structs_of_the_local_path_keep_their_layout(void) {
  SIZE(kvkeep_acquire_request, 48);
  AT(kvkeep_acquire_request, keys, 8);
  AT(kvkeep_acquire_request, flags, 40);
  SIZE(kvkeep_acquire_reply, 24);
  AT(kvkeep_acquire_reply, leading_keys, 4);
  AT(kvkeep_acquire_reply, leased_keys, 8);
  AT(kvkeep_acquire_reply, chunk_count, 12);
  AT(kvkeep_acquire_reply, acquired, 16);
  SIZE(kvkeep_chunk_view, 40);
  AT(kvkeep_chunk_view, run_count, 4);
  AT(kvkeep_chunk_view, payload_bytes, 8);
  AT(kvkeep_chunk_view, runs, 16);
  AT(kvkeep_chunk_view, metadata, 24);
  AT(kvkeep_chunk_view, metadata_run_count, 32);
  SIZE(kvkeep_copy_request, 32);
  AT(kvkeep_copy_request, index, 4);
  AT(kvkeep_copy_request, offset, 8);
  AT(kvkeep_copy_request, to, 16);
  AT(kvkeep_copy_request, to_count, 24);
  AT(kvkeep_copy_request, timeout_ms, 28);
}

static void structs_of_gpu_memory_keep_their_layout(void) {
  SIZE(kvkeep_gpu_range, 40);  // 32 at first
  AT(kvkeep_gpu_range, deadline_ms, 4);
  AT(kvkeep_gpu_range, address, 8);
  AT(kvkeep_gpu_range, bytes, 16);
  AT(kvkeep_gpu_range, driver, 24);
  AT(kvkeep_gpu_range, flags, 32);
  SIZE(kvkeep_gpu_run, 24);
  AT(kvkeep_gpu_run, offset, 8);
  AT(kvkeep_gpu_run, bytes, 16);
  SIZE(kvkeep_gpu_put_chunk, 104);
  AT(kvkeep_gpu_put_chunk, parent_key, 32);
  AT(kvkeep_gpu_put_chunk, part, 64);
  AT(kvkeep_gpu_put_chunk, has_parent, 68);
  AT(kvkeep_gpu_put_chunk, runs, 72);
  AT(kvkeep_gpu_put_chunk, run_count, 80);
  AT(kvkeep_gpu_put_chunk, metadata, 88);
  AT(kvkeep_gpu_put_chunk, metadata_bytes, 96);
  SIZE(kvkeep_gpu_put_request, 48);  // 40 at first
  AT(kvkeep_gpu_put_request, ns, 8);
  AT(kvkeep_gpu_put_request, chunks, 16);
  AT(kvkeep_gpu_put_request, chunk_count, 24);
  AT(kvkeep_gpu_put_request, flags, 28);
  AT(kvkeep_gpu_put_request, outcomes, 32);
  AT(kvkeep_gpu_put_request, use, 40);
  SIZE(kvkeep_gpu_get_chunk, 56);
  AT(kvkeep_gpu_get_chunk, part, 32);
  AT(kvkeep_gpu_get_chunk, runs, 40);
  AT(kvkeep_gpu_get_chunk, run_count, 48);
  SIZE(kvkeep_gpu_get_request, 64);  // 56 at first
  AT(kvkeep_gpu_get_request, ns, 8);
  AT(kvkeep_gpu_get_request, lease, 16);
  AT(kvkeep_gpu_get_request, chunks, 24);
  AT(kvkeep_gpu_get_request, chunk_count, 32);
  AT(kvkeep_gpu_get_request, flags, 36);
  AT(kvkeep_gpu_get_request, outcomes, 40);
  AT(kvkeep_gpu_get_request, metadata, 48);
  AT(kvkeep_gpu_get_request, use, 56);
  SIZE(kvkeep_watch_event, 40);
  AT(kvkeep_watch_event, part, 32);
  AT(kvkeep_watch_event, tier, 36);
  AT(kvkeep_watch_event, stored, 38);
  SIZE(kvkeep_watch_news, 40);
  AT(kvkeep_watch_news, begins, 4);
  AT(kvkeep_watch_news, snapshot_end, 8);
  AT(kvkeep_watch_news, epoch, 16);
  AT(kvkeep_watch_news, event_count, 24);
  AT(kvkeep_watch_news, events, 32);
  SIZE(kvkeep_gpu_stats, 56);
  AT(kvkeep_gpu_stats, registered, 8);
  AT(kvkeep_gpu_stats, bytes_got, 48);
  SIZE(kvkeep_pin_request, 16);
  AT(kvkeep_pin_request, device, 4);
  AT(kvkeep_pin_request, driver, 8);
  SIZE(kvkeep_pin_stats, 280);
  AT(kvkeep_pin_stats, finished, 4);
  AT(kvkeep_pin_stats, pinned_bytes, 8);
  AT(kvkeep_pin_stats, refused_bytes, 16);
  AT(kvkeep_pin_stats, first_refusal, 24);
}

static void structs_of_the_planner_keep_their_layout(void) {
  SIZE(kvkeep_kv_layout, 56);
  AT(kvkeep_kv_layout, format, 4);
  AT(kvkeep_kv_layout, layers, 8);
  AT(kvkeep_kv_layout, blocks, 12);
  AT(kvkeep_kv_layout, block_tokens, 16);
  AT(kvkeep_kv_layout, heads, 20);
  AT(kvkeep_kv_layout, head_bytes, 24);
  AT(kvkeep_kv_layout, order, 28);
  AT(kvkeep_kv_layout, tensors, 32);
  AT(kvkeep_kv_layout, strides, 40);
  AT(kvkeep_kv_layout, tensor_count, 48);
  SIZE(kvkeep_kv_plan_request, 56);
  AT(kvkeep_kv_plan_request, block_table, 8);
  AT(kvkeep_kv_plan_request, block_count, 16);
  AT(kvkeep_kv_plan_request, first_token, 24);
  AT(kvkeep_kv_plan_request, tokens, 32);
  AT(kvkeep_kv_plan_request, runs, 40);
  AT(kvkeep_kv_plan_request, room, 48);
  SIZE(kvkeep_page_tensor, 56);
  AT(kvkeep_page_tensor, offset, 8);
  AT(kvkeep_page_tensor, bytes, 16);
  AT(kvkeep_page_tensor, layers, 24);
  AT(kvkeep_page_tensor, blocks, 28);
  AT(kvkeep_page_tensor, layer_stride, 32);
  AT(kvkeep_page_tensor, block_stride, 40);
  AT(kvkeep_page_tensor, page_bytes, 48);
  SIZE(kvkeep_page_layout, 24);
  AT(kvkeep_page_layout, shards, 4);
  AT(kvkeep_page_layout, tensors, 8);
  AT(kvkeep_page_layout, tensor_count, 16);
  SIZE(kvkeep_page_plan_request, 40);
  AT(kvkeep_page_plan_request, shard, 4);
  AT(kvkeep_page_plan_request, blocks, 8);
  AT(kvkeep_page_plan_request, block_count, 16);
  AT(kvkeep_page_plan_request, runs, 24);
  AT(kvkeep_page_plan_request, room, 32);
  CHECK(KVKEEP_KV_LAYERS_KV_BLOCKS == 0 && KVKEEP_KV_LAYERS_BLOCKS_KV == 1);
  CHECK(KVKEEP_KV_LAYERS_KV_BLOCKS_HND == 2 && KVKEEP_KV_LAYERS_BLOCKS_KV_HND == 3);
  CHECK(KVKEEP_KV_LAYERS_FUSED == 4 && KVKEEP_KV_LAYERS_FUSED_HND == 5);
  CHECK(KVKEEP_KV_LATENT == 6 && KVKEEP_KV_SPLIT == 7 && KVKEEP_KV_ONE_TENSOR == 8);
  CHECK(KVKEEP_KV_BLOCKS_FIRST == 9);
  CHECK(KVKEEP_KV_ORDER_MEMORY == 0 && KVKEEP_KV_ORDER_CANONICAL == 1);
  CHECK(KVKEEP_MAX_GPU_RUNS == 65536);
}

static void enum_values_are_fixed(void) {
  CHECK(KVKEEP_OK == 0 && KVKEEP_CANCELLED == 1 && KVKEEP_INVALID_ARGUMENT == 3);
  CHECK(KVKEEP_DEADLINE_EXCEEDED == 4 && KVKEEP_PERMISSION_DENIED == 7);
  CHECK(KVKEEP_RESOURCE_EXHAUSTED == 8 && KVKEEP_FAILED_PRECONDITION == 9);
  CHECK(KVKEEP_INTERNAL == 13 && KVKEEP_UNAVAILABLE == 14 && KVKEEP_DATA_LOSS == 15);
  CHECK(KVKEEP_OP_LOOKUP == 1 && KVKEEP_OP_GET == 2 && KVKEEP_OP_PUT == 3 && KVKEEP_OP_TOUCH == 4);
  CHECK(KVKEEP_OP_PREFETCH == 5 && KVKEEP_OP_DELETE == 6 && KVKEEP_OP_RELEASE == 7);
  CHECK(KVKEEP_OP_SERVER_INFO == 8 && KVKEEP_OP_ACQUIRE == 9);
  CHECK(KVKEEP_OP_GPU_PUT == 10 && KVKEEP_OP_GPU_GET == 11);
  CHECK(KVKEEP_PATH_AUTO == 0 && KVKEEP_PATH_GRPC == 1 && KVKEEP_PATH_LOCAL == 2);
  CHECK(KVKEEP_ACQUIRE_ALL_PRESENT == 1 && KVKEEP_ACQUIRE_TRANSIENT == 2);
  CHECK(KVKEEP_LEASE_NONE == 0 && KVKEEP_LEASE_LEADING_RUN == 1 && KVKEEP_LEASE_ALL_PRESENT == 2);
  CHECK(KVKEEP_GET_UNFINISHED == 0 && KVKEEP_GET_HIT == 1 && KVKEEP_GET_MISS == 2);
  CHECK(KVKEEP_GET_CORRUPT == 3 && KVKEEP_GET_BUSY == 4 && KVKEEP_GET_TOO_SMALL == 5);
  CHECK(KVKEEP_PUT_UNFINISHED == 0 && KVKEEP_PUT_STORED == 1 && KVKEEP_PUT_PRESENT == 2);
  CHECK(KVKEEP_PUT_REJECTED == 3 && KVKEEP_IN_G2 == 1 && KVKEEP_IN_G3 == 2);
  CHECK(KVKEEP_PUT_DURABLE == 1 && KVKEEP_PUT_TRANSIENT == 2 && KVKEEP_PUT_NO_G3 == 4);
  CHECK(KVKEEP_PUT_CHECKSUM == 8 && KVKEEP_GET_TRANSIENT == 1 && KVKEEP_GET_NO_VERIFY == 2);
}

static void the_library_says_its_versions_and_names_every_code(void) {
  CHECK(kvkeep_abi_version() == KVKEEP_ABI_VERSION && KVKEEP_ABI_VERSION == 1);
  CHECK(strlen(kvkeep_version()) >= 5);
  CHECK(strcmp(kvkeep_code_name(KVKEEP_OK), "OK") == 0);
  CHECK(strcmp(kvkeep_code_name(KVKEEP_INVALID_ARGUMENT), "INVALID_ARGUMENT") == 0);
  CHECK(strcmp(kvkeep_code_name(KVKEEP_FAILED_PRECONDITION), "FAILED_PRECONDITION") == 0);
  CHECK(strcmp(kvkeep_code_name(KVKEEP_UNAVAILABLE), "UNAVAILABLE") == 0);
  CHECK(strcmp(kvkeep_code_name(KVKEEP_DATA_LOSS), "DATA_LOSS") == 0);
  CHECK(kvkeep_code_name(-1) != NULL && kvkeep_code_name(16) != NULL);
}

int main(void) {
  static const test_case tests[] = {
      {"fixed structs keep their layout", fixed_structs_keep_their_layout},
      {"structs of clients and namespaces keep their layout",
       structs_of_clients_and_namespaces_keep_their_layout},
      {"requests and replies keep their layout", requests_and_replies_keep_their_layout},
      {"structs of the local path keep their layout", structs_of_the_local_path_keep_their_layout},
      {"structs of GPU memory keep their layout", structs_of_gpu_memory_keep_their_layout},
      {"structs of the planner keep their layout", structs_of_the_planner_keep_their_layout},
      {"enum values are fixed", enum_values_are_fixed},
      {"the library says its versions and names every code",
       the_library_says_its_versions_and_names_every_code},
  };
  return RUN_TESTS(tests);
}
