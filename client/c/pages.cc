// Implements kvkeep_kv.h's planner of whole blocks.
#include "client/c/border.h"
#include "client/c/kvkeep_kv.h"
#include "client/c/runs.h"
#include "client/gpu/page_planner.h"
#include "tiers/base/status_macros.h"

struct kvkeep_page_planner {
  kvkeep::client::PagePlanner impl;
};

namespace kvkeep::client {
namespace {

absl::Status CreatePages(const kvkeep_page_layout* given, kvkeep_page_planner** out) {
  if (out == nullptr) return IsNull("out");
  *out = nullptr;
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_page_layout layout, CopyIn("layout", given));
  KVKEEP_RETURN_IF_ERROR(CheckTensors(layout.tensors, layout.tensor_count));
  PagePlannerOptions options = {.shards = layout.shards, .max_runs = KVKEEP_MAX_GPU_RUNS};
  options.tensors.reserve(layout.tensor_count);
  for (const kvkeep_page_tensor& tensor : std::span(layout.tensors, layout.tensor_count)) {
    options.tensors.push_back({.region = GpuRegionId(tensor.region),
                               .offset = tensor.offset,
                               .bytes = tensor.bytes,
                               .layers = tensor.layers,
                               .blocks = tensor.blocks,
                               .layer_stride = tensor.layer_stride,
                               .block_stride = tensor.block_stride,
                               .page_bytes = tensor.page_bytes});
  }
  KVKEEP_ASSIGN_OR_RETURN(PagePlanner planner, PagePlanner::Make(std::move(options)));
  *out = new kvkeep_page_planner{std::move(planner)};
  return absl::OkStatus();
}

absl::Status PlanPages(const kvkeep_page_planner* planner, const kvkeep_page_plan_request* given,
                       uint64_t* run_count) {
  if (run_count == nullptr) return IsNull("run_count");
  *run_count = 0;
  if (planner == nullptr) return IsNull("planner");
  KVKEEP_ASSIGN_OR_RETURN(const kvkeep_page_plan_request request, CopyIn("request", given));
  if (request.blocks == nullptr) return IsNull("blocks");
  if (request.runs == nullptr && request.room != 0) return IsNull("runs");
  KVKEEP_ASSIGN_OR_RETURN(const std::vector<GpuRun> runs,
                          planner->impl.Plan({.blocks = {request.blocks, request.block_count},
                                              .shard = request.shard}));
  return WriteRuns(runs, request.runs, request.room, run_count);
}

}  // namespace
}  // namespace kvkeep::client

using kvkeep::client::Guarded;
using kvkeep::client::Report;

int kvkeep_page_planner_create(const kvkeep_page_layout* layout, kvkeep_page_planner** out,
                               kvkeep_error* error) {
  return Guarded(error, [&] { return Report(kvkeep::client::CreatePages(layout, out), error); });
}

uint64_t kvkeep_page_planner_bytes_per_block(const kvkeep_page_planner* planner) {
  return planner == nullptr ? 0 : planner->impl.bytes_per_block();
}

int kvkeep_page_plan(const kvkeep_page_planner* planner, const kvkeep_page_plan_request* request,
                     uint64_t* run_count, kvkeep_error* error) {
  return Guarded(error, [&] {
    return Report(kvkeep::client::PlanPages(planner, request, run_count), error);
  });
}

void kvkeep_page_planner_free(kvkeep_page_planner* planner) { delete planner; }
