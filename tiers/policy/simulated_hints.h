// SimulatedHints: what somebody who knows what is asked for next tells a simulated tier.
//
// After each request an oracle says whether its chain will be asked for again. It knows the trace,
// and is right as often as the options say. "Yes" retains the chain's chunks, head first, within a
// share of the tier, until the chain is asked for again or a time is over. "No" demotes the chunks
// that came with the request, or that were retained for its chain and that no other chain has used
// since; tails go first.
//
// The last chunk of a prompt is often one that no longer prompt has. So a chain is known by the
// chunk before that.
//
// Deterministic. Not thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <vector>

#include "tiers/policy/simulated_tier.h"
#include "tiers/policy/trace.h"

namespace kvkeep {

struct HintOptions {
  double right = 1;  // share of the hints that are right: 0 to 1
  bool retains = true, demotes = true;                           // which hints are given
  std::chrono::milliseconds retained_for{std::chrono::minutes(5)};  // above 0
  double share = 0.25;  // of the tier's chunks that may be retained: 0 to 0.9
  uint64_t seed = 1;    // which hints are wrong
};

class SimulatedHints {
 public:
  struct Counters {
    uint64_t retentions = 0, demotions = 0;  // of chains
    uint64_t shortened = 0;                  // retentions that the share has cut
  };

  // `requests` and `tier` outlive it. The options are in their ranges.
  SimulatedHints(std::span<const TraceRequest> requests, const HintOptions& options,
                 SimulatedTier* tier);

  // These are called for every request of the trace, in order: before the tier is told of it, and
  // when its chunks are in the tier.
  void OnArrival(const TraceRequest& request);
  void OnServed(const TraceRequest& request);

  const Counters& counters() const { return counters_; }

 private:
  struct Retention {
    uint64_t chain;             // its name
    size_t request;             // that it followed
    MonotonicTime end;
    std::vector<uint64_t> ids;  // that are retained, head first
    bool ended = false;
  };

  bool SaysYes();
  void End(Retention& retention);
  void Retain(const TraceRequest& request);
  void Demote();

  const HintOptions options_;
  SimulatedTier& tier_;
  const uint64_t most_retained_;
  std::vector<bool> comes_again_;  // by request
  std::mt19937_64 random_;
  size_t request_ = 0;  // the next one that is served
  std::deque<Retention> retentions_;  // by their end; those that ended early are marked
  uint64_t first_retention_ = 0;      // the number of the deque's first
  absl::flat_hash_map<uint64_t, uint64_t> by_chain_;  // numbers of retentions that have not ended
  absl::flat_hash_map<uint64_t, size_t> last_use_;    // by chunk: the last request for it
  std::vector<uint64_t> own_;  // chunks that this request brings, or that only its chain has used
  Counters counters_;
};

}  // namespace kvkeep
