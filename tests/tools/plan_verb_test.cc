// The verb plan, on traces: its output, in words, in JSON and as a picture.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/tools/cli_run.h"
#include "tests/tools/json_keys.h"

namespace kvkeep::tools {
namespace {

// Two requests an hour apart, 1024 and 1536 tokens: of the second, two chunks of three are known.
class SmallTrace {
 public:
  SmallTrace() {
    std::ofstream(path())
        << R"({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
           "\n"
        << R"({"timestamp": 3600000, "input_length": 1536, "output_length": 1, )"
           R"("hash_ids": [1, 2, 3]})"
           "\n";
  }
  std::string path() const { return dir_.path("trace"); }
  std::string file(const std::string& name) const { return dir_.path(name); }
  CliResult Plan(std::vector<std::string> more) const {
    more.insert(more.begin(), {"plan", path(), "--kv-bytes-per-token", "2048", "--json"});
    return Run(more);
  }

 private:
  TemporaryDirectory dir_;
};

}  // namespace

TEST_CASE("the JSON of plan has these keys, which scripts rely on") {
  const SmallTrace trace;
  using Keys = std::set<std::string>;
  CHECK(KeysOf(trace.Plan({"--g2", "4MiB"})) == Keys{"source",
                                                     "method",
                                                     "policies",
                                                     "workload",
                                                     "workload.seconds",
                                                     "workload.days_counted_as",
                                                     "workload.requests",
                                                     "workload.wanted_chunks",
                                                     "workload.chunk_bytes",
                                                     "workload.tokens_per_chunk",
                                                     "workload.highest_hit_ratio",
                                                     "model",
                                                     "model.name",
                                                     "model.source",
                                                     "model.kv_bytes_per_token",
                                                     "model.prefill_tokens_per_second",
                                                     "model.gpus",
                                                     "model.gpu",
                                                     "model.gpu_source",
                                                     "fetch",
                                                     "fetch[].tier",
                                                     "fetch[].bytes_per_second",
                                                     "fetch[].seconds_per_1000_tokens",
                                                     "fetch[].break_even_bytes_per_second",
                                                     "fetch[].times_faster",
                                                     "fetch[].least_tokens",
                                                     "cpu",
                                                     "cpu.transport",
                                                     "cpu.origin",
                                                     "now",
                                                     "sizes",
                                                     "sizes[].g2_bytes",
                                                     "sizes[].g3_bytes",
                                                     "sizes[].hit_ratio",
                                                     "sizes[].g2_hit_ratio",
                                                     "sizes[].written_bytes_per_day",
                                                     "sizes[].drive_years",
                                                     "sizes[].tokens_saved_per_day",
                                                     "sizes[].requests_saved_per_day",
                                                     "sizes[].gpu_hours_saved_per_day",
                                                     "sizes[].joules_saved_per_day",
                                                     "sizes[].dollars_saved_per_day",
                                                     "sizes[].tier_dollars_per_day",
                                                     "sizes[].daemon_cores",
                                                     "sizes[].client_cores",
                                                     "curve",
                                                     "curve[].bytes",
                                                     "curve[].hit_ratio",
                                                     "g4"});
  const Keys with_g4 = KeysOf(trace.Plan({"--g2", "4MiB", "--g4"}));
  for (const char* key :
       {"g4.lifetime_days", "g4.put_dollars_per_1000", "g4.get_dollars_per_1000",
        "g4.storage_dollars_per_gib_month", "g4.traffic_dollars_per_gib", "g4.sizes[].g2_bytes",
        "g4.sizes[].g3_bytes", "g4.sizes[].admission", "g4.sizes[].hit_ratio",
        "g4.sizes[].g4_hit_ratio", "g4.sizes[].put_requests_per_month",
        "g4.sizes[].get_requests_per_month", "g4.sizes[].written_bytes_per_month",
        "g4.sizes[].read_bytes_per_month", "g4.sizes[].stored_bytes",
        "g4.sizes[].dollars_per_month", "g4.sizes[].gpu_hours_saved_per_month",
        "g4.sizes[].dollars_saved_per_month"}) {
    INFO(key);
    CHECK(with_g4.contains(key));
  }
}

TEST_CASE("a plan of a trace is what its requests come to in a day") {
  const SmallTrace trace;  // chunks of 512 tokens: 1 MiB
  const auto json = trace
                        .Plan({"--g2", "1MiB,4MiB", "--g3", "0,8MiB", "--prefill-rate", "1000",
                               "--gpu-price", "2", "--tbw", "100"})
                        .json();
  REQUIRE(json["sizes"].size() == 4);
  CHECK(json["method"] == "simulate");
  CHECK(json["workload"]["highest_hit_ratio"] == Approx(0.4));
  const auto& small = json["sizes"][0];
  CHECK(small["g2_bytes"] == 1 << 20);
  CHECK(small["g3_bytes"] == 0);
  CHECK(small["hit_ratio"] == Approx(0.2));
  CHECK(small["written_bytes_per_day"].is_null());
  const auto& both = json["sizes"][2];
  CHECK(both["g2_hit_ratio"] == Approx(0.2));
  // The tail of a request longer than G2 has no place in G2, but it came, and is in G3.
  CHECK(both["hit_ratio"] == Approx(0.4));
  const auto& large = json["sizes"][3];
  CHECK(large["hit_ratio"] == Approx(0.4));
  CHECK(large["written_bytes_per_day"] == Approx(24.0 * (3 << 20)));
  CHECK(large["tokens_saved_per_day"] == Approx(24.0 * 1024));
  CHECK(large["gpu_hours_saved_per_day"] == Approx(24 * 1.024 / 3600));
  CHECK(large["dollars_saved_per_day"] == Approx(24 * 1.024 / 3600 * 2));
  CHECK(large["joules_saved_per_day"] == Approx(24 * 1.024 * 700));
  CHECK(large["tier_dollars_per_day"].is_null());
  const auto twice =
      trace.Plan({"--g2", "4MiB", "--g3", "8MiB", "--requests-per-day", "96"}).json();
  CHECK(twice["sizes"][0]["written_bytes_per_day"] == Approx(48.0 * (3 << 20)));
}

TEST_CASE("by samples it says the same of lru, and nothing of other policies") {
  const SmallTrace trace;
  const auto json = trace.Plan({"--g2", "4MiB", "--g3", "8MiB", "--method", "sample"}).json();
  CHECK(json["method"] == "sample");
  CHECK(json["sizes"][0]["hit_ratio"] == Approx(0.4));
  CHECK(json["sizes"][0]["written_bytes_per_day"] == Approx(24.0 * (3 << 20)));
  CHECK(trace.Plan({"--method", "sample", "--g2-policy", "arc"}).code == kUsage);
  CHECK(trace.Plan({"--method", "sample", "--admission", "second_use"}).code == kUsage);
  CHECK(trace.Plan({"--g2-policy", "arc"}).json()["method"] == "simulate");
}

TEST_CASE("with --g4 a plan says what a bucket has that the node no longer has, and its cost") {
  // G2 has room for two chunks of 1 MiB: the second request evicts the first one's.
  const TemporaryDirectory dir;
  std::ofstream(dir.path("trace"))
      << R"({"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})" "\n"
      << R"({"timestamp": 1800000, "input_length": 1024, "output_length": 1, "hash_ids": [3, 4]})"
         "\n"
      << R"({"timestamp": 3600000, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]})"
         "\n";
  const auto plan = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", dir.path("trace"), "--kv-bytes-per-token", "2048", "--json",
                               "--g2", "2MiB", "--g3", "0", "--g4"});
    return Run(more).json()["g4"];
  };
  const auto g4 = plan({"--prefill-rate", "1000", "--gpu-price", "2"});
  REQUIRE(g4["sizes"].size() == 2);
  constexpr double kTimes = 365.25 / 12 * 24;  // the hour, in a month
  const auto& all = g4["sizes"][0];
  CHECK(all["admission"] == "all");
  CHECK(all["hit_ratio"] == Approx(2.0 / 6));
  CHECK(all["g4_hit_ratio"] == Approx(2.0 / 6));
  CHECK(all["put_requests_per_month"] == Approx(4 * kTimes));
  // Each request asks for both of its chunks; the last one gets both.
  CHECK(all["get_requests_per_month"] == Approx((6 + 2) * kTimes));
  CHECK(all["written_bytes_per_month"] == Approx(4.0 * (1 << 20) * kTimes));
  CHECK(all["read_bytes_per_month"] == Approx((2.0 * (1 << 20) + 6 * 4096) * kTimes));
  CHECK(all["stored_bytes"] == Approx(4.0 * (1 << 20) * 24 * 7));
  // 2.922 thousand PUTs, 5.844 thousand GETs, 672 MiB.
  CHECK(all["dollars_per_month"] == Approx(2.922 * 0.005 + 5.844 * 0.0004 + 0.65625 * 0.023));
  CHECK(all["gpu_hours_saved_per_month"] == Approx(1.024 / 3600 * kTimes));
  CHECK(all["dollars_saved_per_month"] == Approx(2 * 1.024 / 3600 * kTimes));
  // Nothing was used while it was on the node.
  const auto& second_use = g4["sizes"][1];
  CHECK(second_use["admission"] == "second_use");
  CHECK(second_use["hit_ratio"] == 0);
  CHECK(second_use["put_requests_per_month"] == 0);
  CHECK(second_use["dollars_per_month"] == Approx(6 * kTimes / 1000 * 0.0004));
  // 57.6 minutes: written chunks are gone when they are asked for, and are written again.
  const auto brief = plan({"--g4-lifetime", "0.04"})["sizes"][0];
  CHECK(brief["g4_hit_ratio"] == 0);
  CHECK(brief["put_requests_per_month"] == Approx(6 * kTimes));
  // The hour stands for two days, so 1.9 days are 57 minutes of it.
  CHECK(plan({"--g4-lifetime", "1.9", "--requests-per-day", "1.5"})["sizes"][0]["hit_ratio"] == 0);
  CHECK(plan({"--g4-lifetime", "2.1", "--requests-per-day", "1.5"})["sizes"][0]["hit_ratio"] > 0);
  const auto free = plan({"--g4-put-price", "0", "--g4-get-price", "0", "--g4-storage-price", "0",
                          "--g4-traffic-price", "0.5"});
  CHECK(free["sizes"][0]["dollars_per_month"] == Approx((2.0 + 6.0 / 256) / 1024 * kTimes * 0.5));
}

