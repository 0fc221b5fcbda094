// Replay against the fake daemon: its counts, and that it notices a lying daemon.
#include "tools/kvkeep/replay.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "tests/tools/cli_run.h"

namespace kvkeep::tools {
namespace {

std::vector<TraceRequest> Chains(const std::vector<std::vector<uint64_t>>& chains) {
  std::vector<TraceRequest> requests;
  for (const auto& ids : chains) requests.push_back({.hash_ids = ids});
  return requests;
}

// 3 requests with 9 references: 6 distinct blocks, 3 leading hits.
const std::vector<std::vector<uint64_t>> kThree = {{1, 2, 3}, {1, 2, 4, 5}, {1, 6}};

ReplayOptions Options(const fakes::FakeDaemon& daemon) {
  return {.endpoint = daemon.endpoint(),
          .admin_endpoint = daemon.admin_endpoint(),
          .chunk_sizes = {1, 4097, 70'001, 5 << 20}};
}

absl::StatusOr<ReplayReport> Play(const ReplayOptions& options,
                                  const std::vector<TraceRequest>& trace) {
  return Replay(options, trace, [](uint64_t) {});
}

}  // namespace

TEST_CASE("a replay counts hits as an engine would see them") {
  fakes::FakeDaemon daemon;
  auto report = Play(Options(daemon), Chains(kThree));
  REQUIRE(report.ok());
  CHECK(report->requests == 3);
  CHECK(report->chunk_refs == 9);
  CHECK(report->leading_hit_chunks == 3);
  CHECK(report->hit_ratio() == Approx(3.0 / 9));
  CHECK(report->g2_hits == 3);
  CHECK(report->g3_hits == 0);
  CHECK(report->put_chunks == 6);
  CHECK(report->present_chunks == 0);
  CHECK(report->wrong_bytes == 0);
  CHECK(report->failed_calls == 0);
  CHECK(report->lookup_us.size() == 3);
  CHECK(report->get_chunk_us.size() == 3);
  CHECK(report->good());
  CHECK(daemon.kv.chunks() == 6);
  daemon.kv.script.in_g3 = true;
  auto again = Play(Options(daemon), Chains(kThree));
  REQUIRE(again.ok());
  CHECK(again->leading_hit_chunks == 9);
  CHECK(again->g3_hits == 9);
  CHECK(again->put_chunks == 0);
}

TEST_CASE("a replay that may wait gets what comes from beyond the node, window by window") {
  fakes::FakeDaemon daemon;
  ReplayOptions options = Options(daemon);
  REQUIRE(Play(options, Chains({{1, 2, 3, 4, 5}})).ok());
  daemon.kv.script.in_g4 = true;
  const auto unasked = Play(options, Chains({{1, 2, 3, 4, 5}}));
  REQUIRE(unasked.ok());
  CHECK(unasked->leading_hit_chunks == 0);
  options.remote_wait = client::Deadline(200);
  for (uint32_t limit : {2u, 5u}) {
    daemon.kv.script.max_leased_keys = limit;
    const auto report = Play(options, Chains({{1, 2, 3, 4, 5}}));
    REQUIRE(report.ok());
    CHECK(report->leading_hit_chunks == 5);
    CHECK(report->g4_hits == 5);
    CHECK(report->g2_hits + report->g3_hits + report->put_chunks == 0);
    CHECK(report->wrong_bytes == 0);
    CHECK(daemon.kv.leases() == 0);
  }
  daemon.kv.script.corrupt_gets = 1;  // one that does not come breaks no promise
  const auto lost = Play(options, Chains({{1, 2, 3, 4, 5}}));
  REQUIRE(lost.ok());
  CHECK(lost->leading_hit_chunks == 0);
  CHECK(lost->lost_promises == 0);
  daemon.kv.script.in_g4 = false;
  daemon.kv.script.corrupt_gets = 1;
  CHECK(Play(options, Chains({{1, 2, 3, 4, 5}}))->lost_promises == 1);
}

TEST_CASE("one wrong byte that a daemon vouches for is found and fails the replay") {
  fakes::FakeDaemon daemon;
  REQUIRE(Play(Options(daemon), Chains(kThree)).ok());
  daemon.kv.script.wrong_bytes = true;  // one byte of every frame, with checksums to match
  auto report = Play(Options(daemon), Chains({{1, 2, 3}}));
  REQUIRE(report.ok());
  CHECK(report->wrong_bytes >= 3);
  CHECK_FALSE(report->good());
}

TEST_CASE("a chunk of another size than was put is wrong") {
  fakes::FakeDaemon daemon;
  ReplayOptions options = Options(daemon);
  options.chunk_sizes = {1000};
  REQUIRE(Play(options, Chains(kThree)).ok());
  for (uint64_t other : {999, 1001}) {
    options.chunk_sizes = {other};
    auto report = Play(options, Chains({{1, 2}}));
    REQUIRE(report.ok());
    CHECK(report->wrong_bytes > 0);
  }
}

TEST_CASE("bytes that fail their checksum are a miss and put again, not wrong bytes") {
  fakes::FakeDaemon daemon;
  REQUIRE(Play(Options(daemon), Chains({{1, 2, 3}})).ok());
  daemon.kv.script.corrupt_gets = 1;
  auto report = Play(Options(daemon), Chains({{1, 2, 3}}));
  REQUIRE(report.ok());
  CHECK(report->corrupt_chunks == 1);
  CHECK(report->leading_hit_chunks == 0);
  CHECK(report->present_chunks == 3);
  CHECK(report->wrong_bytes == 0);
}

TEST_CASE("a run that cannot be leased whole is got window by window and counted once") {
  fakes::FakeDaemon daemon;
  std::vector<uint64_t> ids;
  for (uint64_t id = 0; id < 23; ++id) ids.push_back(id);
  ReplayOptions options = Options(daemon);
  options.chunk_sizes = {1000, 13};
  REQUIRE(Play(options, Chains({ids})).ok());
  for (uint32_t limit : {1u, 5u, 22u, 23u}) {
    daemon.kv.script.max_leased_keys = limit;
    auto report = Play(options, Chains({ids}));
    REQUIRE(report.ok());
    CHECK(report->leading_hit_chunks == 23);
    CHECK(report->g2_hits == 23);
    CHECK(report->lookup_us.size() == 1);
    CHECK(report->put_chunks + report->present_chunks == 0);
    CHECK(daemon.kv.leases() == 0);
  }
  daemon.kv.script.max_leased_keys = 0;  // no lease at all: read through
  auto report = Play(options, Chains({ids}));
  REQUIRE(report.ok());
  CHECK(report->leading_hit_chunks == 23);
  CHECK(report->unleased_windows == 1);
}

TEST_CASE("rejected puts are counted and cost only hits") {
  fakes::FakeDaemon daemon;
  daemon.kv.script.reject_puts = true;
  auto report = Play(Options(daemon), Chains(kThree));
  REQUIRE(report.ok());
  CHECK(report->rejected == 9);
  REQUIRE(report->rejected_because.size() == 1);
  CHECK(report->rejected_because.begin()->first == "REJECT_REASON_NO_SPACE");
  CHECK(report->rejected_because.begin()->second == 9);
  CHECK(report->first_rejection.find("REJECT_REASON_NO_SPACE: ") == 0);
  CHECK(report->leading_hit_chunks == 0);
  CHECK(report->good());
}

TEST_CASE("another seed is another set of keys") {
  fakes::FakeDaemon daemon;
  ReplayOptions options = Options(daemon);
  REQUIRE(Play(options, Chains(kThree)).ok());
  options.seed = 2;
  CHECK(Play(options, Chains(kThree))->put_chunks == 6);
  CHECK(daemon.kv.chunks() == 12);
}

TEST_CASE("a tier or device over its capacity fails the replay that checks it") {
  fakes::FakeDaemon daemon;
  ReplayOptions options = Options(daemon);
  options.check_capacity = true;
  auto good = Play(options, Chains(kThree));
  REQUIRE(good.ok());
  CHECK(good->status_polls > 0);
  CHECK(good->good());
  CHECK(good->resident_chunks_g2 == 6);
  daemon.admin.directory_bytes = (1 << 20) + 1;
  auto bad = Play(options, Chains(kThree));
  REQUIRE(bad.ok());
  CHECK(bad->capacity_violations > 0);
  CHECK(bad->first_violation == "directory of /fake holds 1048577 bytes of 1048576");
  CHECK_FALSE(bad->good());
  daemon.admin.directory_bytes = 0;
  daemon.admin.g2_used = (1 << 20) + 4096;
  CHECK_FALSE(Play(options, Chains(kThree))->good());
}

TEST_CASE("a replay that settles begins a request when nothing is dirty, and waits only so long") {
  fakes::FakeDaemon daemon;
  ReplayOptions options = Options(daemon);
  options.settle = true;
  daemon.admin.dirty_answers = 5;
  auto settled = Play(options, Chains(kThree));
  REQUIRE(settled.ok());
  CHECK(daemon.admin.dirty_answers == 0);
  CHECK(settled->put_chunks == 6);
  daemon.admin.dirty_answers = 1'000'000;
  options.settle_timeout = client::Deadline(20);
  options.seed = 2;
  const auto never = Play(options, Chains(kThree));
  CHECK(absl::IsDeadlineExceeded(never.status()));
  CHECK(daemon.kv.chunks() == 6);  // none of the second
}

TEST_CASE("a daemon that dies and comes back costs hits when that is tolerated, else the run") {
  for (bool tolerate : {true, false}) {
    fakes::FakeDaemon daemon;
    ReplayOptions options = Options(daemon);
    options.tolerate_restart = tolerate;
    options.concurrency = 3;
    std::vector<std::vector<uint64_t>> chains;
    for (uint64_t i = 0; i < 400; ++i) chains.push_back({1, 2, i % 20, 100 + i % 50});
    std::atomic<uint64_t> played{0};
    std::atomic<int> held{0};
    std::atomic<bool> stopped{false};
    std::thread killer([&] {
      for (uint64_t at : {40, 150}) {
        // The worker threads of the replay make the progress.
        while (played < at) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        daemon.Stop();
        stopped = true;
        if (!tolerate) return;
        // For the waiting ones.
        while (held > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for a call to find it away
        daemon.Start();
      }
    });
    auto report = Replay(options, Chains(chains), [&](uint64_t done) {
      played = done;
      ++held;
      // The last hundred requests wait for a killer that is late.
      while (done >= 300 && !stopped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      --held;
    });
    killer.join();
    REQUIRE(report.ok() == tolerate);
    if (!tolerate) {
      CHECK(absl::IsUnavailable(report.status()));
      continue;
    }
    CHECK(report->requests == 400);
    CHECK(report->unavailable > 0);
    CHECK(report->wrong_bytes == 0);
    CHECK(report->leading_hit_chunks > 400);
  }
}

TEST_CASE("the verb prints all keys, and exits by what was found") {
  fakes::FakeDaemon daemon;
  TemporaryDirectory dir;
  {
    std::ofstream trace(dir.path("trace"));
    for (int i = 0; i < 6; ++i) {
      trace << R"({"timestamp": )" << i
            << R"(, "input_length": 1, "output_length": 1, "hash_ids": [0, )" << i + 1 << "]}\n";
    }
  }
  const CliResult result =
      Run(daemon, {"replay", dir.path("trace"), "--chunk-bytes", "1KiB,33", "--skip", "1",
                   "--requests", "4", "--concurrency", "2", "--check-capacity", "--json"});
  REQUIRE(result.code == kOk);
  for (const char* key :
       {"requests", "chunk_refs", "leading_hit_chunks", "hit_ratio", "g2_hits", "g3_hits",
        "g4_hits", "put_chunks", "rejected", "wrong_bytes", "seconds", "get_gb_s", "put_gb_s",
        "lookup_us_p50", "lookup_us_p99", "get_chunk_us_p50", "get_chunk_us_p99", "unavailable",
        "present", "capacity_violations"}) {
    CAPTURE(key);
    CHECK(result.json().contains(key));
  }
  CHECK(result.json()["requests"] == 4);
  CHECK(result.json()["chunk_refs"] == 8);
  daemon.kv.script.reject_puts = true;
  const CliResult rejecting = Run(daemon, {"replay", dir.path("trace"), "--chunk-bytes", "1KiB,33",
                                           "--requests", "2", "--seed", "2", "--json"});
  CHECK(rejecting.code == kOk);
  CHECK(rejecting.json()["rejected_because"]["REJECT_REASON_NO_SPACE"] == 4);
  CHECK(rejecting.err.find("kvkeep: rejected 4 (REJECT_REASON_NO_SPACE: 4); first: ") !=
        std::string::npos);
  daemon.kv.script.reject_puts = false;
  daemon.kv.script.wrong_bytes = true;
  const CliResult wrong = Run(daemon, {"replay", dir.path("trace"), "--chunk-bytes", "1KiB,33"});
  CHECK(wrong.code == kFailed);
  CHECK(wrong.err.find("WRONG BYTES") != std::string::npos);
  CHECK(Run(daemon, {"replay", dir.path("none")}).code == kFailed);
  daemon.kv.script.wrong_bytes = false;
  daemon.kv.script.in_g4 = true;
  const CliResult waiting = Run(daemon, {"replay", dir.path("trace"), "--chunk-bytes", "1KiB,33",
                                         "--requests", "2", "--remote-wait", "200ms", "--json"});
  CHECK(waiting.json()["g4_hits"] == 4);
  const CliResult too_long =
      Run(daemon, {"replay", dir.path("trace"), "--remote-wait", "11s", "--json"});
  CHECK(too_long.code == kUsage);
  CHECK(too_long.err.find("'11s': at most 10s") != std::string::npos);
  daemon.Stop();
  CHECK(Run(daemon, {"replay", dir.path("trace")}).code == kUnavailable);
}

TEST_CASE("percentiles are of the nearest rank") {
  std::vector<double> none;
  CHECK(Percentile(none, 0.5) == 0);
  std::vector<double> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(i);
  CHECK(Percentile(samples, 0.5) == 50);
  CHECK(Percentile(samples, 0.99) == 99);
  CHECK(Percentile(samples, 1) == 100);
}

}  // namespace kvkeep::tools
