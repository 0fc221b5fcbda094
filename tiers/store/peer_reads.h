// PeerReads: the calls of other nodes of the fleet, which have no sessions here: where chunks are,
// and reads of them.
//
// They are no use of a chunk, as the session that used it has left this node: no policy and no
// sample learns of them, no tenant is charged, and no hit or miss of a session is counted. A chunk
// counts as used in one way only: it may be written beyond the node from then on, where a put waits
// for that (remote_tier.h), since now two nodes want it.
//
// A chunk on its way here from beyond the node is not there: two nodes might wait for each other.
// A chunk of G3 comes into G2 as for a transient read. All nodes wait in one line (ReadQueue), and
// the chunks that they hold are a part of what is lent (g2_pool.h).
//
// Owns nothing, and counts nothing: the server counts what it serves. The calls take the store's
// lock.
#pragma once

#include <absl/functional/function_ref.h>

#include <optional>
#include <span>

#include "tiers/remote/offered_chunk.h"
#include "tiers/remote/peer_source.h"
#include "tiers/store/beyond_node.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/promoter.h"
#include "tiers/store/reads.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class PeerReads {
 public:
  // The objects that it works on. All are borrowed.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    Promoter* promoter;
    Reads* reads;
    BeyondNode* beyond;  // null: nothing lies beyond the node
  };
  explicit PeerReads(Parts parts);

  // As Store::LookForPeer, ReadForPeer and NameForPeers.
  PeerSource::Found Look(std::span<const ChunkId> ids);
  ReadResult Read(const ChunkId& id);
  void NameAll(const TenantTags& tenants, TakeName take);

  static constexpr uint32_t kVisitedAtOnce = 4096;  // at most, before `between`
  // Visits each chunk of these tenants that a peer could read: `visit` under the lock, and
  // `between` without it, now and then and at the end, until that returns false. What comes or goes
  // meanwhile may be missed.
  void ForEach(const TenantTags& tenants, absl::FunctionRef<void(ChunkSlot, Tier)> visit,
               absl::FunctionRef<bool()> between);

  // Returns the tier that a peer could read the chunk from; none: it could not, or kNoSlot.
  std::optional<Tier> TierOf(ChunkSlot slot) const STORE_LOCKED;

 private:
  void OfferBeyond(Section& section, ChunkSlot slot) STORE_LOCKED;

  Chunks& chunks_;
  DeviceTiers& tiers_;
  Promoter& promoter_;
  Reads& reads_;
  BeyondNode* const beyond_;
};

}  // namespace kvkeep::store_internal
