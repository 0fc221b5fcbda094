#include "tiers/objects/stoppable_store.h"

#include <utility>
#include <vector>

#include "tiers/base/check.h"

namespace kvkeep {

// The answer may come before the call has returned its number.
struct StoppableStore::UnderWay {
  bool ended = false;
  std::optional<ObjectCall> call;
};

StoppableStore::StoppableStore(std::unique_ptr<ObjectStore> below)
    : owned_(std::move(below)), below_(*owned_) {}

StoppableStore::~StoppableStore() {
  owned_.reset();
  MutexLock lock(&mu_);
  KVKEEP_CHECK(calls_.empty());
}

void StoppableStore::Stop() {
  std::vector<ObjectCall> calls;
  {
    MutexLock lock(&mu_);
    stopped_ = true;
    calls.assign(calls_.begin(), calls_.end());
  }
  for (const ObjectCall call : calls) below_.Cancel(call);
}

ObjectCall StoppableStore::Began(const std::shared_ptr<UnderWay>& request, ObjectCall call) {
  bool cancel = false;
  {
    MutexLock lock(&mu_);
    cancel = stopped_;
    if (!request->ended) {
      request->call = call;
      KVKEEP_CHECK(calls_.insert(call).second);
    }
  }
  if (cancel) below_.Cancel(call);
  return call;
}

void StoppableStore::Ended(UnderWay& request) {
  MutexLock lock(&mu_);
  KVKEEP_CHECK(!request.ended);
  request.ended = true;
  if (request.call.has_value()) KVKEEP_CHECK(calls_.erase(*request.call) == 1);
}

ObjectStore::Done StoppableStore::Ending(std::shared_ptr<UnderWay> request, Done done) {
  return [this, request = std::move(request), done = std::move(done)](ObjectAnswer answer) mutable {
    Ended(*request);
    std::move(done)(std::move(answer));
  };
}

ObjectCall StoppableStore::Get(GetObject get, ObjectSink* sink, Done done) {
  const auto request = std::make_shared<UnderWay>();
  return Began(request, below_.Get(std::move(get), sink, Ending(request, std::move(done))));
}

ObjectCall StoppableStore::Put(PutObject put, Done done) {
  const auto request = std::make_shared<UnderWay>();
  return Began(request, below_.Put(std::move(put), Ending(request, std::move(done))));
}

ObjectCall StoppableStore::Delete(DeleteObject object, Done done) {
  const auto request = std::make_shared<UnderWay>();
  return Began(request, below_.Delete(std::move(object), Ending(request, std::move(done))));
}

ObjectCall StoppableStore::List(ListObjects list, ListDone done) {
  const auto request = std::make_shared<UnderWay>();
  return Began(request, below_.List(std::move(list),
                                     [this, request, done = std::move(done)](
                                         ObjectAnswer answer, ObjectListing listing) mutable {
                                       Ended(*request);
                                       std::move(done)(std::move(answer), std::move(listing));
                                     }));
}

}  // namespace kvkeep
