// G4 in a plan: the hits that a bucket behind one node's tiers would add, and its cost a month.
// Pure functions.
//
// Requests and bytes are counted by simulation (tiers/policy/simulated_bucket.h), and scaled from
// the days that the trace stands for to a month of 365.25 / 12 days. A GiB has 2^30 bytes, like
// S3's GB. Per month:
//
//     GETs    = questions of searches (tiers/remote/prefix_search.h) + reads of chunks recalled:
//               one each, and above 12 MiB one for each 8 MiB (tiers/remote/bucket_source.h)
//     PUTs    = chunks offered; one that is there is refused, and is paid for as well
//     stored  = bytes written a day x lifetime in days (Little's law; what a bucket holds once it
//               has run for a lifetime)
//     $       = PUTs x put + GETs x get + GiB stored x storage + GiB read x traffic
//
// Not counted: puts and reads of the fleet's other nodes, writes that are dropped for their rate,
// and overwritten objects. The bucket is empty when the trace begins.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tiers/policy/simulated_bucket.h"
#include "tools/kvkeep/plan.h"
#include "tools/kvkeep/print.h"

namespace kvkeep::tools {

// The defaults are S3 Standard's list prices of us-east-1 (aws.amazon.com/s3/pricing, first 50 TB a
// month; reads from the same region cost no traffic).
struct G4Prices {
  double put_dollars_per_1000 = 0.005, get_dollars_per_1000 = 0.0004;
  double storage_dollars_per_gib_month = 0.023;
  double traffic_dollars_per_gib = 0;  // for reads
};

struct G4Assumptions {
  double lifetime_days = 7;  // of an object, from its write: the bucket's rule by age
  G4Prices prices;
};

// Returns the requests of a search for `wanted` chunks, the first `there` of which exist.
uint64_t QuestionsOfSearch(uint64_t wanted, uint64_t there);

// Returns buckets of both admissions. The trace of `seconds` stands for `days`; both are above 0.
std::vector<SimulatedBucket> MakePlanBuckets(const G4Assumptions& assumptions, double days,
                                             double seconds);

// A month of G4.
struct G4Row {
  PlanSize size;
  std::string admission;    // "all", "second_use"
  double hit_ratio = 0;     // in G2, G3 or G4
  double g4_hit_ratio = 0;  // part of hit_ratio that only G4 adds
  double puts = 0, gets = 0;
  double written_bytes = 0, read_bytes = 0;
  double stored_bytes = 0;  // at any time
  double dollars = 0;
  // Prefill saved by G4's own hits; none: the rate of prefill, or the GPU's price, is not known.
  std::optional<double> gpu_hours_saved, dollars_saved;
};
// REQUIRES: workload.days() > 0.
G4Row G4RowOf(const PlanWorkload& workload, const PlanAssumptions& assumptions,
              const G4Assumptions& g4, const PlanPrediction& prediction,
              const SimulatedBucket& bucket);

struct PlanG4 {
  G4Assumptions assumptions;
  std::vector<G4Row> rows;
};
Json PlanG4Json(const PlanG4& g4);
std::string PlanG4Text(const PlanG4& g4);

}  // namespace kvkeep::tools
