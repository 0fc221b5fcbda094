#include "client/transport/split_calls.h"

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "client/transport/check_call.h"
#include "client/transport/split_lease.h"
#include "tiers/base/status_macros.h"

namespace kvkeep::client {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

// ---------------------------------------------------------------- one request after the other

// A call in slices. The callback of the request under way keeps it alive.
class Slices : public std::enable_shared_from_this<Slices> {
 public:
  explicit Slices(LongCall call) : call_(std::move(call)) {}
  virtual ~Slices() = default;

  // Sends requests until one of them is not answered at once. A loop, so that requests that the
  // transport answers inside the call do not nest one frame deeper for each slice.
  void Run() {
    const std::shared_ptr<Slices> self = shared_from_this();
    do {
      phase_ = Phase::kAsking;
      Next();
    } while (phase_.exchange(Phase::kWaiting) == Phase::kAnswered);
  }

 protected:
  // Sends the next request, after whose answer Answered is called; or ends the call.
  virtual void Next() = 0;
  void Answered() {
    if (phase_.exchange(Phase::kAnswered) == Phase::kWaiting) Run();
  }

  bool over() const { return done_keys_ == call_.keys.size(); }
  Keys NextKeys() const { return call_.keys.subspan(done_keys_, call_.slice); }
  // Returns the time until the deadline, in whole milliseconds, as requests take it; 0: none is
  // left.
  Deadline Left() const {
    const auto left = std::chrono::ceil<Deadline>(call_.deadline - steady_clock::now());
    return std::max(left, Deadline(0));
  }
  absl::Status Late() const {
    return absl::DeadlineExceededError(absl::StrCat("the daemon answered for ", done_keys_, " of ",
                                                    call_.keys.size(), " keys by the deadline"));
  }

  const LongCall call_;
  size_t done_keys_ = 0;  // from the head
  absl::Status error_;    // of a request, which ends the call

 private:
  enum class Phase { kAsking, kWaiting, kAnswered };
  std::atomic<Phase> phase_{Phase::kAsking};
};

// ---------------------------------------------------------------- lookup

// Returns whether a lookup in mode kAllPresent has leased all chunks that it found.
bool CoversAll(const LookupResult& found, size_t keys, size_t parts) {
  if (found.leased_keys == keys) return true;
  for (size_t key = found.leased_keys; key < keys; ++key) {
    for (size_t part = 0; part < parts; ++part) {
      if (found.present(key, part) || found.coming(key, part)) return false;
    }
  }
  return true;
}

class LookupSlices final : public Slices {
 public:
  LookupSlices(LongCall call, const LookupOptions& options, bool whole, Callback<LookupResult> done)
      : Slices(std::move(call)),
        options_(options),
        whole_(whole),
        began_(steady_clock::now()),
        leasing_(options.lease != LeaseMode::kNone),
        done_(std::move(done)) {
    all_.row_bytes = (call_.parts + 7) / 8;
  }

 private:
  void Next() override {
    if (!error_.ok()) return Fail();
    if (over() || (!whole_ && !in_run_ && !leasing_)) return Finish();
    const Keys keys = NextKeys();
    LookupOptions options = options_;
    options.deadline = Left();
    if (options.deadline == Deadline(0)) {
      error_ = Late();
      return Fail();
    }
    if (!leasing_) options.lease = LeaseMode::kNone;
    options.remote_wait = RemoteWaitLeft();
    call_.transport->Lookup(
        call_.ns, call_.spec, keys, options,
        [self = shared_from_this(), this, count = keys.size()](absl::StatusOr<LookupResult> found) {
          found.ok() ? Take(*std::move(found), count) : Failed(found.status());
          Answered();
        });
  }

  // Returns what is left of the wait, which all slices share; 0 after a key that is nowhere, as no
  // run can be completed then.
  microseconds RemoteWaitLeft() const {
    if (!in_run_ || options_.remote_wait.count() <= 0) return microseconds(0);
    const auto waited = std::chrono::floor<microseconds>(steady_clock::now() - began_);
    return std::max(options_.remote_wait - waited, microseconds(0));
  }

  void Failed(const absl::Status& status) {
    const bool no_more_leases = leasing_ && !leased_.empty() && absl::IsResourceExhausted(status);
    if (no_more_leases) {
      leasing_ = false;  // look up the same keys again, without a lease
    } else {
      error_ = status;
    }
  }

  void Take(LookupResult found, size_t count) {
    const size_t bytes = count * all_.row_bytes;
    for (const auto bits :
         {&LookupResult::g2_bits, &LookupResult::g3_bits, &LookupResult::remote_bits}) {
      (found.*bits).resize(bytes);  // left out if all bits are zero
      all_.*bits += found.*bits;
    }
    all_.remote_asked |= found.remote_asked;
    if (leasing_) TakeLease(found, count);
    if (in_run_) TakeRun(found, count);
    done_keys_ += count;
  }

