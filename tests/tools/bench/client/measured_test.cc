#include "tools/bench/client/measured.h"

#include <catch2/catch.hpp>

namespace kvkeep::bench {
namespace {

Measured Sample(uint64_t ops) {
  Measured m;
  m.seconds = 0.5;
  m.ops = ops;
  m.chunks = 2 * ops;
  m.bytes = 1000 * ops;
  m.client_cpu_seconds = 0.25;
  for (uint64_t i = 1; i <= ops; ++i) m.latency.Record(i * 1000);
  m.first_piece.Record(123);
  return m;
}

}  // namespace

TEST_CASE("threads side by side share the time, slices follow each other") {
  Measured beside = Sample(50), after = Sample(50);
  beside.Add(Sample(50), /*side_by_side=*/true);
  after.Add(Sample(50), /*side_by_side=*/false);
  CHECK(beside.seconds == 0.5);
  CHECK(after.seconds == 1);
  CHECK(beside.ops == 100);
  CHECK(after.client_cpu_seconds == 0.5);
}

}  // namespace kvkeep::bench
