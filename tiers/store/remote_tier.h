// RemoteTier: the place beyond the node, as the store sees it. It is a LowerTier without extents,
// records or space of its own. It also keeps the chunks that are to be written and removed there.
//
// The store does not know which chunks are there. It asks, and trusts bytes once they are verified.
// A chunk that it recalls becomes a chunk of G2, as after a put. Nothing is promised: a write or a
// removal that cannot be done is dropped or tried again, and counted. The store's lock protects it;
// Beyond (beyond.h) and Recaller (recaller.h) work on it.
#pragma once

#include <map>
#include <set>
#include <vector>

#include "tiers/base/token_bucket.h"
#include "tiers/remote/remote_source.h"
#include "tiers/store/lower_tier.h"
#include "tiers/store/remote_ages.h"
#include "tiers/store/remote_removals.h"
#include "tiers/store/remote_writes.h"
#include "tiers/store/removal_journal.h"
#include "tiers/store/snapshot.h"
#include "tiers/store/store_options.h"

namespace kvkeep::store_internal {

class RemoteTier final : public LowerTier {
 public:
  // Recalls under way at once. A tenant may have as many as it leaves for others: half if it is
  // alone.
  static constexpr uint32_t kMostRecalls = 512;
  static constexpr size_t kMostChunksARecall = 4096;  // chunks behind them are not looked for
  // A lookup does not ask for fewer chunks, without and with a cost that the caller told.
  static constexpr size_t kLeastChunks = 8, kLeastChunksByCost = 2;
  static constexpr uint64_t kPartOfG2 = 4;  // recalls may fill a 4th of a tenant's pool at once

  // `options.max_chunks`: the slots of the table.
  RemoteTier(uint16_t of_number, RemoteSource* source, RemovalLog* log, const StoreOptions& options)
      : LowerTier(of_number, source->mac_key(), options.max_remote_reads_in_flight_bytes),
        unused(options.remote_second_use && source->keeps() ? options.max_chunks : 0),
        ages(options.remote_lifetime),
        write_rate(options.remote_write_bytes_per_second),
        removals(options.tenants.size()),
        journal(log),
        unwritten_(options.max_chunks),
        source_(*source) {}

  // ---- LowerTier
  void Read(ImageRead read) override;
  void Write(ImageWrite write) override;
  absl::Status CheckHeader(const ImageHeader& header,
                           const ExpectedHeader& expected) const override;
  void NoteBad(const ChunkId& id, const ImageHeader* header) override;
  bool has_records() const override { return false; }
  ImagePlacement PlacementOf(const Chunk& chunk) const override;
  bool readable() const override { return source_.readable(); }
  bool writable() const override { return source_.writable(); }
  void NoteHeard() override {}
  void NoteIo(bool, const absl::Status&, MonotonicTime) override {}  // the source knows
  uint32_t NoteRuns(const Chunk&) override { return 1; }

  RemoteSource& source() const { return source_; }
  // Returns whether images are written and removed there.
  bool keeps() const { return source_.keeps(); }
  bool removable() const { return source_.removable(); }
  // Returns whether nothing is under way, and nothing waits for its time.
  bool at_rest() const {
    return !reads.busy() && !writes.busy() && !writes.anyone_waits() && recalls.all() == 0 &&
           removals.at_rest() && journal.at_rest() && !ages.busy() && !ages.anyone_waits();
  }

  // Returns whether the source has answered all requests.
  bool quiet() const {
    return !reads.busy() && !writes.busy() && recalls.all() == 0 && !removals.busy() &&
           journal.at_rest() && !ages.busy();
  }

  // Returns whether this chunk is offered to the source once a lookup finds it: it was put, or it
  // should be there and is not.
  bool awaits_use(ChunkSlot slot) const {
    return (slot.value() < unused.size() && unused[slot.value()]) || unwritten_[slot.value()];
  }
  // Ends that: the chunk is used, or gone.
  void EndWait(ChunkSlot slot) {
    if (slot.value() < unused.size()) unused[slot.value()] = false;
    SetUnwritten(slot, false);
  }
  // Notes whether the chunk should be written, could not be, and is in no queue.
  void SetUnwritten(ChunkSlot slot, bool unwritten) {
    if (unwritten_[slot.value()] == unwritten) return;
    unwritten_[slot.value()] = unwritten;
    unwritten_chunks_ = unwritten ? unwritten_chunks_ + 1 : unwritten_chunks_ - 1;
  }
  // Offers a chunk again whose write has failed. If the place takes other chunks, the failure
  // counts against this chunk; if it is away or refuses all, it does not. Returns false if the
  // chunk waits for its next use.
  bool OfferAgain(RemoteWrites::Sent sent) {
    sent.what.refusals += writable() ? 1 : 0;
    const bool offered =
        sent.what.refusals < RemoteWrites::kMostRefusals && writes.Offer(sent.what);
    if (!offered) SetUnwritten(sent.slot, true);
    return offered;
  }
  bool unwritten(ChunkSlot slot) const { return unwritten_[slot.value()]; }
  uint64_t unwritten_chunks() const { return unwritten_chunks_; }
  // Returns how many chunks of this node should be there, and are not known to be.
  uint64_t writes_left() const { return writes.under_way() + unwritten_chunks_; }

  // Returns whether the source may ask now, so that a search may begin.
  bool MayFind(const NamespaceDigest& ns) {
    if (source_.may_find(ns)) return true;
    ++counters.declined_rate;
    return false;
  }
  // Returns whether a use of this chunk offers it to the source. `step`: ages.At() of the present;
  // RemoteAges::kUnknown: nothing is written anew.
  bool WantsUsed(ChunkSlot slot, const Chunk& chunk, RemoteAges::Mark step) const {
    return awaits_use(slot) || (step != RemoteAges::kUnknown && !chunk.transient &&
                                RemoteAges::IsDue(chunk.beyond, step));
  }

  std::vector<bool> unused;  // by slot: put and not used yet; empty: every put is offered
  RemoteWrites writes;
  RemoteAges ages;
  TokenBucket write_rate;
  RemoteRemovals removals;
  RemovalJournal journal;  // of the removals
  RemoteCounters counters;
  // Counts the recalls that are under way, by the tenant that asked.
  class Recalls {
   public:
    bool May(TenantId asks) const {
      const auto own = of_.find(asks);
      return (own == of_.end() ? 0 : own->second) < kMostRecalls - all_;
    }
    void Begin(TenantId asks) {
      KVKEEP_CHECK(May(asks));
      ++of_[asks];
      ++all_;
    }
    void End(TenantId asks) {
      const auto own = of_.find(asks);
      KVKEEP_CHECK(own != of_.end() && all_ > 0);
      if (--own->second == 0) of_.erase(own);
      --all_;
    }
    uint32_t all() const { return all_; }

   private:
    uint32_t all_ = 0;
    std::map<TenantId, uint32_t> of_;
  };

  Recalls recalls;
  // When waiters for a recalled chunk are told that it is late.
  std::multimap<MonotonicTime, ChunkSlot> promised;
  std::multiset<ChunkId> recalling;  // chunks on their way here, not to be removed there now

 private:
  std::vector<bool> unwritten_;  // by slot
  uint64_t unwritten_chunks_ = 0;
  RemoteSource& source_;
};

}  // namespace kvkeep::store_internal
