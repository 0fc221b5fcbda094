// The cost of work under the store's lock, and the limit of work in one hold.
//
// Work is counted, not timed, because the simulator owns time, and a preempted holder says nothing
// about our code. A unit is some 10 ns, and several times as much if its data is in no cache. A
// hold ends with the step that takes it above kHold units, after tens of microseconds
// (lock_hold_test wants less than 100).
#pragma once

#include <cstdint>

namespace kvkeep::store_internal::work {

inline constexpr uint32_t kHold = 600;

inline constexpr uint32_t kLook = 1;        // look at the next entry of something dense
inline constexpr uint32_t kFind = 8;        // find a chunk, by identity or by slot
inline constexpr uint32_t kTouch = 6;       // touch a chunk in one policy
inline constexpr uint32_t kFollow = 8;      // have a policy follow one judgement of its learner
inline constexpr uint32_t kSample = 20;     // follow the life of a sampled chunk
inline constexpr uint32_t kPin = 12;        // pin or unpin a chunk
inline constexpr uint32_t kPlace = 5;       // tell where a chunk lies
inline constexpr uint32_t kPark = 15;       // park a victim that cannot go
inline constexpr uint32_t kEvict = 100;     // evict or detach a chunk: policy, extents, table
inline constexpr uint32_t kAdopt = 25;      // adopt a record whose table entry was prefetched
inline constexpr uint32_t kAllocate = 50;   // allocate space for one chunk
inline constexpr uint32_t kRecord = 30;     // put a record into a batch, or note that it ended
inline constexpr uint32_t kOperation = 15;  // hand out one read or write
inline constexpr uint32_t kStart = 150;     // begin or end a promotion or a write-back
inline constexpr uint32_t kCall = 20;       // hand out a callback
inline constexpr uint32_t kSession = 30;    // look at a session

}  // namespace kvkeep::store_internal::work
