// kvkeep-bench's paths of a GPU, on the fake driver and a real kvkeepd: that everything is moved,
// compared and told, never how fast it is.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tools/bench/bench_cli.h"

namespace kvkeep::bench {
namespace {

using Catch::Matchers::Contains;

struct Result {
  int code = 0;
  std::string out, err;
};

Result Run(std::vector<std::string> arguments) {
  for (const char* const common :
       {"--daemon", KVKEEPD_PATH, "--g2", "64MiB", "--rounds", "2", "--seconds", "0.01", "--size",
        "512KiB,1MiB", "--batch", "2", "--keys", "8", "--run-size", "4KiB,100KiB,1MiB"}) {
    arguments.emplace_back(common);
  }
  std::ostringstream out, err;
  const int code = RunBench(arguments, out, err, /*show_progress=*/false);
  return {code, out.str(), err.str()};
}

TEST_CASE("both paths move every chunk both ways, by each size of runs, beside plain copies") {
  const FakeCuda fake;
  const std::string path = GENERATE("cuda-ipc", "pinned");
  const Result result = Run({"--path", path, "--json"});
  INFO(path << " " << result.err << result.out);
  REQUIRE(result.code == 0);
  const nlohmann::json json = nlohmann::json::parse(result.out);
  CHECK(json.at("sound") == true);
  CHECK_THAT(json.at("path").get<std::string>(), Contains(path + ": kvkeep fake GPU 0, driver "));
  // 512 KiB: 4 KiB alone and 16 of them, 100 KiB; 1 MiB: the same and the whole.
  std::vector<std::string> rows;
  for (const auto& line : json.at("table")) {
    const auto& numbers = line.at("numbers");
    rows.push_back(numbers.at("direction").get<std::string>() + " " +
                   std::to_string(numbers.at("size").get<uint64_t>() >> 10) + " " +
                   std::to_string(numbers.at("run_bytes").get<uint64_t>() >> 10) + " x" +
                   std::to_string(numbers.at("adjacent").get<int>()));
    CHECK(numbers.at("measured").size() == 2);
    CHECK(numbers.at("baseline").size() == 2);
    CHECK(numbers.at("figure") > 0);
    const bool promised = numbers.at("run_bytes") == 1 << 20;
    CHECK((line.at("verdict") == "told") != promised);
    CHECK(line.at("wanted") == (promised ? "at least 0.9" : ""));
  }
  CHECK(rows == std::vector<std::string>{"h2d 512 4 x1", "h2d 512 4 x16", "h2d 512 100 x1",
                                         "d2h 512 4 x1", "d2h 512 4 x16", "d2h 512 100 x1",
                                         "h2d 1024 4 x1", "h2d 1024 4 x16", "h2d 1024 100 x1",
                                         "h2d 1024 1024 x1", "d2h 1024 4 x1", "d2h 1024 4 x16",
                                         "d2h 1024 100 x1", "d2h 1024 1024 x1"});
  for (const auto& one : json.at("cases")) {
    const auto& total = one.at("total");
    CHECK(one.at("about").at("path") == path);
    CHECK(total.at("failed_ops") == 0);
    CHECK(total.at("verified_bytes") > 0);
    CHECK(total.at("wrong_bytes") == 0);
    // By cuda-ipc the bytes never pass the client.
    const uint64_t copied = path == "pinned" ? total.at("bytes").get<uint64_t>() : 0;
    CHECK(total.at("copied_bytes") == copied);
  }
  CHECK(json.at("baselines").size() == 4);
}

TEST_CASE("for people there is a line a case, and what is promised of it") {
  const FakeCuda fake;
  const Result result = Run({"--path", "cuda-ipc"});
  INFO(result.err << result.out);
  CHECK(result.code == 0);
  CHECK_THAT(result.out,
             Contains("get to the GPU, 1.0 MiB, runs of 4.0 KiB, 16 adjacent, batch 2"));
  CHECK_THAT(result.out, Contains("plain copy from the GPU, 2.0 MiB"));
  CHECK_THAT(result.out, Contains("at least 0.9"));
}

TEST_CASE("a path that is not to be had fails with the driver's reason") {
  FakeCuda fake;
  fake.Set("fail cuInit 100\n");
  const Result no_device = Run({"--path", "cuda-ipc"});
  CHECK(no_device.code == 1);
  CHECK_THAT(no_device.err, Contains("cuInit"));
}

TEST_CASE("memory that the driver does not register read-only has no pinned path") {
  FakeCuda fake;
  fake.Set("read_only_register 0\n");
  const Result refused = Run({"--path", "pinned"});
  CHECK(refused.code == 1);
  CHECK_THAT(refused.err, Contains("cannot register memory that is mapped read-only"));
}

TEST_CASE("a path of a GPU stands for a verb, and is one client's") {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"get", "--path", "cuda-ipc"},
        {"--pattern", "pm1753", "--path", "pinned"},
        {"--path", "pinned", "--clients", "2"},
        {"--path", "cuda-ipc", "--depth", "2"},
        {"--path", "cuda-ipc", "--run-size", "0"}}) {
    std::ostringstream out, err;
    CHECK(RunBench(wrong, out, err, false) == 2);
    CHECK_FALSE(err.str().empty());
  }
}

}  // namespace
}  // namespace kvkeep::bench
