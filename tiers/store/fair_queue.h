// FairQueue: queues whose owners take turns, so that each moves as many bytes as the others while
// it has any to move.
//
// This is fair queueing by start times (Goyal, Vin, Cheng, "Start-time fair queueing", SIGCOMM
// 1996). The owner that has moved the fewest bytes is next. A new owner starts with as many bytes
// as the owner whose turn it is has moved. An owner that comes back starts with its own bytes if
// those are more: its account outlives its queue until the others have moved as many. A turn is
// kTurnBytes bytes, or fewer if the queue has fewer. The last item of a turn is taken whole.
//
// Queue: any class with empty(), such as a FairQueue. The cost of Add and Take is logarithmic in
// the number of owners. Not thread-safe.
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

  // Returns the queue whose turn it is, which is not empty. REQUIRES: !empty().
  Queue& front() {
    KVKEEP_CHECK(!empty());
    return order_.begin()->second->second.queue;
  }
  const Queue& front() const {
    KVKEEP_CHECK(!empty());
    return order_.begin()->second->second.queue;
  }
  // Notes that the caller has taken an item of `bytes` bytes from front().
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
    // If nobody waits, no owner has to sit out a turn.
    now_ = order_.empty() ? idle_.rbegin()->first.moved : order_.begin()->first.moved;
    Forget();
  }

  // Returns the owner's queue, to which the caller adds an item of `bytes` bytes.
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
  // Returns the owner's queue; null: the owner is not known.
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
    uint64_t number = 0;  // of equals, the one that came first is next
    auto operator<=>(const Place&) const = default;
  };
  struct Account {
    Queue queue{};
    uint64_t bytes = 0;
    Place place;
  };
  using Owners = std::map<Owner, Account>;
  using Order = std::map<Place, typename Owners::iterator>;

  // Forgets owners with empty queues that the others have caught up with. Two at most are enough,
  // as each Take adds one at most.
  void Forget() {
    for (int i = 0; i < 2 && !idle_.empty(); ++i) {
      const auto least = idle_.begin();
      if (least->first.moved > now_) return;
      owners_.erase(least->second);
      idle_.erase(least);
    }
  }

  Owners owners_;
  Order order_, idle_;  // owners whose queues have items, and owners whose queues are empty
  uint64_t now_ = 0;    // the bytes that the owner with the turn had moved when the turn began
  uint64_t taken_ = 0;  // in this turn
  uint64_t next_number_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace kvkeep::store_internal
