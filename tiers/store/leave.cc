// A device leaves while the store serves: it is to be opened anew, or is given up.
//
// Nothing begins on it from then on: its chunks are misses, what waits to be written is offered to
// other devices. What is under way ends by itself; Tick sees when. Then the store lets go of the
// device. Its index keeps its records; those that were to be removed are remembered as missed
// deletes, so that none of them is a chunk again when the device joins.
#include <absl/strings/str_cat.h>

#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/core.h"

namespace kvkeep::store_internal {

std::optional<DeviceState> Core::StateOfAnswering(size_t device) {
  Section section(&chunks_, Section::Kind::kNotMeasured);
  const DeviceTier& tier = *devices_[device];
  if (!tier.here() || tier.health.stuck()) return std::nullopt;
  return tier.health.state();
}

void Core::Detach(size_t device, StatusCallback done) {
  Section section(&chunks_);
  DeviceTier& tier = *devices_[device];
  if (!tier.here() || draining_) {
    return CallLater(std::move(done), absl::FailedPreconditionError(absl::StrCat(
                                          "device ", device, " is not here, or the store drains")));
  }
  KVKEEP_CHECK(tier.has_left == nullptr);
  tier.presence = DeviceTier::Presence::kLeaving;
  ++moves_;
  tier.coming_until = deps_.clock->Now() + kComingPatience;  // again
  tier.has_left = [this, done = std::move(done)](absl::Status status) mutable {
    { MutexLock telling(&telling_mu_); }  // who asks it something does so no more after this
    std::move(done)(std::move(status));
  };
  events_.NoteReadable(tier.number, false);
  ShareG3();
  PumpLater(tier);  // gives up what waits to be written
}

// The rest may be long, so it is not Tick's.
void Core::LeaveIfQuiet(DeviceTier& tier) {
  if (tier.has_left == nullptr || !tier.quiet()) return;
  Later([this, &tier, index = tier.index_executor,
         has_left = std::exchange(tier.has_left, nullptr)]() mutable {
    index->Post([this, &tier, has_left = std::move(has_left)]() mutable {
      Leave(tier, std::move(has_left));
    });
  });
}

void Core::Leave(DeviceTier& tier, StatusCallback has_left) {
  Section section(&chunks_, Section::Kind::kMaintenance);
  KVKEEP_CHECK(tier.presence == DeviceTier::Presence::kLeaving && tier.has_left == nullptr);
  KVKEEP_CHECK(!tier.busy() && !tier.commits.under_way() && !tier.syncs.under_way());
  const absl::Status leaves = absl::UnavailableError("the device leaves");
  GiveUpAdds(tier, section, leaves);
  // Blocks that wait for a sync are free when their waiters are told.
  while (!tier.syncs.Answer(leaves, hold_)) section.Yield();
  section.Yield();
  if (tier.frees.use_count() > 1) {  // another thread is about to: a later Tick
    tier.has_left = std::move(has_left);
    return;
  }
  while (!tier.commits.removes().empty()) {
    section.YieldIfSpent();
    Count(work::kEvict);
    const PendingRemove remove = tier.commits.TakeRemove();
    tier.Free(remove.extents);
    // An evicted chunk may as well be a hit again; too many of them would empty the device.
    const bool noted = !remove.evicted || tier.missed.roomy();
    if (noted && !HasOtherRecord(tier, remove.id)) tier.missed.Add(remove.id);
  }
  tier.commits.AnswerRemovals(leaves, hold_);
  tier.joining_blocks = tier.used_blocks();
  Later([space = std::move(tier.allocator)] {});  // destroyed without the lock
  ForgetAll(section, tier);
  tier.coming_until = deps_.clock->Now() + kComingPatience;
  CallLater(std::move(has_left), absl::OkStatus());
}

// All that the table knows of a device that is not here goes; its index keeps what it has.
void Core::LetGo(DeviceTier& tier) {
  {
    Section section(&chunks_, Section::Kind::kMaintenance);
    ForgetAll(section, tier);
  }
  MutexLock telling(&telling_mu_);  // who asks it something does so no more after this
}

void Core::ForgetAll(Section& section, DeviceTier& tier) {
  const auto any_kept = [&]() STORE_LOCKED {
    return replaced_.AnyKept(tier.number, std::nullopt);
  };
  // Again while some are left: in a yield a record beneath may have become a chunk that was passed.
  do {
    while (const std::optional<ReplacedAt> at = any_kept()) {
      Count(work::kEvict);
      const Replaced taken = replaced_.Take(*at);
      g3_shares_.Give(taken.owner, taken.blocks());
      KVKEEP_CHECK(tier.joining_blocks >= taken.blocks());
      tier.joining_blocks -= taken.blocks();
      section.YieldIfSpent();
    }
    for (uint32_t i = 0; i < table_.slot_end(); ++i) {
      section.YieldIfSpent();
      Count(work::kLook);
      const Chunk& chunk = table_.at(ChunkSlot(i));
      if (chunk.live && chunk.device == tier.number && chunk.g3_state == G3State::kStored) {
        Forget(ChunkSlot(i));
      }
    }
  } while (tier.chunks > 0 || any_kept().has_value());
  const absl::Status away = absl::UnavailableError("the device is away");
  while (!tier.syncs.Answer(away, hold_)) section.Yield();
  tier.commits.AnswerRemovals(away, hold_);
  KVKEEP_CHECK(tier.chunks == 0 && !tier.busy());
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
  ShareG3();
}

// Its part in G3. What G2 has of it is to be written again.
void Core::Forget(ChunkSlot slot) {
  ForgetRecord(slot);
  const Chunk& chunk = table_.at(slot);
  if (chunk.live && chunk.g3_state == G3State::kAbsent) WaitAgain(slot, std::nullopt);
}

void Core::ForgetRecord(ChunkSlot slot) {
  Count(work::kEvict);
  Change chunk(&chunks_, slot);
  KVKEEP_CHECK(!chunk->g3_reading);
  KVKEEP_CHECK(devices_[chunk->device]->joining_blocks >= chunk->blocks());
  devices_[chunk->device]->joining_blocks -= chunk->blocks();
  g3_shares_.Give(chunk->tenant, chunk->blocks());
  TakeOff(*chunk, slot);
}

}  // namespace kvkeep::store_internal
