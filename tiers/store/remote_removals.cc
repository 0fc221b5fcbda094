#include "tiers/store/remote_removals.h"

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

void RemoteRemovals::Queue(const ChunkId& id, const Name& name) {
  Tenant& tenant = tenants_[TenantTagOf(id.ns)];
  Names& to = name.why == Why::kUnseen ? tenant.unseen : tenant.seen;
  KVKEEP_CHECK(to.emplace(name.deleted, id).second);
}

bool RemoteRemovals::Add(const ChunkId& id, Why why) {
  const Moment deleted = ++now_;
  const uint32_t tag = TenantTagOf(id.ns);
  const auto found = names_.find(id);
  if (why == Why::kBad) {
    if (found != names_.end() && found->second.removed == 0) return false;
    if (LeftOf(tag) >= most_of_tenant_) {
      ++given_up_;
      return false;
    }
  }
  const auto [at, added] = names_.try_emplace(id, Name{deleted, why});
  Name& name = at->second;
  const bool waited = !added && name.removed == 0;
  const bool noted = waited && name.why != Why::kBad;
  if (waited && !name.under_way) {
    Tenant& tenant = tenants_.at(tag);
    (name.why == Why::kUnseen ? tenant.unseen : tenant.seen).erase(name.deleted);
    failed_.erase(name.deleted);
  }
  if (!added && !waited) removed_.erase(name.removed);
  // If this node has ever had the chunk, its image may be there.
  if (!waited || name.why != Why::kDeleted) name.why = why;
  name.deleted = deleted;
  name.removed = 0;
  if (!waited) ++tenants_[tag].left;
  // A removal under way is too early for an image that was put since, so another one follows.
  if (!name.under_way) Queue(id, name);
  return why != Why::kBad && !noted;
}

void RemoteRemovals::AddGone(const ChunkId& id) {
  if (searches_.empty()) return;  // no search that may have found it before
  const auto [at, added] = names_.try_emplace(id, Name{.deleted = 0, .why = Why::kDeleted});
  Name& name = at->second;
  KVKEEP_CHECK(added || name.removed != 0);
  if (!added) removed_.erase(name.removed);
  name.deleted = name.removed = ++now_;
  removed_.emplace(name.removed, id);
  ForgetRemoved();
}

void RemoteRemovals::Tend() {
  for (size_t i = 0; i < kMostAtOnce && !failed_.empty(); ++i) {
    const ChunkId id = failed_.begin()->second;
    failed_.erase(failed_.begin());
    Queue(id, names_.at(id));
  }
  ForgetRemoved();
}

bool RemoteRemovals::End(const ChunkId& id, bool removed) {
  Name& name = names_.at(id);
  KVKEEP_CHECK(name.under_way && under_way_ > 0);
  name.under_way = false;
  --under_way_;
  if (name.deleted > name.sent) {
    Queue(id, name);
    return false;
  }
  if (!removed) {
    KVKEEP_CHECK(failed_.emplace(name.deleted, id).second);
    return false;
  }
  name.removed = ++now_;
  removed_.emplace(name.removed, id);
  const auto tenant = tenants_.find(TenantTagOf(id.ns));
  KVKEEP_CHECK(tenant != tenants_.end() && tenant->second.left > 0);
  if (--tenant->second.left == 0) tenants_.erase(tenant);
  const bool noted = name.why != Why::kBad;
  ForgetRemoved();
  return noted;
}

RemoteRemovals::Moment RemoteRemovals::BeginSearch() {
  searches_.insert(++now_);
  return now_;
}

void RemoteRemovals::EndSearch(Moment began) {
  KVKEEP_CHECK(searches_.erase(began) == 1);
  ForgetRemoved();
}

bool RemoteRemovals::MayBeBelieved(const ChunkId& id, Moment search) const {
  if (search < unbelieved_) return false;
  const auto found = names_.find(id);
  if (found == names_.end()) return true;
  return found->second.removed != 0 && found->second.removed < search;
}

void RemoteRemovals::ForgetRemoved() {
  for (size_t i = 0; i < kMostAtOnce && !removed_.empty(); ++i) {
    const auto oldest = removed_.begin();
    if (!searches_.empty() && *searches_.begin() < oldest->first) {
      if (removed_.size() <= kMost) return;
      unbelieved_ = oldest->first;
    }
    names_.erase(oldest->second);
    removed_.erase(oldest);
  }
}

}  // namespace kvkeep::store_internal
