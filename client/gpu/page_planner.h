// PagePlanner: turns whole blocks of an engine's paged KV memory, with any contents of a page, into
// the fewest runs of registered memory. Pure: it knows numbers, no driver and no memory.
//
//   PagePlanner planner = PagePlanner::Make({.tensors = {k_and_v_of_all_layers}}).value();
//   auto runs = planner.Plan({.blocks = blocks_of_the_chunk});
//
// A page is a block's part of one layer, in one piece. A PageTensor has the places of the pages of
// some layers: the page of layer l and block b begins at offset + l * layer_stride + b *
// block_stride. This form serves vLLM's KVCacheTensor in layouts LBHNC and BLHNC, SGLang's planes
// of K and of V (a tensor each), MLA and the states of Mamba. KvPlanner is for layouts whose
// elements are known, and for tokens of a block.
//
// The payload is [block][tensor][layer][page] without gaps: the same bytes for all strides, so
// engines with different strides share it. Runs are joined where the memory has the payload's
// order.
//
// Shards are equal parts of each page, in its order: heads, in layouts where a page's outermost
// axis is its heads. The payload of a shard is [block][tensor][layer][shard of the page]. All
// checks are overflow-safe: a fault is INVALID_ARGUMENT. The caller ensures that tensors do not
// overlap each other, and that no block is named twice. Thread-safe, as it is constant.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/gpu/gpu_run.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

struct PageTensor {
  GpuRegionId region;
  uint64_t offset = 0;  // of layer 0, block 0
  uint64_t bytes = 0;   // from offset on; every page lies within
  uint32_t layers = 0;
  uint32_t blocks = 0;
  uint64_t layer_stride = 0, block_stride = 0;  // bytes
  uint64_t page_bytes = 0;                      // without padding
};

struct PagePlannerOptions {
  std::vector<PageTensor> tensors;              // in the payload's order, all of as many blocks
  uint32_t shards = 1;                          // of a page
  size_t max_runs = 65536;                      // of one chunk
  uint64_t max_chunk_bytes = kMaxPayloadBytes;  // of one chunk

  // InvalidArgument names the fault, such as pages that overlap or lie outside their tensor.
  absl::Status Validate() const;
};

struct PageBlocks {
  std::span<const uint32_t> blocks;  // in the order of their tokens
  uint32_t shard = 0;
};

class PagePlanner {
 public:
  static absl::StatusOr<PagePlanner> Make(PagePlannerOptions options);

  // Returns the payload bytes of one block: one shard of every page.
  uint64_t bytes_per_block() const { return bytes_per_block_; }
  // RESOURCE_EXHAUSTED: more runs than max_runs.
  absl::StatusOr<std::vector<GpuRun>> Plan(const PageBlocks& what) const;

 private:
  PagePlanner(PagePlannerOptions options, uint64_t bytes_per_block);

  PagePlannerOptions options_;
  uint64_t bytes_per_block_;
};

}  // namespace kvkeep::client
