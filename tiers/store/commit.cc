// The index's batches, the periodic sync, durable puts.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/mutex.h"
#include "tiers/base/test_point.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

// When more than this lies between two ticks, we were stopped, or busy with starting: what a device
// answered meanwhile nobody heard.
constexpr std::chrono::nanoseconds kMostOfATick = std::chrono::seconds(1);

absl::Status CommitTo(ChunkIndex& index, const CommitBatch& batch) {
  const bool removes = !batch.forget.empty();
  TestPoint(removes ? "removal-commit" : "index-commit");
  absl::Status status = index.Commit(batch.Records());
  TestPoint(removes ? "removal-committed" : "index-committed");
  return status;
}

absl::Status Silent() { return absl::UnavailableError("the device does not answer"); }

// Gathers the ends of several things: `done` gets the first error once all have ended.
class Gathering {
 public:
  Gathering(size_t of, StatusCallback done) : left_(of), done_(std::move(done)) {}
  void End(const absl::Status& status) {
    absl::Status all;
    {
      MutexLock lock(&mu_);
      first_.Update(status);
      KVKEEP_CHECK(left_ > 0);
      if (--left_ > 0) return;
      all = first_;
    }
    std::move(done_)(std::move(all));
  }

 private:
  Mutex mu_;
  size_t left_ ABSL_GUARDED_BY(mu_);
  absl::Status first_ ABSL_GUARDED_BY(mu_);
  StatusCallback done_;  // called once
};

}  // namespace

