#include "tiers/store/sweeper.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "tiers/base/check.h"
#include "tiers/base/run_on_threads.h"
#include "tiers/store/change.h"
#include "tiers/store/guarded_header.h"

namespace kvkeep::store_internal {
namespace {

// How many images the sweep verifies at once. It is more than a pool has threads, so that none of
// them waits for the next image.
constexpr size_t kMostSwept = 16;

// How much of the arena a thread of a start looks at before it takes the lock.
constexpr uint64_t kBlocksAtOnce = 64 * kMiB / kBlockBytes;
// How many images ahead the memory of their table entries is fetched.
constexpr size_t kImagesAhead = 8;

// REQUIRES: `pages` are in order, and equal or apart.
bool LiesOn(const ExtentList& extents, const std::vector<Extent>& pages) {
  return std::any_of(extents.begin(), extents.end(), [&pages](const Extent& extent) {
    const auto at = std::partition_point(pages.begin(), pages.end(), [&extent](const Extent& page) {
      return page.end() <= extent.first.value();
    });
    return at != pages.end() && at->first.value() < extent.end();
  });
}

}  // namespace

Sweeper::Sweeper(const StoreDeps& deps, Chunks* chunks, DeviceTiers* tiers, Records* records,
                 Filler* filler, const Owners* owners, ReuseMeter* reuse)
    : deps_(deps),
      chunks_(*chunks),
      tiers_(*tiers),
      records_(*records),
      filler_(*filler),
      owners_(*owners),
      reuse_(*reuse) {}

// ---- the start

// A marked block, and the image that begins there.
struct Sweeper::FoundImage {
  BlockNumber block;
  bool is_whole = false;  // it is an image of this arena; if false, the rest has no meaning
  ChunkId id;
  ImageShape shape;
  Generation generation;
  ExtentList extents;
};

struct Sweeper::RecoveredImage {
  ChunkSlot slot;
  Generation generation;
};

void Sweeper::Recover() {
  std::vector<std::pair<Generation, ChunkSlot>> by_age;  // of the lock
  const uint64_t blocks = deps_.arena->live_marks().size();
  std::atomic<uint64_t> next = 0;
  const uint64_t ranges = DivideRoundUp(blocks, kBlocksAtOnce);
  const auto threads = std::min<uint64_t>(static_cast<uint64_t>(deps_.recovery_threads), ranges);
  RunOnThreads("kvkeep-recover", static_cast<int>(threads), [&] {
    for (uint64_t first = next.fetch_add(kBlocksAtOnce); first < blocks;
         first = next.fetch_add(kBlocksAtOnce)) {
      const uint64_t end = std::min(first + kBlocksAtOnce, blocks);
      const std::vector<FoundImage> found = LookAtMarks(BlockNumber(first), BlockNumber(end));
      if (deps_.recovered_images != nullptr) *deps_.recovered_images += found.size();
      Section section(&chunks_, Section::Kind::kNotMeasured);
      for (size_t i = 0; i < found.size(); ++i) {
        if (i + kImagesAhead < found.size()) {
          chunks_.table.PrefetchFind(found[i + kImagesAhead].id);
        }
        if (const std::optional<RecoveredImage> image = Adopt(found[i])) {
          by_age.emplace_back(image->generation, image->slot);
        } else {
          chunks_.marks.Clear(found[i].block);
          ++chunks_.counters.recovery_dropped_g2_chunks;
        }
      }
    }
  });
  // The order of placement stands for recency. Generations continue after the highest one, so that
  // the next start can tell this process's images from older ones, too.
  std::sort(by_age.begin(), by_age.end());
  Section section(&chunks_, Section::Kind::kNotMeasured);
  chunks_.counters.recovered_g2_chunks = by_age.size();
  for (const auto& pool : chunks_.pools) pool->EndRecovery();
  unverified_.reserve(by_age.size());
  for (size_t i = 0; i < by_age.size(); ++i) {
    if (i + kImagesAhead < by_age.size()) {
      chunks_.slots->Prefetch(by_age[i + kImagesAhead].second);
    }
    const ChunkSlot slot = by_age[i].second;
    Change chunk(&chunks_, slot);
    chunks_.InsertIntoPolicy(slot, kNoSlot);
    reuse_.OnFound(chunks_.table.fingerprint(chunk->id), chunk->blocks() * kBlockBytes);
    unverified_.push_back(slot);
  }
  if (!by_age.empty()) chunks_.BeginGenerationsAfter(by_age.back().first);
}

std::vector<Sweeper::FoundImage> Sweeper::LookAtMarks(BlockNumber first, BlockNumber end) const {
  const LiveMarks marks(deps_.arena->live_marks());
  std::vector<FoundImage> found;
  for (BlockNumber block = first; block < end; ++block) {
    if (marks.at(block) != 0) found.push_back({.block = block});
  }
  for (size_t i = 0; i < found.size(); ++i) {
    // Nobody has read the header for long. Without this its cache lines would come one by one.
    if (i + 1 < found.size()) PrefetchHeader(found[i + 1].block);
    FoundImage& image = found[i];
    if (!deps_.arena->HasMemory(image.block)) continue;
    absl::StatusOr<ImageClaim> claim =
        DecodeClaimGuarded(chunks_.HeaderInArena({{image.block, BlockCount(1)}}));
    if (!claim.ok()) continue;
    ImagePlacement& placement = claim->placement;
    // If there is one extent, the mark and the root allow no other. If there are several, they
    // determine only the first block, and blocks that are claimed wrongly are taken from good
    // images.
    if (placement.extents.size() > 1 &&
        !DecodeGuarded(chunks_.HeaderInArena({{image.block, BlockCount(1)}}), deps_.mac_key).ok()) {
      continue;
    }
    image.is_whole = placement.tier == Tier::kG2 && placement.place == deps_.arena->uuid() &&
                     placement.extents[0].first == image.block && marks.IsOf(placement);
    image.id = claim->id;
    image.shape = claim->shape;
    image.generation = placement.generation;
    image.extents = std::move(placement.extents);
  }
  return found;
}

void Sweeper::PrefetchHeader(BlockNumber block) const {
  if (!deps_.arena->HasMemory(block)) return;
  const HeaderPage page = chunks_.HeaderInArena({{block, BlockCount(1)}});
  for (size_t at = 0; at < kClaimBytes; at += 64) __builtin_prefetch(page.data() + at);
}

std::optional<Sweeper::RecoveredImage> Sweeper::Adopt(const FoundImage& image) {
  const auto owner = std::find_if(chunks_.pools.begin(), chunks_.pools.end(),
                                  [&](const auto& pool) { return pool->Owns(image.block); });
  if (!image.is_whole || owner == chunks_.pools.end()) return std::nullopt;
  const TenantId tenant(static_cast<uint32_t>(owner - chunks_.pools.begin()));
  if (owners_.OwnerOf(image.id.ns) != tenant) return std::nullopt;

  ChunkSlot slot = chunks_.table.Find(image.id);
  if (slot != kNoSlot && chunks_.table.at(slot).has_g2_space()) return std::nullopt;
  if (slot == kNoSlot && chunks_.table.full()) return std::nullopt;
  if (!(*owner)->Claim(image.extents).ok()) return std::nullopt;
  if (slot != kNoSlot && chunks_.table.at(slot).shape != image.shape) {
    // The chunk is from another put under this key. It was deleted before this put and its removal
    // had not reached the index, or this put replaced it.
    records_.Replace(slot);
    slot = kNoSlot;
  }
  // The detached chunk keeps its slot while it is removed.
  if (slot == kNoSlot && chunks_.table.full()) {
    (*owner)->Free(image.extents);
    records_.Forget(image.id);
    return std::nullopt;
  }
  if (slot == kNoSlot) slot = chunks_.Create(image.id, image.shape);
  Change chunk(&chunks_, slot);
  chunks_.GiveCopy(*chunk, tenant, image.extents, G2State::kUnverified);
  return RecoveredImage{slot, image.generation};
}

void Sweeper::ForgetOldest(size_t* next) {
  while (*next < unverified_.size()) {
    const ChunkSlot slot = unverified_[(*next)++];
    chunks_.Count(work::kFind);
    const Chunk& at = chunks_.table.at(slot);
    const bool alone = at.g3_state == G3State::kAbsent && !records_.kept().HasAny(at.id);
    if (!at.live || at.g2_state != G2State::kUnverified || !alone) continue;
    ++chunks_.counters.recovery_dropped_g2_chunks;
    Change chunk(&chunks_, slot);
    return chunks_.FreeCopy(*chunk, slot, EvictionPolicy::EraseReason::kEvicted);
  }
}

// ---- the sweep

// Forgets chunks that were found whole before their memory broke. A chunk that is not resident is
// verified before it is served, or by the sweep, which finds broken memory.
void Sweeper::Tick(Section& section) {
  chunks_.WithholdBroken();
  std::vector<Extent> broken;
  for (const auto& pool : chunks_.pools) {
    const std::vector<Extent> pages = pool->TakeBroken();
    broken.insert(broken.end(), pages.begin(), pages.end());
  }
  std::sort(broken.begin(), broken.end());
  if (!broken.empty()) ForgetChunksOn(broken, section);
  GoOn();
}

void Sweeper::ForgetChunksOn(const std::vector<Extent>& broken, Section& section) {
  uint64_t moves = 0;
  do {  // again if a chunk has changed its slot meanwhile: the walk may have missed it
    moves = chunks_.moves;
    for (uint32_t i = 0; i < chunks_.table.slot_end(); ++i) {
      section.YieldIfSpent();
      chunks_.Count(work::kLook);
      const Chunk& chunk = chunks_.table.at(ChunkSlot(i));
      if (!chunk.live || chunk.detached || !chunk.resident()) continue;
      if (!LiesOn(chunk.g2, broken)) continue;
      ++chunks_.counters.corrupt_chunks;
      records_.Detach(ChunkSlot(i));
    }
  } while (moves != chunks_.moves);
}

// Returns whether the chunk, which becomes dirty once it is verified, may be verified now. It waits
// until the dirty budget has room for it and for those under way. It also waits while a device
// joins, as the device may have it.
bool Sweeper::MayBeWritten(const Chunk& chunk) const {
  if (tiers_.AnyJoins()) return false;
  const G2Pool& pool = chunks_.pool(chunk);
  if (to_write_blocks_ == 0) return pool.MayBeDirty(chunk.blocks());
  return pool.dirty_blocks + to_write_blocks_ + chunk.blocks() <= pool.limits.dirty_blocks;
}

// Begins with the most recent chunks: the oldest may be evicted before anybody reads them.
void Sweeper::GoOn() {
  while (sweeping_.size() < kMostSwept && !unverified_.empty() && !chunks_.draining) {
    if (chunks_.Spent()) return;  // the next Tick goes on; many may be gone by then
    chunks_.Count(work::kFind);
    const ChunkSlot slot = unverified_.back();
    const Chunk& chunk = chunks_.table.at(slot);
    if (chunk.live && chunk.g2_state == G2State::kUnverified) {
      const bool to_be_written = chunk.g3_state == G3State::kAbsent && !tiers_.empty();
      if (to_be_written && !MayBeWritten(chunk)) return;
      const uint64_t to_write = to_be_written ? chunk.blocks() : 0;
      to_write_blocks_.Take(to_write);
      KVKEEP_CHECK(sweeping_.emplace(slot, to_write).second);
      chunks_.Count(work::kStart);
      filler_.Sweep(slot);
    }
    unverified_.pop_back();
  }
}

void Sweeper::OnVerified(ChunkSlot slot) {
  const auto swept = sweeping_.find(slot);
  if (swept == sweeping_.end()) return;
  to_write_blocks_.Give(swept->second);
  sweeping_.erase(swept);
  GoOn();
}

}  // namespace kvkeep::store_internal
