// DeviceTier: one device of G3, as the store sees it: its space, queues and health. The store's
// lock protects all fields but `heard`, and `failed_data_sync`, which is the sync executor's.
#pragma once

#include <absl/status/status.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tiers/alloc/extent_allocator.h"
#include "tiers/base/check.h"
#include "tiers/base/executor.h"
#include "tiers/index/doubtful.h"
#include "tiers/io/errno_status.h"
#include "tiers/nvme/nvme_device.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/chunk_table.h"
#include "tiers/store/confirm_queue.h"
#include "tiers/store/device_health.h"
#include "tiers/store/device_syncs.h"
#include "tiers/store/doubtful_records.h"
#include "tiers/store/index_commits.h"
#include "tiers/store/lower_tier.h"
#include "tiers/store/missed_deletes.h"
#include "tiers/store/place_index.h"
#include "tiers/store/store.h"
#include "tiers/store/unsaved_recency.h"
#include "tiers/store/window_search.h"
#include "tiers/store/write_lane.h"

namespace kvkeep::store_internal {

// How long a durable put waits for a device that is being opened, or whose index is being read.
inline constexpr auto kComingPatience = std::chrono::seconds(30);

struct DeviceTier final : LowerTier {
  // Away: the store has no device here. Joining: its records are being read (joiner.h); its chunks
  // are misses, and nothing is written there. Leaving: the same, until nothing is under way
  // (leaver.h).
  enum class Presence : uint8_t { kAway, kJoining, kHere, kLeaving };

  DeviceTier(uint16_t of_number, const MacKey& key, const StoreOptions& options,
             const Incarnations* incarnations)
      : LowerTier(of_number, key, options.max_device_reads_in_flight_bytes),
        incarnations(incarnations) {}

  // ---- LowerTier
  void Read(ImageRead read) override;
  void Write(ImageWrite write) override;
  absl::Status CheckHeader(const ImageHeader& header,
                           const ExpectedHeader& expected) const override;
  void NoteBad(const ChunkId&, const ImageHeader*) override {}  // its record goes with the chunk
  bool has_records() const override { return true; }
  ImagePlacement PlacementOf(const Chunk& chunk) const override;
  bool readable() const override { return here() && health.readable(); }
  bool writable() const override { return here() && health.writable(); }
  // Returns whether it is writable and its index has room for more records.
  bool TakesWrites() const { return writable() && !device->index_over_budget(); }
  void NoteHeard() override { heard = true; }
  void NoteIo(bool write, const absl::Status& status, MonotonicTime now) override {
    health.NoteIo(write, status, now);
  }
  uint32_t NoteRuns(const Chunk& chunk) override;

  const Incarnations* const incarnations;  // of the chunks
  // The fields that each write reads of all devices (Prefetch) lie together, from the end of
  // `health` to the beginning of `commits`.
  DeviceHealth health;
  Presence presence = Presence::kAway;
  std::unique_ptr<ExtentAllocator> allocator;  // once it is here
  uint64_t taken_blocks = 0;                   // the allocator's; set by NoteTaken
  uint64_t joining_blocks = 0;                 // taken blocks, while there is no allocator
  // How many of the allocator's blocks may be used; how many of these are kept free for writes.
  uint64_t capacity_blocks = 0, reserve_blocks = 0;
  WriteLane writes;
  IndexCommits commits;
  void Prefetch() const;

  // Null: it is away. They change under the lock, and only while nothing of the device is under
  // way: its work reads them without the lock.
  NvmeDevice* device = nullptr;
  Executor* index_executor = nullptr;  // StoreDeps::DeviceDeps has their contracts
  Executor* sync_executor = nullptr;
  MissedDeletes missed;                        // until it is here
  MonotonicTime coming_until{0};               // it is waited for until then; zero: it is not
  StatusCallback has_left;                     // called when a device that leaves has left
  std::shared_ptr<char> tail_reads = std::make_shared<char>();  // each tail read holds a copy
  std::shared_ptr<char> frees = std::make_shared<char>();       // each pending FreeWhenStable does
  uint64_t joined_records = 0;                 // records of its index that its join has read
  std::vector<std::unique_ptr<EvictionPolicy>> policies;  // by tenant, nobody last
  std::unique_ptr<PlaceIndex> places;  // of the chunks in the policies; null: it is away
  // The part of the device that is emptied for the next image to be written, if that is large.
  struct Emptying {
    Generation image;                    // of the write
    int windows = 0;                     // how many were looked for so far
    std::optional<WindowSearch> search;  // none: the next one is still to begin
    TenantId from{0};                    // the tenant whose chunks are evicted
    int64_t newest = 0;                  // its policy's Newest() when the search began
    bool searched = false;
    uint64_t next = 0;   // the granule that is emptied next, once the search is over
    uint64_t asked = 0;  // IndexCommits::asked() when it was empty
  };
  std::optional<Emptying> emptying;
  uint64_t chunks = 0;                                    // stored
  uint64_t capacity_bytes = 0;  // its capacity as configured: of the directory

