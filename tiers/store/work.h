// What work under the store's lock costs, and how much of it one hold may do.
//
// Counted, not timed: the simulator owns time, and a preempted holder says nothing about our code.
// A unit is some 10 ns, and several times that where caches hold nothing of what is looked at. A
// hold ends soon after kHold, with the one step that went over: after tens of microseconds, and 100
// is what it is to stay below (lock_hold_test).
#pragma once

#include <cstdint>

namespace kvkeep::store_internal::work {

inline constexpr uint32_t kHold = 600;

inline constexpr uint32_t kLook = 1;        // at the next entry of something dense
inline constexpr uint32_t kFind = 8;        // a chunk by identity, or by slot
inline constexpr uint32_t kTouch = 6;       // in one policy
inline constexpr uint32_t kFollow = 8;      // a judgement of what learns for a policy
inline constexpr uint32_t kSample = 20;     // a chunk whose life is followed
inline constexpr uint32_t kPin = 12;        // or unpin
inline constexpr uint32_t kPlace = 5;       // tell where it lies
inline constexpr uint32_t kPark = 15;       // a victim that cannot go
inline constexpr uint32_t kEvict = 100;     // or detach: policy, extents, table
inline constexpr uint32_t kAdopt = 25;      // a record, its table entry on its way already
inline constexpr uint32_t kAllocate = 50;   // space for one chunk
inline constexpr uint32_t kRecord = 30;     // of an index batch: made, or told of
inline constexpr uint32_t kOperation = 15;  // one read or write handed out
inline constexpr uint32_t kStart = 150;     // a promotion or write-back begins, or ends
inline constexpr uint32_t kCall = 20;       // a callback handed out
inline constexpr uint32_t kSession = 30;    // looked at

}  // namespace kvkeep::store_internal::work
