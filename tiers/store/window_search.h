// WindowSearch: finds the part of a tier's space that is cheapest to empty, for an image that needs
// more room than scattered chunks leave in few pieces.
//
// The policy's next victims are the seeds. From the granule of each one, a window grows to the
// side whose chunks were wanted longest ago, until enough blocks in it are free or can be. The
// window whose chunks were wanted longest ago, by blocks, is the best one. It says what it expects:
// the state may change before the window is emptied.
//
// One call owns it. Looks at one granule a step, so that the caller can let go of the lock between
// two; knows blocks, granules and ages, no slot from one step to the next.
#pragma once

#include <absl/functional/function_ref.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tiers/policy/eviction_policy.h"
#include "tiers/store/hold.h"
#include "tiers/store/place_index.h"

namespace kvkeep::store_internal {

// Granules [begin, end).
struct Window {
  uint64_t begin = 0, end = 0;
};

class WindowSearch {
 public:
  // What emptying a granule gives: of chunks that can go, and what is free now.
  struct Yield {
    uint64_t blocks = 0;   // free afterwards
    uint64_t evicted = 0;  // of these, of chunks
    double age = 0;        // summed over evicted blocks: how long ago they were wanted
    uint32_t staying = 0;  // chunks that cannot go: they cut the window into pieces
  };
  // A chunk that can go, and when it was wanted.
  struct Candidate {
    uint64_t blocks = 0;              // that lie together with its first one
    int64_t newest = 0, recency = 0;  // EvictionPolicy::Newest, Recency
  };
  // None: the chunk has to stay.
  using Judge = absl::FunctionRef<std::optional<Candidate>(ChunkSlot)>;
  using Look = absl::FunctionRef<Yield(uint64_t granule)>;

  // For one image; then chunks go in the policy's order.
  static constexpr int kMostWindows = 4;
  static constexpr size_t kMostSeeds = 4;
  // Seeds asks the policy for victims until they lie in kMostSeeds granules, or until kMostVictims
  // of them have a place. A victim without a place (PlaceOf) does not count.
  static constexpr size_t kMostVictims = 32;
  // A window has at most this many chunks that stay. Each one cuts the window into one more piece,
  // and an image has at most kMaxExtents pieces. The other half is for cuts that a look does not
  // count: puts that are not sealed, and the further extents of chunks.
  static constexpr uint32_t kMostStaying = kMaxExtents / 2;

  static constexpr uint32_t kMostLooked = 64;  // chunks of a granule
  // An image is large if it has more blocks than this many chunks of average size. If chunks go one
  // by one, an image needs about one piece for each, and it has at most kMaxExtents. The other half
  // is a margin, as many chunks are smaller than the average.
  static constexpr uint32_t kLargeChunks = kMaxExtents / 2;

  // Returns what emptying the granule gives; `free_blocks` of its blocks are free now. If more than
  // kMostLooked chunks begin there, the others count as one that stays.
  static Yield LookAt(const PlaceIndex& places, uint64_t granule, uint64_t free_blocks,
                      Judge judge);

  // Returns the granules of the policy's next victims, which stay next in line. `place_of`: where a
  // victim begins; none: it cannot go, and is parked. Asks for one victim at least, even if the
  // hold is spent: callers get on. Empty, and the hold is spent: the next hold goes on, behind
  // those that are parked.
  using PlaceOf = absl::FunctionRef<std::optional<BlockNumber>(ChunkSlot)>;
  static std::vector<uint64_t> Seeds(EvictionPolicy& policy, const PlaceIndex& places, Hold& hold,
                                     PlaceOf place_of);

  // Looks for `blocks` in windows of `granules` granules in all. `seeds`: where they begin.
  WindowSearch(uint64_t granules, uint64_t blocks, std::vector<uint64_t> seeds);

  // Looks at one granule more. Returns false when every window is known.
  bool Step(Look look);
  // None: no window would be enough.
  const std::optional<Window>& best() const { return best_; }

 private:
  void BeginWindow(Look look);
  void Take(const Yield& yield);
  void EndWindow();

  uint64_t granules_, blocks_;
  std::vector<uint64_t> seeds_;  // those that are left
  // ---- the window that grows now
  bool growing_ = false;
  Window window_;
  Yield sum_;
  std::optional<Yield> left_, right_;  // the next granule at either side, once it was looked at
  // ---- the best one so far
  std::optional<Window> best_;
  double best_age_ = 0;  // a block of it
};

}  // namespace kvkeep::store_internal
