#include "server/storage/io_engines.h"

#include <catch2/catch.hpp>

#include "tests/fakes/manual_executor.h"
#include "tests/fakes/memory_arena.h"
#include "tiers/base/units.h"

namespace kvkeep {
namespace {

// Registers when its loop is told to run, or at once if it has none.
class FakeEngine final : public IoEngine {
 public:
  FakeEngine(std::string name, Executor* loop, std::vector<std::byte*>* registered)
      : name_(std::move(name)), loop_(loop), registered_(registered) {}

  absl::Status RegisterBuffer(std::span<std::byte> memory) override {
    if (loop_ == nullptr) return absl::UnimplementedError("has no loop");
    registered_->push_back(memory.data());
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<Device>> Open(const DeviceOptions& /*options*/) override {
    return absl::UnimplementedError("opens nothing");
  }
  Executor* loop() override { return loop_; }
  Stats stats() const override { return {.reads = 2, .write_bytes = 4096, .in_flight = 1}; }
  std::string describe() const override { return name_; }

 private:
  const std::string name_;
  Executor* const loop_;
  std::vector<std::byte*>* const registered_;
};

struct Fixture {
  MemoryArena arena{BlockCount(10), BlockCount(4)};  // three segments
  ManualExecutor first_loop, second_loop;
  std::vector<std::byte*> first, second;
  std::vector<absl::Status> failed;
  IoEngines engines;

  void Add(std::string name, Executor* loop, std::vector<std::byte*>* registered) {
    engines.Add(std::make_unique<FakeEngine>(std::move(name), loop, registered));
  }
  bool Next() {
    return engines.RegisterNext(arena,
                                [this](const absl::Status& status) { failed.push_back(status); });
  }
  std::vector<std::byte*> AllSegments() {
    std::vector<std::byte*> all;
    for (size_t segment = 0; segment < arena.segment_count(); ++segment) {
      all.push_back(arena.SegmentMemory(segment).data());
    }
    return all;
  }
};

}  // namespace

TEST_CASE_METHOD(Fixture, "where there is no device nothing is to be registered") {
  CHECK(Next());
  CHECK(engines.describe().empty());
  CHECK(engines.loops().empty());
  CHECK(engines.stats().reads == 0);
}

TEST_CASE_METHOD(Fixture, "each engine registers all of the arena, a segment at a time") {
  Add("one", &first_loop, &first);
  Add("two", &second_loop, &second);
  for (size_t segment = 1; segment <= 3; ++segment) {
    CHECK_FALSE(Next());
    CHECK_FALSE(Next());  // they are at one
    CHECK(first_loop.RunAll() == 1);
    CHECK(second_loop.RunAll() == 1);
    CHECK(first.size() == segment);
  }
  CHECK(Next());
  CHECK(first == AllSegments());
  CHECK(second == AllSegments());
  CHECK(failed.empty());
}

TEST_CASE_METHOD(Fixture, "a segment is registered once all of its memory has come") {
  arena.SetThere(1, 3);
  Add("one", &first_loop, &first);
  CHECK_FALSE(Next());
  first_loop.RunAll();
  CHECK(Next());  // nothing to do now
  CHECK(first_loop.idle());
  CHECK(first.size() == 1);
  arena.TakeMore();
  while (!Next()) first_loop.RunAll();
  CHECK(first == AllSegments());
}

TEST_CASE_METHOD(Fixture, "where buffers are shared each segment is pinned first, and once") {
  struct Pins final : SharedBuffers {
    absl::Status Pin(std::span<std::byte> memory) override {
      pinned.push_back(memory.data());
      return pinned.size() == 2 ? absl::ResourceExhaustedError("no more") : absl::OkStatus();
    }
    std::optional<Place> Find(std::span<const std::byte>) const override { return std::nullopt; }
    std::vector<std::byte*> pinned;
  };
  const auto pins = std::make_shared<Pins>();
  ManualExecutor pinner;
  engines.Share(pins, &pinner);
  Add("one", &first_loop, &first);
  Add("two", &second_loop, &second);
  CHECK_FALSE(Next());
  CHECK(first_loop.idle());
  CHECK(pinner.RunAll() == 1);
  CHECK_FALSE(Next());  // takes that over, and pins the next one
  CHECK(first_loop.RunAll() == 1);
  CHECK(second_loop.RunAll() == 1);
  CHECK(first.size() == 1);
  CHECK_FALSE(Next());
  CHECK(first_loop.idle());
  while (!Next()) {
    pinner.RunAll();
    first_loop.RunAll();
    second_loop.RunAll();
  }
  CHECK(pins->pinned == AllSegments());
  CHECK(first == AllSegments());  // one could not be pinned before
  CHECK(second == AllSegments());
  Add("late", &first_loop, &first);
  while (!Next()) first_loop.RunAll();
  CHECK(first.size() == 6);
  CHECK(pins->pinned.size() == 3);
}

TEST_CASE_METHOD(Fixture, "an engine that does not get on holds up no other") {
  Add("hung", &first_loop, &first);
  Add("well", &second_loop, &second);
  for (int turn = 0; turn < 4; ++turn) {
    CHECK_FALSE(Next());
    second_loop.RunAll();
  }
  CHECK(first.empty());
  CHECK(first_loop.size() == 1);
  CHECK(second == AllSegments());
}

TEST_CASE_METHOD(Fixture, "an engine that is added late registers all of the arena too") {
  Add("early", &first_loop, &first);
  while (!Next()) first_loop.RunAll();
  Add("late", &second_loop, &second);
  CHECK_FALSE(Next());
  while (!Next()) second_loop.RunAll();
  CHECK(second == AllSegments());
  CHECK(first == AllSegments());
}

TEST_CASE_METHOD(Fixture, "what an engine does not register is told once for each segment") {
  Add("without", nullptr, &first);
  while (!Next()) {
  }
  CHECK(failed.size() == 3);
  CHECK(absl::IsUnimplemented(failed.at(0)));
  CHECK(engines.loops().empty());
}

TEST_CASE_METHOD(Fixture, "engines are counted together, and said together where they are alike") {
  Add("ring", &first_loop, &first);
  Add("threads", nullptr, &first);
  Add("ring", &second_loop, &second);
  CHECK(engines.stats().reads == 6);
  CHECK(engines.stats().write_bytes == 3 * 4096);
  CHECK(engines.stats().in_flight == 3);
  CHECK(engines.describe() == "2 times ring; threads");
  CHECK(engines.loops() == std::vector<Executor*>{&first_loop, &second_loop});
}

}  // namespace kvkeep
