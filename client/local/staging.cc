#include "client/local/staging.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "client/values/shared_memory.h"
#include "tiers/base/units.h"

namespace kvkeep::client {

using std::chrono::steady_clock;

StagingArea::StagingArea(std::shared_ptr<const MappedFile> file, uint32_t region,
                         absl::AnyInvocable<void() &&> gone)
    : file_(std::move(file)),
      region_(region),
      gone_(std::move(gone)),
      ranges_(file_->memory().size(), kBlockBytes) {}

StagingArea::~StagingArea() {
  if (gone_ && !mark_.InChild()) std::move(gone_)();
}

bool StagingArea::Contains(std::span<const std::byte> run) const {
  const std::span<const std::byte> all = memory();
  const std::less_equal<const std::byte*> le;
  return le(all.data(), run.data()) && le(run.data() + run.size(), all.data() + all.size());
}

std::optional<std::span<std::byte>> StagingArea::AllocateLocked(uint64_t bytes) {
  if (closed_ || retiring_ > 0) return std::nullopt;
  last_use_ = Clock::now();
  const std::optional<uint64_t> offset = ranges_.Allocate(bytes);
  if (!offset.has_value()) return std::nullopt;
  return memory().subspan(*offset, bytes);
}

std::optional<std::span<std::byte>> StagingArea::TryAllocate(uint64_t bytes) {
  MutexLock lock(&mu_);
  return AllocateLocked(bytes);
}

std::optional<std::span<std::byte>> StagingArea::AllocateUntil(uint64_t bytes,
                                                               steady_clock::time_point deadline) {
  MutexLock lock(&mu_);
  while (!closed_) {
    if (auto range = AllocateLocked(bytes); range.has_value()) return range;
    const auto left = deadline - steady_clock::now();
    if (left <= left.zero()) return std::nullopt;
    freed_.WaitFor(&mu_, left);
  }
  return std::nullopt;
}

void StagingArea::Free(std::span<std::byte> range) {
  if (mark_.InChild()) return;
  MutexLock lock(&mu_);
  if (deferrals_ > 0) {
    kept_back_.push_back(OffsetOf(range));
    return;
  }
  ranges_.Free(OffsetOf(range));
  last_use_ = Clock::now();
  freed_.NotifyAll();
}

bool StagingArea::Retire(Clock::time_point deadline) {
  MutexLock lock(&mu_);
  ++retiring_;
  while (!closed_ && (!ranges_.empty() || deferrals_ > 0)) {
    const auto left = deadline - Clock::now();
    if (left <= left.zero()) break;
    freed_.WaitFor(&mu_, left);
  }
  --retiring_;
  closed_ = closed_ || (ranges_.empty() && deferrals_ == 0);
  freed_.NotifyAll();
  return closed_;
}

std::optional<StagingArea::Clock::time_point> StagingArea::idle_since() const {
  MutexLock lock(&mu_);
  if (!ranges_.empty() || deferrals_ > 0) return std::nullopt;
  return last_use_;
}

void StagingArea::Close() {
  MutexLock lock(&mu_);
  closed_ = true;
  freed_.NotifyAll();
}

void StagingArea::LeaveTo(std::shared_ptr<const DaemonEnd> connection, DaemonEnds::Time until) {
  MutexLock lock(&mu_);
  closed_ = true;
  left_to_.Add(std::move(connection), until);
  freed_.NotifyAll();
}

bool StagingArea::in_use() const {
  if (mark_.InChild()) return false;
  MutexLock lock(&mu_);
  return deferrals_ > 0 || !left_to_.empty();
}

void LocalRegion::LeaveTo(std::shared_ptr<const DaemonEnd> connection, DaemonEnds::Time until) {
  MutexLock lock(&mu);
  left_to.Add(std::move(connection), until);
}

bool LocalRegion::in_use() {
  if (mark.InChild()) return false;
  if (late_puts > 0) return true;  // checked first, as it is lowered after LeaveTo
  MutexLock lock(&mu);
  return !left_to.empty();
}

StagingArea::Deferral::Deferral(std::shared_ptr<StagingArea> area) : area_(std::move(area)) {
  MutexLock lock(&area_->mu_);
  ++area_->deferrals_;
}

StagingArea::Deferral::~Deferral() {
  MutexLock lock(&area_->mu_);
  if (--area_->deferrals_ > 0) return;
  for (const uint64_t offset : area_->kept_back_) area_->ranges_.Free(offset);
  area_->kept_back_.clear();
  area_->freed_.NotifyAll();
}

// ---------------------------------------------------------------- shared_memory.h

StagingBuffer::StagingBuffer(std::shared_ptr<StagingArea> area, std::span<std::byte> memory)
    : area_(std::move(area)), memory_(memory) {}

StagingBuffer::~StagingBuffer() {
  if (area_ != nullptr) area_->Free(memory_);
}

StagingBuffer::StagingBuffer(StagingBuffer&& other) noexcept
    : area_(std::move(other.area_)), memory_(std::exchange(other.memory_, {})) {}

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  if (this == &other) return *this;
  if (area_ != nullptr) area_->Free(memory_);
  area_ = std::move(other.area_);
  memory_ = std::exchange(other.memory_, {});
  return *this;
}

bool StagingBuffer::in_use() const { return area_ != nullptr && area_->in_use(); }

RegisteredMemory::RegisteredMemory(std::shared_ptr<LocalRegion> region)
    : region_(std::move(region)), mapping_(region_->mapping) {}

RegisteredMemory::~RegisteredMemory() { Unregister(); }

RegisteredMemory::RegisteredMemory(RegisteredMemory&& other) noexcept
    : region_(std::move(other.region_)), mapping_(std::exchange(other.mapping_, {})) {}

RegisteredMemory& RegisteredMemory::operator=(RegisteredMemory&& other) noexcept {
  if (this == &other) return *this;
  Unregister();
  region_ = std::move(other.region_);
  mapping_ = std::exchange(other.mapping_, {});
  return *this;
}

void RegisteredMemory::Unregister() {
  if (region_ == nullptr) return;
  const std::shared_ptr<LocalRegion> region = std::move(region_);
  mapping_ = {};
  if (ForkMark made = region->mark; made.InChild()) return;
  absl::AnyInvocable<void(uint32_t) &&> unregister;
  uint32_t number;
  {
    MutexLock lock(&region->mu);
    region->closed = true;
    region->epoch = 0;
    unregister = std::exchange(region->unregister, nullptr);
    number = region->region;
  }
  if (unregister) std::move(unregister)(number);
}

bool RegisteredMemory::in_use() const { return region_ != nullptr && region_->in_use(); }

}  // namespace kvkeep::client
