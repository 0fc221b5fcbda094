// Recaller: brings chunks from beyond the node into G2.
//
// A recall asks the source which chunks it has of those that this node lacks. For each of them it
// takes a slot and space in G2, and starts a promotion. A chunk that does not come is removed
// again. If readers wait for it, they get the error, and the chunk is removed with its last reader.
//
// A deleted chunk does not come back: its name is in RemoteRemovals until its image is removed and
// the searches that began before are over (MayBring). beyond.h has the removals and writes.
//
// Owns the recalls under way. Works on the RemoteTier that it is given. The store's lock protects
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
  bool in_order = false;  // each chunk is to go from G2 before the one that comes before it
  uint64_t left = 1;  // chunks under way, plus one for the call until it has begun all of them
  uint64_t came = 0;  // chunks
  absl::AnyInvocable<void(absl::StatusOr<uint64_t>) &&> done;  // gets `came`; may be null

  // ---- for a lookup
  // Called once: when the chunks that are worth it are on their way, when the search has found
  // none, or at `answer_by`.
  absl::AnyInvocable<void() &&> searched;
  bool head_run = false;  // the caller cannot use chunks behind one that is missing
  MonotonicTime asked_at{0}, answer_by{0};
  std::chrono::nanoseconds recompute_per_key{0};  // the caller's cost; 0: not known
  // How long the caller waits for the chunks that the answer promises, and again after each piece
  // that comes. 0: until `deadline`.
  std::chrono::nanoseconds wait{0};
  std::shared_ptr<SharedWait> shared_wait;  // of these chunks, once one is brought; null: no wait
  MonotonicTime deadline{MonotonicTime::max()};  // from then on nobody wants the chunks

  // Returns how long the caller would compute the first `first_ids` chunks.
  std::chrono::nanoseconds RecomputeTime(size_t first_ids) const;
};
using RecallingPtr = std::shared_ptr<Recalling>;

class Recaller {
 public:
  using Links = std::span<const EvictionPolicy::ChainLink>;

  // What it needs from the rest of the store.
  class Host {
   public:
    // Forgets a chunk if the table is full, to have a slot for a chunk of `tenant`. Returns false
    // if no chunk can be forgotten. May yield.
    virtual bool MakeRoomInTable(Section& section, TenantId tenant) STORE_LOCKED = 0;

   protected:
    ~Host() = default;
  };

  // All are borrowed.
  Recaller(Chunks* chunks, RemoteTier* remote, Promotions* promotions, Host* host,
           const Clock* clock);

  // Returns OK if the tenant may ask now, else Unavailable.
  absl::Status MayAsk(TenantId asks) STORE_LOCKED;
  // Returns the recall that a lookup by this request would make.
  RecallingPtr ForLookup(const LookupRequest& request,
                         absl::AnyInvocable<void() &&> searched) const;
  // Begins a recall. Called before the table is looked at, so that the recall brings no chunk that
  // is deleted from here on. REQUIRES: MayAsk.
  void Begin(const ReadQueue::Requester& requester, TenantId owner, Recalling& recalling)
      STORE_LOCKED;
  // Adds to the recall the chunks that are in no tier, from the key `first_key` on. May yield.
  void NameMissing(Section& section, const ChunkSet& chunks, Links found, size_t first_key,
                   Recalling& to) STORE_LOCKED;
  // Promises the caller the chunks that other callers have asked for already and that are coming. A
  // caller that waits is told at `until` at the latest.
  void PromiseWhatComes(const ChunkSet& chunks, Links found, MonotonicTime until) STORE_LOCKED;
  // Searches for the named chunks, for a lookup that waits for `wait`. Returns false if a search is
  // not worth it; the recall has ended then.
  bool SearchIfWorth(const RecallingPtr& recalling, std::chrono::nanoseconds wait) STORE_LOCKED;
  // Searches for the named chunks, however long it takes. Ends the recall if none was named, or if
  // the source was asked enough for now.
  void Search(const RecallingPtr& recalling) STORE_LOCKED;
  // Begins to bring the named chunk `i`, which the source has, unless the node has it or it was
  // deleted. Returns false if there is no space. May yield. REQUIRES: the recall has not ended.
  bool Bring(Section& section, const RecallingPtr& recalling, size_t i,
             const ImageShape& shape) STORE_LOCKED;
  // Ends the recall once all that it has begun to bring has come. Called by Search, or by who calls
  // Bring.
  void End(Recalling& recalling) STORE_LOCKED;

  // The last byte of a recalled chunk's read has ended.
  void OnReadEnded(const Chunk& chunk) STORE_LOCKED;
  // Answers the callers that have waited as long as they said. Called about ten times a second.
  void Tick() STORE_LOCKED;
  void BeginDrain() STORE_LOCKED { draining_ = true; }  // no recall begins any more
  size_t waiting_lookups() const STORE_LOCKED { return asking_.size(); }

 private:
  bool IsWorthAsking(const Recalling& recalling) STORE_LOCKED;
  bool IsFaster(const Recalling& recalling, size_t chunks, uint64_t bytes) STORE_LOCKED;
  void Send(const RecallingPtr& recalling, MonotonicTime deadline) STORE_LOCKED;
  void OnFound(RecallingPtr recalling, const RemoteSource::Found& found);
  size_t WantedOf(Recalling& recalling, const RemoteSource::Found& found) STORE_LOCKED;
  bool MayBring(const Recalling& recalling, const ChunkId& id) const STORE_LOCKED;
  void OnBrought(const RecallingPtr& by, uint64_t bytes, const absl::Status& status);
  void Promise(ChunkSlot slot, MonotonicTime until) STORE_LOCKED;
  // Promises the chunk for as long as pieces of its recall come.
  void WaitForPieces(Recalling& recalling, ChunkSlot slot) STORE_LOCKED;
  void TellOfLatePromises() STORE_LOCKED;

  Chunks& chunks_;
  RemoteTier& remote_;
  Promotions& promotions_;
  Host& host_;
  const Clock& clock_;
  std::vector<RecallingPtr> asking_ STORE_GUARDED;  // searches that lookups wait for
  bool draining_ STORE_GUARDED = false;
};

}  // namespace kvkeep::store_internal