  void TakeRun(const LookupResult& found, size_t count) {
    if (all_.remote_keys == 0) {
      all_.leading_keys += found.leading_keys;
      // With leases, each slice's estimate already counts the promotions of the slices before it.
      all_.promotion_us = options_.lease == LeaseMode::kNone
                              ? all_.promotion_us + found.promotion_us
                              : std::max(all_.promotion_us, found.promotion_us);
    } else {  // present, but after keys that are not yet
      all_.remote_keys += found.leading_keys;
      all_.remote_us = std::max(all_.remote_us, found.promotion_us);
    }
    all_.remote_keys += found.remote_keys;
    all_.remote_us = std::max(all_.remote_us, found.remote_us);
    in_run_ = found.leading_keys + found.remote_keys == count;
  }

  void TakeLease(LookupResult& found, size_t count) {
    const bool leading = options_.lease == LeaseMode::kLeadingRun;
    const bool goes_on =
        leading ? found.leased_keys == count : CoversAll(found, count, call_.parts);
    const auto keys = static_cast<uint32_t>(goes_on ? count : found.leased_keys);
    if (keys > 0) {
      has_lease_ |= found.lease.state() != nullptr;
      bytes_ += found.lease.bytes();
      all_.leased_keys += keys;
      leased_.push_back({.lease = std::move(found.lease),
                         .first_key = static_cast<uint32_t>(done_keys_),
                         .keys = keys});
    }
    leasing_ = goes_on;
  }

  void Fail() {
    leased_.clear();  // gives the leases back
    std::move(done_)(error_);
  }

  void Finish() {
    if (has_lease_) {
      all_.lease =
          Lease(std::make_unique<SplitLease>(std::move(leased_)), all_.leased_keys, bytes_);
    } else {
      all_.leased_keys = 0;
    }
    std::move(done_)(std::move(all_));
  }

  const LookupOptions options_;
  const bool whole_;
  const steady_clock::time_point began_;
  bool leasing_;
  bool in_run_ = true;  // every key so far is present, or comes from beyond the node
  bool has_lease_ = false;
  uint64_t bytes_ = 0;
  std::vector<SplitLease::Slice> leased_;
  LookupResult all_;
  Callback<LookupResult> done_;
};

// ---------------------------------------------------------------- get

class GetSlices final : public Slices {
 public:
  GetSlices(LongCall call, GetOptions options, Callback<GetResult> done)
      : Slices(std::move(call)), options_(std::move(options)), done_(std::move(done)) {
    all_.chunks.resize(call_.keys.size() * call_.parts);
  }

 private:
  void Next() override {
    if (!error_.ok() || over()) return Finish();
    GetOptions options = Shared();
    options.deadline = Left();
    if (options.deadline == Deadline(0)) {
      error_ = Late();
      return Finish();
    }
    size_t count = std::min(call_.slice, call_.keys.size() - done_keys_);
    if (options_.lease != nullptr) {
      options.first_key = options_.first_key + static_cast<uint32_t>(done_keys_);
      if (!ToLeaseOfSlice(&options, &count)) {
        Skip(count);
        return Answered();
      }
    }
    const size_t first = done_keys_ * call_.parts, chunks = count * call_.parts;
    SetDestinations(first, chunks, &options);
    call_.transport->Get(
        call_.ns, call_.spec, call_.keys.subspan(done_keys_, count), std::move(options),
        [self = shared_from_this(), this, first, count](absl::StatusOr<GetResult> got) {
          Take(std::move(got), first, count);
          Answered();
        });
  }

  GetOptions Shared() const {
    return {.parts = options_.parts,
            .lease = options_.lease,
            .first_piece = options_.first_piece,
            .pieces = options_.pieces,
            .metadata = options_.metadata,
            .transient = options_.transient,
            .verify = options_.verify,
            .remote_wait = options_.remote_wait,
            .destinations = {},
            .destination_runs = {},
            .allocate = nullptr};
  }

  // Replaces the lease of all keys by the one that holds the next keys, and cuts their number to
  // its own. Returns false if there was nothing to lease of these keys.
  bool ToLeaseOfSlice(GetOptions* options, size_t* count) const {
    const LeaseState* const state = options_.lease->state();
    const SplitLease* const split = state == nullptr ? nullptr : state->split();
    if (split == nullptr) return true;
    const uint32_t at = options->first_key;
    for (const SplitLease::Slice& slice : split->slices()) {
      if (at - slice.first_key >= slice.keys) continue;  // also true if it begins after `at`
      options->lease = &slice.lease;
      options->first_key = at - slice.first_key;
      *count = std::min<size_t>(*count, slice.keys - options->first_key);
      return slice.lease.state() != nullptr;
    }
    return true;  // the get reports that these keys are not the lease's
  }

  void SetDestinations(size_t first, size_t chunks, GetOptions* options) {
    if (options_.allocate) {
      options->allocate = [this, first](size_t chunk, uint64_t bytes) {
        return options_.allocate(first + chunk, bytes);
      };
    } else if (options_.destination_runs.empty()) {
      options->destinations = options_.destinations.subspan(first, chunks);
    } else {
      options->destination_runs = options_.destination_runs.subspan(first, chunks);
      const size_t runs = std::accumulate(options->destination_runs.begin(),
                                          options->destination_runs.end(), size_t{0});
      options->destinations = options_.destinations.subspan(done_runs_, runs);
      done_runs_ += runs;
    }
  }

