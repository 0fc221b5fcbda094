#include "tools/bench/client/gpu_memory.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/base/units.h"
#include "tools/bench/client/cpu_time.h"
#include "tools/bench/client/operation.h"

namespace kvkeep::bench {
namespace {

constexpr client::Deadline kMappingPinPatience{300'000};
constexpr uint64_t kGap = 2;  // a stretch and a gap of the same size

}  // namespace

std::optional<GpuWay> GpuWayOf(const std::string& path) {
  if (path == "cuda-ipc") return GpuWay::kDaemonCopies;
  if (path == "pinned") return GpuWay::kWorkerCopies;
  return std::nullopt;
}

absl::StatusOr<std::unique_ptr<GpuMemory>> GpuMemory::Open(client::Client* client,
                                                           const Options& options) {
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<GpuWorker> worker, GpuWorker::Open());
  KVKEEP_ASSIGN_OR_RETURN(SharedPages host,
                          SharedPages::Create(options.call_bytes, options.mount_dir));
  std::unique_ptr<GpuMemory> memory(new GpuMemory(options, std::move(worker), std::move(host)));
  KVKEEP_RETURN_IF_ERROR(memory->worker_->PinHost(memory->host()));
  memory->bytes_ = std::max(kGap * options.call_bytes, client::GpuMemory::kLeastAllocationBytes);
  KVKEEP_ASSIGN_OR_RETURN(memory->address_, memory->worker_->Allocate(memory->bytes_));
  KVKEEP_RETURN_IF_ERROR(memory->OpenWay(client));
  return memory;
}

absl::Status GpuMemory::OpenWay(client::Client* client) {
  client::GpuPath path(client);
  if (options_.way == GpuWay::kDaemonCopies) {
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t before, worker_->FreeBytes());
    KVKEEP_ASSIGN_OR_RETURN(region_,
                            path.Register({.address = address_, .bytes = bytes_}, kCallDeadline));
    KVKEEP_ASSIGN_OR_RETURN(const uint64_t after, worker_->FreeBytes());
    daemon_bytes_ = before - std::min(before, after);
    return absl::OkStatus();
  }
  KVKEEP_ASSIGN_OR_RETURN(pinned_, path.PinArena({}));
  KVKEEP_RETURN_IF_ERROR(pinned_.Await(kMappingPinPatience));
  // The first request sets the size of a session's staging area: it must also have room for the
  // load, which would otherwise wait for ever.
  KVKEEP_RETURN_IF_ERROR(client->AllocateStaging(2 * options_.call_bytes).status());
  KVKEEP_ASSIGN_OR_RETURN(staging_, client->AllocateStaging(options_.call_bytes));
  return worker_->PinHost(staging_.memory());
}

std::vector<GpuStretch> GpuMemory::Stretches(uint64_t place, uint64_t size,
                                             const GpuLayout& layout) {
  const uint64_t stretch = layout.run_bytes * layout.adjacent;
  std::vector<GpuStretch> stretches;
  for (uint64_t at = 0; at < size; at += stretch) {
    stretches.push_back({.payload_offset = at,
                         .region_offset = kGap * (place * size + at),
                         .bytes = std::min(stretch, size - at)});
  }
  return stretches;
}

std::vector<client::GpuRun> GpuMemory::Runs(uint64_t place, uint64_t size,
                                            const GpuLayout& layout) const {
  std::vector<client::GpuRun> runs;
  for (const GpuStretch& stretch : Stretches(place, size, layout)) {
    for (uint64_t at = 0; at < stretch.bytes; at += layout.run_bytes) {
      runs.push_back({.region = region_.id(),
                      .offset = stretch.region_offset + at,
                      .bytes = std::min(layout.run_bytes, stretch.bytes - at)});
    }
  }
  return runs;
}

absl::Status GpuMemory::Copy(GpuCopyWay way, std::span<const Part> parts) {
  std::vector<GpuWorker::Piece> pieces;
  for (const Part& part : parts) {
    const uint64_t to = part.from + part.host.size();
    for (const GpuStretch& stretch : Stretches(part.place, part.size, part.layout)) {
      const uint64_t begin = std::max(stretch.payload_offset, part.from);
      const uint64_t end = std::min(stretch.payload_offset + stretch.bytes, to);
      if (begin >= end) continue;
      pieces.push_back(
          {.device = address_ + stretch.region_offset + (begin - stretch.payload_offset),
           .host = part.host.data() + (begin - part.from),
           .bytes = end - begin});
    }
  }
  return worker_->Copy(way, pieces);
}

Measured GpuMemory::CopyPlain(GpuCopyWay way, uint64_t bytes, double seconds) {
  const GpuWorker::Piece whole = {.device = address_, .host = host().data(), .bytes = bytes};
  Measured measured;
  const double cpu_begin = ProcessCpuSeconds();
  while (measured.seconds < seconds) {
    const double began = WallSeconds();
    const absl::Status copied = worker_->Copy(way, {&whole, 1});
    const double took = WallSeconds() - began;
    measured.seconds += took;
    if (!copied.ok()) {
      ++measured.failed_ops;
      measured.first_failure = copied.ToString();
      break;
    }
    ++measured.ops;
    measured.bytes += bytes;
    measured.copied_bytes += bytes;
    measured.latency.RecordSeconds(took);
  }
  measured.client_cpu_seconds = ProcessCpuSeconds() - cpu_begin;
  return measured;
}

}  // namespace kvkeep::bench
