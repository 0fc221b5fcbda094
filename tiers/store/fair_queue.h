// FairQueue: queues whose owners take turns, so that each moves as many bytes as the others while
// it has any to move.
//
// Fair queueing by start times (Goyal, Vin, Cheng, "Start-time fair queueing", SIGCOMM 1996). The
// owner that has moved least is next. An owner that comes starts with as much as the owner whose
// turn it is has moved, or with what it has moved itself, if that is more: its account outlives its
// queue until the others have had as much. A turn is kTurnBytes, or less if there is less; the last
// item of a turn is taken whole.
//
// Queue: anything with empty(); may be a FairQueue. Add and Take cost the logarithm of how many
// owners there are. Not thread-safe.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>

#include "tiers/base/check.h"
#include "tiers/base/units.h"

namespace kvkeep::store_internal {

template <typename Owner, typename Queue>
class FairQueue {
 public:
  static constexpr uint64_t kTurnBytes = 8 * kMiB;

  bool empty() const { return order_.empty(); }
  uint64_t bytes() const { return bytes_; }  // of all queues

  // The queue whose turn it is; it is not empty. REQUIRES: !empty().
  Queue& front() {
    KVKEEP_CHECK(!empty());
    return order_.begin()->second->second.queue;
  }
  const Queue& front() const {
    KVKEEP_CHECK(!empty());
    return order_.begin()->second->second.queue;
  }
  // So much has left it. REQUIRES: it was that much.
  void Take(uint64_t bytes) {
    KVKEEP_CHECK(!empty());
    const auto [place, owner] = *order_.begin();
    KVKEEP_CHECK(owner->second.bytes >= bytes && bytes_ >= bytes);
    taken_ += bytes;
    bytes_ -= bytes;
    owner->second.bytes -= bytes;
    const bool ended = owner->second.queue.empty();
    if (!ended && taken_ < kTurnBytes) return;
    order_.erase(place);
    owner->second.place = {place.moved + taken_, next_number_++};
    (ended ? idle_ : order_).emplace(owner->second.place, owner);
    taken_ = 0;
    // When nobody waits, nobody has anything to sit out.
    now_ = order_.empty() ? idle_.rbegin()->first.moved : order_.begin()->first.moved;
    Forget();
  }

  // The owner's queue, to which the caller adds something of so many bytes.
  Queue& Add(const Owner& owner, uint64_t bytes) {
    const auto [known, is_new] = owners_.try_emplace(owner);
    Account& account = known->second;
    if (account.queue.empty()) {
      if (!is_new) idle_.erase(account.place);
      account.place = {std::max(account.place.moved, now_), next_number_++};
      order_.emplace(account.place, known);
      now_ = order_.begin()->first.moved;
    }
    account.bytes += bytes;
    bytes_ += bytes;
    return account.queue;
  }

  uint64_t BytesOf(const Owner& owner) const {
    const auto known = owners_.find(owner);
    return known == owners_.end() ? 0 : known->second.bytes;
  }
  // Null: nothing of that owner's is known.
  const Queue* Find(const Owner& owner) const {
    const auto known = owners_.find(owner);
    return known == owners_.end() ? nullptr : &known->second.queue;
  }
  // Returns an upper bound on the bytes that are served until this owner's next `own` bytes are, if
  // every other owner gets as many turns and this one has none to sit out. Looks at kLooked other
  // owners, and counts all that the rest have.
  uint64_t BytesWithin(const Owner& owner, uint64_t own) const {
    const uint64_t turns = RoundUp(own, kTurnBytes);
    uint64_t within = own, unseen = bytes_ - BytesOf(owner);
    int looked = 0;
    for (const auto& [place, other] : order_) {
      if (other->first == owner) continue;
      if (looked++ == kLooked) return within + unseen;
      unseen -= other->second.bytes;
      within += std::min(other->second.bytes, turns);
    }
    return within;
  }

 private:
  static constexpr int kLooked = 1024;

  struct Place {
    uint64_t moved = 0;   // bytes, when its turn began
    uint64_t number = 0;  // of equals, who came first
    auto operator<=>(const Place&) const = default;
  };
  struct Account {
    Queue queue{};
    uint64_t bytes = 0;
    Place place;
  };
  using Owners = std::map<Owner, Account>;
  using Order = std::map<Place, typename Owners::iterator>;

  // Forgets owners with empty queues that the others have caught up with: at most two, as each Take
  // adds one.
  void Forget() {
    for (int i = 0; i < 2 && !idle_.empty(); ++i) {
      const auto least = idle_.begin();
      if (least->first.moved > now_) return;
      owners_.erase(least->second);
      idle_.erase(least);
    }
  }

  Owners owners_;
  Order order_, idle_;  // with something in their queues, and with nothing
  uint64_t now_ = 0;    // what whoever has the turn had moved when it began
  uint64_t taken_ = 0;  // in this turn
  uint64_t next_number_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace kvkeep::store_internal
