// The index's batches, the periodic sync, durable puts.
#include <absl/container/btree_set.h>
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/test_point.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {
namespace {

constexpr size_t kMaxBatchRecords = 64;  // so many are made or taken note of under one hold
constexpr auto kCommitRetry = std::chrono::seconds(1);
// An index that refuses batches for so long counts as one that fails.
constexpr auto kRefusalPatience = std::chrono::seconds(30);
// When more than this lies between two ticks, we were stopped, or busy with starting: what a device
// answered meanwhile nobody heard.
constexpr std::chrono::nanoseconds kMostOfATick = std::chrono::seconds(1);

}  // namespace

struct Core::Batch {
  std::deque<DeviceTier::PendingAdd> adds;
  std::deque<DeviceTier::PendingRemove> removes;
  std::deque<ChunkId> forget;  // of the removes: whose record is to go
  std::vector<CommitSequence> forgotten;  // whose recency is to go
  CommitSequence last;
  // It overwrites a record that may be promised: its data has to be stable before, since the index
  // may be by itself at any time.
  bool sync_first = false;
  absl::Status synced;

  // For the index; not under the lock.
  IndexBatch Records() const {
    IndexBatch records;
    for (const DeviceTier::PendingAdd& add : adds) records.adds.push_back(add.record);
    records.removes.assign(forget.begin(), forget.end());
    records.forgotten = forgotten;
    for (const DeviceTier::PendingRemove& remove : removes) {
      if (!remove.extents.empty()) records.freed.push_back(remove.extents[0].first);
    }
    return records;
  }
};

absl::Status Core::CommitTo(ChunkIndex& index, const Batch& batch) {
  const bool removes = !batch.forget.empty();
  TestPoint(removes ? "removal-commit" : "index-commit");
  absl::Status status = index.Commit(batch.Records());
  TestPoint(removes ? "removal-committed" : "index-committed");
  return status;
}

void Core::PumpIndex(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  if (!tier.here()) return;  // the end of its join comes back to it
  if (tier.committing || (tier.adds.empty() && tier.removes.empty())) return;
  if (deps_.clock->Now() < tier.commit_retry_at) return;  // Tick comes back to it
  if (Spent()) return PumpLater(device);
  if (tier.clean) return BecomeUnclean(device);
  auto batch = std::make_shared<Batch>();
  // Removals first, and all of them before any add: an add that came later under the same identity
  // must not be undone by an old removal.
  while (!tier.removes.empty() && batch->removes.size() < kMaxBatchRecords) {
    batch->removes.push_back(std::move(tier.removes.front()));
    tier.removes.pop_front();
    Count(work::kRecord);
  }
  while (tier.removes.empty() && !tier.adds.empty() &&
         batch->removes.size() + batch->adds.size() < kMaxBatchRecords) {
    DeviceTier::PendingAdd add = std::move(tier.adds.front());
    tier.adds.pop_front();
    Count(work::kRecord);
    // Deleted meanwhile: the index never hears of it (its name may be in this batch again).
    if (table_.at(add.slot).detached) {
      GiveUpWriteBack(add.slot, absl::NotFoundError("the chunk was deleted"));
    } else {
      batch->sync_first |= TakeReplaced(device, add.record.id, batch->removes);
      batch->adds.push_back(std::move(add));
    }
  }
  if (batch->adds.empty() && batch->removes.empty()) return;
  tier.committing = true;

  absl::btree_set<ChunkId> named;
  for (DeviceTier::PendingAdd& add : batch->adds) {
    add.record.sequence = ++tier.assigned;
    named.insert(add.record.id);
  }
  for (const DeviceTier::PendingRemove& remove : batch->removes) {
    const bool keeps = HasOtherRecord(device, remove.id);
    if (!keeps && named.insert(remove.id).second) {
      batch->forget.push_back(remove.id);
    }
    const bool saved = tier.unsaved_recency.MayBeSaved(remove.sequence);
    if (remove.sequence.value() > 0 && saved) batch->forgotten.push_back(remove.sequence);
  }
  batch->last = tier.assigned;
  Later([this, device, batch] {
    const auto commit = [this, device, batch] {
      ChunkIndex* index = &attached_[device].device->index();
      attached_[device].index_executor->Post(
          [this, device, index, batch] { OnCommitted(device, batch, CommitTo(*index, *batch)); });
    };
    if (!batch->sync_first) return commit();
    attached_[device].sync_executor->Post([this, device, batch, commit] {
      batch->synced = SyncData(device);
      batch->synced.ok() ? commit() : OnCommitted(device, batch, batch->synced);
    });
  });
}

// Whether what the index has under the name of a record that is to go is another one, which may be
// a promise by now: an add overwrote it, in this batch or when the chunk was put anew while a
// reader kept the deleted one; or it is kept beneath.
bool Core::HasOtherRecord(uint16_t device, const ChunkId& id) const {
  const ChunkSlot now = table_.Find(id);
  const bool stored = now != kNoSlot && table_.at(now).device == device &&
                      table_.at(now).g3_state == G3State::kStored;
  return stored || replaced_.contains({id, device});
}

// A record that is kept beneath a chunk may be of another boot, and nobody reads its header.
bool Core::MayBeClean(const DeviceTier& tier) const {
  return tier.settled() && !replaced_.AnyKept(tier.number, std::nullopt).has_value();
}

// Before the first commit since the mark that says clean: the end of the sync comes back to it.
// Where syncs fail nothing can be added; what is to be removed waits until it is opened anew.
void Core::BecomeUnclean(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  if (!tier.health.sync_failed()) return StartSync(device);
  while (!tier.adds.empty()) {
    if (Spent()) return PumpLater(device);
    const ChunkSlot slot = tier.adds.front().slot;
    tier.adds.pop_front();
    ++counters_.write_backs_failed;
    GiveUpWriteBack(slot, tier.health.failed_sync());
  }
}

// On the device's sync executor, so that no two run at once: the kernel tells of a failure once,
// and has dropped the pages then. So a failed one stays failed.
absl::Status Core::SyncData(uint16_t device) {
  absl::Status& failed = failed_syncs_[device];
  if (failed.ok()) failed = attached_[device].device->io().Sync();
  return failed;
}

void Core::OnCommitted(uint16_t device, std::shared_ptr<Batch> batch, absl::Status status) {
  Section section(this);
  DeviceTier& tier = *devices_[device];
  const bool put_off = batch->synced.ok() && IsPutOff(tier, status);
  if (!batch->synced.ok()) {
    NoteFailedSync(tier, batch->synced);
  } else if (!put_off) {
    NoteIo(tier, true, status);
  }
  if (status.ok()) {
    ++counters_.index_commits;
    tier.committed = batch->last;
    tier.dirty_index = true;
    for (const DeviceTier::PendingRemove& remove : batch->removes) {
      section.YieldIfSpent();
      Count(work::kRecord);
      if (remove.doubtful) tier.EndDoubt(remove.sequence);
      if (remove.replaced) {
        FreeWhenStable(device, batch->last, remove.extents);
        continue;
      }
      tier.freeing_blocks -= TotalBlocks(remove.extents).value();
      tier.allocator->Free(remove.extents);
    }
    for (const DeviceTier::PendingAdd& add : batch->adds) {
      section.YieldIfSpent();
      Count(work::kEvict);
      OnAddCommitted(tier, add);
    }
  } else {
    ++counters_.index_commit_failures;
    tier.commit_retry_at = deps_.clock->Now() + kCommitRetry;
    // Their extents stay taken until the index has forgotten them.
    for (auto remove = batch->removes.rbegin(); remove != batch->removes.rend(); ++remove) {
      Count(work::kLook);
      if (!RestoreReplaced(device, *remove)) tier.removes.push_front(std::move(*remove));
    }
    // What is written already is not thrown away for an index that stalls.
    for (; put_off && !batch->adds.empty(); batch->adds.pop_back()) {
      Count(work::kLook);
      tier.adds.push_front(std::move(batch->adds.back()));
    }
    for (const DeviceTier::PendingAdd& add : batch->adds) {
      section.YieldIfSpent();
      Count(work::kEvict);
      ++counters_.write_backs_failed;
      if (batch->synced.ok() && !absl::IsUnavailable(status)) RemoveUnsure(device, add);
      GiveUpWriteBack(add.slot, status);
    }
    // An index that failed a write may fail all: behind removals that it never takes they would
    // wait for ever, and keep G2.
    if (!put_off) counters_.write_backs_failed += GiveUpAdds(tier, section, status);
  }
  tier.committing = false;  // not before the states tell what the index holds
  PumpIndex(device);
  PumpUnbacked(device);  // there is room in the dirty budget now
  PumpWrites(device);
  if (!tier.sync_waiters.empty()) StartSync(device);
}

// Those that no batch has taken yet. Returns how many they were.
uint64_t Core::GiveUpAdds(DeviceTier& tier, Section& section, const absl::Status& why) {
  uint64_t given_up = 0;
  for (; !tier.adds.empty(); ++given_up) {
    section.YieldIfSpent();
    const ChunkSlot slot = tier.adds.front().slot;
    tier.adds.pop_front();
    GiveUpWriteBack(slot, why);
  }
  return given_up;
}

// An add that failed may be in the index's log all the same, for who opens it next: its removal is
// sent, and its blocks are nobody else's before that.
void Core::RemoveUnsure(uint16_t device, const DeviceTier::PendingAdd& add) {
  DeviceTier& tier = *devices_[device];
  Chunk& chunk = table_.at(add.slot);
  g3_shares_.Give(chunk.tenant, chunk.blocks());
  tier.freeing_blocks += chunk.blocks();
  tier.removes.push_back({add.record.id, std::move(chunk.g3)});
  chunk.g3.clear();
}

// Whether the batch is tried again as it is.
bool Core::IsPutOff(DeviceTier& tier, const absl::Status& status) const {
  if (!absl::IsUnavailable(status)) {
    tier.refused_since.reset();
    return false;
  }
  const MonotonicTime now = deps_.clock->Now();
  if (!tier.refused_since.has_value()) tier.refused_since = now;
  return now - *tier.refused_since < kRefusalPatience;
}

void Core::OnAddCommitted(DeviceTier& tier, const DeviceTier::PendingAdd& add) {
  ++counters_.write_backs;
  counters_.written_back_bytes += add.record.shape.payload_bytes;
  const uint64_t now_us = deps_.clock->UnixMicros();
  const uint64_t sealed_us = std::min(add.record.created_unix_us, now_us);  // that clock may be set
  write_back_age_.RecordAlone((now_us - sealed_us) * 1000);
  ++tier.chunks;
  if (durable_waiters_.Has(add.slot)) {
    tier.sync_waiters.Add(add.record.sequence, durable_waiters_.Take(add.slot));
  }
  Change chunk(this, add.slot);
  SetG3State(*chunk, G3State::kStored);
  chunk->g3_sequence = add.record.sequence;
  if (chunk->detached) return;  // deleted meanwhile: removed again when this change settles
  EndReplaced(*chunk);
  InsertIntoG3Policy(add.slot, FindParent(*chunk, add.parent));
}

void Core::WhenDurable(const ChunkId& id, StatusCallback done) {
  Section section(this);
  const ChunkSlot slot = table_.Find(id);
  if (slot != kNoSlot && table_.at(slot).doubtful) SetAside(slot);
  if (slot == kNoSlot || table_.at(slot).unconfirmed || table_.at(slot).doubtful) {
    CallLater(std::move(done), absl::NotFoundError("no such chunk, or not for certain"));
    return;
  }
  Chunk& chunk = table_.at(slot);
  if (chunk.g3_state == G3State::kStored) {
    DeviceTier& tier = *devices_[chunk.device];
    if (chunk.g3_sequence <= tier.stable) {
      CallLater(std::move(done), absl::OkStatus());
      return;
    }
    tier.sync_waiters.Add(chunk.g3_sequence, std::move(done));
    StartSync(chunk.device);
    return;
  }
  durable_waiters_.Add(slot, std::move(done));
  if (!devices_.empty() && chunk.g2_state == G2State::kUnverified) StartVerification(slot);
  if (!devices_.empty() && chunk.being_read()) return;  // written back then
  if (chunk.g3_state == G3State::kAbsent && chunk.g2_state == G2State::kResident) {
    QueueWriteBack(slot, std::nullopt, true);
  }
  // Either it is on its way now, or no device would take it.
  if (!table_.at(slot).dirty()) WaitForDevice(slot);
}

void Core::StartSync(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  if (tier.syncing || !tier.here()) return;
  tier.last_sync = deps_.clock->Now();
  if (tier.health.sync_failed()) {
    if (!AnswerSyncWaiters(tier)) PumpLater(device);
    return;
  }
  tier.syncing = true;
  tier.dirty_index = false;
  // What is committed now had its data written before: the data goes to stable storage first.
  const StableMark mark{.boot_id = tier.confirmed_boot,
                        .sequence = tier.committed,
                        .clean = (draining_ || tier.clean) && MayBeClean(tier)};
  tier.clean |= mark.clean;
  std::optional<Doubtful> save;
  const bool grew = !tier.doubtful_saved;
  if (grew) {
    save = tier.doubtful;
  } else if (tier.doubt_shrank && (draining_ || tier.DoubtIsDue(tier.last_sync))) {
    Count(work::kHold / 4);
    save = tier.doubts.Ranges();
    tier.doubt_shrank = false;
    tier.doubt_saved_at = tier.last_sync;
  }
  Later([this, device, mark, save, grew] {
    attached_[device].sync_executor->Post([this, device, mark, save, grew] {
      NvmeDevice& nvme = *attached_[device].device;
      absl::Status status, shrunk;
      if (grew) status = SaveDoubtful(nvme.index(), *save);
      if (absl::IsUnavailable(status)) return OnSyncPutOff(device);  // the index stalls
      if (status.ok()) status = SyncData(device);
      // What a read found whole may have been in the drive's cache alone before.
      if (status.ok() && save.has_value() && !grew) {
        shrunk = SaveDoubtful(nvme.index(), *save);
      }
      TestPoint("stable-mark");
      if (status.ok()) {
        status = nvme.index().Sync(mark);
        if (absl::IsUnavailable(status)) return OnSyncPutOff(device);
      }
      TestPoint("stable-marked");
      OnSynced(device, mark, shrunk.ok(), std::move(status));
    });
  });
}

void Core::NoteFailedSync(DeviceTier& tier, const absl::Status& status) {
  ++counters_.sync_failures;
  tier.health.NoteFailedSync(status);
  events_.NoteReadable(tier.number, tier.readable());
}

void Core::OnSynced(uint16_t device, const StableMark& mark, bool doubt_saved,
                    absl::Status status) {
  Section section(this);
  DeviceTier& tier = *devices_[device];
  tier.syncing = false;
  if (status.ok()) {
    ++counters_.syncs;
    tier.stable = mark.sequence;
    tier.clean = mark.clean;
    tier.refused_since.reset();
    tier.doubtful_saved = true;
    tier.doubt_shrank |= !doubt_saved;  // the index refused it: that holds up no sync
    // It began before all was done: who waits for the last one is told after the next.
    if (draining_ && !tier.clean && MayBeClean(tier)) return StartSync(device);
  } else {
    NoteFailedSync(tier, status);
    tier.doubt_shrank = true;  // perhaps
  }
  while (!AnswerSyncWaiters(tier)) section.Yield();
  if (!tier.sync_waiters.empty() && tier.committed > tier.stable) StartSync(device);
  PumpIndex(device);
  PumpWrites(device);  // gives queued writes up when the device is read-only now
}

// The next Tick tries again.
void Core::OnSyncPutOff(uint16_t device) {
  Section section(this);
  DeviceTier& tier = *devices_[device];
  tier.syncing = false;
  tier.dirty_index = tier.doubt_shrank = true;  // perhaps
  if (tier.clean && !IsPutOff(tier, absl::UnavailableError("the sync"))) {
    counters_.write_backs_failed +=
        GiveUpAdds(tier, section, absl::UnavailableError("the index takes no sync"));
  }
}

bool Core::AnswerSyncWaiters(DeviceTier& tier) {
  return tier.sync_waiters.Answer(tier.stable, tier.health.failed_sync(), hold_);
}

void Core::PumpLater(LowerTier& tier) {
  tier.pump_more = true;
  if (tier.pumping) return;
  tier.pumping = true;
  Later([this, &tier] { KeepPumping(tier); });
}

void Core::KeepPumping(LowerTier& tier) {
  Section section(this);
  while (std::exchange(tier.pump_more, false)) {
    tier.pump();
    if (tier.pump_more) section.Yield();
  }
  tier.pumping = false;
}

void Core::PumpDevice(DeviceTier& tier) {
  const uint16_t device = tier.number;
  PumpIndex(device);
  PumpReads(tier);
  PumpUnbacked(device);
  PumpWrites(device);
  PumpConfirms(device);
  if (tier.health.sync_failed() && !AnswerSyncWaiters(tier)) PumpLater(device);
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
  Section section(this, Section::Kind::kMaintenance);
  const MonotonicTime now = deps_.clock->Now();
  const auto passed = std::min(now - last_tick_.value_or(now), kMostOfATick);
  last_tick_ = now;
  for (uint16_t device = 0; device < devices_.size(); ++device) {
    DeviceTier& tier = *devices_[device];
    if (tier.heard.exchange(false)) tier.health.NoteHeard();
    counters_.device_silences += tier.health.NoteTime(passed, tier.busy());
    tier.health.RetryIfDue(now);
    events_.NoteReadable(tier.number, tier.readable());
    PumpIndex(device);
    PumpUnbacked(device);
    PumpWrites(device);
    PumpConfirms(device);
    LeaveIfQuiet(device);
    if (tier.here()) SaveRecencyIfDue(section, device);
    section.YieldIfSpent();
    tier.dirty_index |= tier.here() && tier.DoubtIsDue(now);
    const bool due = now - tier.last_sync >= options_.sync_interval;
    if (!tier.sync_waiters.empty() || (tier.dirty_index && due)) StartSync(device);
  }
  if (!AnyJoins()) {  // else what is above a limit is known at its end
    TrimToNewQuotas(section);
    TrimToNewCapacities(section);
  }
  if (remote_ != nullptr) {
    remote_->removals.Tend();
    PumpRemote();
  }
  DropBrokenAndSweep(section);
  WriteForWaiters(section);
  scrubber_.Pay(now);
  ScrubNext(section);
  return at_rest_ = IsAtRest();
}

// Nothing is under way or waits for its time, but for what may as well be a second late: a device
// looked at again, recency saved.
bool Core::IsAtRest() const {
  const bool limits = over_quota_ || over_capacity_;  // are to be reached
  const bool busy = draining_ || wait_for_device_ || scrubber_.on() || limits;
  if (busy || !unverified_.empty()) return false;
  if (remote_ != nullptr && !remote_->at_rest()) return false;
  return std::all_of(devices_.begin(), devices_.end(), [](const auto& tier) {
    return !tier->busy() && tier->write_queue.empty() && !tier->reads.anyone_waits() &&
           tier->confirmed() && tier->adds.empty() && tier->removes.empty() && !tier->committing &&
           !tier->syncing && !tier->dirty_index && tier->sync_waiters.empty() &&
           !(tier->here() && tier->doubt_shrank && !tier->health.sync_failed()) &&
           tier->presence != DeviceTier::Presence::kJoining &&
           tier->presence != DeviceTier::Presence::kLeaving;
  });
}

void Core::SyncAll(StatusCallback done) {
  struct All {
    StatusCallback done;
    absl::Status first;
    size_t left = 0;
  };
  auto all = std::make_shared<All>();
  auto mu = std::make_shared<Mutex>();
  all->done = std::move(done);
  Section section(this);
  for (uint16_t device = 0; draining_ && device < devices_.size(); ++device) {
    if (devices_[device]->here()) SaveRecency(section, device);  // may yield
  }
  const auto here = [](const auto& tier) { return tier->here(); };
  all->left = static_cast<size_t>(std::count_if(devices_.begin(), devices_.end(), here));
  if (all->left == 0) {
    CallLater(std::move(all->done), absl::OkStatus());
    return;
  }
  for (uint16_t device = 0; device < devices_.size(); ++device) {
    DeviceTier& tier = *devices_[device];
    if (!tier.here()) continue;
    tier.sync_waiters.Add(tier.committed, [all, mu](absl::Status status) {
      bool last = false;
      {
        MutexLock lock(mu.get());
        all->first.Update(status);
        last = --all->left == 0;
      }
      if (last) std::move(all->done)(all->first);
    });
    StartSync(device);
  }
}

}  // namespace kvkeep::store_internal
