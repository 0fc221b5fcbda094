// kvkeep-bench's paths of a GPU, on the fake driver and a real kvkeepd: that everything is moved,
// compared and told, never how fast it is.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/fakes/cuda/fake_cuda.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/tools/bench/has_fio.h"
#include "tools/bench/bench_cli.h"

namespace kvkeep::bench {
namespace {

using Catch::Matchers::Contains;

struct Result {
  int code = 0;
  std::string out, err;
};

Result RunAs(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = RunBench(arguments, out, err, /*show_progress=*/false);
  return {code, out.str(), err.str()};
}

Result Run(std::vector<std::string> arguments) {
  for (const char* const common :
       {"--daemon", KVKEEPD_PATH, "--g2", "64MiB", "--rounds", "2", "--seconds", "0.01", "--size",
        "512KiB,1MiB", "--batch", "2", "--keys", "8", "--run-size", "4KiB,100KiB,1MiB"}) {
    arguments.emplace_back(common);
  }
  return RunAs(arguments);
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
    CHECK(line.at("target") == (promised ? "at least 0.9" : ""));
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
  // What the fake's devices have left is a process's own: another's context takes nothing of it.
  CHECK(json.contains("daemon_gpu_bytes") == (path == "cuda-ipc"));
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

TEST_CASE("calls as large as a session's usual staging memory leave room to load what is got") {
  const FakeCuda fake;
  const Result result =
      RunAs({"--path",     "pinned",  "--daemon", KVKEEPD_PATH, "--g2",      "320MiB",     "--size",
             "32MiB",      "--batch", "2",        "--keys",     "4",         "--run-size", "1MiB",
             "--adjacent", "1",       "--rounds", "1",          "--seconds", "0.01"});
  INFO(result.err << result.out);
  CHECK(result.code == 0);
}

Result GetFromG3(const std::string& scratch, std::vector<std::string> arguments) {
  for (const char* const common : {"--path", "cuda-ipc", "--tier", "g3", "--daemon", KVKEEPD_PATH,
                                   "--adjacent", "1", "--scratch"}) {
    arguments.emplace_back(common);
  }
  arguments.push_back(scratch);
  return RunAs(arguments);
}

TEST_CASE("chunks of NVMe alone reach the GPU, beside fio, and every byte is compared") {
  if (!HasFio()) return;
  const FakeCuda fake;
  const ScratchDir scratch;
  const Result result =
      GetFromG3(scratch.path(), {"--size", "4MiB", "--batch", "2", "--run-size", "1MiB", "--rounds",
                                 "2", "--seconds", "0.2", "--json"});
  INFO(result.err << result.out);
  REQUIRE(result.code == 0);
  const nlohmann::json json = nlohmann::json::parse(result.out);
  REQUIRE(json.at("table").size() == 1);  // no puts
  const auto& line = json.at("table")[0];
  CHECK(line.at("what") == "get to the GPU, from NVMe, 4.0 MiB, runs of 1.0 MiB, batch 2");
  CHECK(line.at("numbers").at("baseline").size() == 2);
  CHECK(line.at("numbers").at("figure") > 0);
  CHECK(line.at("numbers").at("from_g3") == 1);
  CHECK(line.at("verdict") == "told");
  const auto& total = json.at("cases")[0].at("total");
  CHECK(total.at("ops") >= 2);
  CHECK(total.at("verified_bytes") == total.at("bytes"));
  CHECK(total.at("wrong_bytes") == 0);
  // 8 MiB a call: a G2 of four of them, at least 64 MiB, and three times as much data.
  CHECK(json.at("options").at("g2_bytes") == 64 << 20);
  CHECK(json.at("cases")[0].at("about").at("keys") == 48);
  CHECK(std::filesystem::is_empty(scratch.path()));
}

TEST_CASE("chunks that were in DRAM are not passed off as read from NVMe") {
  if (!HasFio()) return;
  const FakeCuda fake;
  const ScratchDir scratch;
  const Result result = GetFromG3(scratch.path(), {"--size", "4MiB", "--rounds", "1", "--seconds",
                                                   "0.01", "--g2", "128MiB", "--keys", "4"});
  CHECK(result.code == 1);
  CHECK_THAT(result.err, Contains("were read from NVMe: more --keys, or less --g2"));
}

TEST_CASE("promised of chunks of NVMe is what 32 MiB of them, in long runs, have of fio") {
  if (!HasFio()) return;
  const FakeCuda fake;
  const ScratchDir scratch;
  const Result result = GetFromG3(
      scratch.path(), {"--size", "32MiB", "--run-size", "64KiB,1MiB", "--rounds", "1", "--json"});
  INFO(result.err << result.out);
  REQUIRE(result.code == 0);
  const nlohmann::json json = nlohmann::json::parse(result.out);
  REQUIRE(json.at("table").size() == 2);
  CHECK(json.at("table")[0].at("verdict") == "told");
  CHECK(json.at("table")[1].at("target") == "at least 0.9");
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
        {"--path", "cuda-ipc", "--tier", "g3"},
        {"--path", "pinned", "--tier", "g3", "--daemon", KVKEEPD_PATH},
        {"get", "--tier", "g3", "--daemon", KVKEEPD_PATH},
        {"--path", "cuda-ipc", "--tier", "g3", "--daemon", KVKEEPD_PATH, "--no-verify"},
        {"--path", "cuda-ipc", "--run-size", "0"}}) {
    std::ostringstream out, err;
    CHECK(RunBench(wrong, out, err, false) == 2);
    CHECK_FALSE(err.str().empty());
  }
}

}  // namespace
}  // namespace kvkeep::bench
