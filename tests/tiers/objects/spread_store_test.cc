// Several stores of the same objects, each of which takes its part of the requests.
#include "tiers/objects/spread_store.h"

#include <catch2/catch.hpp>
#include <deque>
#include <functional>
#include <string>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_object_store.h"

namespace kvkeep {
namespace {

using Healths = std::vector<ObjectStoreHealth>;
using Counts = std::vector<uint64_t>;

const ObjectStoreHealth kWell{}, kFull{.takes_puts = false},
    kAway{.state = ObjectStoreHealth::State::kAway, .error = {.code = "Gone"}};

struct Spread {
  explicit Spread(size_t count) {
    std::vector<std::unique_ptr<ObjectStore>> all;
    for (size_t i = 0; i < count; ++i) {
      auto one = std::make_unique<MemoryObjectStore>(&objects, &executor, &clock);
      stores.push_back(one.get());
      all.push_back(std::move(one));
    }
    store = std::make_unique<SpreadStore>(std::move(all));
  }
  void Be(const Healths& healths) {
    for (size_t i = 0; i < stores.size(); ++i) stores[i]->set_health(healths[i]);
  }
  ObjectCall Put(const std::string& name) {
    return store->Put({.name = name}, [this, name](const ObjectAnswer& answer) {
      if (answer.ok()) done.push_back(name);
    });
  }
  Counts Puts(int count) { return Asked(&MemoryObjectStore::puts, count); }
  Counts Deletes(int count) { return Asked(&MemoryObjectStore::deletes, count); }
  // Asks this often, and returns how often each store was asked.
  Counts Asked(uint64_t MemoryObjectStore::*what, int count) {
    Counts counts;
    for (const MemoryObjectStore* const one : stores) counts.push_back(one->*what);
    for (int i = 0; i < count; ++i) {
      if (what == &MemoryObjectStore::puts) {
        Put("x");
      } else {
        store->Delete({.name = "x"}, [](const ObjectAnswer&) {});
      }
    }
    executor.RunAll();
    for (size_t i = 0; i < stores.size(); ++i) counts[i] = stores[i]->*what - counts[i];
    return counts;
  }

  ManualClock clock;
  ManualExecutor executor;
  MemoryObjects objects;
  std::vector<MemoryObjectStore*> stores;
  std::vector<std::string> done;
  std::unique_ptr<SpreadStore> store;
};

// Answers nothing before it goes; then everything, also requests that answers make.
class SilentStore final : public ObjectStore {
 public:
  ~SilentStore() override {
    while (!asked_.empty()) {
      Done done = std::move(asked_.front());
      asked_.pop_front();
      std::move(done)({.outcome = ObjectOutcome::kCancelled});
    }
  }
  ObjectCall Get(GetObject, ObjectSink*, Done done) override { return Note(std::move(done)); }
  ObjectCall Put(PutObject, Done done) override { return Note(std::move(done)); }
  ObjectCall Delete(DeleteObject, Done done) override { return Note(std::move(done)); }
  ObjectCall List(ListObjects, ListDone) override { return ObjectCall(0); }
  void Cancel(ObjectCall) override {}
  ObjectStoreHealth health() const override { return {}; }

 private:
  ObjectCall Note(Done done) {
    asked_.push_back(std::move(done));
    return ObjectCall(asked_.size());
  }
  std::deque<Done> asked_;
};

}  // namespace

TEST_CASE("stores take turns, and those that would refuse are passed by") {
  Spread s(3);
  CHECK(s.Puts(6) == Counts{2, 2, 2});
  s.Be({kWell, kAway, kFull});
  CHECK(s.Puts(6) == Counts{6, 0, 0});
  CHECK(s.Deletes(6) == Counts{2, 0, 4});
  s.Be({kAway, kAway, kAway});
  CHECK(s.Puts(6) == Counts{2, 2, 2});  // they say why
}

TEST_CASE("a spread is as well as the best of its stores") {
  Spread s(3);
  s.Be({kAway, kFull, kAway});
  CHECK(s.store->health().readable());
  CHECK_FALSE(s.store->health().writable());
  s.Be({kAway, kFull, kWell});
  CHECK(s.store->health().writable());
  s.Be({kAway, kAway, kAway});
  CHECK_FALSE(s.store->health().readable());
  CHECK(s.store->health().error.code == "Gone");
}

TEST_CASE("a cancel ends that request alone, whichever store has it") {
  Spread s(3);
  std::vector<ObjectCall> calls;
  for (int i = 0; i < 9; ++i) calls.push_back(s.Put(std::to_string(i)));
  s.store->Cancel(calls[3]);
  s.store->Cancel(calls[7]);
  s.executor.RunAll();
  CHECK(s.done.size() == 7);
  CHECK(s.objects.now.size() == 7);
  CHECK(s.objects.now.count("3") + s.objects.now.count("7") == 0);
}

TEST_CASE("while a spread goes, what its answers ask is answered too") {
  std::vector<std::unique_ptr<ObjectStore>> all;
  for (int i = 0; i < 3; ++i) all.push_back(std::make_unique<SilentStore>());
  auto store = std::make_unique<SpreadStore>(std::move(all));
  SpreadStore* const asked = store.get();
  int answers = 0;
  std::vector<ObjectCall> calls;
  const std::function<void(int)> ask = [&](int again) {
    calls.push_back(asked->Delete({.name = "x"}, [&, again](const ObjectAnswer&) {
      ++answers;
      asked->Cancel(calls.front());
      asked->Cancel(calls.back());
      if (again > 0) ask(again - 1);
    }));
  };
  for (int i = 0; i < 9; ++i) ask(2);
  store.reset();
  CHECK(answers == 27);
}

}  // namespace kvkeep
