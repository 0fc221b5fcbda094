// kvkeep_kv.h: the C ABI of the planners: tokens of a sequence, by an engine's block table, or
// whole blocks, as the fewest runs of registered GPU memory. Numbers only: no client, no driver.
// Part of kvkeep.h.
//
//   kvkeep_gpu_run tensor = {kvkeep_gpu_region_id(region), 0, kv_bytes};
//   kvkeep_kv_layout layout = {.size = sizeof layout, .format = KVKEEP_KV_ONE_TENSOR, .layers = 32,
//                              .blocks = 4096, .block_tokens = 16, .heads = 8, .head_bytes = 256,
//                              .tensors = &tensor, .tensor_count = 1};
//   if (kvkeep_kv_planner_create(&layout, &planner, &error)) return fail(error.message);
//
// The runs, one after the other, are the chunk's payload. A payload stored in the memory's order is
// of use only to the same layout: name that in kvkeep_namespace_spec.layout.
#pragma once

#include <kvkeep_gpu.h>

#ifdef __GNUC__
#pragma GCC visibility push(default)
#endif
#ifdef __cplusplus
extern "C" {
#endif

// NL layers, NB blocks, BS tokens a block, NH heads, HS elements a head.
typedef enum kvkeep_kv_format {
  KVKEEP_KV_LAYERS_KV_BLOCKS = 0,      // NL x [2, NB, BS, NH, HS]
  KVKEEP_KV_LAYERS_BLOCKS_KV = 1,      // NL x [NB, 2, BS, NH, HS]
  KVKEEP_KV_LAYERS_KV_BLOCKS_HND = 2,  // NL x [2, NB, NH, BS, HS]
  KVKEEP_KV_LAYERS_BLOCKS_KV_HND = 3,  // NL x [NB, 2, NH, BS, HS]
  KVKEEP_KV_LAYERS_FUSED = 4,          // NL x [NB, BS, NH, 2 * HS]: K and V side by side
  KVKEEP_KV_LAYERS_FUSED_HND = 5,      // NL x [NB, NH, BS, 2 * HS]
  KVKEEP_KV_LATENT = 6,                // NL x [NB, BS, HS]: no heads, K and V are one (MLA)
  KVKEEP_KV_SPLIT = 7,                 // 2NL x [NB * BS, NH, HS]: the layers' K, then their V
  KVKEEP_KV_ONE_TENSOR = 8,            // [NL, 2, NB, BS, NH, HS]
  KVKEEP_KV_BLOCKS_FIRST = 9           // [NB, NL, 2, BS, NH, HS]: all layers of a block together
} kvkeep_kv_format;

typedef enum kvkeep_kv_order {
  KVKEEP_KV_ORDER_MEMORY = 0,    // as the memory has it: the longest runs
  KVKEEP_KV_ORDER_CANONICAL = 1  // [2][layers][tokens][heads x dim] for every layout
} kvkeep_kv_order;

typedef struct kvkeep_kv_layout {
  uint32_t size;
  uint32_t format;  // kvkeep_kv_format
  uint32_t layers;
  uint32_t blocks;
  uint32_t block_tokens;
  uint32_t heads;       // of this rank; 1 for LATENT
  uint32_t head_bytes;  // of one head of K, or of V
  uint32_t order;       // kvkeep_kv_order
  // The tensors' places in registered memory: one, NL or 2NL of them, by the format.
  const kvkeep_gpu_run* tensors;
  // NULL: the tensors have no gaps. Otherwise the strides in bytes of layer, K to V, block, slot
  // and head; those of axes that pick a tensor are ignored.
  const uint64_t* strides;
  uint32_t tensor_count;
  uint32_t reserved;
} kvkeep_kv_layout;

typedef struct kvkeep_kv_planner kvkeep_kv_planner;

// Checks everything: elements that overlap or lie outside their tensor are INVALID_ARGUMENT. The
// planner keeps no region alive. End it with kvkeep_kv_planner_free.
int kvkeep_kv_planner_create(const kvkeep_kv_layout* layout, kvkeep_kv_planner** out,
                             kvkeep_error* error);
// Returns the payload bytes of one token: every layer's K and V.
uint64_t kvkeep_kv_planner_bytes_per_token(const kvkeep_kv_planner* planner);

// Token t lies in block block_table[t / block_tokens], slot t % block_tokens.
typedef struct kvkeep_kv_plan_request {
  uint32_t size;
  uint32_t reserved;
  const uint32_t* block_table;
  uint64_t block_count;  // of the table
  uint64_t first_token;
  uint64_t tokens;
  kvkeep_gpu_run* runs;  // written
  uint64_t room;         // KVKEEP_MAX_GPU_RUNS always suffice
} kvkeep_kv_plan_request;

// `run_count`: the number of runs written. OUT_OF_RANGE: none was written, and it says how much
// room they need. RESOURCE_EXHAUSTED: more than KVKEEP_MAX_GPU_RUNS.
int kvkeep_kv_plan(const kvkeep_kv_planner* planner, const kvkeep_kv_plan_request* request,
                   uint64_t* run_count, kvkeep_error* error);
void kvkeep_kv_planner_free(kvkeep_kv_planner* planner);

// The places of the pages of some layers; a page is a block's part of one layer, in one piece. The
// page of layer l and block b begins at offset + l * layer_stride + b * block_stride.
typedef struct kvkeep_page_tensor {
  uint64_t region;  // kvkeep_gpu_region_id
  uint64_t offset;
  uint64_t bytes;  // from offset on; every page lies within
  uint32_t layers;
  uint32_t blocks;
  uint64_t layer_stride;  // bytes
  uint64_t block_stride;
  uint64_t page_bytes;  // without padding
} kvkeep_page_tensor;

typedef struct kvkeep_page_layout {
  uint32_t size;
  uint32_t shards;  // equal parts of each page, 1 for whole ones
  const kvkeep_page_tensor* tensors;
  uint32_t tensor_count;
  uint32_t reserved;
} kvkeep_page_layout;

typedef struct kvkeep_page_planner kvkeep_page_planner;

// A planner of whole blocks, for pages with any contents. The payload is
// [block][tensor][layer][shard of the page], the same for all strides. Pages of a tensor that
// overlap or lie outside it are INVALID_ARGUMENT; the caller ensures that tensors do not overlap
// each other, and that no block is named twice. End it with kvkeep_page_planner_free.
int kvkeep_page_planner_create(const kvkeep_page_layout* layout, kvkeep_page_planner** out,
                               kvkeep_error* error);
// Returns the payload bytes of one block: one shard of every page.
uint64_t kvkeep_page_planner_bytes_per_block(const kvkeep_page_planner* planner);

typedef struct kvkeep_page_plan_request {
  uint32_t size;
  uint32_t shard;
  const uint32_t* blocks;  // in the order of their tokens
  uint64_t block_count;
  kvkeep_gpu_run* runs;  // written
  uint64_t room;         // KVKEEP_MAX_GPU_RUNS always suffice
} kvkeep_page_plan_request;

// As kvkeep_kv_plan.
int kvkeep_page_plan(const kvkeep_page_planner* planner, const kvkeep_page_plan_request* request,
                     uint64_t* run_count, kvkeep_error* error);
void kvkeep_page_planner_free(kvkeep_page_planner* planner);

#ifdef __cplusplus
}  // extern "C"
#endif
#ifdef __GNUC__
#pragma GCC visibility pop
#endif
