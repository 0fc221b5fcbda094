#include "server/gpu/copy_plan.h"

#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

absl::StatusOr<CopyPlan> CopyPlan::Make(std::span<const GpuRun> runs, FindRange find,
                                        const CopyPlanLimits& limits) {
  KVKEEP_CHECK(limits.segment_bytes > 0 && limits.max_batch > 0);
  if (runs.empty() || runs.size() > limits.max_runs) {
    return absl::InvalidArgumentError(
        absl::StrCat("runs are ", runs.size(), ", allowed are 1 to ", limits.max_runs));
  }
  CopyPlan plan;
  plan.max_batch_ = limits.max_batch;
  for (size_t i = 0; i < runs.size(); ++i) {
    const GpuRun& run = runs[i];
    const GpuRange* const range = find(run.registration);
    if (range == nullptr) {
      return absl::NotFoundError(absl::StrCat(
          "runs[", i, "].registration is ", run.registration.value(), ", which is not registered"));
    }
    if (run.bytes == 0) return absl::InvalidArgumentError(absl::StrCat("runs[", i, "].bytes is 0"));
    if (run.offset > range->bytes || run.bytes > range->bytes - run.offset) {
      return absl::InvalidArgumentError(
          absl::StrCat("runs[", i, "]: ", run.bytes, " bytes at ", run.offset, "; registration ",
                       run.registration.value(), " has ", range->bytes));
    }
    KVKEEP_CHECK(run.arena_offset <= limits.arena_bytes &&
                 run.bytes <= limits.arena_bytes - run.arena_offset);
    plan.Add({.address = range->address + run.offset,
              .arena_offset = run.arena_offset,
              .bytes = run.bytes},
             limits.segment_bytes);
    plan.bytes_ += run.bytes;
  }
  return plan;
}

void CopyPlan::Add(Piece piece, uint64_t segment_bytes) {
  while (piece.bytes > 0) {
    const uint64_t in_segment = piece.arena_offset % segment_bytes;
    const uint64_t bytes = std::min(piece.bytes, segment_bytes - in_segment);
    Piece* const last = pieces_.empty() ? nullptr : &pieces_.back();
    if (in_segment > 0 && last != nullptr && last->address + last->bytes == piece.address &&
        last->arena_offset + last->bytes == piece.arena_offset) {
      last->bytes += bytes;
    } else {
      pieces_.push_back(
          {.address = piece.address, .arena_offset = piece.arena_offset, .bytes = bytes});
    }
    piece.address += bytes;
    piece.arena_offset += bytes;
    piece.bytes -= bytes;
  }
}

std::span<const CopyPlan::Piece> CopyPlan::batch(size_t number) const {
  const size_t first = number * max_batch_;
  KVKEEP_CHECK(first < pieces_.size());
  return std::span(pieces_).subspan(first, std::min(max_batch_, pieces_.size() - first));
}

}  // namespace kvkeep
