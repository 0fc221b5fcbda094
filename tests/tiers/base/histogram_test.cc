#include "tiers/base/histogram.h"

#include <catch2/catch.hpp>
#include <thread>
#include <vector>

namespace kvkeep {
namespace {

// Computes it as its contract says, without any shortcut.
size_t FindSlowly(const HistogramBounds& bounds, uint64_t value) {
  size_t i = 0;
  while (i < bounds.size() && value > bounds.bound(i)) ++i;
  return i;
}

}  // namespace

TEST_CASE("every value falls into the first bucket whose bound it does not exceed") {
  static constexpr HistogramBounds kOdd({0, 3, 4, 5, 6, 7, 8, 1'000, uint64_t{1} << 63});
  for (const HistogramBounds* bounds : {&kDurationBounds, &kAgeBounds, &kOdd}) {
    for (size_t i = 0; i < bounds->size(); ++i) {
      const uint64_t bound = bounds->bound(i);
      CHECK(bounds->Find(bound) == i);
      CHECK(bounds->Find(bound + 1) == i + 1);
    }
    CHECK(bounds->Find(UINT64_MAX) == bounds->size());
    for (int bit = 0; bit < 64; ++bit) {
      for (const uint64_t value : {(uint64_t{1} << bit) - 1, uint64_t{1} << bit}) {
        INFO(value);
        CHECK(bounds->Find(value) == FindSlowly(*bounds, value));
      }
    }
  }
}

TEST_CASE("a histogram counts each value once and adds them up") {
  Histogram histogram(kDurationBounds);
  CHECK(histogram.counts().count() == 0);
  histogram.Record(0);
  histogram.Record(1'000);
  histogram.RecordAlone(1'001);
  histogram.RecordAlone(3'600'000'000'000);  // an hour: above all bounds
  const HistogramCounts counts = histogram.counts();
  CHECK(counts.bounds == &kDurationBounds);
  CHECK(counts.count() == 4);
  CHECK(counts.sum == 3'600'000'002'001);
  CHECK(counts.counts[0] == 1);
  CHECK(counts.counts[3] == 1);  // at most 1 us
  CHECK(counts.counts[4] == 1);  // at most 2 us
  CHECK(counts.counts[kDurationBounds.size()] == 1);
}

TEST_CASE("no value is lost when many threads record and one reads") {
  constexpr uint64_t kEach = 20'000, kThreads = 4;
  Histogram histogram(kDurationBounds);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&histogram, t] {
      for (uint64_t i = 0; i < kEach; ++i) histogram.Record(t * 1'000);
    });
  }
  uint64_t before = 0;
  bool fell = false;
  while (before < kEach * kThreads) {
    const uint64_t now = histogram.counts().count();
    fell |= now < before;
    before = now;
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_FALSE(fell);
  CHECK(histogram.counts().count() == kEach * kThreads);
  CHECK(histogram.counts().sum == kEach * (0 + 1'000 + 2'000 + 3'000));
}

TEST_CASE("one thread may record alone while another one reads") {
  constexpr uint64_t kAll = 50'000;
  Histogram histogram(kAgeBounds);
  std::thread writer([&histogram] {
    for (uint64_t i = 0; i < kAll; ++i) histogram.RecordAlone(7);
  });
  while (histogram.counts().count() < kAll) {
  }
  writer.join();
  CHECK(histogram.counts().sum == 7 * kAll);
}

}  // namespace kvkeep
