#include "tiers/store/leaver.h"

#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/change.h"

namespace kvkeep::store_internal {

Leaver::Leaver(const Clock* clock, Chunks* chunks, DeviceTiers* tiers, Records* records,
               DeviceSpace* space, Committer* committer, EventHub* events)
    : clock_(*clock),
      chunks_(*chunks),
      tiers_(*tiers),
      records_(*records),
      space_(*space),
      committer_(*committer),
      events_(*events) {}

void Leaver::Detach(size_t device, StatusCallback done) {
  Section section(&chunks_);
  DeviceTier& tier = tiers_.at(device);
  if (!tier.here() || chunks_.draining) {
    return chunks_.CallLater(
        std::move(done), absl::FailedPreconditionError(
                             absl::StrCat("device ", device, " is not here, or the store drains")));
  }
  KVKEEP_CHECK(tier.has_left == nullptr);
  tier.presence = DeviceTier::Presence::kLeaving;
  ++chunks_.moves;
  tier.coming_until = clock_.Now() + kComingPatience;  // it is expected back
  tier.has_left = [this, done = std::move(done)](absl::Status status) mutable {
    { MutexLock telling(&telling_mu_); }  // waits for callers that ask the device something
    std::move(done)(std::move(status));
  };
  events_.NoteReadable(tier.number, false);
  space_.Share();
  chunks_.PumpLater(tier.pump);  // gives up what waits to be written
}

void Leaver::Tick(DeviceTier& tier) {
  if (tier.has_left == nullptr || !tier.quiet()) return;
  chunks_.Later([this, &tier, index = tier.index_executor,
                 has_left = std::exchange(tier.has_left, nullptr)]() mutable {
    index->Post([this, &tier, has_left = std::move(has_left)]() mutable {
      Leave(tier, std::move(has_left));
    });
  });
}

void Leaver::Leave(DeviceTier& tier, StatusCallback has_left) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  KVKEEP_CHECK(tier.presence == DeviceTier::Presence::kLeaving && tier.has_left == nullptr);
  KVKEEP_CHECK(!tier.busy() && !tier.commits.under_way() && !tier.syncs.under_way());
  const absl::Status leaves = absl::UnavailableError("the device leaves");
  committer_.GiveUpAdds(tier, section, leaves);
  // Blocks that wait for a sync are freed when their waiters are answered.
  while (!tier.syncs.Answer(leaves, chunks_.hold)) section.Yield();
  section.Yield();
  if (tier.frees.use_count() > 1) {  // another thread is about to free some; a later Tick goes on
    tier.has_left = std::move(has_left);
    return;
  }
  while (!tier.commits.removes().empty()) {
    section.YieldIfSpent();
    chunks_.Count(work::kEvict);
    const PendingRemove remove = tier.commits.TakeRemove();
    tier.Free(remove.extents);
    // An evicted chunk may be a hit again. Too many notes of such chunks would empty the device.
    const bool noted = !remove.evicted || tier.missed.roomy();
    if (noted && !records_.HasOther(tier, remove.id)) tier.missed.Add(remove.id);
  }
  tier.commits.AnswerRemovals(leaves, chunks_.hold);
  tier.joining_blocks = tier.used_blocks();
  chunks_.Later([space = std::move(tier.allocator)] {});  // destroyed without the lock
  ForgetAll(section, tier);
  tier.coming_until = clock_.Now() + kComingPatience;
  chunks_.CallLater(std::move(has_left), absl::OkStatus());
}

void Leaver::LetGo(DeviceTier& tier) {
  {
    Section section(&chunks_, Section::Kind::kMaintenance);
    ForgetAll(section, tier);
  }
  MutexLock telling(&telling_mu_);  // waits for callers that ask the device something
}

void Leaver::ForgetAll(Section& section, DeviceTier& tier) {
  const auto any_kept = [&]() STORE_LOCKED {
    return records_.kept().AnyKept(tier.number, std::nullopt);
  };
  // Repeats while chunks are left: during a yield a kept record may have become a chunk that the
  // walk has passed.
  do {
    while (const std::optional<ReplacedAt> at = any_kept()) {
      chunks_.Count(work::kEvict);
      const Replaced taken = records_.TakeKept(*at);
      KVKEEP_CHECK(tier.joining_blocks >= taken.blocks());
      tier.joining_blocks -= taken.blocks();
      section.YieldIfSpent();
    }
    for (uint32_t i = 0; i < chunks_.table.slot_end(); ++i) {
      section.YieldIfSpent();
      chunks_.Count(work::kLook);
      const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
      if (chunk.live && chunk.device == tier.number && chunk.g3_state == G3State::kStored) {
        Forget(ChunkSlot(i));
      }
    }
  } while (tier.chunks > 0 || any_kept().has_value());
  const absl::Status away = absl::UnavailableError("the device is away");
  while (!tier.syncs.Answer(away, chunks_.hold)) section.Yield();
  tier.commits.AnswerRemovals(away, chunks_.hold);
  KVKEEP_CHECK(tier.chunks == 0 && !tier.busy() && tier.places->size() == 0);
  chunks_.Later([places = std::move(tier.places)] {});  // destroyed without the lock
  tier.emptying.reset();
  tier.confirms.Clear();
  tier.doubts = {};
  tier.doubt_shrank = false;
  tier.commits.Clear();
  tier.joining_blocks = 0;
  tier.allocator.reset();
  tier.capacity_blocks = tier.reserve_blocks = tier.capacity_bytes = 0;
  tier.presence = DeviceTier::Presence::kAway;
  tier.coming_until = MonotonicTime(0);
  tier.joined_records = 0;
  tier.device = nullptr;
  tier.index_executor = tier.sync_executor = nullptr;
  space_.Share();
}

void Leaver::Forget(ChunkSlot slot) {
  ForgetRecord(slot);
  const Chunk& chunk = chunks_.table.at(slot);
  if (chunk.live && chunk.g3_state == G3State::kAbsent) tiers_.WaitAgain(slot, std::nullopt);
}

void Leaver::ForgetRecord(ChunkSlot slot) {
  chunks_.Count(work::kEvict);
  Change chunk(&chunks_, slot);
  KVKEEP_CHECK(!chunk->g3_reading);
  KVKEEP_CHECK(tiers_.of(*chunk).joining_blocks >= chunk->blocks());
  tiers_.of(*chunk).joining_blocks -= chunk->blocks();
  tiers_.shares.Give(chunk->tenant, chunk->blocks());
  tiers_.TakeOff(*chunk, slot);
}

}  // namespace kvkeep::store_internal
