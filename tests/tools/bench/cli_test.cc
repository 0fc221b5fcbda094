// The whole of kvkeep-bench against the real daemon: that everything works and is counted, never
// how fast it is.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/fakes/scratch_dir.h"
#include "tools/bench/bench_cli.h"

namespace kvkeep::bench {
namespace {

struct Result {
  int code = 0;
  std::string out, err;
  nlohmann::json json() const { return nlohmann::json::parse(out); }
};

Result Run(std::vector<std::string> arguments) {
  std::ostringstream out, err;
  const int code = RunBench(arguments, out, err, /*show_progress=*/false);
  return {code, out.str(), err.str()};
}

Result RunWithDaemon(std::vector<std::string> arguments) {
  const std::vector<std::string> common = {"--daemon", KVKEEPD_PATH, "--g2", "192MiB",
                                           "--json",   "--rounds",   "1",    "--region",
                                           "8MiB",     "--seconds",  "0.02"};
  arguments.insert(arguments.end(), common.begin(), common.end());
  return Run(arguments);
}

}  // namespace

TEST_CASE("wrong usage is refused with a word on what is wrong") {
  CHECK(Run({}).code == 2);
  CHECK(Run({"--help"}).code == 0);
  CHECK(Run({"get", "--size", "257MiB"}).code == 2);
  CHECK(Run({"get", "--path", "carrier-pigeon"}).code == 2);
  CHECK(Run({"table", "--section", "nonsense"}).code == 2);
  const Result no_daemon = Run({"table"});
  CHECK(no_daemon.code == 2);
  CHECK(absl::StrContains(no_daemon.err, "--daemon"));
  const Result half = Run({"get", "--arena-dir", "/x"});
  CHECK(half.code == 2);
  CHECK(absl::StrContains(half.err, "both or none"));
}

TEST_CASE("without a daemon the load fails and says so, the baselines do not need one") {
  const Result lost = Run({"get", "--endpoint", "unix:///nonexistent/kvkeep.sock"});
  CHECK(lost.code == 1);
  CHECK_FALSE(lost.err.empty());
  const Result alone = Run({"baseline", "--json", "--rounds", "1", "--seconds", "0.01", "--size",
                            "64KiB", "--region", "4MiB", "--batch", "512"});
  REQUIRE(alone.code == 0);
  CHECK(alone.json().at("baselines").size() == 3);
  CHECK(alone.json().at("cases").empty());
}

TEST_CASE("--json with a path writes there, and the text comes as ever") {
  const ScratchDir scratch;
  const std::string path = scratch / "out.json";
  const std::vector<std::string> baseline = {
      "baseline", "--rounds", "1", "--seconds", "0.01", "--size", "64KiB", "--region", "4MiB"};
  std::vector<std::string> arguments = baseline;
  arguments.insert(arguments.end(), {"--json", path});
  const Result result = Run(arguments);
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(absl::StrContains(result.out, "ping-pong"));
  std::ifstream file(path);
  CHECK(nlohmann::json::parse(file).at("sound") == true);
  arguments.back() = scratch / "missing/out.json";
  const Result lost = Run(arguments);
  CHECK(lost.code == 1);
  CHECK(absl::StrContains(lost.err, "cannot write"));
}

TEST_CASE("each verb does its calls, verified, and counts the daemon's CPU time and lock") {
  for (const std::string verb : {"get", "put", "lookup", "mixed"}) {
    INFO(verb);
    const Result result = RunWithDaemon({verb, "--size", "256KiB,512KiB", "--batch", "2", "--depth",
                                         "2", "--clients", "2", "--keys", "16"});
    INFO(result.err);
    REQUIRE(result.code == 0);
    const nlohmann::json json = result.json();
    REQUIRE(json.at("cases").size() == 2);
    for (const auto& one : json.at("cases")) {
      const auto& total = one.at("total");
      CHECK(total.at("ops") > 0);
      CHECK(total.at("chunks") == 2 * total.at("ops").get<uint64_t>());
      CHECK(total.at("failed_ops") == 0);
      CHECK(total.at("wrong_bytes") == 0);
      if (verb != "lookup") CHECK(total.at("verified_bytes") > 0);
      CHECK(total.at("client_cpu_seconds") > 0);
      CHECK(one.at("daemon").at("cpu_seconds") > 0);
      CHECK(one.at("daemon").at("lock_acquisitions") > 0);
      CHECK(one.at("about").at("clients") == 2);
    }
  }
}

TEST_CASE("lookups of a filled table find every key") {
  const Result result = RunWithDaemon({"lookup", "--table-chunks", "3000", "--batch", "512"});
  INFO(result.err);
  REQUIRE(result.code == 0);
  CHECK(result.json().at("cases").at(0).at("total").at("failed_ops") == 0);
}

TEST_CASE("gets of chunks that are not there make the run fail") {
  // More chunks than fit: the first ones were evicted.
  const Result result = RunWithDaemon({"get", "--size", "1MiB", "--keys", "400"});
  CHECK(result.code == 1);
  CHECK(result.json().at("cases").at(0).at("total").at("failed_ops") > 0);
}

TEST_CASE("a quick table has every line of the promise, measured or with a reason why not") {
  const Result result = Run({"table", "--quick", "--json", "--daemon", KVKEEPD_PATH});
  INFO(result.err);
  INFO(result.out);
  REQUIRE(result.code == 0);
  const nlohmann::json json = result.json();
  CHECK(json.at("sound") == true);
  CHECK(json.at("table").size() >= 20);
  std::string whats;
  for (const auto& line : json.at("table")) whats += line.at("what").get<std::string>() + "\n";
  for (const char* what : {"gRPC: p50", "prefault", "in G2 while write-back",
                           "two simulated drives", "resident beside the arena", "wake-ups"}) {
    CHECK(absl::StrContains(whats, what));
  }
  for (const auto& line : json.at("table")) {
    CHECK_FALSE(line.at("figure").get<std::string>().empty());
    if (line.at("verdict") != "not measured") CHECK(line.at("numbers").at("figure").is_number());
  }
}

TEST_CASE("what a gigabyte costs is told of every path, promotion and write-back among them") {
  const Result result = RunWithDaemon({"cpu"});
  INFO(result.err);
  INFO(result.out);
  REQUIRE(result.code == 0);
  std::vector<std::string> paths;
  const nlohmann::json json = result.json();
  for (const auto& cost : json.at("cpu_costs")) {
    paths.push_back(cost.at("path"));
    INFO(paths.back());
    CHECK(cost.at("gigabytes") > 0);
    CHECK(cost.at("daemon_seconds_per_gb") >= 0);
  }
  CHECK(paths == std::vector<std::string>{"local get", "local put", "unix get", "unix put",
                                          "tcp get", "tcp put", "promotion", "write-back"});
  CHECK(Run({"cpu"}).code == 2);  // without a daemon
}

TEST_CASE("a pattern of load reads from NVMe, checks every byte, and stores what was asked for") {
  const std::string pattern = GENERATE("pm1753", "sessions");
  const std::string path = GENERATE("local", "grpc");
  INFO(pattern << " " << path);
  const Result result = Run({"--pattern", pattern, "--path", path, "--quick", "--rate", "60,90",
                             "--json", "--daemon", KVKEEPD_PATH});
  INFO(result.err);
  INFO(result.out);
  REQUIRE(result.code == 0);
  const nlohmann::json json = result.json();
  CHECK(json.at("sound") == true);
  REQUIRE(json.at("runs").size() == 2);
  CHECK(json.at("table").size() == 4);
  const bool drive_measured = json.at("device_why_not").get<std::string>().empty();
  for (const auto& run : json.at("runs")) {
    const auto& loaded = run.at("loaded");
    CHECK(loaded.at("requests") > 0);
    CHECK(loaded.at("prefixes") > 0);
    CHECK(loaded.at("verified_bytes") == loaded.at("recalled_bytes"));
    CHECK(loaded.at("recalled_bytes") ==
          loaded.at("found_chunks").get<uint64_t>() * run.at("chunk_bytes").get<uint64_t>());
    CHECK(loaded.at("stored_chunks") > 0);
    CHECK(loaded.at("refused_chunks") == 0);
    CHECK(run.at("alone").at("prefixes") > 0);
    CHECK(run.at("daemon_cpu_seconds") > 0);
    CHECK((run.at("device_bytes_per_second") > 0) == drive_measured);
    if (pattern == "pm1753") {
      CHECK(run.at("found_share") == 1);
      CHECK(run.at("stored_share").get<double>() == Approx(0.08).margin(0.01));
      CHECK(run.at("from_nvme_share") > 0);
      CHECK(run.at("device_runs_per_prefix") > 0);
      CHECK(json.at("wants") == "");
    }
  }
}

TEST_CASE("a pattern is asked for instead of a verb, and its options are checked at once") {
  const Result both = Run({"get", "--pattern", "pm1753"});
  CHECK(both.code == 2);
  CHECK(absl::StrContains(both.err, "one of a verb and --pattern"));
  const Result unknown = Run({"--pattern", "sessions", "--model", "gpt-0"});
  CHECK(unknown.code == 2);
  CHECK(absl::StrContains(unknown.err, "llama-3.1-8b"));
  CHECK(Run({"--pattern", "pm9999"}).code == 2);
  CHECK(Run({"--pattern", "pm1753", "--rate", "0"}).code == 2);
}

}  // namespace kvkeep::bench
