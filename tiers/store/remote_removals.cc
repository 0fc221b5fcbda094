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
  // Those that are removed already, and kept for a search that runs, are missed the least.
  if (names_.size() > kMost && !GiveUpOne(removed_) && !GiveUpOne(failed_)) GiveUpOne(unsent_);
}

bool RemoteRemovals::GiveUpOne(Names& of) {
  if (of.empty()) return false;
  names_.erase(of.begin()->second);
  of.erase(of.begin());
  ++given_up_;
  return true;
}

void RemoteRemovals::Tend() {
  for (size_t i = 0; i < kMostAtOnce && !failed_.empty(); ++i) {
    KVKEEP_CHECK(unsent_.insert(*failed_.begin()).second);
    failed_.erase(failed_.begin());
  }
  ForgetRemoved();
}

void RemoteRemovals::End(const ChunkId& id, bool removed) {
  Name& name = names_.at(id);
  KVKEEP_CHECK(name.under_way && under_way_ > 0);
  name.under_way = false;
  --under_way_;
  const bool again = name.deleted > name.sent;
  if (!removed || again) {
    KVKEEP_CHECK((again ? unsent_ : failed_).emplace(name.deleted, id).second);
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
  for (size_t i = 0; i < kMostAtOnce && !removed_.empty(); ++i) {
    const auto oldest = removed_.begin();
    if (!searches_.empty() && *searches_.begin() < oldest->first) return;
    names_.erase(oldest->second);
    removed_.erase(oldest);
  }
}

}  // namespace kvkeep::store_internal
