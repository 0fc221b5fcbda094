#include "server/local/session_gpu.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/image.h"
#include "tiers/base/status_macros.h"

namespace kvkeep {
namespace {

constexpr uint32_t kSkipped = UINT32_MAX;  // in place of a memory's index

}  // namespace

GpuRegion::GpuRegion(std::shared_ptr<const LocalContext> context,
                     const GpuPath::Registered& registered, const local::RegisterGpuMemory& request,
                     std::shared_ptr<GpuRegistrationHold> hold)
    : context_(std::move(context)),
      registered_(registered),
      bytes_(request.bytes),
      generation_(request.generation),
      account_(hold->shared_account()),
      hold_(std::move(hold)) {
  context_->counters->gpu_registrations.fetch_add(1, std::memory_order_relaxed);
  context_->counters->gpu_registered_bytes.fetch_add(bytes_, std::memory_order_relaxed);
}

GpuRegion::~GpuRegion() {
  if (!closed_.load()) Close([] {});
}

void GpuRegion::Close(GpuDevice::UnregisterDone closed) {
  KVKEEP_CHECK(!closed_.exchange(true));
  context_->counters->gpu_registrations.fetch_sub(1, std::memory_order_relaxed);
  context_->counters->gpu_registered_bytes.fetch_sub(bytes_, std::memory_order_relaxed);
  registered_.device->Unregister(registered_.id,
                                 [hold = std::move(hold_), closed = std::move(closed)]() mutable {
                                   hold.reset();
                                   std::move(closed)();
                                 });
}

SessionGpu::SessionGpu(std::shared_ptr<const LocalContext> context,
                       std::shared_ptr<GpuAccount> account)
    : context_(std::move(context)),
      account_(account != nullptr
                   ? std::move(account)
                   : std::make_shared<GpuAccount>(GpuAccount::PartOf(context_->limits, 1))) {}

absl::StatusOr<SessionGpu::Begun> SessionGpu::Begin(const local::RegisterGpuMemory& request,
                                                    size_t descriptors) {
  if (request.kind != local::kGpuIpcHandle && request.kind != local::kGpuDescriptor) {
    return absl::InvalidArgumentError(absl::StrCat("kind is ", request.kind, ", known are ",
                                                   local::kGpuIpcHandle, " and ",
                                                   local::kGpuDescriptor));
  }
  const size_t wanted = request.kind == local::kGpuDescriptor ? 1 : 0;
  if (descriptors != wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(descriptors, " descriptors came, wanted are ", wanted));
  }
  if (request.generation == 0) return absl::InvalidArgumentError("generation is 0");
  GpuUuid gpu;
  std::memcpy(gpu.data(), request.gpu_uuid.data(), gpu.size());
  const absl::Status may =
      account_->rights().Check(gpu, request.kind == local::kGpuIpcHandle);
  if (!may.ok()) {
    context_->counters->gpu_denied.fetch_add(1, std::memory_order_relaxed);
    return may;
  }
  absl::Status within = CheckSessionLimits(request);
  if (within.ok()) within = account_->TakeRegistration(request.bytes);
  if (!within.ok()) {
    context_->counters->gpu_over_limit.fetch_add(1, std::memory_order_relaxed);
    return within;
  }
  auto hold = std::make_shared<GpuRegistrationHold>(account_, request.bytes);
  bytes_ += request.bytes;
  slots_[next_] = {.bytes = request.bytes, .region = nullptr};
  return Begun{.number = next_++, .hold = std::move(hold)};
}

absl::Status SessionGpu::CheckSessionLimits(const local::RegisterGpuMemory& request) const {
  const LocalLimits& limits = context_->limits;
  if (slots_.size() >= limits.max_gpu_registrations) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "registrations of GPU memory: this session has ", slots_.size(), ", the most allowed"));
  }
  if (request.bytes > limits.max_gpu_bytes || bytes_ > limits.max_gpu_bytes - request.bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("registered GPU memory: this session has ", bytes_, " bytes, ", request.bytes,
                     " more are wanted, allowed are at most ", limits.max_gpu_bytes));
  }
  if (next_ == 0) return absl::ResourceExhaustedError("registration: all numbers were used");
  return absl::OkStatus();
}

void SessionGpu::End(uint32_t number, GpuRegionPtr region) {
  const auto found = slots_.find(number);
  KVKEEP_CHECK(found != slots_.end() && found->second.region == nullptr);
  if (region != nullptr) {
    found->second.region = std::move(region);
    return;
  }
  bytes_ -= found->second.bytes;
  slots_.erase(found);
}

absl::StatusOr<GpuRegionPtr> SessionGpu::Find(uint32_t number, uint64_t generation) const {
  const auto found = slots_.find(number);
  if (found == slots_.end() || found->second.region == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("registration ", number, " is not one of this session"));
  }
  const uint64_t known = found->second.region->generation();
  if (known == generation) return found->second.region;
  return absl::InvalidArgumentError(
      absl::StrCat("registration ", number, " is of generation ", known, ", not ", generation));
}

