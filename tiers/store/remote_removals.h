// RemoteRemovals: the chunks that were deleted here and may still be found beyond the node.
//
// A chunk that is deleted must not come back by a recall. So its name is kept until its image there
// is removed, and until every search that began before has ended: such a search is not believed
// when it finds the name. If an image of the name is being written, it is removed once that write
// has ended.
//
// The number of names is limited for each tenant, and a tenant's names are never given up for
// another tenant's: callers ask HasRoom before a delete. Tenants take turns. Names of chunks that
// this node did not have are sent after those that it had, and only as fast as the caller allows.
// The store's lock protects it.
#pragma once

#include <absl/container/btree_map.h>
#include <absl/container/btree_set.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "tiers/base/check.h"
#include "tiers/base/key.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep::store_internal {

class RemoteRemovals {
 public:
  static constexpr size_t kMost = 65536;        // names, divided among the tenants
  static constexpr size_t kMostOfOne = 8192;    // names that each tenant may have in any case
  static constexpr size_t kMostUnderWay = 16;
  static constexpr size_t kMostAtOnce = 64;  // names that a call looks at, of each tenant
  // A moment in the order of deletes and searches.
  using Moment = uint64_t;
  // kUnseen: deleted, and this node did not have it. kBad: nobody has deleted it.
  enum class Why : uint8_t { kDeleted, kUnseen, kBad };

  explicit RemoteRemovals(size_t tenants = 1)
      : most_of_tenant_(std::max(kMost / std::max<size_t>(tenants, 1), kMostOfOne)) {}

  // ---- deletes
  // Returns whether the namespace's tenant may add `names` names.
  bool HasRoom(const NamespaceDigest& ns, size_t names) const {
    return LeftOf(TenantTagOf(ns)) + names <= most_of_tenant_;
  }
  size_t most_of_tenant() const { return most_of_tenant_; }
  // Returns true if the chunk is deleted, and no removal of it waited before.
  bool Add(const ChunkId& id, Why why);
  // Notes a deleted chunk that has no image to be removed. REQUIRES: Add is never called.
  void AddGone(const ChunkId& id);
  // Returns the next name to be sent, which is then under way. `writing` returns whether an image
  // of the name is being written; then it is not sent now. `may_send_unseen` returns whether a name
  // may be sent now although this node did not have the chunk.
  template <typename Writing, typename MaySend>
  std::optional<ChunkId> Next(Writing writing, MaySend may_send_unseen);
  // Returns true if the name is a deleted chunk's, its image is removed, and nothing is left to do
  // for it.
  bool End(const ChunkId& id, bool removed);
  // Lets some failed removals be sent again, and forgets some names that were removed. Called now
  // and then.
  void Tend();

  // ---- searches
  Moment BeginSearch();
  void EndSearch(Moment began);
  // Returns whether a search that began at `search` may be believed when it finds this name.
  bool MayBeBelieved(const ChunkId& id, Moment search) const;

  size_t size() const { return names_.size(); }
  size_t left() const { return names_.size() - removed_.size(); }  // to be removed
  bool busy() const { return under_way_ > 0; }
  bool at_rest() const { return left() == 0; }
  uint64_t given_up() const { return given_up_; }  // bad images, as too many were to be removed

 private:
  struct Name {
    Moment deleted;  // the last time
    Why why;
    Moment removed = 0;      // 0: it is still to be removed
    Moment sent = 0;         // the last removal
    bool under_way = false;  // a removal is under way
  };
  using Names = absl::btree_map<Moment, ChunkId>;
  struct Tenant {
    Names seen, unseen;  // not sent, by when they were deleted
    size_t left = 0;     // all that are to be removed
  };
  size_t LeftOf(uint32_t tag) const {
    const auto found = tenants_.find(tag);
    return found == tenants_.end() ? 0 : found->second.left;
  }
  void Queue(const ChunkId& id, const Name& name);
  void ForgetRemoved();

  const size_t most_of_tenant_;
  Moment now_ = 0;
  absl::btree_map<ChunkId, Name> names_;
  absl::btree_map<uint32_t, Tenant> tenants_;  // by tag; those with names to be removed
  uint32_t last_ = 0;                          // whose turn was last
  Names failed_;                               // by when they were deleted
  Names removed_;                              // by when they were removed
  Moment unbelieved_ = 0;  // earlier searches are not believed: names removed then are forgotten
  absl::btree_set<Moment> searches_;
  size_t under_way_ = 0;
  uint64_t given_up_ = 0;
};

template <typename Writing, typename MaySend>
std::optional<ChunkId> RemoteRemovals::Next(Writing writing, MaySend may_send_unseen) {
  if (under_way_ >= kMostUnderWay) return std::nullopt;
  const auto take = [&](Names& from, bool seen) -> std::optional<ChunkId> {
    size_t looked_at = 0;
    for (auto at = from.begin(); at != from.end() && looked_at < kMostAtOnce; ++at, ++looked_at) {
      const ChunkId id = at->second;
      if (writing(id)) continue;
      if (!seen && !may_send_unseen(id)) return std::nullopt;
      from.erase(at);
      return id;
    }
    return std::nullopt;
  };
  auto at = tenants_.upper_bound(last_);
  for (size_t i = 0; i < tenants_.size(); ++i, ++at) {
    if (at == tenants_.end()) at = tenants_.begin();
    std::optional<ChunkId> id = take(at->second.seen, true);
    if (!id.has_value()) id = take(at->second.unseen, false);
    if (!id.has_value()) continue;
    last_ = at->first;
    Name& name = names_.at(*id);
    KVKEEP_CHECK(!name.under_way && name.removed == 0);
    name.under_way = true;
    name.sent = ++now_;
    ++under_way_;
    return id;
  }
  return std::nullopt;
}

}  // namespace kvkeep::store_internal
