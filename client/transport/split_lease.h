// SplitLease: the leases of a lookup that was made as several requests (split_calls.h). To its
// holder it is one lease on all of the lookup's keys. Internal.
//
// Thread-compatible; Shrink may run while a get under the lease does, as for a single lease.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "client/transport/transport.h"
#include "client/values/lease.h"

namespace kvkeep::client {

class SplitLease final : public LeaseState {
 public:
  // The keys of one request, as far as they are leased.
  struct Slice {
    Lease lease;  // none: there was nothing to lease
    uint32_t first_key = 0;
    uint32_t keys = 0;
    uint32_t kept = 0;  // of `keys`, by the daemon; others were given back
  };

  // `slices`: without a gap, from key 0 on. REQUIRES: one of them has a lease.
  explicit SplitLease(std::vector<Slice> slices);
  ~SplitLease() override;

  bool alive() const override;
  void Shrink(uint32_t keep_keys) override;
  Path path() const override;
  const SplitLease* split() const override { return this; }

  const std::vector<Slice>& slices() const { return slices_; }
  // Returns each lease that is still kept, and leaves nothing to be released here.
  std::vector<Lease> TakeLeases() &&;

 private:
  std::vector<Slice> slices_;  // constant, but for `kept`, until the leases are taken
};

inline bool IsSplit(const Lease* lease) {
  return lease != nullptr && lease->state() != nullptr && lease->state()->split() != nullptr;
}

// Gives the leases back by `transport`; `done` gets the first error once all are answered.
void ReleaseAll(Transport* transport, std::vector<Lease> leases, DoneCallback done);

}  // namespace kvkeep::client
