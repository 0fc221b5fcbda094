// Sweeper: takes over the chunks that an earlier process left in G2, and sees that each is verified
// before long.
//
// At the start each image that is marked (live_marks.h) becomes a chunk, in O(marks), on several
// threads. Clients saw all of that memory and wrote the payloads in it, so it is not searched. An
// image in one extent is checked later: its chunk is kUnverified until somebody wants it, or until
// the sweep verifies the header's MAC and the payload. The MAC of an image in several extents is
// checked at once, since a wrong list of extents would take blocks from good images. The sweep
// verifies several chunks at once, the most recent ones first, on threads that nobody waits for. It
// also forgets chunks on memory that broke.
//
// The store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>

#include <optional>
#include <vector>

#include "tiers/store/account.h"
#include "tiers/store/chunks.h"
#include "tiers/store/device_tiers.h"
#include "tiers/store/filler.h"
#include "tiers/store/owners.h"
#include "tiers/store/records.h"
#include "tiers/store/reuse_meter.h"
#include "tiers/store/section.h"

namespace kvkeep::store_internal {

class Sweeper {
 public:
  // All are borrowed.
  Sweeper(const StoreDeps& deps, Chunks* chunks, DeviceTiers* tiers, Records* records,
          Filler* filler, const Owners* owners, ReuseMeter* reuse);

  // Adopts the images that an earlier process left. Takes the lock. REQUIRES: there is no chunk
  // yet, and nobody calls the store.
  void Recover();
  // Forgets the oldest unverified chunk that no other tier has, to make room in the table. `next`:
  // the caller's position among the unverified chunks, 0 at first.
  void ForgetOldest(size_t* next) STORE_LOCKED;

  // Forgets chunks on broken memory, and goes on with the sweep. Called about ten times a second.
  // May yield.
  void Tick(Section& section) STORE_LOCKED;
  // A verification of this chunk is over, well or not.
  void OnVerified(ChunkSlot slot) STORE_LOCKED;
  bool at_rest() const STORE_LOCKED { return unverified_.empty() && sweeping_.empty(); }

 private:
  struct FoundImage;
  struct RecoveredImage;
  // Returns the marked images among the blocks [first, end). Needs no lock.
  std::vector<FoundImage> LookAtMarks(BlockNumber first, BlockNumber end) const;
  void PrefetchHeader(BlockNumber block) const;
  // Makes a chunk of the image. None: it cannot be one.
  std::optional<RecoveredImage> Adopt(const FoundImage& image) STORE_LOCKED;
  // Forgets the chunks that lie on these pages, in one walk over the table. May yield.
  void ForgetChunksOn(const std::vector<Extent>& broken, Section& section) STORE_LOCKED;
  bool MayBeWritten(const Chunk& chunk) const STORE_LOCKED;
  void GoOn() STORE_LOCKED;

  const StoreDeps& deps_;
  Chunks& chunks_;
  DeviceTiers& tiers_;
  Records& records_;
  Filler& filler_;
  const Owners& owners_;
  ReuseMeter& reuse_;
  std::vector<ChunkSlot> unverified_ STORE_GUARDED;  // swept from the back; some may be gone
  absl::btree_map<ChunkSlot, uint64_t> sweeping_ STORE_GUARDED;  // with its blocks to be written
  Account to_write_blocks_ STORE_GUARDED;                        // the sum of those blocks
};

}  // namespace kvkeep::store_internal
