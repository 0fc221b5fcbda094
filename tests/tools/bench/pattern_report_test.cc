// What the requests of a pattern came to: counted, added up, sent on, and told.
#include "tools/bench/pattern_report.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/tools/keys_of_json.h"

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

PatternReport SampleReport() {
  PatternReport report{.request = {.name = "pm1753", .rates = {50}}};
  const std::vector<PatternJob> jobs = *JobsOf(report.request);
  report.model = *ModelOf(report.request);
  report.g2_bytes = 1'000'000'000;
  report.g3_bytes = 100'000'000'000;
  PatternRun run{.job = jobs[0], .distinct_chunks = 10'000};
  run.alone = run.loaded = Sample();
  run.promotions = 3;
  run.promotion_runs = 2;
  run.served_g2_chunks = 1;
  run.served_g3_chunks = 3;
  report.runs.push_back(run);
  return report;
}

std::set<std::string> KeysOfRuns() {
  std::set<std::string> expected;
  for (const char* key : {"pattern",
                          "pattern.kind",
                          "pattern.users",
                          "pattern.workers",
                          "pattern.requests_per_second",
                          "pattern.seconds",
                          "pattern.seed",
                          "pattern.document_chunks",
                          "pattern.written_share",
                          "pattern.burst_every_seconds",
                          "pattern.burst_share",
                          "pattern.burst_rate",
                          "pattern.burst_requests_at_once",
                          "chunk_bytes",
                          "get_chunks",
                          "depth",
                          "recompute_us_per_chunk",
                          "distinct_chunks",
                          "working_set_bytes",
                          "offered_bytes_per_second",
                          "recalled_bytes_per_second",
                          "stored_bytes_per_second",
                          "found_share",
                          "stored_share",
                          "from_nvme_share",
                          "device_bytes_per_second",
                          "offered_share_of_device",
                          "nvme_share_of_device",
                          "peak_share_of_device",
                          "below_device_rate",
                          "stalls_over_100_ms",
                          "fetch_faster_than_recompute_share",
                          "promotions",
                          "device_runs",
                          "device_runs_per_prefix",
                          "daemon_cpu_seconds"}) {
    expected.insert(std::string("runs[].") + key);
  }
  for (const char* part : {"alone", "loaded"}) {
    const std::string name = std::string("runs[].") + part;
    expected.insert(name);
    for (const char* key : {"seconds", "client_cpu_seconds", "requests", "asked_chunks",
                            "found_chunks", "stored_chunks", "refused_chunks", "recalled_bytes",
                            "stored_bytes", "prefixes", "prefixes_from_nvme", "faster_prefixes",
                            "stalls", "failed_calls", "verified_bytes", "wrong_bytes"}) {
      expected.insert(name + "." + key);
    }
    for (const char* latency :
         {"chunk_wait_us", "chunk_us", "prefix_us", "store_us", "began_late_us"}) {
      expected.insert(name + "." + latency);
      for (const char* key : {"count", "min", "p50", "p99", "p999", "max", "mean"}) {
        expected.insert(name + "." + latency + "." + key);
      }
    }
  }
  return expected;
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

TEST_CASE("what a worker counted reaches the main process whole, and workers add up") {
  PatternMeasured before = Sample();
  before.Fail("first");
  before.Fail("second");
  PatternMeasured after =
      FieldsFromJson<PatternMeasured>(Json::parse(FieldsToJson(before).dump()));
  CHECK(FieldsToJson(after) == FieldsToJson(before));
  CHECK(after.first_failure == "first");
  after.Add(before);
  CHECK(after.requests == 4);
  CHECK(after.failed_calls == 4);
  CHECK(after.prefix.count() == 2);
  CHECK(after.seconds == 2);  // side by side
  CHECK(after.client_cpu_seconds == 1);
}

TEST_CASE("the JSON of a pattern has these keys, which scripts rely on") {
  std::set<std::string> expected = {"request",
                                    "request.name",
                                    "request.rates",
                                    "request.seconds",
                                    "request.users",
                                    "request.workers",
                                    "request.depth",
                                    "request.get_chunks",
                                    "request.seed",
                                    "request.quick",
                                    "request.model",
                                    "request.gpu",
                                    "request.kv_bytes_per_token",
                                    "request.prefill_tokens_per_second",
                                    "request.tokens_per_chunk",
                                    "request.rounds",
                                    "request.system_prompt_tokens",
                                    "request.history_tokens",
                                    "model",
                                    "model.kv_bytes_per_token",
                                    "model.prefill_tokens_per_second",
                                    "daemon",
                                    "arena",
                                    "path",
                                    "g2_bytes",
                                    "g3_bytes",
                                    "wants",
                                    "device_why_not",
                                    "runs",
                                    "table",
                                    "sound"};
  expected.merge(KeysOfRuns());
  const nlohmann::json json = nlohmann::json::parse(ToJson(SampleReport()).dump());
  CHECK(tools::KeysOfJson(json) == expected);
  const auto& run = json.at("runs").at(0);
  CHECK(run.at("device_runs_per_prefix") == 2);
  CHECK(run.at("from_nvme_share") == 0.75);
  CHECK(run.at("stored_share") == 0.25);
  CHECK(run.at("fetch_faster_than_recompute_share") == 1);
  // 16 tokens of llama-3.1-8b, at half of an H100's peak.
  CHECK(run.at("chunk_bytes") == 2 * 1024 * 1024);
  CHECK(run.at("recompute_us_per_chunk") == Approx(16 / (0.5 * 989e12 / 2 / 8.03e9) * 1e6));
}

TEST_CASE("the table says what was wrong, and what the daemon would have to be given") {
  PatternReport report = SampleReport();
  CHECK(report.sound());
  CHECK(report.wants().empty());
  CHECK(absl::StrContains(FormatPattern(report), "stalls over 100 ms"));
  report.runs[0].loaded.wrong_bytes = 1;
  CHECK_FALSE(report.sound());
  CHECK(absl::StrContains(FormatPattern(report), "WRONG BYTES: 1 of 300"));
  report.g2_bytes = 15'000'000'000;
  CHECK(absl::StrContains(report.wants(), "more than half"));
  report.g2_bytes = 1'000'000'000;
  report.g3_bytes = 2'000'000'000;
  CHECK(absl::StrContains(report.wants(), "does not hold it"));
  report.g3_bytes = 0;
  CHECK(absl::StrContains(report.wants(), "without a G3"));
}

TEST_CASE("stalls and p99 are judged where bursts stay below the drive's rate, else told") {
  PatternReport report = SampleReport();
  PatternRun& run = report.runs[0];
  run.offered_bytes_per_second = 1e9;  // three quarters of it from NVMe, twice as much in bursts
  run.device_bytes_per_second = 1.6e9;
  CHECK(run.offered_share_of_device() == Approx(0.625));
  CHECK(run.peak_share_of_device() == Approx(0.9375));
  REQUIRE(run.below_device_rate());
  std::vector<Line> lines = JudgePattern(report);
  REQUIRE(lines.size() == 2);
  CHECK(absl::StrContains(lines[0].what, "at most 94 % of the drive's rate"));
  CHECK(lines[0].verdict == Verdict::kMissed);  // one stall
  CHECK(lines[1].verdict == Verdict::kOk);      // as alone
  run.loaded.stalls = 0;
  run.loaded.chunk = LatencyHistogram();
  run.loaded.chunk.Record(5 * run.alone.chunk.Quantile(0.99));
  lines = JudgePattern(report);
  CHECK(lines[0].verdict == Verdict::kOk);
  CHECK(lines[1].verdict == Verdict::kMissed);
  report.lines = lines;
  CHECK_FALSE(report.all_ok());
  const Json table = ToJson(report).at("table");
  CHECK(table.at(1).at("verdict") == "MISSED");
  CHECK(table.at(1).at("target") == "at most 4");
  CHECK(absl::StrContains(FormatPattern(report), "MISSED"));
  run.device_bytes_per_second = 1.4e9;  // bursts are more than that
  CHECK_FALSE(run.below_device_rate());
  lines = JudgePattern(report);
  CHECK(lines[1].verdict == Verdict::kTold);
  CHECK(lines[1].target.empty());
  run.device_bytes_per_second = 0;
  lines = JudgePattern(report);
  CHECK(lines[0].verdict == Verdict::kTold);
  CHECK(absl::StrContains(lines[0].what, "not known"));
}

TEST_CASE("of sessions, a closed loop, nothing is promised") {
  PatternReport report = SampleReport();
  report.runs[0].job.pattern.kind = PatternKind::kSessions;
  report.runs[0].offered_bytes_per_second = 1;
  report.runs[0].device_bytes_per_second = 1e9;
  for (const Line& line : JudgePattern(report)) CHECK(line.verdict == Verdict::kTold);
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
}

}  // namespace kvkeep::bench
