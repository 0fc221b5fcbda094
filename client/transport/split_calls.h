// Calls about more keys than one request may name (ServerLimits::max_keys_per_call), made as
// several requests. To the caller each is one call: one answer, one deadline. Internal.
//
// A slice of the keys goes into each request, from the head on, and the next one when that is
// answered: only then it is known whether the leading run goes on, which a lookup leases and no
// more. Behind an error nothing is sent.
//
// The caller is a transport. It has checked the arguments and found that the call is too long, and
// is asked again for each slice. Where the daemon is back with a smaller limit meanwhile, it splits
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
  size_t parts = 0;  // of each key that are asked for
  size_t slice = 0;  // keys in one request
  std::chrono::steady_clock::time_point deadline;
};

// Whether a call has to be split. A key whose parts alone are too many cannot be.
bool NeedsSlices(Keys keys, size_t parts, const ServerLimits& limits);
// How many keys one request may name; at least 1.
size_t KeysInRequest(size_t parts, const ServerLimits& limits);
// With slices as these limits want them.
LongCall LongCallOf(Transport* transport, Transport::Ns ns, const NamespaceSpec& spec, Keys keys,
                    size_t parts, const ServerLimits& limits,
                    std::chrono::steady_clock::time_point deadline);

// Leases as one lookup does: in mode kLeadingRun up to the first key that is not whole, nor on its
// way from beyond the node; in both modes up to the first one that does not fit. Keys behind
// that are reported, unless `whole` is false, and not leased. All leases form one SplitLease.
// A slice that fails fails the call, and its leases are given back; a slice that finds the session
// out of leases is looked up without one.
void LookupInSlices(LongCall call, const LookupOptions& options, bool whole,
                    Callback<LookupResult> done);

// Whether a get has to be split, as every one under a SplitLease, however short it is.
// INVALID_ARGUMENT names the field and its limit.
absl::StatusOr<bool> GetNeedsSlices(Keys keys, size_t parts, const GetOptions& options,
                                    const ServerLimits& limits);
// Chunks that came before an error stay in place.
void GetInSlices(LongCall call, GetOptions options, Callback<GetResult> done);

// Touch, prefetch and delete: the sum of the answers of `ask` to the slices. Slices done before an
// error stay done. T: uint64_t or PrefetchResult.
template <typename T>
using AskForSum = absl::AnyInvocable<void(Keys, Deadline, Callback<T>)>;
template <typename T>
void SumInSlices(LongCall call, AskForSum<T> ask, Callback<T> done);

}  // namespace kvkeep::client
