// MemoryDevice: a Device over bytes in memory. Operations are applied and their callbacks run on a
// given Executor, one task each: with a ManualExecutor a test decides order and moment, and drops
// the tasks that a killed process would lose.
//
// The bytes are a MemoryDisk, which outlives the device: opening a second MemoryDevice on it is a
// restart. With a volatile cache a power cut loses writes after the last Sync. Destroying the
// device waits until its tasks ran or were dropped; it fails after 10 seconds without progress,
// since an idle ManualExecutor would hang the test. Thread-safe if the executor is; operations that
// overlap must not be in flight at once.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "tests/fakes/aligned_bytes.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/io/device.h"
#include "tiers/io/outstanding.h"

namespace kvkeep {

class MemoryDisk {
 public:
  // `bytes`: multiple of kBlockBytes. Zeroed.
  explicit MemoryDisk(size_t bytes, bool volatile_cache = false)
      : bytes_(bytes), volatile_cache_(volatile_cache) {}
  // For tests that read or damage the stored bytes. REQUIRES: nothing in flight there.
  std::span<std::byte> bytes() { return bytes_.span(); }

  // Writes like a device. REQUIRES: whole blocks, inside.
  void Write(uint64_t offset, const std::byte* data, size_t bytes);
  // Makes all writes stable, except the ones that the drive lies about.
  void Sync();
  // The share of syncs that are lies: the drive says that some or all blocks written since the last
  // sync are stable, and keeps them only until its power fails, whatever syncs succeed in between.
  // Forgot() is true of them until they are written again.
  void SetLies(double of_syncs, uint64_t seed);
  uint64_t lies() const;
  // The power fails. Each sector (512 bytes to 4 KiB, chosen once) of every block written since the
  // last Sync holds what some write since then left there, or what it held before: dropped, torn
  // and reordered. Nothing happens without a volatile cache.
  void PowerCut(uint64_t seed);
  // The same happens to the drive alone. When `silently`, Forgot() names the blocks until they are
  // written again, or the machine has a power cut: a later Sync succeeds and saves nothing of them,
  // and no caller could know. Blocks that the drive lied about cannot be known anyway.
  void Forget(uint64_t seed, bool silently);
  bool Forgot(uint64_t block) const;
  bool IsUnsynced(uint64_t block) const;
  size_t unsynced_blocks() const;
  // As Device::direct of its contents.
  void set_direct(bool direct) { direct_ = direct; }
  bool direct() const { return direct_; }

 private:
  std::atomic<bool> direct_ = true;
  using Block = std::array<std::byte, kBlockBytes>;

  void LoseUnsynced(uint64_t seed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  AlignedBytes bytes_;
  const bool volatile_cache_;
  mutable Mutex mu_;
  // The contents of blocks before each write since the last Sync, the stable content first.
  std::map<uint64_t, std::vector<Block>> unsynced_ ABSL_GUARDED_BY(mu_);
  // Likewise of blocks that are not stable although a Sync came after: the drive lied.
  std::map<uint64_t, std::vector<Block>> lied_about_ ABSL_GUARDED_BY(mu_);
  std::set<uint64_t> forgotten_ ABSL_GUARDED_BY(mu_);
  double lies_of_syncs_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t lies_ ABSL_GUARDED_BY(mu_) = 0;
  SeededRandom random_ ABSL_GUARDED_BY(mu_){1};
};

class MemoryDevice final : public Device {
 public:
  struct Stats {
    uint64_t reads = 0, writes = 0, errors = 0, syncs = 0;
  };

  // `executor` outlives the device.
  MemoryDevice(std::shared_ptr<MemoryDisk> disk, Executor* executor, bool read_only = false);
  MemoryDevice(size_t bytes, Executor* executor)
      : MemoryDevice(std::make_shared<MemoryDisk>(bytes), executor) {}
  ~MemoryDevice() override;

  void Submit(IoOperation operation) override;
  absl::Status Sync() override;
  uint64_t size_bytes() const override;
  bool direct() const override { return state_->disk->direct(); }

  MemoryDisk& disk() { return *state_->disk; }
  Stats stats() const;

 private:
  // Held by the tasks too.
  struct State {
    std::shared_ptr<MemoryDisk> disk;
    bool read_only = false;
    Outstanding outstanding;
    Mutex mu;
    Stats stats ABSL_GUARDED_BY(mu);
  };
  struct Task;

  const std::shared_ptr<State> state_;
  Executor* const executor_;
};

}  // namespace kvkeep
