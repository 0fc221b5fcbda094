#include "client/gpu/pinned_arena.h"

#include <absl/strings/str_cat.h>

#include <utility>
#include <vector>

#include "client/gpu/worker_gpu.h"
#include "client/local/mappings.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {

absl::Status PinArenaOptions::Validate() const {
  if (device < 0) return absl::InvalidArgumentError(absl::StrCat("device: ", device));
  if (library.empty()) return absl::InvalidArgumentError("library: empty");
  return absl::OkStatus();
}

absl::StatusOr<PinnedArena> PinnedArena::Make(std::shared_ptr<const ArenaMap> arena,
                                              const PinArenaOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  std::vector<std::span<std::byte>> segments;
  for (const auto& segment : arena->segments) segments.push_back(segment->memory());
  for (const auto& [number, segment] : arena->shared) segments.push_back(segment->memory());
  KVKEEP_ASSIGN_OR_RETURN(const std::shared_ptr<WorkerGpu> gpu, WorkerGpu::Load(options.library));
  PinnedArena pinned;
  KVKEEP_ASSIGN_OR_RETURN(pinned.pin_, gpu->PinReadOnly(options.device, std::move(segments)));
  pinned.arena_ = std::move(arena);
  return pinned;
}

PinnedArena::~PinnedArena() { Release(); }

PinnedArena& PinnedArena::operator=(PinnedArena&& other) noexcept {
  if (this != &other) {
    Release();
    pin_ = std::move(other.pin_);
    arena_ = std::move(other.arena_);
    mark_ = other.mark_;
  }
  return *this;
}

void PinnedArena::Release() {
  if (mark_.InChild()) (void)pin_.release();  // its thread and context are the parent's
  pin_.reset();
  arena_.reset();
}

PinnedArena::Stats PinnedArena::stats() const {
  return pin_ == nullptr || mark_.InChild() ? Stats() : pin_->stats();
}

bool PinnedArena::Covers(std::span<const std::byte> run) const {
  return pin_ != nullptr && !mark_.InChild() && pin_->Covers(run);
}

absl::Status PinnedArena::Await(Deadline timeout) const {
  if (pin_ == nullptr || mark_.InChild()) {
    return absl::FailedPreconditionError("no arena is being registered here");
  }
  if (!pin_->AwaitFinished(timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat("registered so far: ", pin_->stats().pinned_bytes, " bytes"));
  }
  return pin_->stats().first_refusal;
}

}  // namespace kvkeep::client
