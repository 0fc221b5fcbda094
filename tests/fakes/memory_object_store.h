// MemoryObjectStore: an object store in memory, with faults by seed. Its objects outlive it, and
// several stores (nodes) may share them.
//
// Requests are carried out step by step on an executor of the test, in any order. A put is atomic.
// With faults it acts like any real bucket: it refuses, throttles, answers late, loses answers to
// finished requests, cuts bodies off, flips bits, returns another range or an old version,
// publishes half an object, forgets objects, reports all objects absent for a while, ignores
// if_absent, and leaves requests without an answer until their deadline. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/objects/object_store.h"

namespace kvkeep {

struct MemoryObjects {
  struct Version {
    std::string body, etag;
    UnixSeconds modified;
  };
  using Shared = std::shared_ptr<const Version>;

  std::map<std::string, Shared> now;
  std::map<std::string, Shared> before;  // what each replaced
  // Puts of processes that died: they arrive when the test chooses, if at all.
  std::vector<std::pair<std::string, Shared>> late;
  uint64_t versions = 0;

  // Replaces what was under this name.
  void Publish(const std::string& name, std::string body, UnixSeconds modified);
  void LandLate(size_t index);  // REQUIRES: index < late.size()
};

struct ObjectFaults {
  double delay = 0;  // of each step: it comes some turns later
  double broken = 0, throttled = 0, misconfigured = 0, full = 0, late = 0;
  double answer_lost = 0;     // of a put or deletion that was done
  double body_cut = 0;        // kBroken behind some of it
  double flipped = 0;         // a bit of what is read
  double other_range = 0;     // bytes of another place
  double old_version = 0;     // what was there before
  double half_published = 0;  // of a put, which then fails
  double gone = 0;            // forgotten at a request for it
  double hides_all = 0;       // absent for some requests from now on
  double ignores_if_absent = 0;
  double stuck = 0;  // of requests: no answer before the deadline, see Tick

  double sum() const {
    return broken + throttled + misconfigured + full + late + answer_lost + body_cut + flipped +
           other_range + old_version + half_published + gone + hides_all + ignores_if_absent +
           stuck;
  }
};

class MemoryObjectStore final : public ObjectStore {
 public:
  // All pointers outlive this.
  MemoryObjectStore(MemoryObjects* objects, ManualExecutor* executor, const Clock* clock,
                    uint64_t seed = 1, const ObjectFaults& faults = {});
  ~MemoryObjectStore() override;

  ObjectCall Get(GetObject get, ObjectSink* sink, Done done) override;
  ObjectCall Put(PutObject put, Done done) override;
  ObjectCall Delete(DeleteObject request, Done done) override;
  ObjectCall List(ListObjects list, ListDone done) override;
  void Cancel(ObjectCall call) override;
  ObjectStoreHealth health() const override { return health_; }

  // Ends stuck requests whose deadline is over. Call it when time has passed.
  void Tick();
  // Ends the process of the requests: none is answered. They are carried out or not, or, for a put,
  // late. No request may follow.
  void Abandon();
  // Random choices follow from this seed from now on.
  void Reseed(uint64_t seed) { random_ = SeededRandom(seed); }

  std::optional<UnixSeconds> date;  // the time in its answers; none: they have none
  // Sets the faults. Objects that a fault hid are visible again.
  void set_faults(const ObjectFaults& faults) {
    faults_ = faults;
    hidden_for_ = 0;
  }
  void set_health(const ObjectStoreHealth& health) { health_ = health; }
  uint64_t faults_injected() const { return injected_; }
  // Requests by kind, and the most under way at once.
  uint64_t gets = 0, puts = 0, deletes = 0, lists = 0;
  size_t most_at_once = 0;
  std::vector<GetObject> got;  // in the order of requests
  std::set<std::string> refused;  // names whose reads get no answer

 private:
  struct Request;
  using Step = void (MemoryObjectStore::*)(Request&);

  ObjectCall Begin(std::unique_ptr<Request> request, Step step);
  void Later(const Request& request, Step step, int turns = -1);
  void Run(ObjectCall call, Step step, int turns);
  void StepGet(Request& request);
  void StepBody(Request& request);
  void StepPut(Request& request);
  void StepDelete(Request& request);
  void StepList(Request& request);
  // Returns whether it fails before anything was done.
  bool FailsFirst(Request& request);
  void Answer(Request& request, ObjectOutcome outcome);
  bool Happens(double chance);

  MemoryObjects& objects_;
  ManualExecutor& executor_;
  const Clock& clock_;
  SeededRandom random_;
  ObjectFaults faults_;
  ObjectStoreHealth health_;
  std::map<ObjectCall, std::unique_ptr<Request>> requests_;
  std::vector<ObjectCall> stuck_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  uint64_t last_call_ = 0, injected_ = 0, hidden_for_ = 0;
};

}  // namespace kvkeep
