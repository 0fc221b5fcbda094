// StoreParts: the objects that a store (store.h) consists of, in the order in which they are built.
//
// Each object may point only to those declared before it, with two exceptions: filler gets the
// address of outcomes, its host, and disk that of sweeper, before they are built. StoreParts itself
// does what concerns all of them: recovery, ticks, the drain, the snapshot. README.md has the
// picture.
//
// A method without STORE_LOCKED takes the store's lock.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tiers/store/beyond_node.h"
#include "tiers/store/chunk_hooks.h"
#include "tiers/store/chunks.h"
#include "tiers/store/deletes.h"
#include "tiers/store/disk.h"
#include "tiers/store/fill_outcomes.h"
#include "tiers/store/finder.h"
#include "tiers/store/granter.h"
#include "tiers/store/learning.h"
#include "tiers/store/limits.h"
#include "tiers/store/lookups.h"
#include "tiers/store/metadata_reads.h"
#include "tiers/store/operator.h"
#include "tiers/store/peer_offers.h"
#include "tiers/store/peer_reads.h"
#include "tiers/store/put_calls.h"
#include "tiers/store/reads.h"
#include "tiers/store/scrub_reader.h"
#include "tiers/store/sessions.h"
#include "tiers/store/snapshot.h"
#include "tiers/store/table_room.h"
#include "tiers/store/watches.h"

namespace kvkeep::store_internal {

struct StoreParts final : private ChunkHooks {
  StoreParts(const StoreOptions& with, const StoreDeps& from);

  // Recovers what an earlier process left in G2, and then each device that is there.
  absl::Status Recover();
  // See the methods of Store.
  bool Tick();
  void BeginDrain(bool write_remote);
  StoreSnapshot Snapshot();
  bool BeyondIsQuiet();
  void CheckInvariants();

  const StoreOptions options;  // as at the start; `limits` has those that may change
  const StoreDeps deps;
  const Owners owners;
  const std::shared_ptr<CipherBuffers> buffers = std::make_shared<CipherBuffers>();
  ReuseMeter reuse;  // has a lock of its own

  // ---- chunks and the tiers
  Chunks chunks;
  EventHub events STORE_GUARDED;
  Scrubber scrubber STORE_GUARDED;
  const ImageVerifier verifier;
  Filler filler;
  Disk disk;
  Sweeper sweeper;
  Promoter promoter;
  ScrubReader scrub_reader;
  TableRoom room;
  const std::unique_ptr<BeyondNode> beyond;  // null: nothing lies beyond the node
  FillOutcomes outcomes;

  // ---- calls
  ServedMeter served;
  Learning learning;
  Sessions sessions;
  Finder finder;
  Granter granter;
  Lookups lookups;
  PutCalls puts;
  Deletes deletes;
  Reads reads;
  PeerReads peer_reads;
  PeerOffers peer_offers;
  MetadataReads metadata;
  Watches watches;
  Operator operators;
  Limits limits;

 private:
  // ---- ChunkHooks
  void Verify(ChunkSlot slot) STORE_LOCKED override;
  void OnDetached(Chunk& chunk, ChunkSlot slot) STORE_LOCKED override;
  void LeaveG3(Chunk& chunk, ChunkSlot slot) STORE_LOCKED override;
  void OnHomeless(ChunkSlot slot) STORE_LOCKED override;
  void OnChanged(Chunk& chunk) STORE_LOCKED override;
  void OnGone(const Chunk& chunk, ChunkSlot slot) STORE_LOCKED override;

  // Returns whether nothing is under way, and nothing waits for its time.
  bool IsAtRest() const STORE_LOCKED;
  void SnapshotTiers(StoreSnapshot& snapshot) STORE_LOCKED;
  void SnapshotSessions(Section& section, StoreSnapshot& snapshot,
                        std::vector<std::shared_ptr<const SessionInfo>>& infos) STORE_LOCKED;
  void CheckMarks() const STORE_LOCKED;
  void CheckTold() const STORE_LOCKED;
  void CheckShares() STORE_LOCKED;

  std::optional<MonotonicTime> last_tick_ STORE_GUARDED;
};

}  // namespace kvkeep::store_internal
