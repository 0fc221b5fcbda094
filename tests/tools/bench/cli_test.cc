// The whole of kvkeep-bench against the real daemon: that everything works and is counted, never
// how fast it is.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

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
  CHECK(json.at("table").size() >= 13);
  for (const auto& line : json.at("table")) {
    CHECK_FALSE(line.at("figure").get<std::string>().empty());
    if (line.at("verdict") != "not measured") CHECK(line.at("numbers").at("figure").is_number());
  }
}

}  // namespace kvkeep::bench
