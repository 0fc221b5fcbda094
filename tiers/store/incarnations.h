// Incarnations: gives small numbers to the random numbers of daemon starts that records name. All
// chunks that one process wrote share a number, so a chunk keeps two bytes instead of eight.
//
// A number is never given back. There is one for each start of which records are left. The store's
// lock protects it.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/base/image.h"
#include "tiers/base/strong_int.h"

namespace kvkeep::store_internal {

using IncarnationNumber = StrongInt<struct IncarnationNumberTag, uint16_t>;

class Incarnations {
 public:
  static constexpr size_t kMost = 65535;

  // Returns the number of this start; none: there is no number left.
  std::optional<IncarnationNumber> Add(Incarnation incarnation) {
    // In an index, most records are from the same start as the one before.
    if (last_.value() < all_.size() && all_[last_.value()] == incarnation) return last_;
    const auto known = numbers_.find(incarnation);
    if (known != numbers_.end()) return last_ = known->second;
    if (all_.size() >= kMost) return std::nullopt;
    const IncarnationNumber number(static_cast<uint16_t>(all_.size()));
    all_.push_back(incarnation);
    numbers_.emplace(incarnation, number);
    return number;
  }
  Incarnation At(IncarnationNumber number) const {
    KVKEEP_CHECK(number.value() < all_.size());
    return all_[number.value()];
  }

 private:
  std::vector<Incarnation> all_;
  absl::flat_hash_map<Incarnation, IncarnationNumber> numbers_;
  IncarnationNumber last_{0};  // the one that was found last
};

}  // namespace kvkeep::store_internal