TEST_CASE("a plan with --g4 is simulated, tells of no --live, and has a table for people") {
  const SmallTrace trace;
  CHECK(trace.Plan({"--g4", "--method", "sample"}).code == kUsage);
  CHECK(Run({"plan", "--live", "--g4", "--kv-bytes-per-token", "2048"}).code == kUsage);
  const CliResult text = Run({"plan", trace.path(), "--kv-bytes-per-token", "2048", "--g4"});
  CHECK(absl::StrContains(text.out, "with G4, whose objects live for 7 days"));
  CHECK(absl::StrContains(text.out, "  $/MONTH\n"));  // and nothing saved: no rate of prefill
  CHECK(absl::StrContains(text.out, "second_use"));
}

TEST_CASE("what a drive may take in a day bounds what a plan with write_budget writes") {
  const SmallTrace trace;
  // 0.000001 TB in 1 year: 2.7 KB a day, and one chunk may overdraw it.
  const auto json = trace
                        .Plan({"--g2", "4MiB", "--g3", "8MiB", "--admission", "write_budget",
                               "--tbw", "0.000001", "--years", "1"})
                        .json();
  CHECK(json["sizes"][0]["written_bytes_per_day"] == Approx(24.0 * (1 << 20)));
  CHECK(trace.Plan({"--admission", "write_budget"}).code == kUsage);  // no --tbw
}

