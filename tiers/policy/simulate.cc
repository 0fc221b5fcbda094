#include "tiers/policy/simulate.h"

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "tiers/base/status_macros.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/policy/min_policy.h"
#include "tiers/policy/simulated_tier.h"

namespace kvkeep {
namespace {

constexpr char kMin[] = "min";

absl::Status Unknown(absl::string_view option, absl::string_view name,
                     const std::vector<std::string>& known) {
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": no \"", name, "\", known are ", absl::StrJoin(known, ", ")));
}

absl::Status CheckCapacity(absl::string_view option, uint64_t chunks) {
  if (chunks > 0 && chunks <= kMaxSimulatedChunks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": ", chunks, ", must be 1 to ", kMaxSimulatedChunks));
}

std::unique_ptr<EvictionPolicy> MakePolicy(std::span<const TraceRequest> requests,
                                           absl::string_view name, uint32_t capacity) {
  // One slot more than the capacity: a newcomer is in before the victim is out.
  const PolicyOptions options{.max_chunks = capacity + 1};
  if (name == kMin) return std::make_unique<MinPolicy>(requests, options);
  return MakeEvictionPolicy(name, options);
}

// Inserts absent chunks, head first, until a newcomer is itself the victim. Calls `gone` for every
// chunk that goes.
template <typename Gone>
void InsertAbsent(SimulatedTier& tier, const TraceRequest& request, Gone gone) {
  std::optional<uint64_t> parent;
  for (const uint64_t id : request.hash_ids) {
    // Looked up anew: an insert for the chain's head may have evicted something of its tail.
    if (!tier.Contains(id)) {
      const std::optional<uint64_t> victim = tier.Insert(id, parent, request.timestamp);
      if (victim.has_value()) gone(*victim);
      if (victim == id) return;
    }
    parent = id;
  }
}

void Count(const TraceRequest& request, uint64_t leading, const PrefillCost& cost,
           TraceResult& result) {
  const uint64_t chunks = request.hash_ids.size() + request.partial_chunks;
  ++result.requests;
  result.chunk_refs += chunks;
  result.prefill_seconds += cost.Of(chunks);
  result.seconds_saved += cost.Of(leading);
  result.leading_hit_chunks += leading;
  if (result.chunk_refs == 0) return;
  result.hit_ratio =
      static_cast<double>(result.leading_hit_chunks) / static_cast<double>(result.chunk_refs);
}

using Place = SimulatedBucket::Place;

// Tells each bucket where the request finds its chunks, before the request changes that.
template <typename PlaceOf>
void TellBuckets(const TraceRequest& request, std::span<SimulatedBucket* const> buckets,
                 PlaceOf place_of) {
  if (buckets.empty()) return;
  std::vector<Place> places;
  places.reserve(request.hash_ids.size());
  for (const uint64_t id : request.hash_ids) places.push_back(place_of(id));
  for (SimulatedBucket* const bucket : buckets) bucket->Serve(request, places);
}

absl::StatusOr<SimulatedTier> MakeTier(std::span<const TraceRequest> requests,
                                       absl::string_view policy, uint64_t capacity_chunks) {
  KVKEEP_RETURN_IF_ERROR(CheckCapacity("capacity_chunks", capacity_chunks));
  const auto capacity = static_cast<uint32_t>(capacity_chunks);
  std::unique_ptr<EvictionPolicy> made = MakePolicy(requests, policy, capacity);
  if (made == nullptr) return Unknown("policy", policy, SimulatedPolicyNames());
  return SimulatedTier(std::move(made), capacity);
}

// `hints`: null for none.
TraceResult Play(std::span<const TraceRequest> requests, SimulatedTier& tier,
                 std::span<SimulatedBucket* const> buckets, SimulatedHints* hints,
                 const PrefillCost& cost) {
  TraceResult result;
  for (const TraceRequest& request : requests) {
    if (hints != nullptr) hints->OnArrival(request);
    uint64_t leading = 0;
    while (leading < request.hash_ids.size() && tier.Contains(request.hash_ids[leading])) ++leading;
    Count(request, leading, cost, result);
    TellBuckets(request, buckets, [&tier](uint64_t id) {
      return tier.Contains(id) ? Place::kG2 : Place::kNotOnNode;
    });
    tier.Tell(request.hash_ids, request.timestamp);
    InsertAbsent(tier, request, [](uint64_t) {});
    if (hints != nullptr) hints->OnServed(request);
  }
  return result;
}

// G2 over G3.
class SimulatedTiers {
 public:
  SimulatedTiers(const TiersOptions& options, SimulatedTier g2, SimulatedTier g3,
                 std::unique_ptr<AdmissionPolicy> admission)
      : chunk_bytes_(options.chunk_bytes),
        cost_(options.cost),
        eager_(options.write_policy == "eager"),
        g2_(std::move(g2)),
        g3_(std::move(g3)),
        admission_(std::move(admission)),
        buckets_(options.buckets) {}

