#include "tiers/store/committer.h"

#include <algorithm>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/test_point.h"
#include "tiers/store/change.h"
#include "tiers/store/gathering.h"

namespace kvkeep::store_internal {
namespace {

absl::Status CommitTo(ChunkIndex& index, const CommitBatch& batch) {
  const bool removes = !batch.forget.empty();
  TestPoint(removes ? "removal-commit" : "index-commit");
  absl::Status status = index.Commit(batch.Records());
  TestPoint(removes ? "removal-committed" : "index-committed");
  return status;
}

absl::Status Silent() { return absl::UnavailableError("the device does not answer"); }

}  // namespace

Committer::Committer(Chunks* chunks, DeviceTiers* tiers, Records* records, const Clock* clock,
                     Host* host)
    : chunks_(*chunks), tiers_(*tiers), records_(*records), clock_(*clock), host_(*host) {}

// ---- batches

void Committer::PumpIndex(DeviceTier& tier) {
  if (!tier.here()) return;  // the end of its join calls this again
  if (!tier.commits.MayBegin(clock_.Now())) return;  // the batch's end, or Tick, calls this again
  if (chunks_.Spent()) return chunks_.PumpLater(tier.pump);
  if (tier.syncs.clean()) return BecomeUnclean(tier);
  const auto batch = std::make_shared<CommitBatch>(tier.commits.TakeRemoves());
  chunks_.Count(static_cast<uint32_t>(work::kRecord * batch->removes.size()));
  while (std::optional<PendingAdd> add = tier.commits.TakeAddFor(*batch)) {
    chunks_.Count(work::kRecord);
    const Chunk& chunk = chunks_.table.at(add->slot);
    KVKEEP_CHECK(chunk.g3_state == G3State::kCommitting && chunk.device == tier.number);
    KVKEEP_CHECK(chunk.g3_generation == add->record.generation);
    // The chunk was deleted meanwhile, so the index gets no record of it. Another chunk of its name
    // may be in this batch.
    if (chunk.detached) {
      tiers_.GiveUpWriteBack(add->slot, add->parent, absl::NotFoundError("the chunk was deleted"));
      continue;
    }
    const ReplacedAt at{add->record.id, tier.number};
    batch->sync_first |= records_.kept().contains(at);
    std::optional<PendingRemove> replaced = records_.TakeReplaced(at);
    if (replaced.has_value()) tier.commits.RemoveWith(*batch, *std::move(replaced));
    batch->adds.push_back(*std::move(add));
  }
  if (batch->empty()) return;
  tier.commits.Begin(
      *batch, [&](const ChunkId& id) STORE_LOCKED { return records_.HasOther(tier, id); },
      tier.unsaved_recency);
  chunks_.Later([this, &tier, batch] {
    const auto commit = [this, &tier, batch] {
      ChunkIndex* index = &tier.device->index();
      tier.index_executor->Post(
          [this, &tier, index, batch] { OnCommitted(tier, batch, CommitTo(*index, *batch)); });
    };
    if (!batch->sync_first) return commit();
    tier.sync_executor->Post([this, &tier, batch, commit] {
      batch->synced = tier.SyncData();
      batch->synced.ok() ? commit() : OnCommitted(tier, batch, batch->synced);
    });
  });
}

// Kept records count, too: one may be of another boot, and nobody reads its header.
bool Committer::MayBeClean(const DeviceTier& tier) const {
  return tier.settled() && !records_.kept().AnyKept(tier.number, std::nullopt).has_value();
}

// Called before the first commit after a mark that says that the device is clean. The end of the
// sync begins the batch. If syncs fail, nothing can be added, and removals wait until the device is
// opened anew.
void Committer::BecomeUnclean(DeviceTier& tier) {
  if (!tier.health.sync_failed()) return StartSync(tier);
  tier.commits.AnswerRemovals(tier.health.failed_sync(), chunks_.hold);
  while (!tier.commits.adds().empty()) {
    if (chunks_.Spent()) return chunks_.PumpLater(tier.pump);
    ++chunks_.counters.write_backs_failed;
    const PendingAdd add = tier.commits.TakeAdd();
    tiers_.GiveUpWriteBack(add.slot, add.parent, tier.health.failed_sync());
  }
}

void Committer::OnCommitted(DeviceTier& tier, std::shared_ptr<CommitBatch> batch,
                            absl::Status status) {
  for (const PendingAdd& add : batch->adds) chunks_.Prefetch(add.slot);
  tier.Prefetch();
  Section section(&chunks_);
  const MonotonicTime now = clock_.Now();
  KVKEEP_CHECK(tier.commits.under_way() && !tier.syncs.clean());
  const bool put_off = batch->synced.ok() && tier.commits.IsPutOff(status, now);
  if (!batch->synced.ok()) {
    tiers_.NoteFailedSync(tier, batch->synced);
  } else if (!put_off) {
    tiers_.NoteIo(tier, true, status);
  }
  if (status.ok()) {
    EndBatch(tier, section, *batch);
  } else {
    EndFailedBatch(tier, section, *batch, status, put_off);
  }
  tier.commits.End();  // only now, when the chunks' states say what the index has
  tier.commits.AnswerRemovals(put_off ? absl::OkStatus() : status, chunks_.hold);
  PumpIndex(tier);
  host_.PumpUnbacked(tier);  // there is room in the dirty budget now
  host_.PumpWrites(tier);
  if (tier.syncs.anyone_waits()) StartSync(tier);
}

// The batch is under way until OnCommitted ends it. So no other batch begins and the device does
// not leave while this yields. The batch's chunks are dirty, so they keep their slots and their
// copies in G2. A chunk that is deleted meanwhile is stored and removed again (OnAddCommitted), or
// given up.
void Committer::EndBatch(DeviceTier& tier, Section& section, const CommitBatch& batch) {
  ++chunks_.counters.index_commits;
  tier.commits.NoteCommitted(batch);
  tier.syncs.NoteDirty();
  for (const PendingRemove& remove : batch.removes) {
    section.YieldIfSpent();
    chunks_.Count(work::kRecord);
    if (remove.doubtful) tier.EndDoubt(remove.sequence);
    if (remove.replaced) {
      FreeWhenStable(tier, batch.last, remove.extents);
    } else {
      tier.Free(remove.extents);
    }
  }
  for (const PendingAdd& add : batch.adds) {
    section.YieldIfSpent();
    chunks_.Count(work::kEvict);
    OnAddCommitted(tier, add);
  }
}

void Committer::EndFailedBatch(DeviceTier& tier, Section& section, CommitBatch& batch,
                               const absl::Status& why, bool put_off) {
  ++chunks_.counters.index_commit_failures;
  tier.commits.WaitToRetry(clock_.Now());
  // Puts the removals back; their extents stay taken until the index has forgotten the records.
  // This comes before the adds are given up, and without a yield: RestoreReplaced keeps a record
  // again only while the add that was to overwrite it is committing. Later the record would be sent
  // for removal. The loop begins at the back, so that the removals wait in their old order.
  for (auto remove = batch.removes.rbegin(); remove != batch.removes.rend(); ++remove) {
    chunks_.Count(work::kLook);
    if (!records_.RestoreReplaced(tier, *remove)) tier.commits.PutBack(std::move(*remove));
  }
  // Data that is written already is not thrown away because an index stalls.
  for (; put_off && !batch.adds.empty(); batch.adds.pop_back()) {
    chunks_.Count(work::kLook);
    tier.commits.PutBack(std::move(batch.adds.back()));
  }
  for (const PendingAdd& add : batch.adds) {
    section.YieldIfSpent();
    chunks_.Count(work::kEvict);
    ++chunks_.counters.write_backs_failed;
    if (batch.synced.ok() && !absl::IsUnavailable(why)) RemoveUnsure(tier, add);
    tiers_.GiveUpWriteBack(add.slot, add.parent, why);
  }
  // An index that failed a write may fail all later ones. Adds would wait for ever behind removals
  // that the index never takes, and keep their space in G2.
  if (!put_off) chunks_.counters.write_backs_failed += GiveUpAdds(tier, section, why);
}

uint64_t Committer::GiveUpAdds(DeviceTier& tier, Section& section, const absl::Status& why) {
  uint64_t given_up = 0;
  for (; !tier.commits.adds().empty(); ++given_up) {
    section.YieldIfSpent();
    const PendingAdd add = tier.commits.TakeAdd();
    tiers_.GiveUpWriteBack(add.slot, add.parent, why);
  }
  return given_up;
}

// An add that failed may still be in the index's log, where the next process would find it. So the
// index gets a removal of the record, and no other chunk gets the blocks before that.
void Committer::RemoveUnsure(DeviceTier& tier, const PendingAdd& add) {
  Chunk& chunk = chunks_.table.at(add.slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kCommitting && !chunk.g3.empty());
  tiers_.shares.Give(chunk.tenant, chunk.blocks());
  tier.commits.Remove({add.record.id, std::move(chunk.g3)});
  chunk.g3.clear();
}

void Committer::OnAddCommitted(DeviceTier& tier, const PendingAdd& add) {
  ++chunks_.counters.write_backs;
  chunks_.counters.written_back_bytes += add.record.shape.payload_bytes;
  const uint64_t now_us = clock_.UnixMicros();
  const uint64_t sealed_us = std::min(add.record.created_unix_us, now_us);  // the clock may be set
  write_back_age_.RecordAlone((now_us - sealed_us) * 1000);
  ++tier.chunks;
  if (tiers_.durable_waiters.Has(add.slot)) {
    tier.syncs.Wait(add.record.sequence, tiers_.durable_waiters.Take(add.slot));
  }
  Change chunk(&chunks_, add.slot);
  KVKEEP_CHECK(chunk->g3_state == G3State::kCommitting && chunk->device == tier.number);
  KVKEEP_CHECK(chunk->g3_generation == add.record.generation && chunk->id == add.record.id);
  tiers_.SetState(*chunk, G3State::kStored);
  chunk->g3_sequence = add.record.sequence;
  if (chunk->detached) return;  // deleted meanwhile: the end of this Change removes it again
  records_.EndReplaced(*chunk);
  tiers_.InsertIntoPolicy(add.slot, chunks_.table.FindParent(*chunk, add.parent), clock_.Now());
}

// ---- syncs

void Committer::StartSync(DeviceTier& tier) {
  if (tier.syncs.under_way() || !tier.here()) return;
  const MonotonicTime now = clock_.Now();
  tier.syncs.NoteTried(now);
  if (tier.health.sync_failed()) {
    if (!tier.syncs.Answer(tier.health.failed_sync(), chunks_.hold)) chunks_.PumpLater(tier.pump);
    return;
  }
  // Each record that is committed now had its data written before. The data is synced first.
  const StableMark mark = tier.syncs.Begin(tier.confirmed_boot, tier.commits.committed(),
                                           chunks_.draining, MayBeClean(tier));
  std::optional<Doubtful> save;
  const bool grew = !tier.doubtful_saved;
  if (grew) {
    save = tier.doubtful;
  } else if (tier.doubt_shrank && (chunks_.draining || tier.DoubtIsDue(now))) {
    chunks_.Count(work::kHold / 4);
    save = tier.doubts.Ranges();
    tier.doubt_shrank = false;
    tier.doubt_saved_at = now;
  }
  chunks_.Later([this, &tier, mark, save, grew] {
    tier.sync_executor->Post([this, &tier, mark, save, grew] {
      NvmeDevice& nvme = *tier.device;
      absl::Status status, shrunk;
      if (grew) status = SaveDoubtful(nvme.index(), *save);
      if (absl::IsUnavailable(status)) return OnSyncPutOff(tier);  // the index stalls
      if (status.ok()) status = tier.SyncData();
      // Only now: before the sync, data that a read found whole may have been in the drive's cache
      // alone.
      if (status.ok() && save.has_value() && !grew) {
        shrunk = SaveDoubtful(nvme.index(), *save);
      }
      TestPoint("stable-mark");
      if (status.ok()) {
        status = nvme.index().Sync(mark);
        if (absl::IsUnavailable(status)) return OnSyncPutOff(tier);
      }
      TestPoint("stable-marked");
      OnSynced(tier, mark, shrunk.ok(), std::move(status));
    });
  });
}

void Committer::OnSynced(DeviceTier& tier, const StableMark& mark, bool doubt_saved,
                         absl::Status status) {
  Section section(&chunks_);
  KVKEEP_CHECK(mark.sequence <= tier.commits.committed());
  if (status.ok()) {
    ++chunks_.counters.syncs;
    tier.syncs.End(mark);
    tier.commits.NoteTaken();
    tier.doubtful_saved = true;
    tier.doubt_shrank |= !doubt_saved;  // the index refused it, which holds up no sync
    // This sync began before the last write ended. Callers that wait for the last sync are told
    // after the next one.
    if (chunks_.draining && !mark.clean && MayBeClean(tier)) return StartSync(tier);
  } else {
    tier.syncs.EndFailed();
    tiers_.NoteFailedSync(tier, status);
    tier.doubt_shrank = true;  // perhaps
  }
  while (!tier.syncs.Answer(tier.health.failed_sync(), chunks_.hold)) section.Yield();
  const bool more = !tier.syncs.IsStable(tier.commits.committed());
  if (tier.syncs.anyone_waits() && more) StartSync(tier);
  PumpIndex(tier);
  host_.PumpWrites(tier);  // gives queued writes up when the device is read-only now
}

// The next Tick tries again.
void Committer::OnSyncPutOff(DeviceTier& tier) {
  Section section(&chunks_);
  tier.syncs.PutOff();
  tier.doubt_shrank = true;  // perhaps
  const absl::Status why = absl::UnavailableError("the index takes no sync");
  if (tier.syncs.clean() && !tier.commits.IsPutOff(why, clock_.Now())) {
    chunks_.counters.write_backs_failed += GiveUpAdds(tier, section, why);
    tier.commits.AnswerRemovals(why, chunks_.hold);
  }
}

void Committer::FreeWhenStable(DeviceTier& tier, CommitSequence sequence, ExtentList extents) {
  tier.syncs.Wait(sequence,
                  [this, &tier, extents = std::move(extents), frees = tier.frees](absl::Status) {
                    // The status does not matter: after a failed sync nothing is written to the
                    // device any more.
                    Section section(&chunks_);
                    tier.Free(extents);
                    host_.PumpWrites(tier);
                  });
}

void Committer::WhenStable(DeviceTier& tier, StatusCallback done) {
  Section section(&chunks_);
  if (!tier.here()) {
    return chunks_.CallLater(std::move(done), absl::UnavailableError("the device left"));
  }
  const CommitSequence committed = tier.commits.committed();
  if (tier.syncs.IsStable(committed)) return chunks_.CallLater(std::move(done), absl::OkStatus());
  tier.syncs.Wait(committed, std::move(done));
  StartSync(tier);
}

// ---- who waits for all devices

void Committer::WhenRemoved(bool durable, StatusCallback done) {
  const auto all = std::make_shared<Gathering>(tiers_.size() + 1, std::move(done));
  for (const auto& each : tiers_.all()) {
    DeviceTier& tier = *each;
    // For a device that is away, tier.missed has the deletes. A device that leaves may still have
    // to take the removal of a chunk that was evicted before it was deleted, and may lose that
    // removal.
    if (!tier.here() && tier.commits.removes().empty()) {
      chunks_.Later([all] { all->End(absl::OkStatus()); });
      continue;
    }
    tier.commits.WaitForRemovals([this, all, &tier, durable](const absl::Status& status) {
      if (!status.ok() || !durable) return all->End(status);
      WhenStable(tier, [all](const absl::Status& stable) { all->End(stable); });
    });
    const absl::Status silent = tier.health.stuck() ? Silent() : absl::OkStatus();
    tier.commits.AnswerRemovals(silent, chunks_.hold);
    PumpIndex(tier);  // so that no removal waits for a write any more
  }
  chunks_.Later([all] { all->End(absl::OkStatus()); });
}

void Committer::WhenAllStable(StatusCallback done) {
  const auto here = [](const auto& tier) { return tier->here(); };
  const auto count = std::count_if(tiers_.all().begin(), tiers_.all().end(), here);
  const auto all = std::make_shared<Gathering>(static_cast<size_t>(count) + 1, std::move(done));
  for (const auto& each : tiers_.all()) {
    DeviceTier& tier = *each;
    if (!tier.here()) continue;
    tier.syncs.Wait(tier.commits.committed(),
                    [all](const absl::Status& status) { all->End(status); });
    StartSync(tier);
  }
  chunks_.Later([all] { all->End(absl::OkStatus()); });
}

void Committer::Tick(DeviceTier& tier) {
  if (tier.health.stuck()) tier.commits.AnswerRemovals(Silent(), chunks_.hold);
}

}  // namespace kvkeep::store_internal
