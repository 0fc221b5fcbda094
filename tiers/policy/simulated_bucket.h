// SimulatedBucket: simulates the contents of a G4 bucket behind one node, and the requests to it.
// Objects are of equal size, and are there for a lifetime from their write, whoever reads them.
//
// It follows the store (tiers/store/beyond.h): a chunk that is put is offered at once, or with
// second_use when a later lookup finds it in G2. A chunk that lookups find beyond the node comes
// into G2, as a put brings it, and is not offered again. So the bucket changes nothing in the
// node's tiers. Every lookup asks that lacks enough chunks; every write and answer comes before the
// next request. Not thread-safe.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "tiers/policy/trace.h"

namespace kvkeep {

struct BucketOptions {
  std::chrono::milliseconds lifetime{std::chrono::hours(7 * 24)};  // of the trace's time
  bool second_use = true;
  uint64_t least_chunks = 2;  // a lookup that lacks fewer does not ask
  // Returns how many questions a search for `wanted` chunks asks if the first `there` of them are
  // there. Null: none.
  std::function<uint64_t(uint64_t wanted, uint64_t there)> questions;
};

struct BucketResult {
  uint64_t leading_hit_chunks = 0;  // in the run at a chain's head, of the node's tiers or of G4
  uint64_t recalled_chunks = 0;     // of these, those that came from G4
  uint64_t searches = 0, questions = 0;
  uint64_t writes = 0;          // puts of an object
  uint64_t written_chunks = 0;  // of these, those whose object was not there
};

class SimulatedBucket {
 public:
  enum class Place : uint8_t { kNotOnNode, kG3, kG2 };  // where a chunk is that is asked for

  explicit SimulatedBucket(BucketOptions options) : options_(std::move(options)) {}

  // Serves a request. `places` says where the node had each of its chunks, one for each of
  // hash_ids.
  void Serve(const TraceRequest& request, std::span<const Place> places);
  const BucketResult& result() const { return result_; }
  bool second_use() const { return options_.second_use; }

 private:
  bool Has(uint64_t id, std::chrono::milliseconds now) const;
  void Offer(uint64_t id, std::chrono::milliseconds now);

  BucketOptions options_;
  absl::flat_hash_map<uint64_t, std::chrono::milliseconds> written_;  // object to its write
  absl::flat_hash_set<uint64_t> unused_;  // on the node, put there and not found since
  BucketResult result_;
};

}  // namespace kvkeep
