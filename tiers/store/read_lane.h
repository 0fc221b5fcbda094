// ReadLane: the images that are to be read from one lower tier. It knows which is next, how many
// bytes are under way, and how long reads take.
//
// An image waits in a queue in which tenants and sessions take turns (read_queue.h), is under way
// once there is room among the bytes in flight, and ends when its last byte is readable, or never
// will be. The store's lock protects it.
#pragma once

#include <chrono>
#include <cstdint>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/store/account.h"
#include "tiers/store/read_queue.h"
#include "tiers/store/read_speed.h"

namespace kvkeep::store_internal {

class ReadLane {
 public:
  explicit ReadLane(uint64_t most_in_flight_bytes) : most_in_flight_bytes_(most_in_flight_bytes) {}

  // `measured`: the read counts for how long reads take. If not, its End may not either.
  void Ask(const ReadQueue::Requester& requester, ChunkSlot slot, uint64_t bytes, MonotonicTime now,
           bool measured = true) {
    if (measured) speed_.OnStart(bytes, now);
    queue_.Push(requester, slot, bytes);
  }
  bool anyone_waits() const { return !queue_.empty(); }
  // REQUIRES: anyone_waits().
  ChunkSlot next() const { return queue_.front(); }
  // One image may always be under way, however large.
  bool MayBegin(uint64_t bytes) const {
    return in_flight_bytes_ == 0 || in_flight_bytes_ + bytes <= most_in_flight_bytes_;
  }
  // Begins the read of the next image, which has `bytes` bytes.
  void Begin(uint64_t bytes) {
    KVKEEP_CHECK(anyone_waits() && MayBegin(bytes));
    in_flight_bytes_.Take(bytes);
    queue_.Pop();
  }
  void End(uint64_t bytes, bool good, MonotonicTime now, bool measured = true) {
    in_flight_bytes_.Give(bytes);
    if (measured) speed_.OnEnd(bytes, good, now);
  }
  bool busy() const { return in_flight_bytes_ > 0; }

  // Returns the time until `bytes` more bytes, which the requester would ask for now, are readable.
  // `behind_others`: these bytes, or others that the requester waits for, come after all that wait.
  std::chrono::nanoseconds TimeFor(const ReadQueue::Requester& requester, uint64_t bytes,
                                   bool behind_others, MonotonicTime now) const {
    const uint64_t waiting = queue_.bytes();
    const uint64_t before = behind_others ? waiting : queue_.BytesBefore(requester, bytes);
    return speed_.TimeFor(bytes, now, waiting - before);
  }

 private:
  const uint64_t most_in_flight_bytes_;
  ReadQueue queue_;
  ReadSpeed speed_;
  Account in_flight_bytes_;
};

}  // namespace kvkeep::store_internal
