#include "client/gpu/page_planner.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "client/gpu/run_list.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

struct Steps {
  const char* name;
  uint64_t count, stride;
};

absl::Status CheckTensor(const PageTensor& tensor, uint32_t shards) {
  if (tensor.layers == 0) return absl::InvalidArgumentError("layers is 0");
  if (tensor.blocks == 0) return absl::InvalidArgumentError("blocks is 0");
  if (tensor.page_bytes == 0 || tensor.page_bytes % shards != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_bytes is ", tensor.page_bytes, ", shards are ", shards));
  }
  // From the smaller stride on: each goes beyond the reach of the ones before.
  Steps inner = {"layer_stride", tensor.layers, tensor.layer_stride};
  Steps outer = {"block_stride", tensor.blocks, tensor.block_stride};
  if (inner.stride > outer.stride) std::swap(inner, outer);
  uint64_t reach = tensor.page_bytes;
  for (const Steps& steps : {inner, outer}) {
    if (steps.count == 1) continue;
    if (steps.stride < reach) {
      return absl::InvalidArgumentError(absl::StrCat(steps.name, " is ", steps.stride, " over ",
                                                     reach, " bytes: pages overlap"));
    }
    uint64_t all = 0;
    if (__builtin_mul_overflow(steps.count - 1, steps.stride, &all) ||
        __builtin_add_overflow(all, reach, &reach)) {
      return absl::InvalidArgumentError(
          absl::StrCat(steps.name, " is ", steps.stride, ": larger than any memory"));
    }
  }
  uint64_t end = 0;
  if (tensor.bytes < reach || __builtin_add_overflow(tensor.offset, reach, &end)) {
    return absl::InvalidArgumentError(absl::StrCat("bytes is ", tensor.bytes, " at offset ",
                                                   tensor.offset, "; its pages take ", reach));
  }
  return absl::OkStatus();
}

// Returns the bytes of one shard of every page. REQUIRES: the tensors are valid.
absl::StatusOr<uint64_t> BytesOfBlock(const PagePlannerOptions& options) {
  uint64_t all = 0;
  for (const PageTensor& tensor : options.tensors) {
    const uint64_t shard = tensor.page_bytes / options.shards;
    uint64_t of_layers = 0;
    if (__builtin_mul_overflow(shard, uint64_t{tensor.layers}, &of_layers) ||
        __builtin_add_overflow(all, of_layers, &all) || all > options.max_chunk_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("a block is larger than the ",
                                                     options.max_chunk_bytes,
                                                     " bytes that a chunk may have"));
    }
  }
  return all;
}

}  // namespace

absl::Status PagePlannerOptions::Validate() const {
  if (max_runs == 0) return absl::InvalidArgumentError("max_runs is 0");
  if (max_chunk_bytes == 0 || max_chunk_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_chunk_bytes is ", max_chunk_bytes,
                                                   ", allowed are 1 to ", kMaxPayloadBytes));
  }
  if (shards == 0) return absl::InvalidArgumentError("shards is 0");
  if (tensors.empty()) return absl::InvalidArgumentError("tensors: there are none");
  for (size_t i = 0; i < tensors.size(); ++i) {
    absl::Status status = CheckTensor(tensors[i], shards);
    if (status.ok() && tensors[i].blocks != tensors[0].blocks) {
      status = absl::InvalidArgumentError(
          absl::StrCat("blocks is ", tensors[i].blocks, ", tensors[0] has ", tensors[0].blocks));
    }
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors[", i, "]: ", std::string(status.message())));
    }
  }
  return BytesOfBlock(*this).status();
}

absl::StatusOr<PagePlanner> PagePlanner::Make(PagePlannerOptions options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  KVKEEP_ASSIGN_OR_RETURN(const uint64_t bytes, BytesOfBlock(options));
  return PagePlanner(std::move(options), bytes);
}

PagePlanner::PagePlanner(PagePlannerOptions options, uint64_t bytes_per_block)
    : options_(std::move(options)), bytes_per_block_(bytes_per_block) {}

absl::StatusOr<std::vector<GpuRun>> PagePlanner::Plan(const PageBlocks& what) const {
  const uint64_t most = options_.max_chunk_bytes / bytes_per_block_;
  if (what.blocks.empty() || what.blocks.size() > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(what.blocks.size(), " blocks, a chunk may have 1 to ", most));
  }
  if (what.shard >= options_.shards) {
    return absl::InvalidArgumentError(
        absl::StrCat("shard is ", what.shard, " of ", options_.shards));
  }
  RunList runs(options_.max_runs);
  for (size_t i = 0; i < what.blocks.size() && !runs.full(); ++i) {
    const uint64_t block = what.blocks[i];
    if (block >= options_.tensors[0].blocks) {
      return absl::InvalidArgumentError(absl::StrCat("blocks[", i, "] is ", block, " of ",
                                                     options_.tensors[0].blocks, " blocks"));
    }
    for (const PageTensor& tensor : options_.tensors) {
      const uint64_t shard_bytes = tensor.page_bytes / options_.shards;
      const uint64_t first =
          tensor.offset + block * tensor.block_stride + what.shard * shard_bytes;
      for (uint64_t layer = 0; layer < tensor.layers && !runs.full(); ++layer) {
        runs.Add({.region = tensor.region,
                  .offset = first + layer * tensor.layer_stride,
                  .bytes = shard_bytes});
      }
    }
  }
  if (runs.full()) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a chunk of ", what.blocks.size(), " blocks has more than ", options_.max_runs,
        " runs: fewer blocks, or a memory with the layers of a block together, have less"));
  }
  return runs.Take();
}

}  // namespace kvkeep::client
