// RemoteRemovals: what was deleted here, and may still be found beyond the node.
//
// A chunk that is deleted must not come back by a recall. So its name is kept until its image there
// is removed, and until every search that began before has ended: what those say of the name is not
// believed. A name that is being written is removed once that write has ended.
//
// A tenant has so many names at most, which are never given up for another one's: HasRoom is asked
// before a delete. Tenants take turns. Names of chunks that this node did not have are sent after
// those that it had, and only as fast as the caller says. The store's lock protects it.
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
  static constexpr size_t kMost = 65536;        // of all tenants together, and
  static constexpr size_t kMostOfOne = 8192;    // so many of each in any case
  static constexpr size_t kMostUnderWay = 16;
  static constexpr size_t kMostAtOnce = 64;  // names that a call looks at, of each tenant
  // A moment in the order of deletes and searches.
  using Moment = uint64_t;
  // kUnseen: deleted, and this node did not have it. kBad: nobody has deleted it.
  enum class Why : uint8_t { kDeleted, kUnseen, kBad };

  explicit RemoteRemovals(size_t tenants = 1)
      : most_of_tenant_(std::max(kMost / std::max<size_t>(tenants, 1), kMostOfOne)) {}

  // ---- deletes
  // Whether the namespace's tenant may add so many names.
  bool HasRoom(const NamespaceDigest& ns, size_t names) const {
    return LeftOf(TenantTagOf(ns)) + names <= most_of_tenant_;
  }
  size_t most_of_tenant() const { return most_of_tenant_; }
  // True: it is deleted, and its removal was not waited for before.
  bool Add(const ChunkId& id, Why why);
  // The next one to be sent, which is under way then. `writing`: not now, of that name.
  // `may_send_unseen`: whether that one may be sent now though nobody saw it there.
  template <typename Writing, typename MaySend>
  std::optional<ChunkId> Next(Writing writing, MaySend may_send_unseen);
  // True: a deleted one is removed, and nothing is left to be done.
  bool End(const ChunkId& id, bool removed);
  // Now and then: some of those that failed may be sent again, some that were removed are
  // forgotten.
  void Tend();

  // ---- searches
  Moment BeginSearch();
  void EndSearch(Moment began);
  // What a search that began then says of this name.
  bool MayBeBelieved(const ChunkId& id, Moment search) const;

  size_t size() const { return names_.size(); }
  size_t left() const { return names_.size() - removed_.size(); }  // to be removed
  bool busy() const { return under_way_ > 0; }
  bool at_rest() const { return left() == 0; }
  uint64_t given_up() const { return given_up_; }  // bad ones that were one too many

 private:
  struct Name {
    Moment deleted;  // the last time
    Why why;
    Moment removed = 0;      // 0: it is still to be removed
    Moment sent = 0;         // the last removal
    bool under_way = false;  // a removal is
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
  Moment unbelieved_ = 0;  // searches that began before: some that were removed then are forgotten
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
