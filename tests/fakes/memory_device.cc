#include "tests/fakes/memory_device.h"

#include <chrono>
#include <cstring>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/io/operation_check.h"

namespace kvkeep {

void MemoryDisk::Write(uint64_t offset, const std::byte* data, size_t bytes) {
  std::byte* const place = bytes_.data() + offset;
  if (volatile_cache_) {
    constexpr size_t kMostVersions = 4;  // of a block: later ones count as written at once
    MutexLock lock(&mu_);
    for (size_t at = 0; at < bytes; at += kBlockBytes) {
      const uint64_t block = (offset + at) / kBlockBytes;
      forgotten_.erase(block);
      std::vector<Block>& versions = unsynced_[block];
      if (auto lied = lied_about_.extract(block); !lied.empty()) {
        versions = std::move(lied.mapped());
      }
      if (versions.size() == kMostVersions) continue;
      std::memcpy(versions.emplace_back().data(), place + at, kBlockBytes);
    }
  }
  std::memcpy(place, data, bytes);
}

void MemoryDisk::Sync() {
  MutexLock lock(&mu_);
  if (!unsynced_.empty() && lies_of_syncs_ > 0 && random_.Chance(lies_of_syncs_)) {
    ++lies_;
    constexpr double kShares[] = {0.02, 0.2, 1};
    const double share = kShares[random_.Below(3)];
    for (auto& [block, versions] : unsynced_) {
      if (random_.Chance(share)) lied_about_[block] = std::move(versions);
    }
  }
  unsynced_.clear();
}

void MemoryDisk::SetLies(double of_syncs, uint64_t seed) {
  MutexLock lock(&mu_);
  lies_of_syncs_ = of_syncs;
  random_ = SeededRandom(seed);
}

uint64_t MemoryDisk::lies() const {
  MutexLock lock(&mu_);
  return lies_;
}

void MemoryDisk::PowerCut(uint64_t seed) {
  MutexLock lock(&mu_);
  LoseUnsynced(seed);
  forgotten_.clear();  // of this one everybody knows
}

void MemoryDisk::Forget(uint64_t seed, bool silently) {
  MutexLock lock(&mu_);
  for (const auto& [block, versions] : unsynced_) {
    if (silently) forgotten_.insert(block);
  }
  for (const auto& [block, versions] : lied_about_) forgotten_.insert(block);
  LoseUnsynced(seed);
}

void MemoryDisk::LoseUnsynced(uint64_t seed) {
  SeededRandom random(seed);
  unsynced_.merge(lied_about_);  // a block is in one of them
  KVKEEP_CHECK(lied_about_.empty());
  const size_t sector = size_t{512} << random.Below(4);
  constexpr double kKept[] = {0, 0.5, 0.9, 1};  // most devices lose little
  const double kept = kKept[random.Below(4)];
  for (const auto& [block, versions] : unsynced_) {
    for (size_t at = 0; at < kBlockBytes; at += sector) {
      if (random.Chance(kept)) continue;
      const Block& older = versions[random.Below(versions.size())];
      std::memcpy(bytes_.data() + block * kBlockBytes + at, older.data() + at, sector);
    }
  }
  unsynced_.clear();
}

bool MemoryDisk::Forgot(uint64_t block) const {
  MutexLock lock(&mu_);
  return forgotten_.contains(block) || lied_about_.contains(block);
}

bool MemoryDisk::IsUnsynced(uint64_t block) const {
  MutexLock lock(&mu_);
  return unsynced_.contains(block);
}

size_t MemoryDisk::unsynced_blocks() const {
  MutexLock lock(&mu_);
  return unsynced_.size();
}

MemoryDevice::MemoryDevice(std::shared_ptr<MemoryDisk> disk, Executor* executor, bool read_only)
    : state_(std::make_shared<State>()), executor_(executor) {
  state_->disk = std::move(disk);
  state_->read_only = read_only;
}

MemoryDevice::~MemoryDevice() {
  KVKEEP_CHECK(state_->outstanding.WaitNoneFor(std::chrono::seconds(10)));
}

// Counts down when it is over, and also when it is dropped unrun.
struct MemoryDevice::Task {
  Task(std::shared_ptr<State> of, IoOperation op)
      : state(std::move(of)), operation(std::move(op)) {}
  Task(Task&&) = default;
  ~Task() {
    if (state == nullptr) return;  // moved from
    operation.done = nullptr;      // first: its captures may belong to the device's owner
    state->outstanding.Done();
  }
  void operator()();

  std::shared_ptr<State> state;
  IoOperation operation;
};

void MemoryDevice::Submit(IoOperation operation) {
  KVKEEP_CHECK(operation.done != nullptr);
  state_->outstanding.Add();
  executor_->Post(Task(state_, std::move(operation)));
}

void MemoryDevice::Task::operator()() {
  const std::span<std::byte> bytes = state->disk->bytes();
  absl::Status status = CheckOperation(operation, bytes.size(), state->read_only);
  const bool read = operation.kind == IoOperation::Kind::kRead;
  if (status.ok()) {
    const uint64_t offset = operation.offset.value();
    if (read) {
      std::memcpy(operation.data, bytes.data() + offset, operation.bytes);
    } else {
      state->disk->Write(offset, operation.data, operation.bytes);
    }
  }
  {
    MutexLock lock(&state->mu);
    Stats& stats = state->stats;
    ++(!status.ok() ? stats.errors : read ? stats.reads : stats.writes);
  }
  std::move(operation.done)(std::move(status));
}

absl::Status MemoryDevice::Sync() {
  MutexLock lock(&state_->mu);
  ++state_->stats.syncs;
  state_->disk->Sync();
  return absl::OkStatus();
}

uint64_t MemoryDevice::size_bytes() const { return state_->disk->bytes().size(); }

MemoryDevice::Stats MemoryDevice::stats() const {
  MutexLock lock(&state_->mu);
  return state_->stats;
}

}  // namespace kvkeep
