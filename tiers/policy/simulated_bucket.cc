#include "tiers/policy/simulated_bucket.h"

#include "tiers/base/check.h"

namespace kvkeep {

bool SimulatedBucket::Has(uint64_t id, std::chrono::milliseconds now) const {
  const auto found = written_.find(id);
  return found != written_.end() && now - found->second < options_.lifetime;
}

void SimulatedBucket::Offer(uint64_t id, std::chrono::milliseconds now) {
  ++result_.writes;
  if (Has(id, now)) return;  // a put that says If-None-Match, and is refused
  ++result_.written_chunks;
  written_[id] = now;
}

void SimulatedBucket::Serve(const TraceRequest& request, std::span<const Place> places) {
  const std::chrono::milliseconds now = request.timestamp;
  const std::vector<uint64_t>& ids = request.hash_ids;
  KVKEEP_CHECK(places.size() == ids.size());
  size_t leading = 0;
  while (leading < ids.size() && places[leading] != Place::kNotOnNode) ++leading;
  const uint64_t wanted = ids.size() - leading;
  if (wanted >= options_.least_chunks) {
    const size_t first = leading;
    while (leading < ids.size() &&
           (places[leading] != Place::kNotOnNode || Has(ids[leading], now))) {
      result_.recalled_chunks += places[leading++] == Place::kNotOnNode;
    }
    ++result_.searches;
    if (options_.questions) result_.questions += options_.questions(wanted, leading - first);
  }
  result_.leading_hit_chunks += leading;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (places[i] == Place::kG2 && unused_.erase(ids[i]) > 0) Offer(ids[i], now);
    if (places[i] != Place::kNotOnNode) continue;
    unused_.erase(ids[i]);  // it left the node before it was used
    if (i < leading) continue;
    if (options_.second_use) {
      unused_.insert(ids[i]);
    } else {
      Offer(ids[i], now);
    }
  }
}

}  // namespace kvkeep
