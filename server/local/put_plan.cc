#include "server/local/put_plan.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "proto/local/message.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr uint32_t kKnownFlags = local::kPutHasParent | local::kPutDurable | local::kPutTransient |
                                 local::kPutNoG3 | local::kPutHasChecksum;

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

}  // namespace

absl::StatusOr<PutPlan> PutPlan::Parse(std::span<const std::byte> body, const LocalLimits& limits,
                                       const SessionMemory& memory) {
  local::BodyReader reader(body);
  local::PutRequest request;
  PutPlan plan;
  if (!reader.Read(&request)) return Invalid("PutRequest: ", body.size(), " bytes are too few");
  if (request.chunks == 0 || request.chunks > limits.max_put_chunks) {
    return Invalid("chunks is ", request.chunks, ", allowed are 1 to ", limits.max_put_chunks,
                   " (max_put_chunks)");
  }
  if (request.runs > limits.max_put_runs) {
    return Invalid("runs is ", request.runs, ", allowed are at most ", limits.max_put_runs);
  }
  std::vector<local::PutRun> runs;
  if (!reader.ReadAll(request.chunks, &plan.chunks_) || !reader.ReadAll(request.runs, &runs)) {
    return Invalid("PutRequest: chunks and runs need more bytes than the ", body.size(),
                   " that came");
  }
  plan.ns_.bytes = request.ns;
  plan.tails_.assign(reader.rest().begin(), reader.rest().end());
  KVKEEP_RETURN_IF_ERROR(plan.AddRuns(runs, memory));
  KVKEEP_RETURN_IF_ERROR(plan.CheckChunks(plan.tails_.size()));
  return plan;
}

absl::Status PutPlan::AddRuns(std::span<const local::PutRun> runs, const SessionMemory& memory) {
  runs_.reserve(runs.size());
  starts_.reserve(runs.size() + 1);
  starts_.push_back(0);
  std::vector<uint32_t> regions;  // of memories_
  for (size_t i = 0; i < runs.size(); ++i) {
    const local::PutRun& run = runs[i];
    size_t known = static_cast<size_t>(std::find(regions.begin(), regions.end(), run.region) -
                                       regions.begin());
    if (known == regions.size()) {
      std::shared_ptr<const ClientMemory> found = memory.Find(run.region);
      if (found == nullptr) {
        return Invalid("runs[", i, "].region is ", run.region, ", ",
                       run.region == local::kStagingRegion ? "but there is no staging memory"
                                                           : "which is not registered");
      }
      regions.push_back(run.region);
      memories_.push_back(std::move(found));
    }
    const uint64_t size = memories_[known]->bytes();
    if (run.bytes == 0) return Invalid("runs[", i, "].bytes is 0");
    if (run.offset > size || run.bytes > size - run.offset) {
      return Invalid("runs[", i, "]: ", run.bytes, " bytes at ", run.offset, "; region ",
                     run.region, " has ", size);
    }
    runs_.push_back({.memory = static_cast<uint32_t>(known), .offset = run.offset});
    starts_.push_back(starts_.back() + run.bytes);
  }
  return absl::OkStatus();
}

absl::Status PutPlan::CheckChunks(uint64_t tail_bytes) {
  tail_starts_.reserve(chunks_.size());
  uint64_t tails = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const local::PutChunk& chunk = chunks_[i];
    if ((chunk.flags & ~kKnownFlags) != 0) {
      return Invalid("chunks[", i, "].flags is ", chunk.flags, ", known are ", kKnownFlags);
    }
    const uint64_t end = uint64_t{chunk.first_run} + chunk.runs;
    if (end > runs_.size()) {
      return Invalid("chunks[", i, "]: its runs end at ", end, ", runs is ", runs_.size());
    }
    const uint64_t sum = starts_[end] - starts_[chunk.first_run];
    if (sum != chunk.payload_bytes) {
      return Invalid("chunks[", i, "].payload_bytes is ", chunk.payload_bytes, ", its runs have ",
                     sum);
    }
    tail_starts_.push_back(tails);
    tails += chunk.tail_bytes;
  }
  if (tails != tail_bytes) {
    return Invalid("tail_bytes of all chunks are ", tails, ", after the runs come ", tail_bytes);
  }
  return absl::OkStatus();
}

std::span<const std::byte> PutPlan::tail(size_t chunk) const {
  return std::span(tails_).subspan(tail_starts_[chunk], chunks_[chunk].tail_bytes);
}

absl::Status PutPlan::ReadPayload(size_t chunk, uint64_t offset, std::span<std::byte> to) const {
  uint64_t at = starts_[chunks_[chunk].first_run] + offset;  // in the row of all runs
  // The last run that starts at or before it.
  size_t run =
      static_cast<size_t>(std::upper_bound(starts_.begin(), starts_.end(), at) - starts_.begin()) -
      1;
  while (!to.empty()) {
    const uint64_t in_run = at - starts_[run];
    const size_t bytes = std::min<uint64_t>(to.size(), starts_[run + 1] - at);
    KVKEEP_RETURN_IF_ERROR(
        memories_[runs_[run].memory]->Read(runs_[run].offset + in_run, to.first(bytes)));
    to = to.subspan(bytes);
    at += bytes;
    ++run;
  }
  return absl::OkStatus();
}

}  // namespace kvkeep
