// StoppableStore: an ObjectStore whose requests all end soon after Stop, while it lives on. For
// owners that need the last answer before they may be destroyed, and cannot wait for deadlines.
//
// Requests after Stop are cancelled at once. Thread-safe.
#pragma once

#include <absl/container/flat_hash_set.h>

#include <memory>

#include "tiers/base/mutex.h"
#include "tiers/objects/object_store.h"

namespace kvkeep {

class StoppableStore final : public ObjectStore {
 public:
  explicit StoppableStore(std::unique_ptr<ObjectStore> below);
  ~StoppableStore() override;

  // Cancels all that is under way. Waits for nothing. Idempotent.
  void Stop();

  ObjectCall Get(GetObject get, ObjectSink* sink, Done done) override;
  ObjectCall Put(PutObject put, Done done) override;
  ObjectCall Delete(DeleteObject request, Done done) override;
  ObjectCall List(ListObjects list, ListDone done) override;
  void Cancel(ObjectCall call) override { below_.Cancel(call); }
  ObjectStoreHealth health() const override { return below_.health(); }

 private:
  struct UnderWay;

  // Began runs after the inner call has returned, Ended before the answer is told.
  ObjectCall Began(const std::shared_ptr<UnderWay>& request, ObjectCall call);
  void Ended(UnderWay& request);
  Done Ending(std::shared_ptr<UnderWay> request, Done done);  // Ended, then `done`

  Mutex mu_;
  bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  absl::flat_hash_set<ObjectCall> calls_ ABSL_GUARDED_BY(mu_);
  // Last: it answers into all of the above. Answers may ask it more while it is being destroyed,
  // when a unique_ptr is null already.
  std::unique_ptr<ObjectStore> owned_;
  ObjectStore& below_;
};

}  // namespace kvkeep
