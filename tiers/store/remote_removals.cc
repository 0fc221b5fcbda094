#include "tiers/store/remote_removals.h"

#include "tiers/base/check.h"

namespace kvkeep::store_internal {

void RemoteRemovals::Add(const ChunkId& id) {
  const Moment deleted = ++now_;
  const auto [at, added] = names_.try_emplace(id, Name{deleted});
  Name& name = at->second;
  if (!added) {
    unsent_.erase(name.deleted);
    failed_.erase(name.deleted);
    removed_.erase(name.removed);
    name.deleted = deleted;
    name.removed = 0;
  }
  // One that is under way is too early for what was put since: another one follows it.
  if (!name.under_way) unsent_.emplace(deleted, id);
  while (names_.size() > kMost && !unsent_.empty()) {
    const auto oldest = unsent_.begin();
    failed_.erase(oldest->first);
    names_.erase(oldest->second);
    unsent_.erase(oldest);
    ++given_up_;
  }
}

void RemoteRemovals::End(const ChunkId& id, bool removed) {
  Name& name = names_.at(id);
  KVKEEP_CHECK(name.under_way && under_way_ > 0);
  name.under_way = false;
  --under_way_;
  const bool again = name.deleted > name.sent;
  if (!removed || again) {
    unsent_.emplace(name.deleted, id);
    if (!again) failed_.insert(name.deleted);
    return;
  }
  name.removed = ++now_;
  removed_.emplace(name.removed, id);
  ForgetRemoved();
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
  const auto found = names_.find(id);
  if (found == names_.end()) return true;
  return found->second.removed != 0 && found->second.removed < search;
}

void RemoteRemovals::ForgetRemoved() {
  while (!removed_.empty()) {
    const auto oldest = removed_.begin();
    if (!searches_.empty() && *searches_.begin() < oldest->first) return;
    names_.erase(oldest->second);
    removed_.erase(oldest);
  }
}

}  // namespace kvkeep::store_internal
