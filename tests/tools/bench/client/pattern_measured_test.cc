// Results of the requests of a pattern: counted, added up, sent on; and the jobs that are
// requested.
#include "tools/bench/client/pattern_measured.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tools/bench/client/pattern_request.h"

namespace kvkeep::bench {
namespace {

PatternMeasured Sample() {
  PatternMeasured m;
  m.seconds = 2;
  m.requests = 2;
  m.Count({.asked_chunks = 4,
           .waits_seconds = {0.2, 0.01, 0},
           .bytes = 300,
           .from_nvme = true,
           .recompute_seconds = 0.3});
  m.Count({.asked_chunks = 5});
  m.stored_chunks = 1;
  m.verified_bytes = 300;
  m.client_cpu_seconds = 0.5;
  return m;
}

}  // namespace

TEST_CASE("a prefix takes as long as its waits, and each above 100 ms is a stall") {
  const PatternMeasured m = Sample();
  CHECK(m.asked_chunks == 9);
  CHECK(m.found_chunks == 3);
  CHECK(m.prefixes == 1);  // of the other prompt nothing was there
  CHECK(m.prefixes_from_nvme == 1);
  CHECK(m.stalls == 1);
  CHECK(m.faster_prefixes == 1);
  CHECK(m.prefix.count() == 1);
  CHECK(m.prefix.max_ns() == Approx(210'000'000).epsilon(0.001));
  CHECK(m.chunk_wait.count() == 3);
  CHECK(m.chunk_wait.max_ns() == Approx(200'000'000).epsilon(0.001));
  CHECK(m.chunk.min_ns() == Approx(200'000'000).epsilon(0.001));
  PatternMeasured slow;
  slow.Count({.asked_chunks = 1, .waits_seconds = {0.05}, .recompute_seconds = 0.04});
  CHECK(slow.faster_prefixes == 0);
  CHECK(slow.stalls == 0);
}

TEST_CASE("threads of a worker add up, and the first failure stays") {
  PatternMeasured before = Sample(), after = Sample();
  before.Fail("first");
  before.Fail("second");
  after.Add(before);
  CHECK(after.requests == 4);
  CHECK(after.failed_calls == 2);
  CHECK(after.first_failure == "first");
  CHECK(after.prefix.count() == 2);
  CHECK(after.seconds == 2);  // side by side
  CHECK(after.client_cpu_seconds == 1);
}

TEST_CASE("a model that is not known, or whose chunks are too large, is refused by name") {
  CHECK(absl::StrContains(JobsOf({.name = "sessions", .model = "gpt-0"}).status().message(),
                          "known are"));
  CHECK(absl::StrContains(
      JobsOf({.name = "sessions", .model = "llama-3.3-70b", .tokens_per_chunk = 2048})
          .status()
          .message(),
      "tokens-per-chunk"));
  // 80 users with 5,000 tokens and more of a model whose token is 128 KiB.
  const PatternJob sessions = JobsOf({.name = "sessions"})->front();
  CHECK(sessions.pattern.users == 80);
  CHECK(sessions.pattern.rounds == 10);
  CHECK(sessions.chunk_bytes == 256 * 128 * 1024);
  CHECK(JobsOf({.name = "sessions", .rates = {1, 7}})->size() == 2);
  // 16 tokens of it, at half of an H100's peak.
  const PatternJob pm1753 = JobsOf({.name = "pm1753"})->front();
  CHECK(pm1753.chunk_bytes == 2 * 1024 * 1024);
  CHECK(pm1753.recompute_seconds_per_chunk == Approx(16 / (0.5 * 989e12 / 2 / 8.03e9)));
}

}  // namespace kvkeep::bench
