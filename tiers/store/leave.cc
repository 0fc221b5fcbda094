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
  Section section(this, Section::Kind::kNotMeasured);
  const DeviceTier& tier = *devices_[device];
  if (!tier.here() || tier.health.stuck()) return std::nullopt;
  return tier.health.state();
}

void Core::Detach(size_t device, StatusCallback done) {
  Section section(this);
  const auto number = static_cast<uint16_t>(device);
  DeviceTier& tier = *devices_[device];
  if (!tier.here() || draining_) {
    return CallLater(std::move(done), absl::FailedPreconditionError(absl::StrCat(
                                          "device ", device, " is not here, or the store drains")));
  }
  tier.presence = DeviceTier::Presence::kLeaving;
  ++moves_;
  tier.coming_until = deps_.clock->Now() + kComingPatience;  // again
  tier.has_left = [this, done = std::move(done)](absl::Status status) mutable {
    { MutexLock telling(&telling_mu_); }  // who asks it something does so no more after this
    std::move(done)(std::move(status));
  };
  events_.NoteReadable(number, false);
  ShareG3();
  PumpLater(number);  // gives up what waits to be written
}

// The rest may be long, so it is not Tick's.
void Core::LeaveIfQuiet(uint16_t device) {
  DeviceTier& tier = *devices_[device];
  if (tier.has_left == nullptr || !tier.quiet()) return;
  Later([this, device, index = attached_[device].index_executor,
         has_left = std::exchange(tier.has_left, nullptr)]() mutable {
    index->Post([this, device, has_left = std::move(has_left)]() mutable {
      Leave(device, std::move(has_left));
    });
  });
}

void Core::Leave(uint16_t device, StatusCallback has_left) {
  Section section(this, Section::Kind::kMaintenance);
  DeviceTier& tier = *devices_[device];
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
    if (noted && !HasOtherRecord(device, remove.id)) tier.missed.Add(remove.id);
  }
  tier.joining_blocks = tier.used_blocks();
  Later([space = std::move(tier.allocator)] {});  // destroyed without the lock
  ForgetAll(section, device);
  tier.coming_until = deps_.clock->Now() + kComingPatience;
  CallLater(std::move(has_left), absl::OkStatus());
}

}  // namespace kvkeep::store_internal
