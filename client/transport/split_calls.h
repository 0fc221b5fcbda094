// Calls about more keys than one request may name (ServerLimits::max_keys_per_call), made as
// several requests. To the caller each is one call: one answer, one deadline. Internal.
//
// Each request has a slice of the keys, from the head on, and is sent when the one before is
// answered: a lookup leases only the leading run, and only the answer tells whether that goes on.
// After an error nothing is sent.
//
// The caller is a transport. It has checked the arguments and found that the call is too long, and
// makes the call for each slice. If the daemon comes back with a smaller limit meanwhile, it splits
// that slice again.
#pragma once

#include <absl/functional/any_invocable.h>

#include <chrono>
#include <cstddef>
#include <memory>

#include "client/transport/transport.h"

namespace kvkeep::client {

struct LongCall {
  Transport* transport = nullptr;
  std::shared_ptr<NamespaceBinding> ns;
  NamespaceSpec spec;
  Keys keys;
  size_t parts = 0;  // asked for, of each key
  size_t slice = 0;  // keys in one request
  std::chrono::steady_clock::time_point deadline;
};

// Returns whether a call has to be split. A key with too many parts cannot be.
bool NeedsSlices(Keys keys, size_t parts, const ServerLimits& limits);
// Returns how many keys one request may name; at least 1.
size_t KeysInRequest(size_t parts, const ServerLimits& limits);
// Returns a call with slices that fit these limits.
LongCall LongCallOf(Transport* transport, Transport::Ns ns, const NamespaceSpec& spec, Keys keys,
                    size_t parts, const ServerLimits& limits,
                    std::chrono::steady_clock::time_point deadline);

// Leases as one lookup does: in mode kLeadingRun up to the first key that is neither whole nor on
// its way from beyond the node; in both modes up to the first key that does not fit. Later keys are
// not leased, and are reported unless `whole` is false. All leases form one SplitLease. If a slice
// fails, the call fails and gives its leases back; a slice for which the session has no lease left
// is looked up without one.
void LookupInSlices(LongCall call, const LookupOptions& options, bool whole,
                    Callback<LookupResult> done);

// Returns whether a get has to be split, as is every get under a SplitLease, however short.
// INVALID_ARGUMENT names the field and its limit.
absl::StatusOr<bool> GetNeedsSlices(Keys keys, size_t parts, const GetOptions& options,
                                    const ServerLimits& limits);
// Makes a get in slices. Makes a get in slices. Chunks that came before an error stay in place.
void GetInSlices(LongCall call, GetOptions options, Callback<GetResult> done);

// For touch, prefetch and delete: returns the sum of the answers of `ask` to the slices. Slices
// done before an error stay done. T: uint64_t or PrefetchResult.
template <typename T>
using AskForSum = absl::AnyInvocable<void(Keys, Deadline, Callback<T>)>;
template <typename T>
void SumInSlices(LongCall call, AskForSum<T> ask, Callback<T> done);

}  // namespace kvkeep::client
