#include "tiers/policy/simulated_hints.h"

#include <absl/container/flat_hash_set.h>

#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {
namespace {

// Returns the chunk that a chain is known by. REQUIRES: the chain is not empty.
uint64_t NameOf(const std::vector<uint64_t>& chain) {
  return chain.size() > 1 ? chain[chain.size() - 2] : chain.front();
}

// Returns, for each request, whether a later one asks for its chain.
std::vector<bool> ComesAgain(std::span<const TraceRequest> requests) {
  std::vector<bool> again(requests.size());
  absl::flat_hash_set<uint64_t> later;
  for (size_t i = requests.size(); i-- > 0;) {
    const std::vector<uint64_t>& chain = requests[i].hash_ids;
    again[i] = !chain.empty() && later.contains(NameOf(chain));
    later.insert(chain.begin(), chain.end());
  }
  return again;
}

}  // namespace

SimulatedHints::SimulatedHints(std::span<const TraceRequest> requests, const HintOptions& options,
                               SimulatedTier* tier)
    : options_(options),
      tier_(*tier),
      most_retained_(static_cast<uint64_t>(options.share * tier->capacity())),
      comes_again_(ComesAgain(requests)),
      random_(options.seed) {
  KVKEEP_CHECK(most_retained_ < tier->capacity());
}

void SimulatedHints::OnArrival(const TraceRequest& request) {
  while (!retentions_.empty() && retentions_.front().end <= request.timestamp) {
    End(retentions_.front());
    retentions_.pop_front();
    ++first_retention_;
  }
  own_.clear();
  for (const uint64_t id : request.hash_ids) {
    if (!tier_.Contains(id)) own_.push_back(id);
    const auto retained = by_chain_.find(id);
    if (retained == by_chain_.end()) continue;
    Retention& retention = retentions_[retained->second - first_retention_];
    for (const uint64_t its : retention.ids) {
      if (last_use_[its] == retention.request) own_.push_back(its);
    }
    End(retention);
  }
  for (const uint64_t id : request.hash_ids) last_use_[id] = request_;
}

void SimulatedHints::OnServed(const TraceRequest& request) {
  const bool yes = SaysYes();
  if (!request.hash_ids.empty()) {
    if (yes && options_.retains) Retain(request);
    if (!yes && options_.demotes) Demote();
  }
  ++request_;
}

bool SimulatedHints::SaysYes() {
  constexpr double kUnit = 1.0 / (uint64_t{1} << 53);
  const bool right = static_cast<double>(random_() >> 11) * kUnit < options_.right;
  return comes_again_[request_] == right;
}

void SimulatedHints::End(Retention& retention) {
  if (std::exchange(retention.ended, true)) return;
  for (const uint64_t id : retention.ids) tier_.Release(id);
  by_chain_.erase(retention.chain);
}

void SimulatedHints::Retain(const TraceRequest& request) {
  ++counters_.retentions;
  Retention retention{.chain = NameOf(request.hash_ids),
                      .request = request_,
                      .end = request.timestamp + options_.retained_for};
  for (const uint64_t id : request.hash_ids) {
    if (!tier_.Contains(id)) break;
    if (!tier_.IsRetained(id) && tier_.retained() >= most_retained_) {
      ++counters_.shortened;
      break;
    }
    tier_.Retain(id);
    retention.ids.push_back(id);
  }
  const bool is_first =
      by_chain_.emplace(retention.chain, first_retention_ + retentions_.size()).second;
  KVKEEP_CHECK(is_first);  // the request's arrival ended the one before
  retentions_.push_back(std::move(retention));
}

void SimulatedHints::Demote() {
  ++counters_.demotions;
  for (size_t i = own_.size(); i-- > 0;) tier_.Demote(own_[i]);
}

}  // namespace kvkeep
