#include "client/gpu/pinned_arena.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "client/gpu/worker_gpu.h"
#include "client/internal/fork_guard.h"
#include "client/internal/mappings.h"
#include "tiers/base/mutex.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

// The longest wait by which Await may delay the end of a pin.
constexpr std::chrono::milliseconds kAwaitSlice{20};

}  // namespace

// The pin, shared by its owner and the mapped segments; the first of them to go ends it.
class PinnedArena::State final : public MappingUse {
 public:
  explicit State(std::unique_ptr<Pin> pin) : pin_(std::move(pin)) {}
  ~State() override {
    if (mark_.InChild()) (void)pin_.release();  // its thread and context are the parent's
  }

  void End() override {
    if (mark_.InChild()) return;
    std::unique_ptr<Pin> pin;
    {
      MutexLock lock(&mu_);
      while (users_ > 0 || ending_) changed_.Wait(&mu_);
      if (pin_ == nullptr) return;
      pin = std::move(pin_);
      ending_ = true;
    }
    pin.reset();
    MutexLock lock(&mu_);
    ending_ = false;
    changed_.NotifyAll();
  }

  // Returns the pin, which lasts until Done; null if it has ended.
  const Pin* Use() {
    if (mark_.InChild()) return nullptr;
    MutexLock lock(&mu_);
    users_ += pin_ != nullptr;
    return pin_.get();
  }
  void Done() {
    MutexLock lock(&mu_);
    --users_;
    changed_.NotifyAll();
  }

 private:
  const ForkMark mark_;
  Mutex mu_;
  CondVar changed_;
  std::unique_ptr<Pin> pin_ ABSL_GUARDED_BY(mu_);
  int users_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // it ends, and is not yet unregistered
};

absl::Status PinArenaOptions::Validate() const {
  if (device < 0) return absl::InvalidArgumentError(absl::StrCat("device: ", device));
  if (library.empty()) return absl::InvalidArgumentError("library: empty");
  return absl::OkStatus();
}

absl::StatusOr<PinnedArena> PinnedArena::Make(std::shared_ptr<const ArenaMap> arena,
                                              const PinArenaOptions& options) {
  KVKEEP_RETURN_IF_ERROR(options.Validate());
  std::vector<std::shared_ptr<const MappedFile>> files = arena->segments;
  for (const auto& [number, segment] : arena->shared) files.push_back(segment);
  std::vector<std::span<std::byte>> segments;
  for (const auto& file : files) segments.push_back(file->memory());
  KVKEEP_ASSIGN_OR_RETURN(const std::shared_ptr<WorkerGpu> gpu, WorkerGpu::Load(options.library));
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<Pin> pin,
                          gpu->PinReadOnly(options.device, std::move(segments)));
  PinnedArena pinned;
  pinned.state_ = std::make_shared<State>(std::move(pin));
  for (const auto& file : files) file->AddUse(pinned.state_);
  return pinned;
}

PinnedArena::~PinnedArena() { Release(); }

PinnedArena& PinnedArena::operator=(PinnedArena&& other) noexcept {
  if (this != &other) {
    Release();
    state_ = std::move(other.state_);
  }
  return *this;
}

void PinnedArena::Release() {
  if (state_ != nullptr) state_->End();
  state_.reset();
}

PinnedArena::Stats PinnedArena::stats() const {
  const Pin* const pin = state_ == nullptr ? nullptr : state_->Use();
  if (pin == nullptr) return {};
  Stats stats = pin->stats();
  state_->Done();
  return stats;
}

bool PinnedArena::Covers(std::span<const std::byte> run) const {
  const Pin* const pin = state_ == nullptr ? nullptr : state_->Use();
  if (pin == nullptr) return false;
  const bool covers = pin->Covers(run);
  state_->Done();
  return covers;
}

absl::Status PinnedArena::Await(Deadline timeout) const {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point give_up = Clock::now() + timeout;
  while (true) {
    const Pin* const pin = state_ == nullptr ? nullptr : state_->Use();
    if (pin == nullptr) {
      return absl::FailedPreconditionError("no arena is registered here, or not any more");
    }
    const auto left = std::chrono::duration_cast<Deadline>(give_up - Clock::now());
    const bool finished = pin->AwaitFinished(std::clamp(left, Deadline(0), Deadline(kAwaitSlice)));
    const Stats stats = pin->stats();
    state_->Done();
    if (finished) return stats.first_refusal;
    if (Clock::now() < give_up) continue;
    return absl::DeadlineExceededError(
        absl::StrCat("registered so far: ", stats.pinned_bytes, " bytes"));
  }
}

}  // namespace kvkeep::client
