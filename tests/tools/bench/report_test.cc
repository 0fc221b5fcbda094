#include "tools/bench/report.h"

#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tools/bench/cases.h"

namespace kvkeep::bench {
namespace {

Measured Sample(uint64_t ops) {
  Measured m;
  m.seconds = 0.5;
  m.ops = ops;
  m.chunks = 2 * ops;
  m.bytes = 1000 * ops;
  m.copied_bytes = 10 * ops;
  m.verified_bytes = 77;
  m.client_cpu_seconds = 0.25;
  for (uint64_t i = 1; i <= ops; ++i) m.latency.Record(i * 1000);
  m.first_piece.Record(123);
  return m;
}

}  // namespace

TEST_CASE("what was measured goes to another process and back without a loss") {
  Measured before = Sample(50);
  before.failed_ops = 3;
  before.first_failure = "why";
  before.wrong_bytes = 9;
  const Measured after = FromWire(Json::parse(ToWire(before).dump()));
  CHECK(ToWire(after) == ToWire(before));
  CHECK(ToReport(after) == ToReport(before));
  CHECK(after.latency.Quantile(0.99) == before.latency.Quantile(0.99));
}

TEST_CASE("clients side by side share the time, slices follow each other") {
  Measured beside = Sample(50), after = Sample(50);
  beside.Add(Sample(50), /*side_by_side=*/true);
  after.Add(Sample(50), /*side_by_side=*/false);
  CHECK(beside.seconds == 0.5);
  CHECK(after.seconds == 1);
  CHECK(beside.ops_per_second() == 200);
  CHECK(after.ops_per_second() == 100);
  CHECK(after.client_cpu_seconds == 0.5);
}

TEST_CASE("a report as JSON has options, every case with its numbers, baselines and the table") {
  Report report;
  report.options.verb = "table";
  report.path = "grpc";
  Series one{.name = "get",
             .about = {{"path", "grpc"}},
             .rounds = {Sample(10), Sample(20)},
             .has_daemon = true};
  one.daemon.lock_held_ns_max = 5000;
  report.cases.push_back(one);
  report.baselines.push_back({.name = "memcpy", .rounds = {Sample(5)}});
  report.lines.push_back(RatioLine("rate", "/s", {6}, {10}, {Bound::kAtLeast, 0.5}));
  const Json json = ToJson(report);
  CHECK(json.at("options").at("verb") == "table");
  CHECK(json.at("machine").at("cpus") >= 1);
  const Json& of_case = json.at("cases").at(0);
  CHECK(of_case.at("rounds") == 2);
  CHECK(of_case.at("over_rounds").at("ops_per_second").at("median") == 30);
  const Json& total = of_case.at("total");
  for (const char* name : {"ops_per_second", "chunks_per_second", "gb_per_second", "copied_bytes",
                           "client_cpu_seconds", "verified_bytes", "wrong_bytes", "failed_ops"}) {
    CHECK(total.at(name).is_number());
  }
  for (const char* name : {"p50", "p99", "p999", "max"}) {
    CHECK(total.at("latency_us").at(name).is_number());
  }
  CHECK(of_case.at("daemon").at("lock_held_ns_max_since_start") == 5000);
  CHECK_FALSE(json.at("baselines").at(0).contains("daemon"));
  CHECK(json.at("table").at(0).at("verdict") == "ok");
  CHECK(json.at("table").at(0).at("numbers").at("figure") == 0.6);
  CHECK(absl::StrContains(FormatReport(report), "rate"));
}

TEST_CASE("wrong bytes, failed calls and cases without any call make a report unsound") {
  Report report;
  report.cases.push_back({.name = "get", .rounds = {Sample(10)}});
  CHECK(report.sound());
  report.cases[0].rounds[0].wrong_bytes = 1;
  CHECK_FALSE(report.sound());
  CHECK(absl::StrContains(FormatReport(report), "WRONG BYTES: get: 1"));
  report.cases[0].rounds = {Sample(10)};
  report.cases[0].rounds[0].failed_ops = 1;
  CHECK_FALSE(report.sound());
  report.cases[0].rounds = {Measured{}};
  CHECK_FALSE(report.sound());
  report.cases[0].rounds = {Sample(10)};
  report.failure = "put: no room";
  CHECK_FALSE(report.sound());
  CHECK(absl::StrContains(FormatReport(report), "failed: put: no room"));
}

TEST_CASE("a line holds by the median of the rounds, on the right side of its limit") {
  CHECK(RatioLine("", "", {5, 7, 1}, {10, 10, 10}, {Bound::kAtLeast, 0.5}).verdict == Verdict::kOk);
  CHECK(RatioLine("", "", {4, 7, 1}, {10, 10, 10}, {Bound::kAtLeast, 0.5}).verdict ==
        Verdict::kMissed);
  CHECK(DifferenceLine("", "us", {50, 60}, {11, 19}, {Bound::kAtMost, 40}).verdict == Verdict::kOk);
  CHECK(DifferenceLine("", "us", {50, 62}, {9, 19}, {Bound::kAtMost, 40}).verdict ==
        Verdict::kMissed);
  CHECK(PlainLine("", "", {1}, {Bound::kAbove, 1}).verdict == Verdict::kMissed);
  CHECK(PlainLine("", "", {1}, {Bound::kBelow, 1}).verdict == Verdict::kMissed);
  CHECK(PlainLine("", "", {}, {Bound::kAtMost, 1}).verdict == Verdict::kNotMeasured);
  CHECK(RatioLine("", "", {5}, {10}).verdict == Verdict::kTold);
  CHECK(RatioLine("", "", {}, {}).verdict == Verdict::kNotMeasured);
  CHECK(MissingLine("x", "why").verdict == Verdict::kNotMeasured);
}

TEST_CASE("CPU seconds go by gigabytes of payload, and write-back is what puts do not explain") {
  Series series{.name = "put", .has_daemon = true};
  Measured round;
  round.bytes = 2'000'000'000;
  round.client_cpu_seconds = 1;
  series.rounds = {round, round};
  series.daemon.cpu_seconds = 2;
  const CpuCost put = CostOf("local put", series);
  CHECK(put.gigabytes == Approx(4));
  CHECK(put.client_seconds_per_gb == Approx(0.5));
  CHECK(put.daemon_seconds_per_gb == Approx(0.5));
  // 4 GB put cost 2 s of 5; the others went into 3 GB written back.
  const CpuCost written = WriteBackCost(put, 4'000'000'000, 5, 3'000'000'000);
  CHECK(written.path == "write-back");
  CHECK(written.daemon_seconds_per_gb == Approx(1));
  CHECK(WriteBackCost(put, 4'000'000'000, 1, 3'000'000'000).daemon_seconds_per_gb == 0);
  CHECK(CostOf("nothing", Series{}).daemon_seconds_per_gb == 0);
  Report report{.cpu_costs = {put}};
  CHECK(ToJson(report).at("cpu_costs").at(0).at("path") == "local put");
  CHECK(absl::StrContains(FormatReport(report), "local put"));
}

}  // namespace kvkeep::bench
