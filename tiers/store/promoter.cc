#include "tiers/store/promoter.h"

#include <utility>

#include "tiers/base/check.h"
#include "tiers/store/change.h"

namespace kvkeep::store_internal {

bool Promoter::EnsureInG2(Section& section, const ReadQueue::Requester& requester, TenantId tenant,
                          ChunkSlot slot, ChunkSlot parent, bool transient) {
  const ChunkId id = chunks_.table.at(slot).id;
  const auto here = [&]() STORE_LOCKED { return chunks_.table.at(slot).has_g2_space(); };
  if (here()) return !chunks_.table.at(slot).failed();
  if (!tiers_.InG3(chunks_.table.at(slot)) || !chunks_.HasPool(tenant)) return false;
  const uint32_t yields = section.yields();
  const uint64_t blocks = chunks_.table.at(slot).blocks();
  std::optional<ExtentList> extents = chunks_.Allocate(section, tenant, blocks, parent);
  if (!extents.has_value()) return false;
  if (section.yields() != yields) {
    const bool still = chunks_.table.StillIs(slot, id);
    const bool fits = still && chunks_.table.at(slot).blocks() == blocks;  // else it was put anew
    // The chunk is gone, or another caller was faster.
    if (!fits || here() || !tiers_.InG3(chunks_.table.at(slot))) {
      chunks_.pool(tenant).Free(*extents);
      return still && here() && !chunks_.table.at(slot).failed();
    }
  }
  {
    Change change(&chunks_, slot);
    chunks_.GiveCopy(*change, tenant, *std::move(extents), G2State::kReading);
    change->transient = transient;
    chunks_.InsertIntoPolicy(slot, parent);
  }
  promotions_.Start(tiers_.of(chunks_.table.at(slot)), requester, slot, MonotonicTime::max());
  return true;
}

}  // namespace kvkeep::store_internal
