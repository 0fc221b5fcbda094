// RemoteAges: how long chunks' images have been beyond the node, as far as this node knows, and the
// chunks for which it is to ask.
//
// Images expire there when they are older than a lifetime. If an image is older than half a
// lifetime when its chunk is used, it is written anew. So chunks that are used stay, and the head
// of a prefix, which is used with its tails, does not expire before them. The node asks for the age
// first, as another node may have written the image anew.
//
// A chunk has a byte that says when its image was written, in eighths of a lifetime
// (Chunk::beyond). So an image is due at an age of 1/2 to 5/8 of a lifetime. The byte repeats after
// 31 lifetimes: a chunk that nobody has used for that long may look new once, for at most 5/8 of a
// lifetime.
//
// It is a plain value: time comes from the caller. The store's lock protects it. Beyond works on
// it.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/base/key.h"

namespace kvkeep::store_internal {

class RemoteAges {
 public:
  using Mark = uint8_t;
  static constexpr Mark kUnknown = 0;   // the age is not known, or there is no image
  static constexpr Mark kUnderWay = 1;  // the chunk is offered: its age is asked, or it is written
  static constexpr Mark kNever = 2;     // the chunk must not go there
  static constexpr size_t kMostQueued = 4096, kMostAsked = 16;

  // `lifetime` 0: images do not expire, and none is ever due.
  explicit RemoteAges(std::chrono::nanoseconds lifetime)
      : half_(lifetime / 2), step_(std::max<int64_t>(1, lifetime.count() / kSteps)) {
    KVKEEP_CHECK(lifetime.count() >= 0);
  }

  bool on() const { return half_.count() > 0; }
  // Returns the mark of an image that was written at `written`.
  Mark At(MonotonicTime written) const {
    const uint64_t steps = static_cast<uint64_t>(written.count() + kPast) / step_;
    return static_cast<Mark>(kFirst + steps % kRound);
  }
  // Returns the mark of an image that has this age at `now`.
  Mark Of(std::chrono::seconds age, MonotonicTime now) const {
    if (!on() || age >= std::chrono::duration_cast<std::chrono::seconds>(half_)) return kUnknown;
    return At(now - age);
  }
  // Returns whether the image may be older than half a lifetime. `now`: At() of the present.
  static bool IsDue(Mark mark, Mark now) {
    if (mark < kFirst) return mark == kUnknown;
    return (now + kRound - mark) % kRound > kSteps / 2;
  }

  // ---- whose age is to be asked
  // Queues the chunk. Returns false if too many wait.
  bool Offer(const ChunkId& id) {
    if (queue_.size() >= kMostQueued) return false;
    queue_.push_back(id);
    return true;
  }
  bool anyone_waits() const { return !queue_.empty(); }
  bool MayAsk() const { return anyone_waits() && asked_ < kMostAsked; }
  // Returns the next chunk, whose age is being asked until End. REQUIRES: MayAsk().
  ChunkId Next() {
    KVKEEP_CHECK(MayAsk());
    const ChunkId id = queue_.front();
    queue_.pop_front();
    ++asked_;
    return id;
  }
  void End() {
    KVKEEP_CHECK(asked_ > 0);
    --asked_;
  }
  bool busy() const { return asked_ > 0; }

 private:
  static constexpr int kSteps = 8;  // a lifetime
  static constexpr int kFirst = 3, kRound = 256 - kFirst;
  static constexpr int64_t kPast = int64_t{1} << 61;  // images may be older than the clock

  std::chrono::nanoseconds half_;
  uint64_t step_;
  std::deque<ChunkId> queue_;
  size_t asked_ = 0;
};

}  // namespace kvkeep::store_internal
