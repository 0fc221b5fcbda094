// Incarnations: the random numbers of daemon starts that records name, by small numbers of this
// process. Chunks that one process wrote share one, so a chunk keeps two bytes instead of eight.
//
// Nothing is ever given back: there are as many as there were starts of which records are left. The
// store's lock protects it.
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

  // Nothing: there is no number left.
  std::optional<IncarnationNumber> Add(Incarnation incarnation) {
    // Records of one index are mostly of one start after the other.
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
  IncarnationNumber last_{0};  // that was found
};

}  // namespace kvkeep::store_internal
