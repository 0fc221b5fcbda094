// Promotions: the interface that begins and finds promotions (promotion.h), for objects that do not
// carry them out. Filler (filler.h) implements it.
#pragma once

#include "tiers/store/lower_tier.h"
#include "tiers/store/promotion.h"
#include "tiers/store/store_lock.h"

namespace kvkeep::store_internal {

class Promotions {
 public:
  // Begins to read the chunk into its space in G2. Nobody wants it after `deadline`.
  virtual void Start(LowerTier& from, const ReadQueue::Requester& requester, ChunkSlot slot,
                     MonotonicTime deadline) STORE_LOCKED = 0;
  // Returns the chunk's promotion; null: it is neither being read nor being verified.
  virtual Promotion* Find(ChunkSlot slot) STORE_LOCKED = 0;
  // Calls `ready` once the promotion is over.
  virtual void AwaitAll(Promotion& promotion, StatusCallback ready) STORE_LOCKED = 0;
  // Calls the callbacks after this hold. Call it before the hold gets any other task.
  virtual void TellFirst(Promotion::Callbacks told, absl::Status status) STORE_LOCKED = 0;

 protected:
  ~Promotions() = default;
};

}  // namespace kvkeep::store_internal
