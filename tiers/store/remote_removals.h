// RemoteRemovals: what was deleted here, and may still be found beyond the node.
//
// A chunk that is deleted must not come back by a recall. So its name is kept until its image there
// is removed, and until every search that began before has ended: what those say of the name is not
// believed. A name that is being written is removed once that write has ended.
//
// Over kMost names the oldest are given up, counted: those may come back. The core's lock protects
// it.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include <cstdint>
#include <optional>

#include "tiers/base/check.h"
#include "tiers/base/key.h"

namespace kvkeep::store_internal {

class RemoteRemovals {
 public:
  static constexpr size_t kMost = 65536;
  static constexpr size_t kMostUnderWay = 16;
  static constexpr size_t kMostAtOnce = 64;  // names that a call looks at
  // A moment in the order of deletes and searches.
  using Moment = uint64_t;

  // ---- deletes
  void Add(const ChunkId& id);
  // The next one to be sent, which is under way then. `writing`: not now, of that name.
  template <typename Writing>
  std::optional<ChunkId> Next(Writing writing);
  void End(const ChunkId& id, bool removed);
  // Now and then: some of those that failed may be sent again, some that were removed are
  // forgotten.
  void Tend();

  // ---- searches
  Moment BeginSearch();
  void EndSearch(Moment began);
  // What a search that began then says of this name.
  bool MayBeBelieved(const ChunkId& id, Moment search) const;

  size_t size() const { return names_.size(); }
  bool busy() const { return under_way_ > 0; }
  bool at_rest() const { return unsent_.empty() && failed_.empty() && under_way_ == 0; }
  uint64_t given_up() const { return given_up_; }

 private:
  struct Name {
    Moment deleted;          // the last time
    Moment removed = 0;      // 0: it is still to be removed
    Moment sent = 0;         // the last removal
    bool under_way = false;  // a removal is
  };
  void ForgetRemoved();

  Moment now_ = 0;
  absl::btree_map<ChunkId, Name> names_;
  using Names = absl::btree_map<Moment, ChunkId>;
  // Forgets one of those, whatever becomes of it. False: there is none.
  bool GiveUpOne(Names& of);

  Names unsent_, failed_;  // by when they were deleted
  Names removed_;          // by when they were removed
  absl::btree_set<Moment> searches_;
  size_t under_way_ = 0;
  uint64_t given_up_ = 0;
};

template <typename Writing>
std::optional<ChunkId> RemoteRemovals::Next(Writing writing) {
  if (under_way_ >= kMostUnderWay) return std::nullopt;
  size_t looked_at = 0;
  for (auto at = unsent_.begin(); at != unsent_.end() && looked_at < kMostAtOnce; ++at) {
    const ChunkId id = at->second;
    ++looked_at;
    if (writing(id)) continue;
    unsent_.erase(at);
    Name& name = names_.at(id);
    KVKEEP_CHECK(!name.under_way && name.removed == 0);
    name.under_way = true;
    name.sent = ++now_;
    ++under_way_;
    return id;
  }
  return std::nullopt;
}

}  // namespace kvkeep::store_internal
