// The order of eviction of each device's chunks, saved now and then for the next start.
//
// Only when it changed, one save of a device at a time: nothing is written at rest, and nothing
// queues up where an index hangs. Of more chunks than one value holds the ones that go last.
#include <algorithm>

#include "tiers/store/core.h"
#include "tiers/store/saved_recency.h"

namespace kvkeep::store_internal {
namespace {

constexpr auto kRecencyInterval = std::chrono::seconds(60);
constexpr uint64_t kSampled = 2048;  // chunks that tell where to cut
constexpr double kOfMost = 0.95;     // what is aimed at of what a value holds: a sample errs

}  // namespace

void Core::SaveRecencyIfDue(Section& section, uint16_t device) {
  const DeviceTier& tier = *devices_[device];
  const bool due = deps_.clock->Now() - tier.last_recency >= kRecencyInterval;
  // A drain saves it at its end.
  if (due && !draining_ && tier.saves == 0) SaveRecency(section, device);
}

// Slot by slot, in slices: what is touched meanwhile may come out a little wrong, which only the
// order of eviction suffers from.
void Core::SaveRecency(Section& section, uint16_t device) {
  DeviceTier& tier = *devices_[device];
  tier.last_recency = deps_.clock->Now();
  SaveLearned(device);
  if (!std::exchange(tier.recency_changed, false)) return;
  ++tier.saves;
  const size_t most = deps_.recency_chunks == 0 ? SavedRecency::kMostChunks : deps_.recency_chunks;
  std::optional<CommitSequence> newest;
  std::vector<int64_t> cuts(tenant_counters_.size(), INT64_MIN);
  if (tier.chunks > most) {
    newest = tier.committed;
    cuts = RecencyCuts(section, device, kOfMost * static_cast<double>(most));
    ++counters_.recency_cuts;
  }
  std::deque<std::pair<int64_t, CommitSequence>> order;  // a deque: growing moves nothing
  for (uint32_t i = 0; i < table_.slot_end() && order.size() < most; ++i) {
    section.YieldIfSpent();
    Count(work::kLook);
    const Chunk& chunk = table_.at(ChunkSlot(i));
    if (!chunk.in_g3_policy || chunk.device != device) continue;
    Count(work::kFind);
    // Only those of one tenant compare, which is all that the next start wants.
    const int64_t recency = g3_policy(chunk).Recency(ChunkSlot(i));
    if (recency >= cuts[chunk.tenant.value()]) order.emplace_back(recency, chunk.g3_sequence);
  }
  ChunkIndex* index = &attached_[device].device->index();
  Later([this, device, index, newest, order = std::move(order)]() mutable {
    std::sort(order.begin(), order.end());
    std::string value = SavedRecency::Begin(newest);
    for (const auto& [recency, sequence] : order) SavedRecency::AddTo(value, sequence);
    attached_[device].index_executor->Post([this, device, index, value = std::move(value)] {
      OnRecencySaved(device, index->PutMeta(SavedRecency::kName, value).ok());
    });
  });
}

// By tenant, the recency from which on its chunks are saved, so that it is about so many in all: of
// each tenant's the same part.
std::vector<int64_t> Core::RecencyCuts(Section& section, uint16_t device, double wanted) {
  const uint64_t chunks = devices_[device]->chunks;
  const double kept = wanted / static_cast<double>(chunks);
  const uint64_t stride = std::max<uint64_t>(1, chunks / kSampled);
  std::vector<std::vector<int64_t>> samples(tenant_counters_.size());
  uint64_t seen = 0;
  for (uint32_t i = 0; i < table_.slot_end(); ++i) {
    section.YieldIfSpent();
    Count(work::kLook);
    const Chunk& chunk = table_.at(ChunkSlot(i));
    if (!chunk.in_g3_policy || chunk.device != device || seen++ % stride != 0) continue;
    Count(work::kFind);
    samples[chunk.tenant.value()].push_back(g3_policy(chunk).Recency(ChunkSlot(i)));
  }
  std::vector<int64_t> cuts;
  for (std::vector<int64_t>& sample : samples) {
    section.YieldIfSpent();
    Count(static_cast<uint32_t>(work::kLook * sample.size()));
    const double given_up = static_cast<double>(sample.size()) * (1 - kept);
    const auto at = sample.begin() + static_cast<ptrdiff_t>(given_up);
    if (sample.empty() || at == sample.begin()) {
      cuts.push_back(INT64_MIN);
      continue;
    }
    std::nth_element(sample.begin(), at, sample.end());
    cuts.push_back(*at);
  }
  return cuts;
}

void Core::OnRecencySaved(uint16_t device, bool saved) {
  Section section(this, Section::Kind::kMaintenance);
  DeviceTier& tier = *devices_[device];
  --tier.saves;
  // Lost recency costs hits at worst, so a refusal is tried again when it is due.
  if (!saved) tier.recency_changed = true;
}

}  // namespace kvkeep::store_internal
