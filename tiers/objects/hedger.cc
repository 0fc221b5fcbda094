#include "tiers/objects/hedger.h"

#include <algorithm>

#include "tiers/base/check.h"

namespace kvkeep {

Hedger::Hedger(const HedgeOptions& options)
    : options_(options), saved_(uint64_t{options.saved_hedges} * options.served_per_hedge) {
  KVKEEP_CHECK(options.served_per_hedge > 0 && options.shortest_patience.count() > 0);
}

std::optional<std::chrono::nanoseconds> Hedger::Patience() const {
  if (served_ < kLeast) return std::nullopt;
  return std::max<std::chrono::nanoseconds>(options_.shortest_patience, p95_ * 3 / 2);
}

bool Hedger::TryHedge() {
  if (saved_ < options_.served_per_hedge) return false;
  saved_ -= options_.served_per_hedge;
  ++hedges_;
  return true;
}

void Hedger::Served(std::chrono::nanoseconds first_byte) {
  KVKEEP_CHECK(first_byte.count() >= 0);
  times_[served_ % kRemembered] = first_byte;
  ++served_;
  saved_ = std::min(saved_ + 1, uint64_t{options_.saved_hedges} * options_.served_per_hedge);
  if (served_ == kLeast || served_ % kRenewed == 0) Judge();
}

void Hedger::Judge() {
  std::array<std::chrono::nanoseconds, kRemembered> sorted = times_;
  const auto count = static_cast<ptrdiff_t>(std::min<uint64_t>(served_, kRemembered));
  const auto at = sorted.begin() + count * 95 / 100;
  std::nth_element(sorted.begin(), at, sorted.begin() + count);
  p95_ = *at;
}

}  // namespace kvkeep