  void Skip(size_t keys) {
    const size_t first = done_keys_ * call_.parts;
    for (size_t i = 0; i < keys * call_.parts; ++i) {
      all_.chunks[first + i].status = GetStatus::kMiss;
      if (!options_.destination_runs.empty()) done_runs_ += options_.destination_runs[first + i];
    }
    done_keys_ += keys;
  }

  void Take(absl::StatusOr<GetResult> got, size_t first, size_t keys) {
    error_ = got.ok() ? got->error : got.status();
    if (!got.ok()) return;
    std::move(got->chunks.begin(), got->chunks.end(),
              all_.chunks.begin() + static_cast<ptrdiff_t>(first));
    done_keys_ += keys;
  }

  void Finish() {
    const bool nothing = std::all_of(
        all_.chunks.begin(), all_.chunks.end(),
        [](const GetOutcome& outcome) { return outcome.status == GetStatus::kUnfinished; });
    if (nothing && !error_.ok()) return std::move(done_)(error_);
    all_.error = error_;
    std::move(done_)(std::move(all_));
  }

  GetOptions options_;
  size_t done_runs_ = 0;  // destinations of done_keys_, if chunks have several
  GetResult all_;
  Callback<GetResult> done_;
};

// ---------------------------------------------------------------- sums

void Add(uint64_t more, uint64_t* sum) { *sum += more; }
void Add(const PrefetchResult& more, PrefetchResult* sum) {
  sum->started_chunks += more.started_chunks;
  sum->ready_chunks += more.ready_chunks;
}

template <typename T>
class SumSlices final : public Slices {
 public:
  SumSlices(LongCall call, AskForSum<T> ask, Callback<T> done)
      : Slices(std::move(call)), ask_(std::move(ask)), done_(std::move(done)) {}

 private:
  void Next() override {
    if (!error_.ok()) return std::move(done_)(error_);
    if (over()) return std::move(done_)(sum_);
    const Deadline left = Left();
    if (left == Deadline(0)) return std::move(done_)(Late());
    const Keys keys = NextKeys();
    ask_(keys, left, [self = shared_from_this(), this, count = keys.size()](absl::StatusOr<T> one) {
      error_ = one.status();
      if (one.ok()) {
        Add(*one, &sum_);
        done_keys_ += count;
      }
      Answered();
    });
  }

  AskForSum<T> ask_;
  T sum_{};
  Callback<T> done_;
};

}  // namespace

bool NeedsSlices(Keys keys, size_t parts, const ServerLimits& limits) {
  const uint64_t most = limits.max_keys_per_call;
  return most != 0 && keys.size() * parts > most && parts <= most;
}

size_t KeysInRequest(size_t parts, const ServerLimits& limits) {
  if (limits.max_keys_per_call == 0) return SIZE_MAX;
  return std::max<size_t>(1, limits.max_keys_per_call / std::max<size_t>(1, parts));
}

LongCall LongCallOf(Transport* transport, Transport::Ns ns, const NamespaceSpec& spec, Keys keys,
                    size_t parts, const ServerLimits& limits, steady_clock::time_point deadline) {
  return {.transport = transport,
          .ns = ns,
          .spec = spec,
          .keys = keys,
          .parts = parts,
          .slice = KeysInRequest(parts, limits),
          .deadline = deadline};
}

absl::StatusOr<bool> GetNeedsSlices(Keys keys, size_t parts, const GetOptions& options,
                                    const ServerLimits& limits) {
  const bool is_long = NeedsSlices(keys, parts, limits);
  if (!is_long) KVKEEP_RETURN_IF_ERROR(CheckKeys(keys, parts, limits));
  KVKEEP_RETURN_IF_ERROR(CheckDestinations(options, keys.size() * parts));
  return is_long || IsSplit(options.lease);
}

void LookupInSlices(LongCall call, const LookupOptions& options, bool whole,
                    Callback<LookupResult> done) {
  std::make_shared<LookupSlices>(std::move(call), options, whole, std::move(done))->Run();
}

void GetInSlices(LongCall call, GetOptions options, Callback<GetResult> done) {
  const Lease* const lease = options.lease;
  const size_t first = options.first_key;
  if (lease != nullptr && (first > lease->keys() || call.keys.size() > lease->keys() - first)) {
    return std::move(done)(absl::InvalidArgumentError(absl::StrCat(
        "keys: ", call.keys.size(), " from key ", first, " on; the lease has ", lease->keys())));
  }
  std::make_shared<GetSlices>(std::move(call), std::move(options), std::move(done))->Run();
}

template <typename T>
void SumInSlices(LongCall call, AskForSum<T> ask, Callback<T> done) {
  std::make_shared<SumSlices<T>>(std::move(call), std::move(ask), std::move(done))->Run();
}
template void SumInSlices(LongCall, AskForSum<uint64_t>, Callback<uint64_t>);
template void SumInSlices(LongCall, AskForSum<PrefetchResult>, Callback<PrefetchResult>);

}  // namespace kvkeep::client
