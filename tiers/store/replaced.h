// ReplacedRecords: records beside those of the chunks themselves, which may be promises: the chunk
// was put anew, or two devices have one each and neither is sure. records.h says when they come
// and go. A chunk has at most one on each device.
//
// A record is held while its image is still read as the chunk that it was, then kept with the image
// for itself:
//
//   none --Hold--> held --Keep--> kept --Take--> none
//     \____________Keep___________/     held --Drop--> none: the chunk that it was removes it
//
// A plain part of the store's state: the store's lock protects it. What is kept can be found by
// whose it is and where, without a walk.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include <optional>
#include <tuple>

#include "tiers/store/chunk_table.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

// What a chunk of G3 knows of its record, beside where the image lies.
struct KnownRecord {
  ImageShape shape;
  Incarnation incarnation;
  Generation generation;
  CommitSequence sequence;
  bool unconfirmed = false, doubtful = false;
};

struct ReplacedAt {
  ChunkId id;
  uint16_t device = 0;
  auto operator<=>(const ReplacedAt&) const = default;
};
struct Replaced {
  ChunkSlot holder = kNoSlot;  // the chunk it was, while that is still read from G3
  ExtentList extents;          // else its image
  KnownRecord record;          // likewise
  TenantId owner{0};           // likewise
  bool kept() const { return holder == kNoSlot; }
  uint64_t blocks() const { return TotalBlocks(extents).value(); }
};

class ReplacedRecords {
 public:
  // A tree: a hash map that grows moves all of its entries under the lock.
  using Map = absl::btree_map<ReplacedAt, Replaced>;

  const Map& all() const { return records_; }
  bool contains(const ReplacedAt& at) const { return records_.contains(at); }
  // Null: none.
  const Replaced* Find(const ReplacedAt& at) const;
  // The first of the chunk's on a device of this number or a higher one.
  std::optional<ReplacedAt> Next(const ChunkId& id, uint32_t device) const;
  bool HasAny(const ChunkId& id) const { return Next(id, 0).has_value(); }
  // One that is kept on the device, of an owner or of anybody.
  std::optional<ReplacedAt> AnyKept(uint16_t device, std::optional<TenantId> owner) const;

  // REQUIRES: none is there.
  void Hold(const ReplacedAt& at, ChunkSlot holder);
  // REQUIRES: none is there, or it is held.
  void Keep(const ReplacedAt& at, TenantId owner, ExtentList extents, const KnownRecord& record);
  // REQUIRES: it is kept.
  Replaced Take(const ReplacedAt& at);
  // REQUIRES: it is held.
  void Drop(const ReplacedAt& at);

  // As KVKEEP_CHECK.
  void CheckInvariants() const;

 private:
  using Place = std::tuple<uint16_t, TenantId, ChunkId>;

  Map records_;
  absl::btree_set<Place> kept_;
};

}  // namespace kvkeep::store_internal
