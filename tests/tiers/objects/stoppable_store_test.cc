// A store that is told to stop has soon answered all requests, and goes on answering.
#include "tiers/objects/stoppable_store.h"

#include <catch2/catch.hpp>
#include <string>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_object_store.h"

namespace kvkeep {
namespace {

struct NothingTaken final : ObjectSink {
  absl::Status Begin(const ObjectHead&) override { return absl::OkStatus(); }
  absl::Status Take(std::span<const std::byte>) override { return absl::OkStatus(); }
};

struct Stoppable {
  Stoppable() : store(std::make_unique<MemoryObjectStore>(&objects, &executor, &clock)) {}
  void AskAll() {
    const auto told = [this](const ObjectAnswer& answer) { outcomes.push_back(answer.outcome); };
    store.Put({.name = "a", .body = {std::as_bytes(std::span("body", 4))}}, told);
    store.Get({.name = "b"}, &sink, told);
    store.Delete({.name = "c"}, told);
    store.List({.prefix = "d"}, [told](const ObjectAnswer& answer, const ObjectListing&) {
      told(answer);
    });
  }

  ManualClock clock;
  ManualExecutor executor;
  MemoryObjects objects;
  NothingTaken sink;
  std::vector<ObjectOutcome> outcomes;
  StoppableStore store;
};

const std::vector<ObjectOutcome> kAllCancelled(4, ObjectOutcome::kCancelled);

}  // namespace

TEST_CASE("what a stoppable store is asked is answered as without it") {
  Stoppable s;
  s.AskAll();
  s.executor.RunAll();
  CHECK(s.outcomes == std::vector<ObjectOutcome>{ObjectOutcome::kOk, ObjectOutcome::kAbsent,
                                                 ObjectOutcome::kOk, ObjectOutcome::kOk});
  s.store.Stop();  // nothing is under way
  CHECK(s.outcomes.size() == 4);
}

TEST_CASE("a stop cancels what is under way, and what is asked for later") {
  Stoppable s;
  s.AskAll();
  s.store.Stop();
  s.executor.RunAll();
  CHECK(s.outcomes == kAllCancelled);
  CHECK(s.objects.now.empty());
  s.outcomes.clear();
  s.AskAll();
  s.executor.RunAll();
  CHECK(s.outcomes == kAllCancelled);
}

}  // namespace kvkeep
