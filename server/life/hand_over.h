// HandOver: what a drain asks of the node's fleet (server/fleet/handover.h): to give the hottest
// chunks to other nodes before this one is taken away.
#pragma once

#include <cstdint>

#include "tiers/base/clock.h"

namespace kvkeep {

// Chunks of tenants that are shared.
struct HandedOver {
  uint64_t chunks = 0;  // that other nodes have now
  uint64_t left = 0;    // that no other node is known to have
  bool under_way = false;

  bool operator==(const HandedOver&) const = default;
};

class HandOver {
 public:
  // From here on the node answers its peers even while it drains.
  virtual void StayOpen() = 0;
  // Begins, or goes on until this time at most. Returns at once.
  virtual void BeginHandOver(MonotonicTime deadline) = 0;
  virtual HandedOver handed_over() const = 0;

 protected:
  ~HandOver() = default;
};

}  // namespace kvkeep
