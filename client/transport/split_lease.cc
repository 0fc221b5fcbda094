#include "client/transport/split_lease.h"

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

SplitLease::SplitLease(std::vector<Slice> slices) : slices_(std::move(slices)) {
  for (Slice& slice : slices_) slice.kept = slice.keys;
  KVKEEP_CHECK(std::any_of(slices_.begin(), slices_.end(),
                           [](const Slice& slice) { return slice.lease.state() != nullptr; }));
}

SplitLease::~SplitLease() {
  // Slices without kept keys were given back already; do not give them back again.
  for (Slice& slice : slices_) {
    if (slice.kept == 0) (void)std::move(slice.lease).TakeState();
  }
}

bool SplitLease::alive() const {
  return std::all_of(slices_.begin(), slices_.end(), [](const Slice& slice) {
    return slice.lease.state() == nullptr || slice.lease.alive();
  });
}

void SplitLease::Shrink(uint32_t keep_keys) {
  for (Slice& slice : slices_) {
    const uint32_t kept = std::min(slice.keys, keep_keys - std::min(keep_keys, slice.first_key));
    if (kept >= slice.kept) continue;
    slice.kept = kept;
    // Not Lease::Shrink, which ends the state, as a get may hold it.
    if (LeaseState* const state = slice.lease.state(); state != nullptr) state->Shrink(kept);
  }
}

Path SplitLease::path() const {
  for (const Slice& slice : slices_) {
    if (slice.lease.state() != nullptr) return slice.lease.state()->path();
  }
  return Path::kGrpc;  // the leases were taken
}

std::vector<Lease> SplitLease::TakeLeases() && {
  std::vector<Lease> leases;
  for (Slice& slice : slices_) {
    if (slice.kept > 0 && slice.lease.state() != nullptr) leases.push_back(std::move(slice.lease));
  }
  return leases;
}

void ReleaseAll(Transport* transport, std::vector<Lease> leases, DoneCallback done) {
  struct Shared {
    Mutex mu;
    size_t left ABSL_GUARDED_BY(mu) = 0;
    absl::Status error ABSL_GUARDED_BY(mu);
    DoneCallback done;  // called by the end of the last one
  };
  if (leases.empty()) return std::move(done)(absl::OkStatus());
  const auto shared = std::make_shared<Shared>();
  shared->done = std::move(done);
  {
    MutexLock lock(&shared->mu);
    shared->left = leases.size();
  }
  for (Lease& lease : leases) {
    transport->Release(std::move(lease), [shared](const absl::Status& status) {
      absl::Status error;
      {
        MutexLock lock(&shared->mu);
        shared->error.Update(status);
        if (--shared->left > 0) return;
        error = shared->error;
      }
      std::move(shared->done)(error);
    });
  }
}

}  // namespace kvkeep::client
