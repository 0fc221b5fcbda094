// PeerOffers: chunks that move between nodes of the fleet before a node is taken away. The node
// that leaves names its hottest chunks. A node that they are offered to takes those that it has
// room for, by recalls, so that every byte comes the verified way.
//
// An offered chunk may have blocks of its tenant's G2 that are free, and those of chunks that are
// evicted next and that G3 has as well: of these a quarter of the pool in ten minutes. It evicts
// nothing else and forgets no chunk of a full table, so no chunk leaves the node for an offer,
// whoever sends it. Offers fill an eighth of the pool at once, which leaves as much to recalls of
// engines. Chunks that came are in G2 alone until they are used, like all that was recalled.
//
// Owns what offers displaced, and its counters. The calls take the store's lock.
#pragma once

#include <memory>
#include <vector>

#include "tiers/base/clock.h"
#include "tiers/remote/offered_chunk.h"
#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/owners.h"
#include "tiers/store/peer_reads.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class PeerOffers {
 public:
  static constexpr uint64_t kFillingPart = 8, kDisplacedPart = 4;  // of the pool: an 8th, a 4th
  static constexpr std::chrono::minutes kDisplacedIn{10};
  static constexpr uint32_t kMostOffers = 16;  // under way at once

  // The objects that it works on. All are borrowed.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    const Owners* owners;
    PeerReads* reads;
    BeyondNode* beyond;  // null: nothing lies beyond the node
  };
  PeerOffers(const Clock* clock, size_t tenants, Parts parts);

  // As Store::NameHottest and Store::TakeOffer.
  HotChunks NameHottest(const TenantTags& tenants, size_t most);
  void Take(std::vector<OfferedChunk> offered, OfferCallback done);

  const OfferCounters& counters() const STORE_LOCKED { return counters_; }

 private:
  enum class Room : uint8_t { kFree, kLater, kNone };
  // A chunk that this node might offer.
  struct Ranked {
    bool in_g2;
    int64_t age;  // in touches of other chunks; -1: it is in use now
    OfferedChunk what;
  };
  // What offers took from the chunks of a tenant.
  struct Displaced {
    MonotonicTime since{0};
    uint64_t blocks = 0;
  };
  struct Taking;

  Ranked Rank(ChunkSlot slot, Tier tier) STORE_LOCKED;  // of a chunk that others could read
  static void KeepHottest(std::vector<Ranked>& ranked, size_t most);
  absl::Status MayTake(TenantId owner) STORE_LOCKED;
  // Makes room for a chunk, as far as an offer may. May yield before the room is there.
  Room MakeRoom(Section& section, TenantId owner, uint64_t blocks) STORE_LOCKED;
  bool MayDisplace(TenantId owner, const Chunk& chunk) STORE_LOCKED;
  void Answer(const std::shared_ptr<Taking>& taking);

  const Clock& clock_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  const Owners& owners_;
  PeerReads& reads_;
  BeyondNode* const beyond_;
  std::vector<Displaced> displaced_ STORE_GUARDED;  // by TenantId
  uint32_t taking_ STORE_GUARDED = 0;
  OfferCounters counters_ STORE_GUARDED;
};

}  // namespace kvkeep::store_internal
