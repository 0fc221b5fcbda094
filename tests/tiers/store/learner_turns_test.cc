#include "tiers/store/learner_turns.h"

#include <catch2/catch.hpp>

namespace kvkeep::store_internal {
namespace {

// Has this many turns' work; UINT64_MAX: it never ends.
class FakeLearner final : public ChainLearner {
 public:
  explicit FakeLearner(uint64_t work) : work_(work) {}
  void Tell(std::span<const EvictionPolicy::ChainLink>, MonotonicTime) override {}
  bool Work(size_t) override {
    ++turns;
    if (work_ != UINT64_MAX) --work_;
    return work_ > 0;
  }
  size_t Follow(size_t) override { return 0; }
  bool idle() const override { return work_ == 0; }
  bool judged() const override { return false; }
  uint64_t waiting() const override { return work_; }
  uint64_t skipped() const override { return 0; }
  std::string Save() const override { return ""; }
  void Load(absl::string_view) override {}

  int turns = 0;

 private:
  uint64_t work_;
};

}  // namespace

TEST_CASE("a learner with endless work keeps no other one from its turns") {
  FakeLearner busy(UINT64_MAX), idle(0), other(3);
  LearnerTurns turns;
  for (FakeLearner* const learner : {&busy, &idle, &other}) turns.Add(learner);
  turns.Play(6, 64);
  CHECK(other.turns == 3);
  CHECK(busy.turns == 3);
  CHECK(idle.turns == 0);
  turns.Play(4, 64);
  CHECK(busy.turns == 7);
  CHECK(turns.anyone_waits());
}

TEST_CASE("turns end when nothing is left to play, and none are given where nobody learns") {
  FakeLearner one(2), two(1);
  LearnerTurns turns;
  turns.Play(10, 64);
  CHECK_FALSE(turns.anyone_waits());
  turns.Add(&one);
  turns.Add(&two);
  turns.Play(10, 64);
  CHECK(one.turns == 2);
  CHECK(two.turns == 1);
  CHECK_FALSE(turns.anyone_waits());
}

}  // namespace kvkeep::store_internal
