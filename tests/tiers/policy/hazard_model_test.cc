#include "tiers/policy/hazard_model.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

namespace kvkeep {
namespace {

constexpr HazardModel::Chain kNew{.length = 10};
constexpr HazardModel::Chain kContinued{.continues = true, .length = 10, .known = 8};

// A chunk with those features was touched in that bucket, or never.
void Live(HazardModel& model, const HazardModel::Features& features, int touched_in) {
  const int level = model.LevelOf(features);
  for (int b = 0; b < HazardModel::kBuckets - 1; ++b) {
    const int cell = HazardModel::Cell(level, b);
    if (b == touched_in) return model.Touched(features, cell, 1);
    model.Outlived(features, cell, 1);
  }
}

HazardModel Learned() {
  HazardModel model;
  for (int round = 0; round < 200; ++round) {
    Live(model, HazardModel::Describe(kContinued, 5, 3), 17);  // 64 to 90 s
    Live(model, HazardModel::Describe(kNew, 5, 0), -1);
    if (round % 20 == 0) model.Estimate();
  }
  model.Estimate();
  return model;
}

}  // namespace

TEST_CASE("a model that has learned nothing ranks by recency") {
  HazardModel model;
  const int level = model.LevelOf(HazardModel::Describe(kNew, 5, 0));
  CHECK(level == model.LevelOf(HazardModel::Describe(kContinued, 0, 50)));
  // The first buckets span a second altogether.
  for (int b = 5; b < HazardModel::kBuckets; ++b) {
    CHECK(model.RankOf(HazardModel::Cell(level, b)) <
          model.RankOf(HazardModel::Cell(level, b - 1)));
  }
}

TEST_CASE("the model parts what comes back from what does not, by its features") {
  const HazardModel model = Learned();
  const int back = model.LevelOf(HazardModel::Describe(kContinued, 5, 3));
  const int gone = model.LevelOf(HazardModel::Describe(kNew, 5, 0));
  CHECK(back > gone);
  for (int b = 0; b < 17; ++b) {
    CHECK(model.RankOf(HazardModel::Cell(back, b)) > model.RankOf(HazardModel::Cell(gone, b)));
  }
}

TEST_CASE("levels between chunks grow with the logarithm of how much oftener one comes back") {
  CHECK(HazardModel::LevelsBetween(1) == 0);
  CHECK(HazardModel::LevelsBetween(1.5) == 1);
  CHECK(HazardModel::LevelsBetween(1.5 * 1.5) == 2);
}

TEST_CASE("what is due soon is worth more than what has just come, and nothing once it is past") {
  const HazardModel model = Learned();
  const int back = model.LevelOf(HazardModel::Describe(kContinued, 5, 3));
  CHECK(model.RankOf(HazardModel::Cell(back, 16)) > model.RankOf(HazardModel::Cell(back, 5)));
  CHECK(model.RankOf(HazardModel::Cell(back, 25)) < model.RankOf(HazardModel::Cell(back, 5)));
}

TEST_CASE("chunks that are in a cell now count as half outlived") {
  const auto rank = [](double live) {
    HazardModel model;
    const HazardModel::Features features = HazardModel::Describe(kNew, 5, 0);
    const int cell = HazardModel::Cell(model.LevelOf(features), 30);
    for (int i = 0; i < 20; ++i) model.Touched(features, cell, 1);
    model.AddLive(cell, live);
    model.Estimate();
    return model.RankOf(HazardModel::Cell(model.LevelOf(features), 29));
  };
  CHECK(rank(10'000) < rank(0));
}

TEST_CASE("what was learned can be saved, and something else is not loaded") {
  const HazardModel model = Learned();
  HazardModel loaded;
  REQUIRE(loaded.Load(model.Save()));
  for (int cell = 0; cell < HazardModel::kCells; ++cell) {
    REQUIRE(loaded.RankOf(cell) == model.RankOf(cell));
  }
  std::string saved = model.Save();
  CHECK(saved.size() < 20'000);
  CHECK_FALSE(loaded.Load(""));
  CHECK_FALSE(loaded.Load(saved + "x"));
  CHECK_FALSE(loaded.Load(saved.substr(0, saved.size() - 1)));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  std::string broken = saved;
  broken.replace(1 + 8 * 100, sizeof(nan), reinterpret_cast<const char*>(&nan), sizeof(nan));
  CHECK_FALSE(loaded.Load(broken));
  saved[0] = 99;
  CHECK_FALSE(loaded.Load(saved));
  CHECK(loaded.Save() == model.Save());  // as it was
}

}  // namespace kvkeep
