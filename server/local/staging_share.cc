#include "server/local/staging_share.h"

#include <algorithm>

#include "tiers/base/page_bytes.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

uint64_t WholePages(uint64_t bytes) { return bytes / PageBytes() * PageBytes(); }

uint64_t RoomOf(const StagingUse& use) {
  const uint64_t limit = WholePages(use.limit_bytes);
  return limit - std::min(limit, use.held_bytes);
}

// Returns the limit divided by the number of sessions: those that have some, this one, and one to
// come.
uint64_t PartOf(const StagingUse& use) {
  const bool alone = use.sessions == 0;
  return use.tenants || alone ? use.limit_bytes : use.limit_bytes / (use.sessions + 2);
}

}  // namespace

uint64_t LeastStaging(const StagingWish& wish) {
  // A put needs a chunk, and the block with the word of a put in parts.
  const uint64_t chunk = wish.shares ? wish.chunk_bytes + kBlockBytes : 1;
  return RoundUp(std::clamp<uint64_t>(chunk, 1, std::max<uint64_t>(wish.bytes, 1)), PageBytes());
}

uint64_t StagingShare(const StagingWish& wish, std::span<const StagingUse> uses) {
  uint64_t room = UINT64_MAX, part = UINT64_MAX;
  for (const StagingUse& use : uses) {
    room = std::min(room, RoomOf(use));
    part = std::min(part, PartOf(use));
  }
  const uint64_t least = LeastStaging(wish);
  if (room < least) return 0;
  uint64_t most = room;
  if (wish.shares) {
    most = std::max(part, least);
  } else if (!wish.named) {
    most = std::max(room / 4, wish.chunk_bytes);
  }
  const uint64_t bytes =
      std::min({std::max<uint64_t>(wish.bytes, 1), most, room, wish.most_bytes});
  return std::min(RoundUp(bytes, PageBytes()), room);
}

}  // namespace kvkeep
