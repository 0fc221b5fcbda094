#include "tiers/objects/hedger.h"

#include <catch2/catch.hpp>

#include "tests/fakes/seeded_random.h"

namespace kvkeep {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

}  // namespace

TEST_CASE("nothing is hedged before twenty reads were seen, then at half as long again as p95") {
  Hedger hedger({});
  for (int i = 1; i < 20; ++i) {
    hedger.Served(milliseconds(20));
    CHECK_FALSE(hedger.Patience().has_value());
  }
  hedger.Served(milliseconds(20));
  CHECK(hedger.Patience() == milliseconds(30));
  for (int i = 0; i < 128; ++i) hedger.Served(milliseconds(i % 20 == 0 ? 900 : 40));
  CHECK(*hedger.Patience() >= milliseconds(60));
}

TEST_CASE("patience is never below 10 ms, and follows an endpoint that got slower or faster") {
  Hedger hedger({});
  for (int i = 0; i < 200; ++i) hedger.Served(std::chrono::microseconds(300));
  CHECK(hedger.Patience() == milliseconds(10));
  for (int i = 0; i < 144; ++i) hedger.Served(milliseconds(200));
  CHECK(hedger.Patience() == milliseconds(300));
  for (int i = 0; i < 144; ++i) hedger.Served(milliseconds(20));
  CHECK(hedger.Patience() == milliseconds(30));
}

TEST_CASE("when nothing answers ten hedges are sent and no more") {
  Hedger hedger({});
  int sent = 0;
  for (int i = 0; i < 1000; ++i) sent += hedger.TryHedge() ? 1 : 0;
  CHECK(sent == 10);
  for (int i = 0; i < 19; ++i) hedger.Served(milliseconds(1));
  CHECK_FALSE(hedger.TryHedge());
  hedger.Served(milliseconds(1));
  CHECK(hedger.TryHedge());
}

TEST_CASE("at 2 % of late answers nearly all of them are hedged, and of many no more than 5 %") {
  for (const double late : {0.02, 0.5}) {
    SeededRandom random(2);
    Hedger hedger({});
    uint64_t reads = 0, late_reads = 0;
    for (; reads < 20'000; ++reads) {
      if (random.Chance(late)) {
        ++late_reads;
        if (hedger.TryHedge()) {
          hedger.Served(milliseconds(30));
          continue;
        }
      }
      hedger.Served(milliseconds(5));
    }
    CHECK(hedger.hedges() * 20 <= reads + 200);
    if (late < 0.04) CHECK(hedger.hedges() == late_reads);
  }
}

}  // namespace kvkeep
