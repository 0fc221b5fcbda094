// HttpCounters: counters of the pages over HTTP.
#pragma once

#include <atomic>
#include <cstdint>

namespace kvkeep {

struct HttpCounters {
  using Counter = std::atomic<uint64_t>;
  // Connections closed before they had their answer: they were too slow, or the oldest of all when
  // a newcomer needed a place.
  Counter slow{0}, crowded_out{0};
  Counter unauthorised{0};  // requests answered 401
};

}  // namespace kvkeep