TEST_CASE("without a model, with one that is unknown, or a trace that is not there, plan fails") {
  const SmallTrace trace;
  const CliResult none = Run({"plan", trace.path()});
  CHECK(none.code == kUsage);
  CHECK(absl::StrContains(none.err, "--model or --kv-bytes-per-token is required"));
  CHECK(Run({"plan", trace.path(), "--model", "x"}).code == kUsage);
  CHECK(trace.Plan({"--gpu", "x"}).code == kUsage);
  CHECK(trace.Plan({"--g2", "0"}).code == kUsage);
  CHECK(trace.Plan({"--g2-policy", "x"}).code == kUsage);
  CHECK(Run({"plan", trace.path(), "--model", "qwen3-8b", "--gpu", "a100", "--precision", "fp8"})
            .code == kUsage);
  CHECK(Run({"plan", trace.file("none"), "--model", "qwen3-8b"}).code == kFailed);
  CHECK(Run({"plan"}).code == kUsage);
  CHECK(trace.Plan({"--svg", trace.file("no/such/folder")}).code == kFailed);
}

TEST_CASE("a live plan is what the daemon's lookups would have found in tiers of other sizes") {
  const fakes::FakeDaemon daemon;
  const std::vector<std::string> plan = {
      "plan", "--live", "--kv-bytes-per-token", "2048",           "--json", "--g2",
      "2MiB", "--g3",   "0,4GiB,32GiB",         "--prefill-rate", "1000"};
  const auto json = Run(daemon, plan).json();
  REQUIRE(json["sizes"].size() == 3);
  CHECK(json["method"] == "sample");
  CHECK(json["workload"]["tokens_per_chunk"] == 512);
  CHECK(json["sizes"][0]["hit_ratio"] == Approx(0.3));
  CHECK(json["sizes"][0]["written_bytes_per_day"].is_null());
  CHECK(json["sizes"][1]["hit_ratio"] == Approx(0.3));
  // Chunks that it had lost come again.
  CHECK(json["sizes"][1]["written_bytes_per_day"] == Approx(24.0 * 700 * (1 << 20)));
  CHECK(json["sizes"][2]["hit_ratio"] == Approx(0.6));
  CHECK(json["sizes"][2]["g2_hit_ratio"] == Approx(0.3));
  CHECK(json["sizes"][2]["written_bytes_per_day"] == Approx(24.0 * 400 * (1 << 20)));
  CHECK(json["sizes"][2]["tokens_saved_per_day"] == Approx(24.0 * 600 * 512));
  CHECK(json["now"]["g2_bytes"] == 1 << 20);
  CHECK(json["now"]["predicted_hit_ratio"] == Approx(0.3));
  CHECK(json["now"]["measured_hit_ratio"] == Approx(0.31));
  const CliResult text = Run(daemon, {"plan", "--live", "--model", "qwen3-8b"});
  CHECK(absl::StrContains(text.out, "measured 31.0%, predicted 30.0%"));
}

