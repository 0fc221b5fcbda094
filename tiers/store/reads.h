// Reads: the calls that read a single chunk. It charges them and finds the chunk.
//
// Owns nothing. A ChunkReader (handles.h) uses it to unpin its chunk, and to wait for its bytes.
// The contracts of the calls are in store.h. The calls take the store's lock.
#pragma once

#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/filler.h"
#include "tiers/store/handles.h"
#include "tiers/store/owners.h"
#include "tiers/store/promoter.h"
#include "tiers/store/section.h"
#include "tiers/store/served_meter.h"
#include "tiers/store/sessions.h"

namespace kvkeep::store_internal {

class Reads {
 public:
  // The objects that it works on. All are borrowed.
  struct Parts {
    Chunks* chunks;
    DeviceTiers* tiers;
    Filler* filler;
    Promoter* promoter;
    Sessions* sessions;
    ServedMeter* served;
    const Owners* owners;
  };
  Reads(const Clock* clock, Parts parts);

  absl::StatusOr<ReadResult> Read(const SessionToken& token, const ChunkId& id, LeaseId lease,
                                  bool transient);

  // Pins a chunk for a reader. REQUIRES: it has its space in G2 and has not failed.
  ChunkReader Pin(ChunkSlot slot, ReaderKind kind) STORE_LOCKED;

  // ---- for ChunkReader
  void Unpin(ChunkSlot slot, ReaderKind kind);
  Filler& filler() const { return filler_; }
  Chunks& chunks() const { return chunks_; }

 private:
  // Returns whether reads under this lease of the session's were charged when it was granted.
  absl::StatusOr<bool> IsPaid(const SessionToken& token, LeaseId lease) const STORE_LOCKED;
  absl::Status ChargeRead(Session& session, bool leased) STORE_LOCKED;
  void NoteWanted(const ChunkId& id) STORE_LOCKED;
  void CountRead(const SessionToken& token, TenantId tenant, const Chunk& chunk, Tier from)
      STORE_LOCKED;
  ChunkSlot FindInLease(Section& section, const SessionToken& token, LeaseId lease,
                        const ChunkId& id) STORE_LOCKED;

  const Clock& clock_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Filler& filler_;
  Promoter& promoter_;
  Sessions& sessions_;
  ServedMeter& served_;
  const Owners& owners_;
};

}  // namespace kvkeep::store_internal
