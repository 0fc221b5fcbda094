// SpreadStore: one ObjectStore over several of the same objects, each with a thread of its own, so
// that bodies take more than one core.
//
// Requests go to the stores in turn, past those that would refuse them now. Each store has its own
// connections, and its own opinion of the servers. The spread is well if one of them is.
//
// While it is destroyed, the first store takes what callbacks still ask. Thread-safe.
#pragma once

#include <memory>
#include <vector>

#include "tiers/base/mutex.h"
#include "tiers/objects/object_store.h"

namespace kvkeep {

class SpreadStore final : public ObjectStore {
 public:
  // REQUIRES: at least one.
  explicit SpreadStore(std::vector<std::unique_ptr<ObjectStore>> stores);
  ~SpreadStore() override;

  ObjectCall Get(GetObject get, ObjectSink* sink, Done done) override;
  ObjectCall Put(PutObject put, Done done) override;
  ObjectCall Delete(DeleteObject request, Done done) override;
  ObjectCall List(ListObjects list, ListDone done) override;
  void Cancel(ObjectCall call) override;
  ObjectStoreHealth health() const override;

 private:
  // Returns the number of the store whose turn it is.
  size_t Next(bool to_write) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Makes one number of a store's and its request's.
  ObjectCall Named(size_t store, ObjectCall call) const {
    return ObjectCall(call.value() * stores_.size() + store);
  }

  std::vector<std::unique_ptr<ObjectStore>> owned_;
  const std::vector<ObjectStore*> stores_;  // the same, while they are being destroyed, too
  // Held while a store is called, which returns at once: so none is called that is gone.
  mutable Mutex mu_;
  size_t alive_ ABSL_GUARDED_BY(mu_);  // the first `alive_` of them may be called
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace kvkeep
