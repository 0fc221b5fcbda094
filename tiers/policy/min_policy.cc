#include "tiers/policy/min_policy.h"

#include "tiers/base/check.h"

namespace kvkeep {

MinPolicy::MinPolicy(std::span<const TraceRequest> requests, const PolicyOptions& options)
    : next_uses_(requests.size()), uses_(options.max_chunks, kNever) {
  absl::flat_hash_map<uint64_t, Use> later;
  for (size_t r = requests.size(); r-- > 0;) {
    const std::vector<uint64_t>& ids = requests[r].hash_ids;
    std::vector<Use>& next = next_uses_[r];
    next.reserve(ids.size());
    for (const uint64_t id : ids) {
      const auto use = later.find(id);
      next.push_back(use == later.end() ? kNever : use->second);
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      later[ids[i]] = {static_cast<uint32_t>(r), static_cast<uint32_t>(i)};
    }
  }
}

void MinPolicy::Place(ChunkSlot slot, Use use) {
  order_.erase({uses_[slot.value()], slot});
  uses_[slot.value()] = use;
  KVKEEP_CHECK(order_.emplace(use, slot).second);
}

void MinPolicy::OnRequest(std::span<const ChainLink> links, MonotonicTime /*now*/, Slice slice) {
  KVKEEP_CHECK(slice == Slice::kFirst);  // simulate tells whole chains
  KVKEEP_CHECK(request_ < next_uses_.size() && next_uses_[request_].size() == links.size());
  of_request_.clear();
  for (size_t i = 0; i < links.size(); ++i) {
    const Use use = next_uses_[request_][i];
    of_request_[links[i].fingerprint.value()] = use;
    if (links[i].slot != kNoSlot) Place(links[i].slot, use);
  }
  ++request_;
}

void MinPolicy::OnInsert(const NewChunk& chunk, MonotonicTime /*now*/) {
  const auto use = of_request_.find(chunk.fingerprint.value());
  KVKEEP_CHECK(use != of_request_.end());
  KVKEEP_CHECK(chunk.slot.value() < uses_.size() && size_ < uses_.size());
  KVKEEP_CHECK(!order_.contains({uses_[chunk.slot.value()], chunk.slot}));
  Place(chunk.slot, use->second);
  ++size_;
}

void MinPolicy::OnErase(ChunkSlot slot, EraseReason /*reason*/) {
  KVKEEP_CHECK(order_.erase({uses_[slot.value()], slot}) == 1);
  --size_;
}

std::optional<ChunkSlot> MinPolicy::Victim() {
  if (order_.empty()) return std::nullopt;
  return order_.rbegin()->second;
}

void MinPolicy::Park(ChunkSlot /*slot*/) { KVKEEP_CHECK(false); }
void MinPolicy::Unpark(ChunkSlot /*slot*/) { KVKEEP_CHECK(false); }

int64_t MinPolicy::Recency(ChunkSlot slot) const {
  const auto [request, depth] = uses_[slot.value()];
  return -((int64_t{request} << 31) + depth);
}

}  // namespace kvkeep
