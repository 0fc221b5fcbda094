// Implements kvkeep_kv.h: the planner from KV layouts and block tables to runs.
#include "client/c/border.h"
#include "client/c/kvkeep_kv.h"
#include "client/c/runs.h"
#include "client/gpu/kv_planner.h"
#include "tiers/base/status_macros.h"

struct kvkeep_kv_planner {
  kvkeep::client::KvPlanner impl;
};

namespace kvkeep::client {
namespace {

static_assert(KVKEEP_KV_LAYERS_KV_BLOCKS == static_cast<int>(KvFormat::kLayersKvBlocks) &&
              KVKEEP_KV_LAYERS_BLOCKS_KV == static_cast<int>(KvFormat::kLayersBlocksKv) &&
              KVKEEP_KV_LAYERS_KV_BLOCKS_HND == static_cast<int>(KvFormat::kLayersKvBlocksHnd) &&
              KVKEEP_KV_LAYERS_BLOCKS_KV_HND == static_cast<int>(KvFormat::kLayersBlocksKvHnd) &&
              KVKEEP_KV_LAYERS_FUSED == static_cast<int>(KvFormat::kLayersFused) &&
              KVKEEP_KV_LAYERS_FUSED_HND == static_cast<int>(KvFormat::kLayersFusedHnd) &&
              KVKEEP_KV_LATENT == static_cast<int>(KvFormat::kLatent) &&
              KVKEEP_KV_SPLIT == static_cast<int>(KvFormat::kSplitKv) &&
              KVKEEP_KV_ONE_TENSOR == static_cast<int>(KvFormat::kOneTensor) &&
              KVKEEP_KV_BLOCKS_FIRST == static_cast<int>(KvFormat::kBlocksFirst) &&
              KVKEEP_KV_BLOCKS_FIRST + 1 == kKvFormats);
static_assert(KVKEEP_KV_ORDER_CANONICAL == static_cast<int>(KvOrder::kCanonical));

absl::StatusOr<KvLayout> LayoutOf(const kvkeep_kv_layout& given) {
  if (given.format >= kKvFormats) {
    return absl::InvalidArgumentError(
        absl::StrCat("format: ", given.format, " is not a kvkeep_kv_format"));
  }
  KVKEEP_RETURN_IF_ERROR(CheckTensors(given.tensors, given.tensor_count));
  std::vector<KvTensor> tensors;
  tensors.reserve(given.tensor_count);
  for (const kvkeep_gpu_run& tensor : std::span(given.tensors, given.tensor_count)) {
    tensors.push_back(
        {.region = GpuRegionId(tensor.region), .offset = tensor.offset, .bytes = tensor.bytes});
  }
  const KvShape shape = {.layers = given.layers,
                         .blocks = given.blocks,
                         .block_tokens = given.block_tokens,
                         .heads = given.heads,
                         .head_bytes = given.head_bytes};
  KvLayout layout = KvLayout::Dense(static_cast<KvFormat>(given.format), shape, std::move(tensors));
  for (size_t i = 0; given.strides != nullptr && i < kKvAxes; ++i) {
    if (!layout.axes[i].picks_tensor) layout.axes[i].stride = given.strides[i];
  }
  return layout;
}

absl::Status Create(const kvkeep_kv_layout* given, kvkeep_kv_planner** out) {
  if (out == nullptr) return IsNull("out");
  *out = nullptr;
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_kv_layout read, CopyIn("layout", given));
  if (read.order > KVKEEP_KV_ORDER_CANONICAL) {
    return absl::InvalidArgumentError(
        absl::StrCat("order: ", read.order, " is not a kvkeep_kv_order"));
  }
  KvPlannerOptions options = {.order = static_cast<KvOrder>(read.order),
                              .max_runs = KVKEEP_MAX_GPU_RUNS};
  KVKEEP_ASSIGN_OR_RETURN(options.layout, LayoutOf(read));
  KVKEEP_ASSIGN_OR_RETURN(KvPlanner planner, KvPlanner::Make(std::move(options)));
  *out = new kvkeep_kv_planner{std::move(planner)};
  return absl::OkStatus();
}

absl::Status Plan(const kvkeep_kv_planner* planner, const kvkeep_kv_plan_request* given,
                  uint64_t* run_count) {
  if (run_count == nullptr) return IsNull("run_count");
  *run_count = 0;
  if (planner == nullptr) return IsNull("planner");
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_kv_plan_request request, CopyIn("request", given));
  if (request.block_table == nullptr) return IsNull("block_table");
  if (request.runs == nullptr && request.room != 0) return IsNull("runs");
  KVKEEP_ASSIGN_OR_RETURN(
      const std::vector<GpuRun> runs,
      planner->impl.Plan({.block_table = {request.block_table, request.block_count},
                          .first_token = request.first_token,
                          .tokens = request.tokens}));
  return WriteRuns(runs, request.runs, request.room, run_count);
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Guarded;
using kvkeep::client::Report;

int kvkeep_kv_planner_create(const kvkeep_kv_layout* layout, kvkeep_kv_planner** out,
                             kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::Create(layout, out), error); });
}

uint64_t kvkeep_kv_planner_bytes_per_token(const kvkeep_kv_planner* planner) {
  return planner == nullptr ? 0 : planner->impl.bytes_per_token();
}

int kvkeep_kv_plan(const kvkeep_kv_planner* planner, const kvkeep_kv_plan_request* request,
                   uint64_t* run_count, kvkeep_error* error) {
  return Guarded(error,
                 [&] { return Report(kvkeep::client::Plan(planner, request, run_count), error); });
}

void kvkeep_kv_planner_free(kvkeep_kv_planner* planner) { delete planner; }
