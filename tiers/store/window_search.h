// WindowSearch: finds the part of a tier's space that is cheapest to empty, for an image that needs
// more room than scattered chunks leave in few pieces.
//
// The policy's next victims are the seeds. From each one's granule a window grows towards the side
// whose chunks were wanted longest ago, until enough of its blocks are or can be freed. The window
// whose chunks were wanted longest ago, weighed by blocks, is the best one. The result is an
// expectation: the state may change before the window is emptied.
//
// One call owns it. A step looks at one granule, so the caller can let go of the lock between two
// steps. From one step to the next the search knows blocks, granules and ages, but no slot.
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
  // What emptying a granule gives: the blocks that are free now and those of chunks that can go.
  struct Yield {
    uint64_t blocks = 0;   // free afterwards
    uint64_t evicted = 0;  // those of `blocks` that chunks have now
    double age = 0;        // how long ago the evicted blocks were wanted, summed over them
    uint32_t staying = 0;  // chunks that cannot go and so cut the window into pieces
  };
  // A chunk that can go, and when it was wanted.
  struct Candidate {
    uint64_t blocks = 0;              // of its first extent
    int64_t newest = 0, recency = 0;  // EvictionPolicy::Newest, Recency
  };
  // Returns none if the chunk has to stay.
  using Judge = absl::FunctionRef<std::optional<Candidate>(ChunkSlot)>;
  using Look = absl::FunctionRef<Yield(uint64_t granule)>;

  // How many windows are looked for, for one image. After these, chunks go in the policy's order.
  static constexpr int kMostWindows = 4;
  static constexpr size_t kMostSeeds = 4;
  // Seeds asks the policy for victims until they lie in kMostSeeds granules, or until kMostVictims
  // of them have a place. A victim without a place (PlaceOf) does not count.
  static constexpr size_t kMostVictims = 32;
  // A window has at most this many chunks that stay. Each one cuts the window into one more piece,
  // and an image has at most kMaxExtents pieces. This leaves half of them for cuts that a look does
  // not count: puts that are not sealed, and the further extents of chunks.
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

  // Returns the granules of the policy's next victims. The victims stay next in line. `place_of`
  // returns where a victim begins, or none if it cannot go; such a victim is parked. Asks for at
  // least one victim, even in a spent hold, so that callers make progress. If the result is empty
  // and the hold is spent, call it again in the next hold: it goes on behind the parked victims.
  using PlaceOf = absl::FunctionRef<std::optional<BlockNumber>(ChunkSlot)>;
  static std::vector<uint64_t> Seeds(EvictionPolicy& policy, const PlaceIndex& places, Hold& hold,
                                     PlaceOf place_of);

  // Looks for `blocks` blocks in a space of `granules` granules. Windows grow from the granules
  // `seeds`.
  WindowSearch(uint64_t granules, uint64_t blocks, std::vector<uint64_t> seeds);

  // Looks at one more granule. Returns false when every window is known.
  bool Step(Look look);
  // Returns the best window; none: no window would be enough.
  const std::optional<Window>& best() const { return best_; }

 private:
  void BeginWindow(Look look);
  void Take(const Yield& yield);
  void EndWindow();

  uint64_t granules_, blocks_;
  std::vector<uint64_t> seeds_;  // those without a window so far
  // ---- the window that grows now
  bool growing_ = false;
  Window window_;
  Yield sum_;
  std::optional<Yield> left_, right_;  // the next granule at either side, once it was looked at
  // ---- the best one so far
  std::optional<Window> best_;
  double best_age_ = 0;  // the mean over its evicted blocks
};

}  // namespace kvkeep::store_internal
