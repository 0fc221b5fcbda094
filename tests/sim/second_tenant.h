// SecondTenant: the second tenant of a simulated daemon, which may change in each process. Each one
// has spaces of its own: "other" those after the first tenant's, "guest" the next.
#pragma once

#include "tests/fakes/seeded_random.h"
#include "tiers/store/types.h"

namespace kvkeep {

class SecondTenant {
 public:
  enum class Who : uint8_t { kOther, kGuest, kNone };  // kNone: the first one has its memory

  // Number of spaces of each tenant.
  explicit SecondTenant(size_t own_spaces) : own_(own_spaces) {}

  // Returns whether it is another one now.
  bool Draw(SeededRandom& random) {
    return std::exchange(who_, static_cast<Who>(random.Below(3))) != who_;
  }
  bool here() const { return who_ != Who::kNone; }
  bool is_guest() const { return who_ == Who::kGuest; }
  size_t own_spaces() const { return own_; }
  size_t FirstSpace(TenantId tenant) const {
    return (tenant.value() > 0 && is_guest() ? 2 : tenant.value()) * own_;
  }
  // Returns whether the space is of a tenant that this process does not have.
  bool IsAway(size_t space) const {
    const size_t first = FirstSpace(TenantId(1));
    return space >= own_ && (!here() || space < first || space >= first + own_);
  }

 private:
  const size_t own_;
  Who who_ = Who::kOther;
};

}  // namespace kvkeep
