// WriteBacks: the chunks on their way from G2 to G3. It knows since when each is on its way, which
// are being written, and when chunks that no device took are offered again.
//
//   Begin --> queued (write_lane.h) --BeginWrite--> writing --EndBytes--> committing --> End
//
// A chunk is dirty from Begin to End, named by the generation of its write. Generations grow, so
// the oldest comes first. The store's lock protects it. Chunks that wait for room in the dirty
// budget are in their tenants' queues (unbacked_queue.h).
#pragma once

#include <absl/container/btree_map.h>
#include <absl/status/status.h>

#include <atomic>
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
// nobody else looks at it before its first bytes have ended. From then on the lock protects it,
// except for the count of bytes that are left: all bytes but the last ones may end without the
// lock. `to` never changes.
struct WriteBack {
  explicit WriteBack(uint64_t image_bytes) : bytes(image_bytes), bytes_left_(image_bytes) {}

  // Notes that `some` bytes have ended well. If they are the last ones, returns false and notes
  // nothing. Needs no lock. Once it has returned true, another thread may end this object.
  bool EndSome(uint64_t some) {
    uint64_t left = bytes_left_;
    do {
      KVKEEP_CHECK(left >= some);
      if (left == some) return false;
    } while (!bytes_left_.compare_exchange_weak(left, left - some));
    return true;
  }
  uint64_t bytes_left() const { return bytes_left_; }

  const uint64_t bytes;  // of the image
  DeviceTier* to = nullptr;
  bool blames_device = true;  // a failure is the device's, not the arena's
  std::optional<ChunkKey> parent;
  const DataKey* key = nullptr;              // null: written without encryption
  std::unique_ptr<AlignedPage> header_page;  // once there is a header to write
  Digest128 root;
  uint64_t created_unix_us = 0;
  absl::Status failure;  // the first one

 private:
  friend class WriteBacks;
  std::atomic<uint64_t> bytes_left_;
  uint64_t told_ = 0;  // ended bytes that EndBytes has told
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
  // Returns the age of the oldest; 0: there is none.
  std::chrono::nanoseconds OldestAge(MonotonicTime now) const {
    return since_.empty() ? std::chrono::nanoseconds(0) : now - since_.begin()->second;
  }

  // ---- being written
  // Begins a write. The object stays where it is until all of its bytes have ended.
  WriteBack* BeginWrite(ChunkSlot slot, uint64_t bytes) {
    KVKEEP_CHECK(bytes > 0);
    const auto begun = writing_.emplace(slot, std::make_unique<WriteBack>(bytes));
    KVKEEP_CHECK(begun.second);
    return begun.first->second.get();
  }
  struct Ended {
    uint64_t bytes = 0;                // including those of EndSome since the last call
    std::unique_ptr<WriteBack> write;  // the write, if it is over; null: some bytes are left
  };
  // Notes that `bytes` of its bytes have ended. REQUIRES: it is being written.
  Ended EndBytes(ChunkSlot slot, uint64_t bytes, const absl::Status& status) {
    const auto found = writing_.find(slot);
    KVKEEP_CHECK(found != writing_.end());
    WriteBack& write = *found->second;
    write.failure.Update(status);
    const uint64_t before = write.bytes_left_.fetch_sub(bytes);
    KVKEEP_CHECK(before >= bytes);
    Ended ended{.bytes = write.bytes - (before - bytes) - write.told_};
    write.told_ += ended.bytes;
    if (before > bytes) return ended;
    ended.write = std::move(found->second);
    writing_.erase(found);
    return ended;
  }
  size_t writing() const { return writing_.size(); }

  // ---- unbacked
  void NoteNotTaken(MonotonicTime now) { offer_again_at_ = now + kOfferAgain; }
  bool MayOffer(MonotonicTime now) const { return now >= offer_again_at_; }

 private:
  absl::btree_map<Generation, MonotonicTime> since_;
  // A tree, since a hash map that grows moves all of its entries under the lock.
  absl::btree_map<ChunkSlot, std::unique_ptr<WriteBack>> writing_;
  MonotonicTime offer_again_at_{0};
};

}  // namespace kvkeep::store_internal
