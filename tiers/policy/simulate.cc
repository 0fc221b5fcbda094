#include "tiers/policy/simulate.h"

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tiers/base/check.h"
#include "tiers/policy/eviction_policy.h"
#include "tiers/policy/min_policy.h"

namespace kvkeep {
namespace {

constexpr char kMin[] = "min";

class SimulatedTier {
 public:
  SimulatedTier(std::unique_ptr<EvictionPolicy> policy, uint32_t capacity)
      : policy_(std::move(policy)), capacity_(capacity) {}

  // The chunks of the chain's leading run that were there when the request came.
  uint64_t Serve(const TraceRequest& request) {
    chain_.clear();
    uint64_t leading = 0;
    for (const uint64_t id : request.hash_ids) {
      const ChunkSlot slot = Find(id);
      if (slot != kNoSlot && leading == chain_.size()) ++leading;
      chain_.push_back({.slot = slot, .fingerprint = Fingerprint(id)});
    }
    policy_->OnRequest(chain_, request.timestamp);
    InsertAbsent(request);
    KVKEEP_CHECK(slots_.size() <= capacity_ && policy_->size() == slots_.size());
    return leading;
  }

 private:
  ChunkSlot Find(uint64_t id) const {
    const auto found = slots_.find(id);
    return found == slots_.end() ? kNoSlot : found->second;
  }

  void InsertAbsent(const TraceRequest& request) {
    ChunkSlot parent = kNoSlot;
    for (const uint64_t id : request.hash_ids) {
      // Looked up anew: an insert for the chain's head may have evicted something of its tail.
      ChunkSlot slot = Find(id);
      if (slot == kNoSlot) {
        slot = Insert(id, parent, request.timestamp);
        if (slot == kNoSlot) return;
      }
      parent = slot;
    }
  }

  // Its slot, or kNoSlot when the newcomer itself had to go.
  ChunkSlot Insert(uint64_t id, ChunkSlot parent, MonotonicTime now) {
    const ChunkSlot slot = TakeSlot(id);
    slots_.emplace(id, slot);
    policy_->OnInsert({.slot = slot, .fingerprint = Fingerprint(id), .parent = parent, .blocks = 1},
                      now);
    if (slots_.size() <= capacity_) return slot;
    const std::optional<ChunkSlot> victim = policy_->Victim();
    KVKEEP_CHECK(victim.has_value());  // nothing is ever parked here
    policy_->OnErase(*victim, EvictionPolicy::EraseReason::kEvicted);
    KVKEEP_CHECK(slots_.erase(ids_[victim->value()]) == 1);
    free_slots_.push_back(*victim);
    return *victim == slot ? kNoSlot : slot;
  }

  ChunkSlot TakeSlot(uint64_t id) {
    if (free_slots_.empty()) {
      ids_.push_back(id);
      return ChunkSlot(static_cast<uint32_t>(ids_.size() - 1));
    }
    const ChunkSlot slot = free_slots_.back();
    free_slots_.pop_back();
    ids_[slot.value()] = id;
    return slot;
  }

  const std::unique_ptr<EvictionPolicy> policy_;
  const uint32_t capacity_;
  absl::flat_hash_map<uint64_t, ChunkSlot> slots_;  // by id: the chunks in the tier
  std::vector<uint64_t> ids_;                       // by slot
  std::vector<ChunkSlot> free_slots_;
  std::vector<EvictionPolicy::ChainLink> chain_;  // of the request being served
};

std::unique_ptr<EvictionPolicy> MakePolicy(std::span<const TraceRequest> requests,
                                           absl::string_view name, uint32_t capacity) {
  // One slot more than the capacity: a newcomer is in before the victim is out.
  const PolicyOptions options{.max_chunks = capacity + 1};
  if (name == kMin) return std::make_unique<MinPolicy>(requests, options);
  return MakeEvictionPolicy(name, options);
}

}  // namespace

std::vector<std::string> SimulatedPolicyNames() {
  std::vector<std::string> names = EvictionPolicyNames();
  names.emplace_back(kMin);
  return names;
}

absl::StatusOr<TraceResult> SimulateTrace(std::span<const TraceRequest> requests,
                                          absl::string_view policy, uint64_t capacity_chunks) {
  if (capacity_chunks == 0 || capacity_chunks > kMaxSimulatedChunks) {
    return absl::InvalidArgumentError(
        absl::StrCat("capacity_chunks: ", capacity_chunks, ", must be 1 to ", kMaxSimulatedChunks));
  }
  const auto capacity = static_cast<uint32_t>(capacity_chunks);
  std::unique_ptr<EvictionPolicy> made = MakePolicy(requests, policy, capacity);
  if (made == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("policy: no \"", policy, "\", known are ",
                                                   absl::StrJoin(SimulatedPolicyNames(), ", ")));
  }
  SimulatedTier tier(std::move(made), capacity);
  TraceResult result;
  for (const TraceRequest& request : requests) {
    ++result.requests;
    result.chunk_refs += request.hash_ids.size();
    result.leading_hit_chunks += tier.Serve(request);
  }
  if (result.chunk_refs > 0) {
    result.hit_ratio =
        static_cast<double>(result.leading_hit_chunks) / static_cast<double>(result.chunk_refs);
  }
  return result;
}

}  // namespace kvkeep
