// DirtyChunks: since when each chunk is on its way from G2 to G3, by the generation of its write.
//
// Generations grow, so the oldest is the first. The core's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

#include <chrono>
#include <cstddef>

#include "tiers/base/check.h"
#include "tiers/base/clock.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

class DirtyChunks {
 public:
  void Begin(Generation generation, MonotonicTime now) {
    KVKEEP_CHECK(since_.emplace(generation, now).second);
  }
  void End(Generation generation) { KVKEEP_CHECK(since_.erase(generation) == 1); }

  size_t count() const { return since_.size(); }
  // Zero: there is none.
  std::chrono::nanoseconds OldestAge(MonotonicTime now) const {
    return since_.empty() ? std::chrono::nanoseconds(0) : now - since_.begin()->second;
  }

 private:
  absl::btree_map<Generation, MonotonicTime> since_;
};

}  // namespace kvkeep::store_internal
