// ReplacedRecords: records beside the chunks' own ones, on which a promise may depend. The chunk
// was put anew, or two devices have a record each and neither is sure. records.h says when they
// come and go. A chunk has at most one of them on each device.
//
// A record is held while its old chunk is still being read. After that it is kept, with its image:
//
//   none --Hold--> held --Keep--> kept --Take--> none
//     \____________Keep___________/     held --Drop--> none: its old chunk removes it
//
// It is a plain part of the store's state. The store's lock protects it. A kept record can be found
// by its owner and its device, without a walk.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include <optional>
#include <tuple>

#include "tiers/store/chunk_table.h"
#include "tiers/store/types.h"

namespace kvkeep::store_internal {

// What a chunk of G3 knows of its record, besides the extents.
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
  ChunkSlot holder = kNoSlot;  // its old chunk, while that is still read from G3 (held)
  ExtentList extents;          // of its image, once it is kept
  KnownRecord record;          // likewise
  TenantId owner{0};           // likewise
  bool kept() const { return holder == kNoSlot; }
  uint64_t blocks() const { return TotalBlocks(extents).value(); }
};

class ReplacedRecords {
 public:
  // A tree, since a hash map that grows moves all of its entries under the lock.
  using Map = absl::btree_map<ReplacedAt, Replaced>;

  const Map& all() const { return records_; }
  bool contains(const ReplacedAt& at) const { return records_.contains(at); }
  // Returns the record; null: there is none.
  const Replaced* Find(const ReplacedAt& at) const;
  // Returns the chunk's first record on a device of this number or a higher one.
  std::optional<ReplacedAt> Next(const ChunkId& id, uint32_t device) const;
  bool HasAny(const ChunkId& id) const { return Next(id, 0).has_value(); }
  // Returns a record that is kept on the device, of `owner` or, without one, of any tenant.
  std::optional<ReplacedAt> AnyKept(uint16_t device, std::optional<TenantId> owner) const;

  // REQUIRES: there is no record.
  void Hold(const ReplacedAt& at, ChunkSlot holder);
  // REQUIRES: there is no record, or it is held.
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
