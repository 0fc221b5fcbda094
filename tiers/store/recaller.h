// Recaller: brings chunks from beyond the node into G2.
//
// A recall asks the source which of the chunks that this node lacks it has; takes space in G2 and a
// slot for those; and has them read as any promotion is read. A chunk that does not come is gone
// again, unless somebody reads it: then that reader is told, and the chunk goes with its last one.
//
// A deleted chunk does not come back: its name is in RemoteRemovals until its image is removed and
// the searches that began before are over (MayBring). Removals and writes: beyond.h.
//
// Owns the recalls under way; works on the RemoteTier that it is given. The store's lock protects
// it.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <memory>
#include <span>
#include <vector>

#include "tiers/store/chunks.h"
#include "tiers/store/promotions.h"
#include "tiers/store/remote_tier.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

// One call that wants chunks from beyond the node.
struct Recalling {
  ReadQueue::Requester requester;
  TenantId owner;  // of the namespace
  RemoteRemovals::Moment began = 0;
  std::vector<ChunkId> ids;
  uint64_t left = 1;  // chunks under way, and the call itself until all were begun
  uint64_t came = 0;
  absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&> done;  // gets how many came; or null

  // ---- of a lookup
  absl::AnyInvocable<void() &&> searched;  // once what is worth it is on its way, or nothing is
  bool head_run = false;  // what is behind a chunk that is not there is of no use
  MonotonicTime asked_at{0}, answer_by{0};
  std::chrono::nanoseconds recompute_per_key{0};  // 0: not known
  // So long its caller waits for what the answer promises. 0: until `deadline`.
  std::chrono::nanoseconds wait{0};
  MonotonicTime deadline{MonotonicTime::max()};  // from then on nobody wants what was begun

  // What it costs not to have the first of its chunks.
  std::chrono::nanoseconds RecomputeTime(size_t first_ids) const;
};
using RecallingPtr = std::shared_ptr<Recalling>;

class Recaller {
 public:
  using Links = std::span<const EvictionPolicy::ChainLink>;

  // What it needs of the rest of the store.
  class Host {
   public:
    // Forgets a chunk if the table is full, for one of the tenant's. False: none can go. May yield.
    virtual bool MakeRoomInTable(Section& section, TenantId tenant) STORE_LOCKED = 0;

   protected:
    ~Host() = default;
  };

  // All are borrowed.
  Recaller(Chunks* chunks, RemoteTier* remote, Promotions* promotions, Host* host,
           const Clock* clock);

  // Whether the tenant may ask now. Unavailable: no.
  absl::Status MayAsk(TenantId asks) STORE_LOCKED;
  // What a lookup by this request would ask.
  RecallingPtr ForLookup(const LookupRequest& request,
                         absl::AnyInvocable<void() &&> searched) const;
  // Before the table is looked at: what is deleted from here on is not believed. REQUIRES: MayAsk.
  void Begin(const ReadQueue::Requester& requester, TenantId owner, Recalling& recalling)
      STORE_LOCKED;
  // Adds those of the chunks that are in no tier, from a key on. May yield.
  void NameMissing(Section& section, const ChunkSet& chunks, Links found, size_t first_key,
                   Recalling& to) STORE_LOCKED;
  // Others have asked for what is coming; who asks now is promised it as well.
  void PromiseWhatComes(const ChunkSet& chunks, Links found, MonotonicTime until) STORE_LOCKED;
  // Searches for what was named, for a lookup that waits so long. False: it is not worth it, and
  // the recall has ended.
  bool SearchIfWorth(const RecallingPtr& recalling, std::chrono::nanoseconds wait) STORE_LOCKED;
  // Searches for what was named, for as long as it takes; ends the recall if nothing was, or the
  // source was asked enough for now.
  void Search(const RecallingPtr& recalling) STORE_LOCKED;

  // The last byte of a chunk's read from there has ended. Its space is its own, or free.
  void OnReadEnded(const Chunk& chunk) STORE_LOCKED;
  // Answers who has waited as long as it said. Called about ten times a second.
  void Tick() STORE_LOCKED;
  void BeginDrain() STORE_LOCKED { draining_ = true; }  // nothing is asked any more
  size_t waiting_lookups() const STORE_LOCKED { return asking_.size(); }

 private:
  bool IsWorthAsking(const Recalling& recalling) STORE_LOCKED;
  bool IsFaster(const Recalling& recalling, size_t chunks, uint64_t bytes) STORE_LOCKED;
  void Send(const RecallingPtr& recalling, MonotonicTime deadline) STORE_LOCKED;
  void OnFound(RecallingPtr recalling, const RemoteSource::Found& found);
  size_t WantedOf(Recalling& recalling, const RemoteSource::Found& found) STORE_LOCKED;
  bool MayBring(const Recalling& recalling, const ChunkId& id) const STORE_LOCKED;
  bool Bring(Section& section, const RecallingPtr& recalling, size_t i, const ImageShape& shape)
      STORE_LOCKED;
  void OnBrought(const RecallingPtr& by, uint64_t bytes, const absl::Status& status);
  void End(Recalling& recalling) STORE_LOCKED;
  void Promise(ChunkSlot slot, MonotonicTime until) STORE_LOCKED;
  void TellOfLatePromises() STORE_LOCKED;

  Chunks& chunks_;
  RemoteTier& remote_;
  Promotions& promotions_;
  Host& host_;
  const Clock& clock_;
  std::vector<RecallingPtr> asking_ STORE_GUARDED;  // lookups wait for these
  bool draining_ STORE_GUARDED = false;
};

}  // namespace kvkeep::store_internal
