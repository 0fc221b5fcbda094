#include "tiers/objects/spread_store.h"

#include <optional>
#include <utility>

#include "tiers/base/check.h"

namespace kvkeep {

SpreadStore::SpreadStore(std::vector<std::unique_ptr<ObjectStore>> stores)
    : owned_(std::move(stores)),
      stores_([this] {
        std::vector<ObjectStore*> all;
        for (const auto& store : owned_) all.push_back(store.get());
        return all;
      }()),
      alive_(stores_.size()) {
  KVKEEP_CHECK(!stores_.empty());
}

// Callbacks of one that goes may ask more: the first one, which goes last.
SpreadStore::~SpreadStore() {
  {
    MutexLock lock(&mu_);
    alive_ = 1;
  }
  while (!owned_.empty()) {
    owned_.back().reset();
    owned_.pop_back();
  }
}

size_t SpreadStore::Next(bool to_write) {
  const size_t turn = next_++ % alive_;
  for (size_t i = 0; i < alive_; ++i) {
    const size_t store = (turn + i) % alive_;
    const ObjectStoreHealth health = stores_[store]->health();
    if (to_write ? health.writable() : health.readable()) return store;
  }
  return turn;
}

ObjectCall SpreadStore::Get(GetObject get, ObjectSink* sink, Done done) {
  MutexLock lock(&mu_);
  const size_t store = Next(/*to_write=*/false);
  return Named(store, stores_[store]->Get(std::move(get), sink, std::move(done)));
}

ObjectCall SpreadStore::Put(PutObject put, Done done) {
  MutexLock lock(&mu_);
  const size_t store = Next(/*to_write=*/true);
  return Named(store, stores_[store]->Put(std::move(put), std::move(done)));
}

ObjectCall SpreadStore::Delete(DeleteObject request, Done done) {
  MutexLock lock(&mu_);
  const size_t store = Next(/*to_write=*/false);
  return Named(store, stores_[store]->Delete(std::move(request), std::move(done)));
}

ObjectCall SpreadStore::List(ListObjects list, ListDone done) {
  MutexLock lock(&mu_);
  const size_t store = Next(/*to_write=*/false);
  return Named(store, stores_[store]->List(std::move(list), std::move(done)));
}

void SpreadStore::Cancel(ObjectCall call) {
  MutexLock lock(&mu_);
  const size_t store = call.value() % stores_.size();
  if (store >= alive_) return;  // it cancels all that it has
  stores_[store]->Cancel(ObjectCall(call.value() / stores_.size()));
}

ObjectStoreHealth SpreadStore::health() const {
  MutexLock lock(&mu_);
  std::optional<ObjectStoreHealth> best;
  for (size_t i = 0; i < alive_; ++i) {
    ObjectStoreHealth one = stores_[i]->health();
    const auto worth = [](const ObjectStoreHealth& of) {
      return std::pair(of.readable(), of.writable());
    };
    if (!best.has_value() || worth(*best) < worth(one)) best = std::move(one);
  }
  return *std::move(best);
}

}  // namespace kvkeep