absl::StatusOr<GpuRegionPtr> SessionGpu::Take(uint32_t number, uint64_t generation) {
  KVKEEP_ASSIGN_OR_RETURN(GpuRegionPtr region, Find(number, generation));
  // Only this thread gives regions to requests, so a low count does not grow.
  if (region.use_count() > 2) {
    return absl::FailedPreconditionError(
        absl::StrCat("a put or get of registration ", number, " is not answered"));
  }
  bytes_ -= region->bytes();
  slots_.erase(number);
  return region;
}

void SessionGpu::Clear() {
  for (const auto& [number, slot] : slots_) {
    if (slot.region != nullptr) slot.region->Close([] {});
  }
  slots_.clear();
}

absl::Status GpuRuns::AddSkipped(const local::GpuMemoryRun& run) {
  if (run.offset != 0 || run.generation != 0) {
    return absl::InvalidArgumentError("bytes that are skipped have an offset or a generation");
  }
  table_.Add(kSkipped, 0, run.bytes);
  return absl::OkStatus();
}

absl::StatusOr<GpuRuns> GpuRuns::Check(std::span<const local::GpuMemoryRun> runs,
                                       const SessionGpu& memory, Skips skips) {
  GpuRuns checked;
  checked.table_.Reserve(runs.size());
  absl::flat_hash_map<uint32_t, uint32_t> known;  // registration -> index
  for (size_t i = 0; i < runs.size(); ++i) {
    const local::GpuMemoryRun& run = runs[i];
    const auto about = [i](const absl::Status& status) {
      return absl::Status(status.code(), absl::StrCat("runs[", i, "]: ", status.message()));
    };
    if (run.bytes == 0) return about(absl::InvalidArgumentError("bytes is 0"));
    if (skips == Skips::kAllowed && run.registration == local::kSkippedBytes) {
      if (absl::Status added = checked.AddSkipped(run); !added.ok()) return about(added);
      continue;
    }
    const auto next = static_cast<uint32_t>(checked.regions_.size());
    const auto [entry, inserted] = known.try_emplace(run.registration, next);
    if (inserted) {
      absl::StatusOr<GpuRegionPtr> found = memory.Find(run.registration, run.generation);
      if (!found.ok()) return about(found.status());
      checked.regions_.push_back(*std::move(found));
    }
    const GpuRegion& region = *checked.regions_[entry->second];
    if (region.generation() != run.generation) {
      return about(absl::InvalidArgumentError("generation is not that of the registration"));
    }
    if (region.device() != checked.device()) {
      return about(absl::InvalidArgumentError("it is of another GPU than the runs before it"));
    }
    if (run.offset > region.bytes() || run.bytes > region.bytes() - run.offset) {
      return about(absl::InvalidArgumentError(absl::StrCat(run.bytes, " bytes at ", run.offset,
                                                           "; registration ", run.registration,
                                                           " has ", region.bytes())));
    }
    checked.table_.Add(entry->second, run.offset, run.bytes);
  }
  if (checked.regions_.empty()) return absl::InvalidArgumentError("runs: none is in GPU memory");
  checked.copies_ = std::make_shared<GpuRequestCopies>(checked.account());
  return checked;
}

absl::Status GpuRuns::CheckCount(uint64_t of_chunks) const {
  if (of_chunks <= table_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("chunks have ", of_chunks,
                                                 " runs together, runs is ", table_.size(),
                                                 ": a run is of one chunk"));
}

void GpuRuns::Copy(GpuCopy copy, LocalCounters* counters, GpuDevice::CopyDone done) const {
  if (absl::Status over = copies_->Take(); !over.ok()) {
    counters->gpu_over_limit.fetch_add(1, std::memory_order_relaxed);
    return std::move(done)({.status = std::move(over)});
  }
  device()->Copy(std::move(copy), [copies = copies_, done = std::move(done)](CopyEnd end) mutable {
    copies->Give();
    copies.reset();  // may be the last holder; what follows may be another request
    std::move(done)(std::move(end));
  });
}

void GpuRuns::Append(uint32_t first_run, uint64_t offset, uint64_t bytes, const ExtentList& extents,
                     std::vector<GpuRun>* copies) const {
  uint64_t in_image = kHeaderBytes + offset;
  const absl::Status all =
      table_.ForEach(first_run, offset, bytes, [&](const RunTable::Part& part) {
        if (part.memory == kSkipped) {
          in_image += part.bytes;
          return absl::OkStatus();
        }
        for (uint64_t done = 0; done < part.bytes;) {
          const ByteRun place = LocateInImage(extents, in_image, part.bytes - done);
          copies->push_back({.registration = regions_[part.memory]->id(),
                             .offset = part.offset + done,
                             .arena_offset = place.tier_offset,
                             .bytes = place.bytes});
          done += place.bytes;
          in_image += place.bytes;
        }
        return absl::OkStatus();
      });
  KVKEEP_CHECK(all.ok());
}

}  // namespace kvkeep
