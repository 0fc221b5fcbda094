#include "tiers/store/recency_saver.h"

#include <memory>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {
namespace {

constexpr auto kRecencyInterval = std::chrono::seconds(60);

}  // namespace

// One save, whose batches go to the index executor one after the other.
struct RecencySaver::Batches {
  ChunkIndex* index = nullptr;
  // Only the executor uses these.
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

RecencySaver::RecencySaver(Chunks* chunks, DeviceTiers* tiers, LearnedState* learned,
                           const Clock* clock)
    : chunks_(*chunks), tiers_(*tiers), learned_(*learned), clock_(*clock) {}

void RecencySaver::SaveIfDue(Section& section, DeviceTier& tier) {
  const bool due = clock_.Now() - tier.last_recency >= kRecencyInterval;
  // A drain saves at its end.
  if (due && !chunks_.draining && tier.saves == 0) Save(section, tier);
}

// Goes slot by slot, in slices. Chunks that are touched meanwhile are saved now or by the next
// save.
void RecencySaver::Save(Section& section, DeviceTier& tier) {
  tier.last_recency = clock_.Now();
  learned_.Save(tier);
  if (tier.unsaved_recency.empty() || tier.unsaved_recency.saving()) return;
  ++tier.saves;
  const bool looks_at_all =
      tier.unsaved_recency.BeginSave(tier.newest_recency(), tier.commits.committed());
  if (looks_at_all) ++chunks_.counters.recency_walks;
  const auto save = std::make_shared<Batches>();
  save->index = &tier.device->index();
  std::vector<RecencyDelta> batch;
  while (true) {
    section.YieldIfSpent();
    chunks_.Count(work::kLook);
    const std::optional<ChunkSlot> slot = tier.unsaved_recency.Next(chunks_.table.slot_end());
    if (!slot.has_value()) break;
    Chunk& chunk = chunks_.table.at(*slot);
    if (!chunk.in_g3_policy || chunk.device != tier.number) continue;
    chunks_.Count(work::kFind);
    const int64_t recency = tiers_.policy(chunk).Recency(*slot);
    if (!tier.unsaved_recency.Take(chunk, recency)) continue;
    if (batch.empty()) batch.reserve(ChunkIndex::kMostRecencyDeltas);
    batch.push_back({chunk.g3_sequence, tier.unsaved_recency.NumberOf(recency)});
    if (batch.size() < ChunkIndex::kMostRecencyDeltas) continue;
    chunks_.Later(
        [executor = tier.index_executor, save, batch = std::exchange(batch, {})]() mutable {
          executor->Post([save, batch = std::move(batch)] { save->Write(batch); });
        });
  }
  chunks_.Later([this, &tier, save, batch = std::move(batch)]() mutable {
    tier.index_executor->Post([this, &tier, save, batch = std::move(batch)] {
      save->Write(batch);
      OnSaved(tier, *save);
    });
  });
}

void RecencySaver::OnSaved(DeviceTier& tier, const Batches& save) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  KVKEEP_CHECK(tier.saves > 0);
  --tier.saves;
  chunks_.counters.recency_saved_chunks += save.records;
  chunks_.counters.recency_saved_bytes += save.bytes;
  // Lost recency only costs hits, so a refused save waits until the next one is due.
  tier.unsaved_recency.EndSave(save.status.ok());
  if (chunks_.draining && save.status.ok()) Save(section, tier);  // for later touches
}

}  // namespace kvkeep::store_internal