TEST_CASE("a live plan wants a daemon that was used, and nothing that samples cannot tell") {
  fakes::FakeDaemon daemon;
  const auto live = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"plan", "--live", "--kv-bytes-per-token", "2048"});
    return Run(daemon, more).code;
  };
  CHECK(live({}) == kOk);
  CHECK(live({"--method", "simulate"}) == kUsage);
  CHECK(live({"--admission", "second_use"}) == kUsage);
  CHECK(live({"trace"}) == kUsage);
  CHECK(Run(daemon, {"plan", "--live"}).code == kUsage);  // no model
  daemon.admin.unused = true;
  CHECK(live({}) == kFailed);
  CHECK(Run({"--admin", "unix:///nowhere", "plan", "--live", "--model", "qwen3-8b"}).code ==
        kUnavailable);
}

TEST_CASE("in words plan leaves out what it does not know, and says whether fetching is worth it") {
  const SmallTrace trace;
  const CliResult bare = Run({"plan", trace.path(), "--kv-bytes-per-token", "2048"});
  CHECK(bare.code == kOk);
  CHECK(absl::StrContains(bare.out, "  FROM G2  WRITTEN GB/DAY  CORES DAEMON  ENGINES\n"));
  CHECK_FALSE(absl::StrContains(bare.out, "WORTH IT"));
  const CliResult full = Run({"plan", trace.path(), "--model", "llama-3.1-8b", "--g3-gb-s", "1",
                              "--svg", trace.file("plan.svg")});
  CHECK(absl::StrContains(full.out, "GPU H/DAY"));
  CHECK(absl::StrContains(full.out, "6.2 times faster, from "));  // 25 GB/s by 4.04
  CHECK(absl::StrContains(full.out, "no: 0.25 times as fast"));
  std::stringstream svg;
  svg << std::ifstream(trace.file("plan.svg")).rdbuf();
  CHECK(absl::StrContains(svg.str(), "Prefix hit ratio, %"));
  CHECK(absl::StrContains(svg.str(), "Written to NVMe, GB a day"));
  CHECK(absl::EndsWith(svg.str(), "</svg>\n"));
}

}  // namespace kvkeep::tools