  void Serve(const TraceRequest& request) {
    const std::vector<uint64_t>& ids = request.hash_ids;
    uint64_t leading = 0, in_g2 = 0;
    while (leading < ids.size() && (g2_.Contains(ids[leading]) || g3_.Contains(ids[leading]))) {
      in_g2 += g2_.Contains(ids[leading++]);
    }
    Count(request, leading, cost_, result_.trace);
    result_.g2_hit_chunks += in_g2;
    TellBuckets(request, buckets_, [this](uint64_t id) {
      return g2_.Contains(id) ? Place::kG2 : g3_.Contains(id) ? Place::kG3 : Place::kNotOnNode;
    });
    g2_.Tell(ids, request.timestamp);
    g3_.Tell(ids, request.timestamp);
    InsertAbsent(g2_, request, [&](uint64_t gone) {
      if (!eager_) Offer(gone, std::nullopt, request.timestamp);
    });
    if (!eager_) return;
    std::optional<uint64_t> parent;
    for (const uint64_t id : ids) {
      Offer(id, parent, request.timestamp);  // also what G2 did not keep: it came
      parent = id;
    }
  }
  const TiersResult& result() const { return result_; }

 private:
  void Offer(uint64_t id, std::optional<uint64_t> parent, MonotonicTime now) {
    if (g3_.Contains(id) || !admission_->Admit(Fingerprint(id), chunk_bytes_, now)) return;
    result_.g3_written_bytes += chunk_bytes_;  // also if it is itself the victim: it was written
    g3_.Insert(id, parent, now);
  }

  const uint64_t chunk_bytes_;
  const PrefillCost cost_;
  const bool eager_;
  SimulatedTier g2_, g3_;
  const std::unique_ptr<AdmissionPolicy> admission_;
  const std::vector<SimulatedBucket*> buckets_;
  TiersResult result_;
};

absl::Status Check(const HintOptions& options) {
  if (!(options.right >= 0 && options.right <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("right: ", options.right, ", must be 0 to 1"));
  }
  if (!(options.share >= 0 && options.share <= 0.9)) {
    return absl::InvalidArgumentError(absl::StrCat("share: ", options.share, ", must be 0 to 0.9"));
  }
  if (options.retained_for.count() <= 0) {
    return absl::InvalidArgumentError("retained_for: must be above 0");
  }
  return absl::OkStatus();
}

absl::Status Check(const TiersOptions& options) {
  KVKEEP_RETURN_IF_ERROR(CheckCapacity("g2_chunks", options.g2_chunks));
  KVKEEP_RETURN_IF_ERROR(CheckCapacity("g3_chunks", options.g3_chunks));
  const std::vector<std::string> policies = EvictionPolicyNames();
  const std::vector<std::string> admissions = AdmissionPolicyNames();
  const std::vector<std::string> writes = {"eager", "on_evict"};
  const auto check = [](absl::string_view option, const std::string& name,
                        const std::vector<std::string>& known) {
    const bool is = std::find(known.begin(), known.end(), name) != known.end();
    return is ? absl::OkStatus() : Unknown(option, name, known);
  };
  KVKEEP_RETURN_IF_ERROR(check("g2_policy", options.g2_policy, policies));
  KVKEEP_RETURN_IF_ERROR(check("g3_policy", options.g3_policy, policies));
  KVKEEP_RETURN_IF_ERROR(check("admission", options.admission, admissions));
  KVKEEP_RETURN_IF_ERROR(check("write_policy", options.write_policy, writes));
  if (options.admission == "write_budget" && !(options.admission_options.bytes_per_second > 0)) {
    return absl::InvalidArgumentError("bytes_per_second: write_budget needs more than 0");
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> SimulatedPolicyNames() {
  std::vector<std::string> names = EvictionPolicyNames();
  names.emplace_back(kMin);
  return names;
}

absl::StatusOr<TraceResult> SimulateTrace(std::span<const TraceRequest> requests,
                                          absl::string_view policy, uint64_t capacity_chunks,
                                          std::span<SimulatedBucket* const> buckets,
                                          const PrefillCost& cost) {
  KVKEEP_ASSIGN_OR_RETURN(SimulatedTier tier, MakeTier(requests, policy, capacity_chunks));
  return Play(requests, tier, buckets, nullptr, cost);
}

absl::StatusOr<HintResult> SimulateHints(std::span<const TraceRequest> requests,
                                         absl::string_view policy, uint64_t capacity_chunks,
                                         const HintOptions& options) {
  KVKEEP_RETURN_IF_ERROR(Check(options));
  KVKEEP_ASSIGN_OR_RETURN(SimulatedTier tier, MakeTier(requests, policy, capacity_chunks));
  SimulatedHints hints(requests, options, &tier);
  const TraceResult result = Play(requests, tier, {}, &hints, {});
  return HintResult{result, hints.counters()};
}

absl::StatusOr<TiersResult> SimulateTiers(std::span<const TraceRequest> requests,
                                          const TiersOptions& options) {
  KVKEEP_RETURN_IF_ERROR(Check(options));
  const auto tier = [&requests](const std::string& policy, uint64_t chunks) {
    const auto capacity = static_cast<uint32_t>(chunks);
    return SimulatedTier(MakePolicy(requests, policy, capacity), capacity);
  };
  SimulatedTiers tiers(options, tier(options.g2_policy, options.g2_chunks),
                       tier(options.g3_policy, options.g3_chunks),
                       MakeAdmissionPolicy(options.admission, options.admission_options));
  for (const TraceRequest& request : requests) tiers.Serve(request);
  return tiers.result();
}

}  // namespace kvkeep
