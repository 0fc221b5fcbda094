#include "tiers/io/shared_buffers.h"

#include <absl/strings/str_cat.h>
#include <sys/mman.h>

#include "tiers/base/status_macros.h"
#include "tiers/io/errno_status.h"
#include "tiers/io/io_engine.h"
#include "tiers/io/uring_ring.h"

namespace kvkeep {
namespace {

class PinningRing final : public SharedBuffers {
 public:
  explicit PinningRing(std::unique_ptr<UringRing> ring) : ring_(std::move(ring)) {}

  absl::Status Pin(std::span<std::byte> memory) override {
    uint32_t slot = 0;
    {
      MutexLock lock(&mu_);
      if (slots_.contains(memory.data())) return absl::AlreadyExistsError("pinned already");
      if (next_slot_ == IoEngine::kMaxRegisteredBuffers) {
        return absl::ResourceExhaustedError(
            absl::StrCat("more than ", IoEngine::kMaxRegisteredBuffers, " buffers"));
      }
      slot = next_slot_++;
    }
    KVKEEP_RETURN_IF_ERROR(ring_->RegisterBuffer(slot, memory));
    MutexLock lock(&mu_);
    slots_.emplace(memory.data(), Pinned{memory.size(), slot});
    return absl::OkStatus();
  }
  std::optional<Place> Find(std::span<const std::byte> memory) const override {
    MutexLock lock(&mu_);
    const auto found = slots_.find(memory.data());
    if (found == slots_.end() || found->second.bytes != memory.size()) return std::nullopt;
    return Place{ring_->fd(), found->second.slot};
  }

 private:
  struct Pinned {
    size_t bytes;
    uint32_t slot;
  };

  const std::unique_ptr<UringRing> ring_;  // registering in it is thread-safe in the kernel
  mutable Mutex mu_;
  uint32_t next_slot_ ABSL_GUARDED_BY(mu_) = 0;
  absl::btree_map<const std::byte*, Pinned> slots_ ABSL_GUARDED_BY(mu_);
};

// Whether a ring can take over one of two buffers, which is what an older kernel cannot do.
absl::Status TryOut() {
  constexpr size_t kPage = 4096;
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<UringRing> from, UringRing::CreateForBuffers(2));
  KVKEEP_ASSIGN_OR_RETURN(const std::unique_ptr<UringRing> to, UringRing::Create(8, 2));
  void* const memory =
      mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return ErrnoStatus(errno, "io_uring: no memory to try out buffers");
  absl::Status tried = from->RegisterBuffer(1, {static_cast<std::byte*>(memory), kPage});
  if (tried.ok()) tried = to->TakeBuffer(1, from->fd(), 1);
  munmap(memory, kPage);  // the rings keep the page until they go
  return tried;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SharedBuffers>> SharedBuffers::Create() {
  KVKEEP_RETURN_IF_ERROR(TryOut());
  KVKEEP_ASSIGN_OR_RETURN(std::unique_ptr<UringRing> ring,
                          UringRing::CreateForBuffers(IoEngine::kMaxRegisteredBuffers));
  return std::make_unique<PinningRing>(std::move(ring));
}

}  // namespace kvkeep
