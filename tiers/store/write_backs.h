// WriteBacks: the chunks on their way from G2 to G3. Since when each is on its way, which are being
// written, and when chunks that no device took are offered again.
//
//   Begin --> queued (write_lane.h) --BeginWrite--> writing --EndBytes--> committing --> End
//
// A chunk is dirty from Begin to End, named by the generation of its write. Generations grow, so
// the oldest comes first. The store's lock protects it. Chunks that wait for room in the dirty
// budget are in their tenants' queues (unbacked_queue.h).
#pragma once

#include <absl/container/btree_map.h>
#include <absl/status/status.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/crypt/image_cipher.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/store/aligned_page.h"

namespace kvkeep::store_internal {

struct DeviceTier;

// An image that is being written. WriteBacker fills it without the lock, on the copy executor, and
// nobody else looks at it before the first of its bytes has ended. From then on the lock protects
// it.
struct WriteBack {
  DeviceTier* to = nullptr;
  bool blames_device = true;  // a failure is the device's, not the arena's
  std::optional<ChunkKey> parent;
  const DataKey* key = nullptr;              // null: written as it is
  std::unique_ptr<AlignedPage> header_page;  // once there is a header to write
  Digest128 root;
  uint64_t created_unix_us = 0;
  uint64_t bytes = 0, bytes_left = 0;  // of the image; of that, those that have not ended
  absl::Status failure;                // the first one
};

class WriteBacks {
 public:
  // A chunk whose device took no writes is offered again after this.
  static constexpr std::chrono::seconds kOfferAgain{1};

  // ---- dirty
  void Begin(Generation generation, MonotonicTime now) {
    KVKEEP_CHECK(since_.emplace(generation, now).second);
  }
  void End(Generation generation) { KVKEEP_CHECK(since_.erase(generation) == 1); }
  size_t dirty() const { return since_.size(); }
  // Zero: there is none.
  std::chrono::nanoseconds OldestAge(MonotonicTime now) const {
    return since_.empty() ? std::chrono::nanoseconds(0) : now - since_.begin()->second;
  }

  // ---- being written
  // All of its bytes are left. Stays where it is until they have ended.
  WriteBack* BeginWrite(ChunkSlot slot, WriteBack write) {
    KVKEEP_CHECK(write.bytes > 0);
    write.bytes_left = write.bytes;
    const auto begun = writing_.emplace(slot, std::make_unique<WriteBack>(std::move(write)));
    KVKEEP_CHECK(begun.second);
    return begun.first->second.get();
  }
  // REQUIRES: it is being written.
  const WriteBack& at(ChunkSlot slot) const {
    const auto found = writing_.find(slot);
    KVKEEP_CHECK(found != writing_.end());
    return *found->second;
  }
  // So many of its bytes have ended. Null: some are left; else it is no more.
  std::unique_ptr<WriteBack> EndBytes(ChunkSlot slot, uint64_t bytes, const absl::Status& status) {
    const auto found = writing_.find(slot);
    KVKEEP_CHECK(found != writing_.end() && found->second->bytes_left >= bytes);
    found->second->failure.Update(status);
    found->second->bytes_left -= bytes;
    if (found->second->bytes_left > 0) return nullptr;
    std::unique_ptr<WriteBack> ended = std::move(found->second);
    writing_.erase(found);
    return ended;
  }
  size_t writing() const { return writing_.size(); }

  // ---- unbacked
  void NoteNotTaken(MonotonicTime now) { offer_again_at_ = now + kOfferAgain; }
  bool MayOffer(MonotonicTime now) const { return now >= offer_again_at_; }

 private:
  absl::btree_map<Generation, MonotonicTime> since_;
  // A tree: a hash map that grows moves all of its entries under the lock.
  absl::btree_map<ChunkSlot, std::unique_ptr<WriteBack>> writing_;
  MonotonicTime offer_again_at_{0};
};

}  // namespace kvkeep::store_internal