  ConfirmQueue confirms;
  Uuid confirmed_boot;  // the boot for which every record is sure; goes into the stable mark
  DoubtfulRecords doubts;
  Doubtful doubtful;           // as the join found it
  bool doubtful_saved = true;  // in the index; must be true before the stable mark moves
  bool doubt_shrank = false;   // since it was saved
  MonotonicTime doubt_saved_at{0};
  uint64_t read_up_to = UINT64_MAX;  // the block behind the last promotion's image
  DeviceSyncs syncs;
  MonotonicTime last_recency{0};
  UnsavedRecency unsaved_recency;
  uint32_t saves = 0;  // under way, of recency and of what policies learned

  std::atomic<bool> heard = false;  // some I/O has ended since health was last told
  absl::Status failed_data_sync;    // the sync executor's own

  // Runs on the sync executor, so no two run at once. A failed sync stays failed, as the kernel
  // reports a failure once, and has dropped the pages by then.
  absl::Status SyncData() {
    if (failed_data_sync.ok()) failed_data_sync = device->io().Sync();
    return failed_data_sync;
  }
  bool here() const { return presence == Presence::kHere; }
  uint64_t used_blocks() const { return allocator != nullptr ? taken_blocks : joining_blocks; }
  // Call it after each call that took space of the allocator, or gave some back.
  void NoteTaken() {
    taken_blocks = allocator->capacity().value() - allocator->free_blocks().value();
  }
  // Returns the blocks that are free once the removals under way are committed.
  uint64_t free_blocks() const {
    return capacity_blocks - std::min(capacity_blocks, staying_blocks());
  }
  uint64_t staying_blocks() const {
    KVKEEP_CHECK(used_blocks() >= commits.freeing_blocks());
    return used_blocks() - commits.freeing_blocks();
  }
  // Frees the extents of a removal, which were counted as being freed (IndexCommits). REQUIRES: it
  // is committed, and stable if it has to be, or the device leaves.
  void Free(const ExtentList& extents) {
    commits.EndFreeing(extents);
    GiveBack(extents);
  }
  // Frees extents that no removal was counted for.
  void GiveBack(const ExtentList& extents) {
    allocator->Free(extents);
    NoteTaken();
  }
  // Notes that a record that was in doubt is sure now, or gone from the index.
  void EndDoubt(CommitSequence sequence) {
    if (sequence.value() == 0) return;  // a damaged record, which was not counted
    doubts.Remove(sequence);
    doubt_shrank = true;
  }
  // Doubt that has shrunk is saved at most this often.
  static constexpr std::chrono::seconds kDoubtInterval{5};
  bool DoubtIsDue(MonotonicTime now) const {
    return doubt_shrank && now - doubt_saved_at >= kDoubtInterval;
  }
  // Returns whether removals may wait for the batch that a write under way brings: no write waits
  // for their space, and they hold at most half of the reserve.
  bool removals_may_wait() const {
    return writes.busy() && !writes.anyone_waits() &&
           2 * commits.freeing_blocks() <= reserve_blocks;
  }
  bool over_capacity() const { return staying_blocks() > capacity_blocks; }
  EvictionPolicy& policy(TenantId tenant) const { return *policies[tenant.value()]; }
  std::vector<int64_t> newest_recency() const;  // by tenant
  bool CanGive(TenantId tenant) const { return policy(tenant).HasVictim(); }
  // Returns whether nothing is left to commit, and every record of the index is confirmed.
  bool settled() const { return commits.settled() && confirmed(); }
  bool confirmed() const { return confirms.empty(); }
  bool anyone_waits() const { return reads.anyone_waits() || writes.anyone_waits(); }
  bool busy() const { return reads.busy() || writes.busy() || confirms.reading() > 0; }
  // Returns whether nothing of it is under way or about to start; waiters may be left.
  bool quiet() const {
    return !busy() && !anyone_waits() && !commits.under_way() && !syncs.under_way() &&
           saves == 0 && !pump.running() && tail_reads.use_count() == 1;
  }
  // Returns whether nothing of it is under way, and nothing waits for its time.
  bool at_rest() const {
    const bool doubt_waits = here() && doubt_shrank && !health.sync_failed();
    return !busy() && !anyone_waits() && confirmed() && !commits.under_way() &&
           !commits.anyone_waits() && syncs.at_rest() && !doubt_waits &&
           presence != Presence::kJoining && presence != Presence::kLeaving;
  }
};

}  // namespace kvkeep::store_internal
