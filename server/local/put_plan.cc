#include "server/local/put_plan.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "proto/local/message.h"
#include "tiers/base/check.h"
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

template <typename Request, typename Run>
absl::Status PutPlan::Read(std::span<const std::byte> body, const char* name,
                           const LocalLimits& limits, Request* request, std::vector<Run>* runs) {
  local::BodyReader reader(body);
  if (!reader.Read(request)) return Invalid(name, ": ", body.size(), " bytes are too few");
  if (request->chunks == 0 || request->chunks > limits.max_put_chunks) {
    return Invalid("chunks is ", request->chunks, ", allowed are 1 to ", limits.max_put_chunks,
                   " (max_put_chunks)");
  }
  if (request->runs > limits.max_put_runs) {
    return Invalid("runs is ", request->runs, ", allowed are at most ", limits.max_put_runs);
  }
  if (!reader.ReadAll(request->chunks, &chunks_) || !reader.ReadAll(request->runs, runs)) {
    return Invalid(name, ": chunks and runs need more bytes than the ", body.size(), " that came");
  }
  ns_.bytes = request->ns;
  tails_.assign(reader.rest().begin(), reader.rest().end());
  return absl::OkStatus();
}

template <typename Request>
absl::Status PutPlan::ReadHost(std::span<const std::byte> body, const char* name,
                               const LocalLimits& limits, const SessionMemory& memory,
                               Request* request) {
  std::vector<local::PutRun> runs;
  KVKEEP_RETURN_IF_ERROR(Read(body, name, limits, request, &runs));
  KVKEEP_RETURN_IF_ERROR(AddRuns(runs, memory));
  return CheckChunks(runs_);
}

template <typename Request>
absl::Status PutPlan::ReadGpu(std::span<const std::byte> body, const char* name,
                              const LocalLimits& limits, const SessionGpu& memory,
                              Request* request) {
  std::vector<local::GpuMemoryRun> runs;
  KVKEEP_RETURN_IF_ERROR(Read(body, name, limits, request, &runs));
  KVKEEP_ASSIGN_OR_RETURN(gpu_, GpuRuns::Check(runs, memory, GpuRuns::Skips::kNever));
  KVKEEP_RETURN_IF_ERROR(CheckChunks(gpu_->table()));
  uint64_t of_chunks = 0;
  for (const local::PutChunk& chunk : chunks_) of_chunks += chunk.runs;
  return gpu_->CheckCount(of_chunks);
}

absl::Status PutPlan::SetUntil(uint64_t deadline_ns) {
  if (deadline_ns == 0) return Invalid("deadline_ns is 0");
  until_ = MonotonicTime(std::min<uint64_t>(deadline_ns, MonotonicTime::max().count()));
  return absl::OkStatus();
}

absl::Status PutPlan::SetParts(const local::PutInParts& request, const SessionMemory& memory) {
  if (request.chunks != 1) return Invalid("chunks is ", request.chunks, ", in parts it is 1");
  staging_ = memory.staging();
  const uint64_t size = staging_ == nullptr ? 0 : staging_->bytes();
  const uint64_t at = request.filled_offset;
  if (at % sizeof(uint64_t) != 0 || at >= size) {
    return Invalid("filled_offset is ", at, ", no word of the ", size, " bytes of staging memory");
  }
  filled_word_ = at;
  return absl::OkStatus();
}

absl::StatusOr<PutPlan> PutPlan::Parse(local::Kind kind, std::span<const std::byte> body,
                                       const LocalLimits& limits, const SessionMemory& memory,
                                       const SessionGpu& gpu) {
  PutPlan plan;
  if (kind == local::Kind::kPut) {
    local::PutRequest request;
    KVKEEP_RETURN_IF_ERROR(plan.ReadHost(body, "PutRequest", limits, memory, &request));
  } else if (kind == local::Kind::kPutUntil) {
    local::PutUntil request;
    KVKEEP_RETURN_IF_ERROR(plan.ReadHost(body, "PutUntil", limits, memory, &request));
    KVKEEP_RETURN_IF_ERROR(plan.SetUntil(request.deadline_ns));
  } else if (kind == local::Kind::kPutInParts) {
    local::PutInParts request;
    KVKEEP_RETURN_IF_ERROR(plan.ReadHost(body, "PutInParts", limits, memory, &request));
    KVKEEP_RETURN_IF_ERROR(plan.SetParts(request, memory));
  } else if (kind == local::Kind::kPutFromGpu) {
    local::GpuPutRequest request;
    KVKEEP_RETURN_IF_ERROR(plan.ReadGpu(body, "GpuPutRequest", limits, gpu, &request));
    plan.timeout_ = limits.GpuTimeout(request.timeout_ms);
  } else {
    KVKEEP_CHECK(kind == local::Kind::kPutFromGpuUntil);
    local::GpuPutUntil request;
    KVKEEP_RETURN_IF_ERROR(plan.ReadGpu(body, "GpuPutUntil", limits, gpu, &request));
    KVKEEP_RETURN_IF_ERROR(plan.SetUntil(request.deadline_ns));
    plan.timeout_ = limits.GpuTimeout(0);
  }
  return plan;
}

absl::Status PutPlan::AddRuns(std::span<const local::PutRun> runs, const SessionMemory& memory) {
  runs_.Reserve(runs.size());
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
    runs_.Add(static_cast<uint32_t>(known), run.offset, run.bytes);
  }
  in_staging_ = std::all_of(regions.begin(), regions.end(),
                            [](uint32_t region) { return region == local::kStagingRegion; });
  return absl::OkStatus();
}

absl::Status PutPlan::CheckChunks(const RunTable& table) {
  tail_starts_.reserve(chunks_.size());
  uint64_t tails = 0;
  for (size_t i = 0; i < chunks_.size(); ++i) {
    const local::PutChunk& chunk = chunks_[i];
    if ((chunk.flags & ~kKnownFlags) != 0) {
      return Invalid("chunks[", i, "].flags is ", chunk.flags, ", known are ", kKnownFlags);
    }
    KVKEEP_RETURN_IF_ERROR(table.CheckChunk(i, chunk.first_run, chunk.runs, chunk.payload_bytes));
    tail_starts_.push_back(tails);
    tails += chunk.tail_bytes;
  }
  if (tails != tails_.size()) {
    return Invalid("tail_bytes of all chunks are ", tails, ", after the runs come ", tails_.size());
  }
  return absl::OkStatus();
}

std::span<const std::byte> PutPlan::tail(size_t chunk) const {
  return std::span(tails_).subspan(tail_starts_[chunk], chunks_[chunk].tail_bytes);
}

absl::Status PutPlan::CheckInTime(const Clock& clock) const {
  if (until_ == MonotonicTime::max() || clock.Now() <= until_) return absl::OkStatus();
  return absl::DeadlineExceededError("not read by the put's deadline");
}

absl::Status PutPlan::ReadPayload(size_t chunk, uint64_t offset, uint64_t bytes, ReadBy read,
                                  ClientMemory::Give give) const {
  return runs_.ForEach(chunks_[chunk].first_run, offset, bytes, [&](const RunTable::Part& part) {
    return (*memories_[part.memory].*read)(part.offset, part.bytes, give);
  });
}

}  // namespace kvkeep
