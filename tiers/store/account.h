// Account: how much of something is held, such as blocks that leases pin.
//
// It checks that no more is given back than was taken. Its owner guards it.
#pragma once

#include <cstdint>

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

class Account {
 public:
  void Take(uint64_t amount) { held_ += amount; }
  void Give(uint64_t amount) {
    KVKEEP_CHECK(held_ >= amount);
    held_ -= amount;
  }
  operator uint64_t() const { return held_; }

 private:
  uint64_t held_ = 0;
};

}  // namespace kvkeep::store_internal
