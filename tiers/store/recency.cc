// The order of eviction of each device's chunks, saved now and then for the next start.
//
// Only what changed since the last save (unsaved_recency.h), one save of a device at a time:
// nothing is written at rest, and nothing queues up where an index hangs.
#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

constexpr auto kRecencyInterval = std::chrono::seconds(60);

}  // namespace

// Under way: its batches are with the index executor, one after the other.
struct Core::RecencySave {
  ChunkIndex* index = nullptr;
  // The executor's own.
  absl::Status status;
  uint64_t records = 0, bytes = 0;

  void Write(const std::vector<RecencyDelta>& deltas) {
    if (deltas.empty() || !status.ok()) return;
    status = index->SaveRecency(deltas);
    if (!status.ok()) return;
    records += deltas.size();
    for (const RecencyDelta& delta : deltas) bytes += EncodedBytes(delta);
  }
};

void Core::SaveRecencyIfDue(Section& section, DeviceTier& tier) {
  const bool due = deps_.clock->Now() - tier.last_recency >= kRecencyInterval;
  // A drain saves it at its end.
  if (due && !draining_ && tier.saves == 0) SaveRecency(section, tier);
}

// Slot by slot, in slices: what is touched meanwhile is saved now or by the next save.
void Core::SaveRecency(Section& section, DeviceTier& tier) {
  tier.last_recency = deps_.clock->Now();
  SaveLearned(tier);
  if (tier.unsaved_recency.empty() || tier.unsaved_recency.saving()) return;
  ++tier.saves;
  const bool looks_at_all =
      tier.unsaved_recency.BeginSave(tier.newest_recency(), tier.commits.committed());
  if (looks_at_all) ++counters_.recency_walks;
  const auto save = std::make_shared<RecencySave>();
  save->index = &tier.device->index();
  std::vector<RecencyDelta> batch;
  while (true) {
    section.YieldIfSpent();
    Count(work::kLook);
    const std::optional<ChunkSlot> slot = tier.unsaved_recency.Next(table_.slot_end());
    if (!slot.has_value()) break;
    Chunk& chunk = table_.at(*slot);
    if (!chunk.in_g3_policy || chunk.device != tier.number) continue;
    Count(work::kFind);
    const int64_t recency = g3_policy(chunk).Recency(*slot);
    if (!tier.unsaved_recency.Take(chunk, recency)) continue;
    if (batch.empty()) batch.reserve(ChunkIndex::kMostRecencyDeltas);
    batch.push_back({chunk.g3_sequence, tier.unsaved_recency.NumberOf(recency)});
    if (batch.size() < ChunkIndex::kMostRecencyDeltas) continue;
    Later([executor = tier.index_executor, save,
           batch = std::exchange(batch, {})]() mutable {
      executor->Post([save, batch = std::move(batch)] { save->Write(batch); });
    });
  }
  Later([this, &tier, save, batch = std::move(batch)]() mutable {
    tier.index_executor->Post([this, &tier, save, batch = std::move(batch)] {
      save->Write(batch);
      OnRecencySaved(tier, *save);
    });
  });
}

void Core::OnRecencySaved(DeviceTier& tier, const RecencySave& save) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  KVKEEP_CHECK(tier.saves > 0);
  --tier.saves;
  counters_.recency_saved_chunks += save.records;
  counters_.recency_saved_bytes += save.bytes;
  // Lost recency costs hits at worst, so a refusal is tried again when it is due.
  tier.unsaved_recency.EndSave(save.status.ok());
  if (draining_ && save.status.ok()) SaveRecency(section, tier);  // it came too early for some
}

void Core::OnLearnedSaved(DeviceTier& tier) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  KVKEEP_CHECK(tier.saves > 0);
  --tier.saves;
}

}  // namespace kvkeep::store_internal
