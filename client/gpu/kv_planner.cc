#include "client/gpu/kv_planner.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "client/gpu/run_list.h"
#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {

using enum KvAxis;

// Slots of one block.
struct KvPlanner::Part {
  uint64_t block = 0;
  uint64_t first_slot = 0;
  uint64_t slots = 0;
};

// The position of an element by the axes above a level.
struct KvPlanner::Position {
  uint64_t tensor = 0;
  uint64_t offset = 0;         // in the tensor
  const Part* part = nullptr;  // null above the block's axis
};

class KvPlanner::Output {
 public:
  Output(std::span<const Part> parts, size_t max_runs) : parts_(parts), runs_(max_runs) {}

  std::span<const Part> parts() const { return parts_; }
  bool full() const { return runs_.full(); }
  std::vector<GpuRun> Take() { return runs_.Take(); }
  void Add(const KvTensor& tensor, uint64_t offset, uint64_t bytes) {
    runs_.Add({.region = tensor.region, .offset = tensor.offset + offset, .bytes = bytes});
  }

 private:
  const std::span<const Part> parts_;
  RunList runs_;
};

absl::Status KvPlannerOptions::Validate() const {
  if (max_runs == 0) return absl::InvalidArgumentError("max_runs is 0");
  if (max_chunk_bytes == 0 || max_chunk_bytes > kMaxPayloadBytes) {
    return absl::InvalidArgumentError(absl::StrCat("max_chunk_bytes is ", max_chunk_bytes,
                                                   ", allowed are 1 to ", kMaxPayloadBytes));
  }
  return layout.Validate();
}

absl::StatusOr<KvPlanner> KvPlanner::Make(KvPlannerOptions options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  uint64_t bytes = options.layout.head_bytes;
  for (const KvAxis axis : {kLayer, kKv, kHead}) {
    if (__builtin_mul_overflow(bytes, options.layout.axis(axis).extent, &bytes)) {
      return absl::InvalidArgumentError("layout: a token is larger than any memory");
    }
  }
  if (bytes > options.max_chunk_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "layout: a token has ", bytes, " bytes, a chunk at most ", options.max_chunk_bytes));
  }
  return KvPlanner(std::move(options), bytes);
}

KvPlanner::KvPlanner(KvPlannerOptions options, uint64_t bytes_per_token)
    : options_(std::move(options)),
      order_(options_.order == KvOrder::kMemory
                 ? options_.layout.MemoryOrder()
                 : std::array<KvAxis, kKvAxes>{kKv, kLayer, kBlock, kSlot, kHead}),
      bytes_per_token_(bytes_per_token) {}

absl::StatusOr<std::vector<GpuRun>> KvPlanner::Plan(const KvTokens& what) const {
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<Part> parts, Parts(what));
  Output out(parts, options_.max_runs);
  Emit(0, {}, &out);
  if (out.full()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("a chunk of ", what.tokens, " tokens has more than ", options_.max_runs,
                     " runs: smaller chunks, larger blocks or the order kMemory have less"));
  }
  return out.Take();
}

absl::StatusOr<std::vector<KvPlanner::Part>> KvPlanner::Parts(const KvTokens& what) const {
  const uint64_t block_tokens = options_.layout.axis(kSlot).extent;
  const uint64_t blocks = options_.layout.axis(kBlock).extent;
  const uint64_t most = options_.max_chunk_bytes / bytes_per_token_;
  if (what.tokens == 0 || what.tokens > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens is ", what.tokens, ", a chunk may have 1 to ", most));
  }
  uint64_t end = 0;
  if (__builtin_add_overflow(what.first_token, what.tokens, &end) ||
      (end - 1) / block_tokens >= what.block_table.size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tokens: ", what.tokens, " from ", what.first_token, " on; the block table has ",
        what.block_table.size(), " blocks of ", block_tokens));
  }
  std::vector<Part> parts;
  for (uint64_t token = what.first_token; token < end;) {
    const uint64_t index = token / block_tokens, slot = token % block_tokens;
    const uint64_t slots = std::min(block_tokens - slot, end - token);
    const uint64_t block = what.block_table[index];
    if (block >= blocks) {
      return absl::InvalidArgumentError(
          absl::StrCat("block_table[", index, "] is ", block, " of ", blocks, " blocks"));
    }
    parts.push_back({.block = block, .first_slot = slot, .slots = slots});
    token += slots;
  }
  return parts;
}

// Returns the bytes below `level` if they lie in one piece in the order of the payload, else 0.
uint64_t KvPlanner::InOnePiece(size_t level, uint64_t slots) const {
  uint64_t bytes = options_.layout.head_bytes;
  for (size_t i = kKvAxes; i-- > level;) {
    const KvLayout::Axis& axis = options_.layout.axis(order_[i]);
    const uint64_t extent = order_[i] == kSlot ? slots : axis.extent;
    if (extent == 1 && !axis.picks_tensor) continue;
    if (axis.picks_tensor || axis.stride != bytes) return 0;
    bytes *= extent;
  }
  return bytes;
}

void KvPlanner::Emit(size_t level, const Position& at, Output* out) const {
  const KvLayout& layout = options_.layout;
  if (at.part != nullptr) {
    // At the last level this is always so.
    if (const uint64_t bytes = InOnePiece(level, at.part->slots); bytes > 0) {
      return out->Add(layout.tensors[at.tensor], at.offset, bytes);
    }
  }
  KVKEEP_CHECK(level < kKvAxes);
  const KvAxis which = order_[level];
  const KvLayout::Axis& axis = layout.axis(which);
  Position next = at;
  if (which == kBlock) {
    for (const Part& part : out->parts()) {
      next.part = &part;
      next.offset =
          at.offset + part.block * axis.stride + part.first_slot * layout.axis(kSlot).stride;
      Emit(level + 1, next, out);
      if (out->full()) return;
    }
    return;
  }
  const uint64_t extent = which == kSlot ? at.part->slots : axis.extent;
  // Tensors are in the order kv, layer.
  const bool many_layers = which == kKv && layout.axis(kLayer).picks_tensor;
  const uint64_t tensors = many_layers ? layout.axis(kLayer).extent : 1;
  for (uint64_t i = 0; i < extent; ++i) {
    if (axis.picks_tensor) {
      next.tensor = at.tensor + i * tensors;
    } else {
      next.offset = at.offset + i * axis.stride;
    }
    Emit(level + 1, next, out);
    if (out->full()) return;
  }
}

}  // namespace kvkeep::client
