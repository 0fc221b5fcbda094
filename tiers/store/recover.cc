// Start: the table, allocators and recency from the devices' indexes. O(records). Then G2.
#include <absl/strings/str_cat.h>

#include <algorithm>

#include "tiers/base/check.h"
#include "tiers/base/status_macros.h"
#include "tiers/store/canary.h"
#include "tiers/store/core.h"
#include "tiers/store/saved_recency.h"

namespace kvkeep::store_internal {
namespace {

constexpr uint32_t kMaxConfirms = 32;  // header reads under way on one device
constexpr uint32_t kMostConfirms = 3;  // of one header that cannot be read, so far apart:
constexpr auto kConfirmAgain = std::chrono::seconds(1);
// So many chunks ahead is their memory fetched, where they are walked in an order of their own.
constexpr size_t kPrefetchAhead = 8;

// All of them when it cannot be read.
Doubtful ReadDoubtful(ChunkIndex& index) {
  const absl::StatusOr<std::optional<std::string>> saved = index.GetMeta(kDoubtfulName);
  return saved.ok() ? DecodeDoubtful(*saved) : kAllDoubtful;
}

KnownRecord Known(const IndexRecord& record, bool unconfirmed, bool doubtful) {
  return {.shape = record.shape,
          .incarnation = record.incarnation,
          .generation = record.generation,
          .sequence = record.sequence,
          .unconfirmed = unconfirmed,
          .doubtful = doubtful};
}

void ConfirmLater(DeviceTier& tier, const DeviceTier::Confirm& confirm, MonotonicTime now) {
  if (tier.confirm_again.empty()) tier.confirm_again_at = now + kConfirmAgain;
  tier.confirm_again.push_back(confirm);
}

}  // namespace

absl::Status Core::Recover() {
  Section section(this, Section::Kind::kNotMeasured);  // nobody is served yet
  recovery_helper_ = std::make_unique<ThreadPool>("kvkeep-recover", 1);
  absl::Status recovered = RecoverDevices();
  if (recovered.ok()) {
    RecoverG2();
    ExpectPuts();
  }
  recovery_helper_.reset();
  if (!recovered.ok()) {
    hold_.TakeTasks().reset();  // this core is about to go: nothing may come back to it
  }
  return recovered;
}

// The first put finds memory at its slot in the books of G2 too, however many slots G3 has taken.
void Core::ExpectPuts() {
  for (const auto& pool : pools_) {
    pool->policy->ExpectSlotsFrom(table_.slot_end());
    TouchLater(pool->policy->MemoryDue());
  }
}

absl::Status Core::RecoverDevices() {
  for (uint16_t device = 0; device < deps_.devices.size(); ++device) {
    NvmeDevice& nvme = *deps_.devices[device].device;
    auto tier = std::make_unique<DeviceTier>();
    tier->number = device;
    tier->deps = deps_.devices[device];
    const ExtentAllocator::Options space{.capacity = nvme.capacity_blocks(),
                                         .barrier_blocks = nvme.barrier_blocks()};
    KVKEEP_RETURN_IF_ERROR(space.Validate());
    tier->allocator = std::make_unique<ExtentAllocator>(space);
    KVKEEP_RETURN_IF_ERROR(tier->allocator->Claim(nvme.ReservedExtents()));
    MakeG3Policies(*tier);
    tier->last_sync = tier->last_recency = deps_.clock->Now();
    devices_.push_back(std::move(tier));
    LimitDevice(options_, device);
    LoadLearned(device);
    KVKEEP_RETURN_IF_ERROR(RecoverDevice(device));
    devices_[device]->allocator->EndRecovery();
  }
  TrimToQuotas();
  for (uint16_t device = 0; device < devices_.size(); ++device) {
    PumpIndex(device);
    PumpConfirms(device);
  }
  return absl::OkStatus();
}

// One a tenant. A chunk is on one device and of one tenant: they note slots in the same memory.
void Core::MakeG3Policies(DeviceTier& tier) {
  for (size_t i = 0; i < tenant_counters_.size(); ++i) {
    const DeviceTier& first = devices_.empty() ? tier : *devices_.front();
    tier.policies.push_back(MakeEvictionPolicy(
        options_.g3_policy,
        {.max_chunks = static_cast<uint32_t>(options_.max_chunks),
         .shares_memory_with = first.policies.empty() ? nullptr : first.policies[0].get()}));
  }
}

absl::Status Core::RecoverDevice(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  ChunkIndex& index = deps_.devices[device].device->index();
  KVKEEP_ASSIGN_OR_RETURN(const StableMark mark, index.ReadStableMark());
  // The same boot: what was written is in the page cache or on the device, whatever was synced.
  // Else no record is sure: the data of a young one may be lost, and so may the removal of an old
  // one whose blocks were reused since.
  // Damage in the index's log takes newer records away, and removals too, as a power cut does.
  const bool damaged = index.stats().log_damages > 0;
  const bool sure = mark.boot_id == deps_.boot_id && !damaged;
  tier.confirmed_boot = damaged ? Uuid{} : mark.boot_id;
  tier.stable = tier.committed = tier.assigned = mark.sequence;

  const Doubtful noted = ReadDoubtful(index);
  std::vector<std::pair<uint64_t, ChunkSlot>> by_age;
  KVKEEP_ASSIGN_OR_RETURN(
      const ChunkIndex::ScanResult scanned, index.Scan([&](const IndexRecord& record) {
        mu_.AssertHeld();
        if (deps_.recovered_records != nullptr) ++*deps_.recovered_records;
        tier.assigned = std::max(tier.assigned, record.sequence);
        const bool above = record.sequence > mark.sequence && !Planted(Canary::kAboveMarkBelieved);
        const bool doubtful = !sure || noted.contains(record.sequence) || above;
        if (KeepBoth(device, record, Known(record, !sure, doubtful))) return true;
        const ChunkSlot slot = AdoptRecord(device, record, doubtful);
        if (slot == kNoSlot) {
          ++counters_.recovery_dropped_chunks;
          DropRecord(tier, record);
          return true;
        }
        if (!sure) {
          Change(this, slot)->unconfirmed = true;
          tier.confirm_queue.push_back({slot});
        }
        by_age.emplace_back(record.sequence.value(), slot);
        return true;
      }));
  counters_.recovery_dropped_chunks += scanned.undecodable;
  counters_.recovered_chunks += by_age.size();
  tier.committed = tier.assigned;
  NoteDoubtful(tier, noted, sure ? mark.sequence : CommitSequence(0));

  const SavedRecency saved = SavedRecency::Read(index);
  for (auto& [age, slot] : by_age) age = saved.RankOf(CommitSequence(age));
  std::sort(by_age.begin(), by_age.end());
  for (size_t i = 0; i < by_age.size(); ++i) {
    if (i + kPrefetchAhead < by_age.size()) table_.Prefetch(by_age[i + kPrefetchAhead].second);
    const ChunkSlot slot = by_age[i].second;
    InsertIntoG3Policy(slot, kNoSlot);
    const Chunk& chunk = table_.at(slot);
    reuse_.OnFound(table_.fingerprint(chunk.id), chunk.blocks() * kBlockBytes);
  }
  tier.recency_changed = false;  // the next start makes the same of what is saved
  return absl::OkStatus();
}

// Of what is above the stable mark nobody knows whether the data survives, or survived, the loss
// of power: a failed sync or a drive that went away alone may have ended the last process. After a
// power cut it is every record: the removal of an old one may be lost while its blocks were reused.
// Kept as one range, over restarts, until its records are gone: too many cost a second write.
void Core::NoteDoubtful(DeviceTier& tier, const Doubtful& noted, CommitSequence after) {
  tier.doubtful = noted;
  if (tier.assigned == after) return;
  const bool none_yet = noted.after == noted.to;
  tier.doubtful = {none_yet ? after : std::min(noted.after, after), tier.assigned};
  tier.doubtful_saved = false;
}

absl::Status Core::SaveDoubtful(ChunkIndex& index, const Doubtful& doubtful) {
  return index.PutMeta(kDoubtfulName, EncodeDoubtful(doubtful));
}

// Its blocks go to others when the index has forgotten it, unless they lie outside or another
// record claims them.
void Core::DropRecord(DeviceTier& tier, const IndexRecord& record) {
  DeviceTier::PendingRemove remove{record.id, {}};
  const bool whole = TotalBlocks(record.extents) == record.shape.blocks();
  if (whole && tier.allocator->Claim(record.extents).ok()) {
    remove.extents = record.extents;
    tier.freeing_blocks += TotalBlocks(record.extents).value();
  }
  tier.removes.push_back(std::move(remove));
}

ChunkSlot Core::AdoptRecord(uint16_t device, const IndexRecord& record, bool doubtful) {
  DeviceTier& tier = *devices_[device];
  const bool whole = TotalBlocks(record.extents) == record.shape.blocks();
  if (!whole || table_.full()) return kNoSlot;
  // Known already: one of the two devices was away for a while. A doubtful copy gives way; of two
  // KeepBoth has kept one.
  const ChunkSlot known = table_.Find(record.id);
  if (known != kNoSlot && (doubtful || !table_.at(known).doubtful)) return kNoSlot;
  if (!tier.allocator->Claim(record.extents).ok()) return kNoSlot;
  if (known != kNoSlot) DetachChunk(known);
  const ChunkSlot slot = CreateChunk(record.id, record.shape);
  TouchLater(table_.MemoryDue());
  Change chunk(this, slot);
  chunk->g3 = record.extents;
  g3_shares_.Take(chunk->tenant, chunk->blocks());
  chunk->device = device;
  chunk->g3_incarnation = record.incarnation;
  chunk->g3_generation = record.generation;
  chunk->g3_sequence = record.sequence;
  chunk->doubtful = doubtful;
  SetG3State(*chunk, G3State::kStored);
  ++tier.chunks;
  return slot;
}

// After a power cut a record may point at blocks whose data never arrived, or that hold another
// image: a chunk is promised only once its header has been read.
void Core::PumpConfirms(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  if (tier.confirmed() && tier.confirmed_boot != deps_.boot_id) {
    tier.confirmed_boot = deps_.boot_id;
    // Said at once: who is killed before the next sync would leave records that the next start
    // takes for those of another boot.
    tier.dirty_index = true;
    StartSync(device);
  }
  if (!tier.readable()) return;  // Tick comes back to it
  if (!tier.confirm_again.empty() && deps_.clock->Now() >= tier.confirm_again_at) {
    tier.confirm_queue.insert(tier.confirm_queue.end(), tier.confirm_again.begin(),
                              tier.confirm_again.end());
    tier.confirm_again.clear();
  }
  while (!tier.confirm_queue.empty() && tier.confirms < kMaxConfirms) {
    if (Spent()) return PumpLater(device);
    const DeviceTier::Confirm confirm = tier.confirm_queue.front();
    const ChunkSlot slot = confirm.slot;
    tier.confirm_queue.pop_front();
    Count(work::kFind);
    Chunk& chunk = table_.at(slot);
    if (!chunk.live || !chunk.unconfirmed || chunk.device != device || chunk.g3_reading) continue;
    auto page = std::make_shared<AlignedPage>();
    if (!page->ok()) {
      ++counters_.allocation_failures;
      return ConfirmLater(tier, confirm, deps_.clock->Now());
    }
    Count(work::kStart);
    ++tier.confirms;
    chunk.g3_reading = true;
    IoOperation read{.kind = IoOperation::Kind::kRead,
                     .offset = DeviceOffset(chunk.g3[0].first.value() * kBlockBytes),
                     .data = page->bytes,
                     .bytes = kHeaderBytes,
                     .done = [this, confirm, page](absl::Status status) {
                       OnConfirmRead(confirm, *page, std::move(status));
                     }};
    Later([io = &deps_.devices[device].device->io(), read = std::move(read)]() mutable {
      io->Submit(std::move(read));
    });
  }
}

void Core::OnConfirmRead(DeviceTier::Confirm confirm, AlignedPage& page, absl::Status status) {
  const ChunkSlot slot = confirm.slot;
  ImageHeader header;
  const bool io_ok = status.ok();
  const bool away = IsAway(status);
  // A spot that cannot be read, or a device that recovers from what ails it: the record may be a
  // promise, so it has some time.
  const bool again = !io_ok && !away && ++confirm.failures < kMostConfirms;
  if (io_ok) {
    absl::StatusOr<ImageHeader> decoded = DecodeHeader(page.span(), deps_.mac_key);
    status = decoded.status();
    if (decoded.ok()) header = *std::move(decoded);
  }
  Section section(this);
  const uint16_t device = table_.at(slot).device;
  DeviceTier& tier = *devices_[device];
  --tier.confirms;
  tier.heard = true;
  if (away) {  // that says nothing about the record
    NoteIo(tier, false, status);
  } else if (io_ok || confirm.failures == 1) {  // one bad spot is no broken device
    NoteIo(tier, false, io_ok ? absl::OkStatus() : status);
  }
  if (away || again) ConfirmLater(tier, confirm, deps_.clock->Now());
  bool detached = false, keyless = false;
  {
    Change chunk(this, slot);
    chunk->g3_reading = false;
    detached = chunk->detached;
    if (chunk->in_g3_policy) g3_policy(*chunk).Unpark(slot);
    if (status.ok()) status = CheckHeader(header, *chunk);
    if (status.ok() && header.encryption.has_value() && KeyOf(*header.encryption) == nullptr) {
      keyless = true;
      status = absl::NotFoundError("its key is not in the key ring");
    }
    chunk->unconfirmed = !status.ok();  // nobody is told of one that is about to go
  }
  if (!status.ok() && !away && !again && !detached) {
    ++(keyless ? counters_.keyless_chunks : counters_.stale_records);
    LoseChunk(slot);
  }
  PumpConfirms(device);
}

}  // namespace kvkeep::store_internal