void Core::PumpIndex(DeviceTier& tier) {
  if (!tier.here()) return;  // the end of its join comes back to it
  if (!tier.commits.MayBegin(deps_.clock->Now())) return;  // its end, or Tick, comes back to it
  if (Spent()) return PumpLater(tier);
  if (tier.syncs.clean()) return BecomeUnclean(tier);
  const auto batch = std::make_shared<CommitBatch>(tier.commits.TakeRemoves());
  Count(static_cast<uint32_t>(work::kRecord * batch->removes.size()));
  while (std::optional<PendingAdd> add = tier.commits.TakeAddFor(*batch)) {
    Count(work::kRecord);
    const Chunk& chunk = table_.at(add->slot);
    KVKEEP_CHECK(chunk.g3_state == G3State::kCommitting && chunk.device == tier.number);
    KVKEEP_CHECK(chunk.g3_generation == add->record.generation);
    // Deleted meanwhile: the index never hears of it (its name may be in this batch again).
    if (chunk.detached) {
      GiveUpWriteBack(add->slot, add->parent, absl::NotFoundError("the chunk was deleted"));
      continue;
    }
    const ReplacedAt at{add->record.id, tier.number};
    batch->sync_first |= replaced_.contains(at);
    std::optional<PendingRemove> replaced = TakeReplaced(at);
    if (replaced.has_value()) tier.commits.RemoveWith(*batch, *std::move(replaced));
    batch->adds.push_back(*std::move(add));
  }
  if (batch->empty()) return;
  tier.commits.Begin(
      *batch,
      [&](const ChunkId& id) STORE_LOCKED { return HasOtherRecord(tier, id); },
      tier.unsaved_recency);
  Later([this, &tier, batch] {
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

// Whether what the index has under the name of a record that is to go is another one, which may be
// a promise by now: an add overwrote it, in this batch or when the chunk was put anew while a
// reader kept the deleted one; or it is kept beneath.
bool Core::HasOtherRecord(const DeviceTier& tier, const ChunkId& id) const {
  const ChunkSlot now = table_.Find(id);
  const bool stored = now != kNoSlot && table_.at(now).device == tier.number &&
                      table_.at(now).g3_state == G3State::kStored;
  return stored || replaced_.contains({id, tier.number});
}

// A record that is kept beneath a chunk may be of another boot, and nobody reads its header.
bool Core::MayBeClean(const DeviceTier& tier) const {
  return tier.settled() && !replaced_.AnyKept(tier.number, std::nullopt).has_value();
}

// Before the first commit since the mark that says clean: the end of the sync comes back to it.
// Where syncs fail nothing can be added; what is to be removed waits until it is opened anew.
void Core::BecomeUnclean(DeviceTier& tier) {
  if (!tier.health.sync_failed()) return StartSync(tier);
  tier.commits.AnswerRemovals(tier.health.failed_sync(), hold_);
  while (!tier.commits.adds().empty()) {
    if (Spent()) return PumpLater(tier);
    ++counters_.write_backs_failed;
    const PendingAdd add = tier.commits.TakeAdd();
    GiveUpWriteBack(add.slot, add.parent, tier.health.failed_sync());
  }
}

void Core::OnCommitted(DeviceTier& tier, std::shared_ptr<CommitBatch> batch,
                       absl::Status status) {
  Section section(&chunks_);
  const MonotonicTime now = deps_.clock->Now();
  KVKEEP_CHECK(tier.commits.under_way() && !tier.syncs.clean());
  const bool put_off = batch->synced.ok() && tier.commits.IsPutOff(status, now);
  if (!batch->synced.ok()) {
    NoteFailedSync(tier, batch->synced);
  } else if (!put_off) {
    NoteIo(tier, true, status);
  }
  if (status.ok()) {
    ++counters_.index_commits;
    tier.commits.NoteCommitted(*batch);
    tier.syncs.NoteDirty();
    // This yields. The batch is under way until End() below, so no other one begins and the device
    // does not leave. Its chunks are dirty, so they keep their slots and G2; one that is deleted
    // meanwhile is stored and removed again (OnAddCommitted), or given up.
    for (const PendingRemove& remove : batch->removes) {
      section.YieldIfSpent();
      Count(work::kRecord);
      if (remove.doubtful) tier.EndDoubt(remove.sequence);
      if (remove.replaced) {
        FreeWhenStable(tier, batch->last, remove.extents);
      } else {
        tier.Free(remove.extents);
      }
    }
    for (const PendingAdd& add : batch->adds) {
      section.YieldIfSpent();
      Count(work::kEvict);
      OnAddCommitted(tier, add);
    }
  } else {
    ++counters_.index_commit_failures;
    tier.commits.WaitToRetry(now);
    // Their extents stay taken until the index has forgotten them. Before the adds are given up,
    // and without a yield: RestoreReplaced keeps a record again only while the one that was to
    // overwrite it is committing; later it would be sent for removal. From the back, so that they
    // wait in the order that they had.
    for (auto remove = batch->removes.rbegin(); remove != batch->removes.rend(); ++remove) {
      Count(work::kLook);
      if (!RestoreReplaced(tier, *remove)) tier.commits.PutBack(std::move(*remove));
    }
    // What is written already is not thrown away for an index that stalls.
    for (; put_off && !batch->adds.empty(); batch->adds.pop_back()) {
      Count(work::kLook);
      tier.commits.PutBack(std::move(batch->adds.back()));
    }
    for (const PendingAdd& add : batch->adds) {
      section.YieldIfSpent();
      Count(work::kEvict);
      ++counters_.write_backs_failed;
      if (batch->synced.ok() && !absl::IsUnavailable(status)) RemoveUnsure(tier, add);
      GiveUpWriteBack(add.slot, add.parent, status);
    }
    // An index that failed a write may fail all: behind removals that it never takes they would
    // wait for ever, and keep G2.
    if (!put_off) counters_.write_backs_failed += GiveUpAdds(tier, section, status);
  }
  tier.commits.End();  // not before the states tell what the index holds
  tier.commits.AnswerRemovals(put_off ? absl::OkStatus() : status, hold_);
  PumpIndex(tier);
  PumpUnbacked(tier);  // there is room in the dirty budget now
  PumpWrites(tier);
  if (tier.syncs.anyone_waits()) StartSync(tier);
}

// Those that no batch has taken yet. Returns how many they were.
uint64_t Core::GiveUpAdds(DeviceTier& tier, Section& section, const absl::Status& why) {
  uint64_t given_up = 0;
  for (; !tier.commits.adds().empty(); ++given_up) {
    section.YieldIfSpent();
    const PendingAdd add = tier.commits.TakeAdd();
    GiveUpWriteBack(add.slot, add.parent, why);
  }
  return given_up;
}

// An add that failed may be in the index's log all the same, for who opens it next: its removal is
// sent, and its blocks are nobody else's before that.
void Core::RemoveUnsure(DeviceTier& tier, const PendingAdd& add) {
  Chunk& chunk = table_.at(add.slot);
  KVKEEP_CHECK(chunk.g3_state == G3State::kCommitting && !chunk.g3.empty());
  g3_shares_.Give(chunk.tenant, chunk.blocks());
  tier.commits.Remove({add.record.id, std::move(chunk.g3)});
  chunk.g3.clear();
}

void Core::OnAddCommitted(DeviceTier& tier, const PendingAdd& add) {
  ++counters_.write_backs;
  counters_.written_back_bytes += add.record.shape.payload_bytes;
  const uint64_t now_us = deps_.clock->UnixMicros();
  const uint64_t sealed_us = std::min(add.record.created_unix_us, now_us);  // that clock may be set
  write_back_age_.RecordAlone((now_us - sealed_us) * 1000);
  ++tier.chunks;
  if (durable_waiters_.Has(add.slot)) {
    tier.syncs.Wait(add.record.sequence, durable_waiters_.Take(add.slot));
  }
  Change chunk(&chunks_, add.slot);
  KVKEEP_CHECK(chunk->g3_state == G3State::kCommitting && chunk->device == tier.number);
  KVKEEP_CHECK(chunk->g3_generation == add.record.generation && chunk->id == add.record.id);
  SetG3State(*chunk, G3State::kStored);
  chunk->g3_sequence = add.record.sequence;
  if (chunk->detached) return;  // deleted meanwhile: removed again when this change settles
  EndReplaced(*chunk);
  InsertIntoG3Policy(add.slot, table_.FindParent(*chunk, add.parent), deps_.clock->Now());
}

void Core::WhenDurable(const ChunkId& id, StatusCallback done) {
  Section section(&chunks_);
  const ChunkSlot slot = table_.Find(id);
  if (slot != kNoSlot && table_.at(slot).doubtful) SetAside(slot);
  if (slot == kNoSlot || table_.at(slot).unconfirmed || table_.at(slot).doubtful) {
    CallLater(std::move(done), absl::NotFoundError("no such chunk, or not for certain"));
    return;
  }
  Chunk& chunk = table_.at(slot);
  if (chunk.g3_state == G3State::kStored) {
    DeviceTier& tier = *devices_[chunk.device];
    if (tier.syncs.IsStable(chunk.g3_sequence)) {
      CallLater(std::move(done), absl::OkStatus());
      return;
    }
    tier.syncs.Wait(chunk.g3_sequence, std::move(done));
    StartSync(tier);
    return;
  }
  durable_waiters_.Add(slot, std::move(done));
  if (!devices_.empty() && chunk.g2_state == G2State::kUnverified) filler_.Verify(slot);
  if (!devices_.empty() && chunk.being_read()) return;  // written back then
  if (chunk.g3_state == G3State::kAbsent && chunk.resident()) {
    QueueWriteBack(slot, std::nullopt, true);
  }
  // Either it is on its way now, or no device would take it.
  if (!table_.at(slot).dirty()) WaitForDevice(slot);
}

void Core::StartSync(DeviceTier& tier) {
  if (tier.syncs.under_way() || !tier.here()) return;
  const MonotonicTime now = deps_.clock->Now();
  tier.syncs.NoteTried(now);
  if (tier.health.sync_failed()) {
    if (!tier.syncs.Answer(tier.health.failed_sync(), hold_)) PumpLater(tier);
    return;
  }
  // What is committed now had its data written before: the data goes to stable storage first.
  const StableMark mark = tier.syncs.Begin(tier.confirmed_boot, tier.commits.committed(), draining_,
                                           MayBeClean(tier));
  std::optional<Doubtful> save;
  const bool grew = !tier.doubtful_saved;
  if (grew) {
    save = tier.doubtful;
  } else if (tier.doubt_shrank && (draining_ || tier.DoubtIsDue(now))) {
    Count(work::kHold / 4);
    save = tier.doubts.Ranges();
    tier.doubt_shrank = false;
    tier.doubt_saved_at = now;
  }
  Later([this, &tier, mark, save, grew] {
    tier.sync_executor->Post([this, &tier, mark, save, grew] {
      NvmeDevice& nvme = *tier.device;
      absl::Status status, shrunk;
      if (grew) status = SaveDoubtful(nvme.index(), *save);
      if (absl::IsUnavailable(status)) return OnSyncPutOff(tier);  // the index stalls
      if (status.ok()) status = tier.SyncData();
      // What a read found whole may have been in the drive's cache alone before.
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

void Core::NoteFailedSync(DeviceTier& tier, const absl::Status& status) {
  ++counters_.sync_failures;
  tier.health.NoteFailedSync(status);
  events_.NoteReadable(tier.number, tier.readable());
}

void Core::OnSynced(DeviceTier& tier, const StableMark& mark, bool doubt_saved,
                    absl::Status status) {
  Section section(&chunks_);
  KVKEEP_CHECK(mark.sequence <= tier.commits.committed());
  if (status.ok()) {
    ++counters_.syncs;
    tier.syncs.End(mark);
    tier.commits.NoteTaken();
    tier.doubtful_saved = true;
    tier.doubt_shrank |= !doubt_saved;  // the index refused it: that holds up no sync
    // It began before all was done: who waits for the last one is told after the next.
    if (draining_ && !mark.clean && MayBeClean(tier)) return StartSync(tier);
  } else {
    tier.syncs.EndFailed();
    NoteFailedSync(tier, status);
    tier.doubt_shrank = true;  // perhaps
  }
  while (!tier.syncs.Answer(tier.health.failed_sync(), hold_)) section.Yield();
  const bool more = !tier.syncs.IsStable(tier.commits.committed());
  if (tier.syncs.anyone_waits() && more) StartSync(tier);
  PumpIndex(tier);
  PumpWrites(tier);  // gives queued writes up when the device is read-only now
}

// The next Tick tries again.
void Core::OnSyncPutOff(DeviceTier& tier) {
  Section section(&chunks_);
  tier.syncs.PutOff();
  tier.doubt_shrank = true;  // perhaps
  const absl::Status why = absl::UnavailableError("the index takes no sync");
  if (tier.syncs.clean() && !tier.commits.IsPutOff(why, deps_.clock->Now())) {
    counters_.write_backs_failed += GiveUpAdds(tier, section, why);
    tier.commits.AnswerRemovals(why, hold_);
  }
}

void Core::PumpDevice(DeviceTier& tier) {
  PumpIndex(tier);
  filler_.PumpReads(tier);
  PumpUnbacked(tier);
  PumpWrites(tier);
  PumpConfirms(tier);
  const absl::Status failed = tier.health.failed_sync();
  if (!failed.ok() && !tier.syncs.Answer(failed, hold_)) PumpLater(tier);
}

void Core::NoteIo(LowerTier& tier, bool write, const absl::Status& status) {
  if (IsHostShort(status)) {  // for a while: that says nothing about the device
    ++counters_.host_short_ios;
    return;
  }
  tier.NoteIo(write, status, deps_.clock->Now());
  if (!status.ok() && tier.has_records()) events_.NoteReadable(tier.number, tier.readable());
}

bool Core::Tick() {
  Section section(&chunks_, Section::Kind::kMaintenance);
  const MonotonicTime now = deps_.clock->Now();
  const auto passed = std::min(now - last_tick_.value_or(now), kMostOfATick);
  last_tick_ = now;
  for (const auto& each : devices_) {
    DeviceTier& tier = *each;
    if (tier.heard.exchange(false)) tier.health.NoteHeard();
    counters_.device_silences += tier.health.NoteTime(passed, tier.busy());
    tier.health.RetryIfDue(now);
    events_.NoteReadable(tier.number, tier.readable());
    PumpIndex(tier);
    PumpUnbacked(tier);
    PumpWrites(tier);
    PumpConfirms(tier);
    LeaveIfQuiet(tier);
    if (tier.health.stuck()) tier.commits.AnswerRemovals(Silent(), hold_);
    if (tier.here()) SaveRecencyIfDue(section, tier);
    section.YieldIfSpent();
    if (tier.here() && tier.DoubtIsDue(now)) tier.syncs.NoteDirty();
    if (tier.syncs.IsDue(now, options_.sync_interval)) StartSync(tier);
  }
  if (!AnyJoins()) {  // else what is above a limit is known at its end
    TrimToNewQuotas(section);
    TrimToNewCapacities(section);
  }
  if (remote_ != nullptr) {
    beyond_->Tick();
    recaller_->Tick();
  }
  DropBrokenAndSweep(section);
  WriteForWaiters(section);
  scrubber_.Pay(now);
  ScrubNext(section);
  const bool at_rest = IsAtRest();
  chunks_.SetAtRest(at_rest);
  return at_rest;
}

// Nothing is under way or waits for its time, but for what may as well be a second late: a device
// looked at again, recency saved.
bool Core::IsAtRest() const {
  const bool limits = over_quota_ || over_capacity_;  // are to be reached
  const bool busy = draining_ || wait_for_device_ || scrubber_.on() || limits;
  if (busy || !unverified_.empty()) return false;
  if (remote_ != nullptr && !remote_->at_rest()) return false;
  return std::all_of(devices_.begin(), devices_.end(),
                     [](const auto& tier) { return tier->at_rest(); });
}

void Core::WhenDeleted(bool durable, StatusCallback done) {
  Section section(&chunks_);
  const auto all = std::make_shared<Gathering>(devices_.size() + 2, std::move(done));
  for (const auto& each : devices_) {
    DeviceTier& tier = *each;
    if (!tier.here()) {  // tier.missed has what was deleted
      Later([all] { all->End(absl::OkStatus()); });
      continue;
    }
    tier.commits.WaitForRemovals([this, all, &tier, durable](const absl::Status& status) {
      if (!status.ok() || !durable) return all->End(status);
      WhenStable(tier, [all](const absl::Status& stable) { all->End(stable); });
    });
    const bool silent = tier.health.stuck();
    tier.commits.AnswerRemovals(silent ? Silent() : absl::OkStatus(), hold_);
  }
  if (beyond_ != nullptr) {
    beyond_->WhenNoted(durable, [all](const absl::Status& status) { all->End(status); });
  } else {
    Later([all] { all->End(absl::OkStatus()); });
  }
  Later([all] { all->End(absl::OkStatus()); });
}

// Calls `done` once all that is committed now is on stable storage.
void Core::WhenStable(DeviceTier& tier, StatusCallback done) {
  Section section(&chunks_);
  if (!tier.here()) return CallLater(std::move(done), absl::UnavailableError("the device left"));
  const CommitSequence committed = tier.commits.committed();
  if (tier.syncs.IsStable(committed)) return CallLater(std::move(done), absl::OkStatus());
  tier.syncs.Wait(committed, std::move(done));
  StartSync(tier);
}

void Core::SyncAll(StatusCallback done) {
  Section section(&chunks_);
  for (const auto& tier : devices_) {
    if (draining_ && tier->here()) SaveRecency(section, *tier);  // may yield
  }
  const auto here = [](const auto& tier) { return tier->here(); };
  const auto count = std::count_if(devices_.begin(), devices_.end(), here);
  const auto all = std::make_shared<Gathering>(static_cast<size_t>(count) + 1, std::move(done));
  for (const auto& each : devices_) {
    DeviceTier& tier = *each;
    if (!tier.here()) continue;
    tier.syncs.Wait(tier.commits.committed(),
                    [all](const absl::Status& status) { all->End(status); });
    StartSync(tier);
  }
  Later([all] { all->End(absl::OkStatus()); });
}

}  // namespace kvkeep::store_internal
