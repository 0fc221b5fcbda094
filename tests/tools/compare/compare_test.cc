// The comparison itself: that it compares what it says, sees a wrong byte, and prints who was
// there. What the figures are is nobody's business here.
#include <absl/container/flat_hash_map.h>
#include <absl/strings/str_cat.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "tests/tools/bench/has_fio.h"
#include "tools/bench/histogram.h"
#include "tools/compare/compare_cli.h"
#include "tools/compare/ring_of_keys.h"
#include "tools/compare/slice.h"

namespace kvkeep::compare {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kRegion = 4 << 20;
constexpr uint64_t kSize = 100'000;

ChunkKey Key(uint8_t number) {
  ChunkKey key;
  key.bytes[0] = number;
  return key;
}

// Keeps chunks in a map; spoils one byte of one get when told to.
class Spoiling final : public Contestant {
 public:
  absl::Status Put(const ChunkKey& key, std::span<const std::byte> payload) override {
    chunks_[key].assign(payload.begin(), payload.end());
    return absl::OkStatus();
  }
  absl::Status Get(const ChunkKey& key, std::span<std::byte> out) override {
    const auto found = chunks_.find(key);
    if (found == chunks_.end()) return absl::NotFoundError("none");
    std::copy(found->second.begin(), found->second.end(), out.begin());
    if (++gets == spoil_get) out[spoil_at] ^= std::byte{1};
    return absl::OkStatus();
  }
  absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) override {
    return keys.size() - lookup_misses;
  }
  absl::Status Clear() override {
    chunks_.clear();
    return absl::OkStatus();
  }

  uint64_t gets = 0, spoil_get = 0, spoil_at = 0, lookup_misses = 0;

 private:
  absl::flat_hash_map<ChunkKey, std::vector<std::byte>> chunks_;
};

struct Scene {
  explicit Scene(uint64_t batch = 1) {
    auto contestant = std::make_unique<Spoiling>();
    spoiling = contestant.get();
    slices = Slices::Create(std::move(contestant), kRegion).value();
    REQUIRE(slices->Load(kSize, batch).ok());
    spoiling->gets = 0;
    filled = slices->Fill(60 / batch).value();
  }
  bench::Measured Run(Operation operation) {
    const absl::StatusOr<bench::Measured> measured = slices->Run(operation, 0.02);
    INFO(measured.status());
    REQUIRE(measured.ok());
    return *measured;
  }
  Spoiling* spoiling;
  std::unique_ptr<Slices> slices;
  bench::Measured filled;
};

// A directory where an environment's Python would be, that runs the one of this machine.
std::string MakeEnvironment(const std::string& directory) {
  const std::string environment = directory + "/environment";
  fs::create_directories(environment + "/bin");
  const std::string python = environment + "/bin/python3";
  std::ofstream(python) << "#!/bin/sh\nexec python3 \"$@\"\n";
  fs::permissions(python, fs::perms::owner_all);
  return environment;
}

// Who was there measured something in each discipline, and said what it must.
void CheckEverybody(const nlohmann::json& json) {
  for (const char* name : {"memcpy", "kvkeep local", "kvkeep staging", "kvkeep gRPC", "kvkeep TCP",
                           "gRPC stream", "files", "Mooncake"}) {
    INFO(name);
    for (const nlohmann::json& discipline : json["disciplines"]) {
      const nlohmann::json& result = discipline["results"][name];
      CHECK(result["rounds"] == 2);
      CHECK(result["calls"] > 0);
      CHECK(result["p50_us"]["median"] > 0);
      if (discipline["operation"] == "lookup") continue;
      const bool has_servers = name != std::string("files") && name != std::string("memcpy") &&
                               name != std::string("Mooncake");
      CHECK((result["server_cpu_seconds_per_gb"] > 0) == has_servers);
      CHECK(result["gb_per_second"]["median"] > 0);
      if (name == std::string("memcpy")) CHECK(result["ratio"]["median"] == 1.0);
      CHECK(result["client_cpu_seconds_per_gb"] > 0);
      const bool compared =
          name != std::string("gRPC stream") && discipline["operation"] != "first put";
      CHECK((result["verified_bytes"] > 0) == compared);
    }
  }
}

std::string OutputOf(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text(4096, '\0');
  text.resize(fread(text.data(), 1, text.size(), pipe));
  REQUIRE(pclose(pipe) == 0);
  return text;
}

struct Run {
  int code;
  std::string out, err;
};
Run Compare(const std::vector<std::string>& arguments) {
  std::ostringstream out, err;
  const int code = RunCompare(arguments, out, err);
  return {code, out.str(), err.str()};
}

}  // namespace

TEST_CASE("every byte of every get is compared") {
  Scene scene;
  const bench::Measured clean = scene.Run(Operation::kGet);
  CHECK(clean.ops > 60);
  CHECK(clean.wrong_bytes == 0);
  CHECK(clean.verified_bytes == clean.ops * kSize);
  CHECK(clean.bytes == clean.verified_bytes);
  for (const uint64_t at : {uint64_t{0}, kSize / 2, kSize - 1}) {
    Scene spoilt;
    spoilt.spoiling->spoil_get = 7;
    spoilt.spoiling->spoil_at = at;
    CHECK(spoilt.Run(Operation::kGet).wrong_bytes == 1);
  }
}

TEST_CASE("calls of several chunks are compared as those of one") {
  Scene scene(8);
  CHECK(scene.filled.ops == 7);
  CHECK(scene.filled.bytes == 56 * kSize);
  for (const Operation operation : {Operation::kGet, Operation::kLookupAndGet, Operation::kPut}) {
    const bench::Measured measured = scene.Run(operation);
    CHECK(measured.ops > 0);
    CHECK(measured.chunks == 8 * measured.ops);
    CHECK(measured.bytes == measured.chunks * kSize);
    CHECK(measured.verified_bytes >= (operation == Operation::kPut ? kSize : measured.bytes));
    CHECK(measured.wrong_bytes == 0);
    CHECK(measured.client_cpu_seconds > 0);
  }
  Scene spoilt(8);
  spoilt.spoiling->spoil_get = 7;
  spoilt.spoiling->spoil_at = 3;
  CHECK(spoilt.Run(Operation::kGet).wrong_bytes == 1);
}

TEST_CASE("contestants in Python count times as those here do") {
  const std::vector<uint64_t> values = {0,       1,       127,           128,           129,
                                        130,     255,     256,           1'000,         123'456,
                                        999'999, 1 << 20, 1'234'567'890, 98'765'432'101};
  std::string wanted, arguments;
  for (const uint64_t ns : values) {
    bench::LatencyHistogram histogram;
    histogram.Record(ns);
    absl::StrAppend(&wanted, histogram.buckets().begin()->first, "\n");
    absl::StrAppend(&arguments, " ", ns);
  }
  CHECK(OutputOf(absl::StrCat("cd '" PEERS_PATH
                              "' && python3 -B -c 'import sys, measured\n"
                              "for ns in sys.argv[1:]: print(measured.bucket_of(int(ns)))'",
                              arguments)) == wanted);
}

TEST_CASE("puts are read back, and lookups must find all of what was loaded") {
  Scene scene;
  const bench::Measured puts = scene.Run(Operation::kPut);
  CHECK(puts.verified_bytes >= kSize);
  CHECK(puts.wrong_bytes == 0);
  scene.spoiling->spoil_get = 1 + puts.verified_bytes / kSize;
  CHECK(scene.Run(Operation::kPut).wrong_bytes == 1);
  Scene lookups(16);
  const bench::Measured found = lookups.Run(Operation::kLookup);
  CHECK(found.chunks == 16 * found.ops);
  lookups.spoiling->lookup_misses = 1;
  CHECK(absl::IsDataLoss(lookups.slices->Run(Operation::kLookup, 0.02).status()));
  CHECK(absl::IsDataLoss(lookups.slices->Run(Operation::kLookupAndGet, 0.02).status()));
}

TEST_CASE("a ring of keys gives the oldest's slot to the newest") {
  RingOfKeys ring;
  ring.Resize(2);
  CHECK(ring.Take(Key(1)).number == 0);
  CHECK(ring.Take(Key(2)).number == 1);
  const RingOfKeys::Slot slot = ring.Take(Key(3));
  CHECK(slot.number == 0);
  CHECK(slot.evicted == Key(1));
  CHECK_FALSE(ring.Find(Key(1)).has_value());
  CHECK(ring.Find(Key(2)) == uint64_t{1});
  ring.Resize(2);
  CHECK(ring.Find(Key(3)) == uint64_t{0});
  ring.Resize(3);
  CHECK_FALSE(ring.Find(Key(3)).has_value());
}

TEST_CASE("a whole comparison: who is there, ratios to the first, a picture") {
  char directory[] = "/tmp/compare-test-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string json_path = absl::StrCat(directory, "/out.json");
  const std::string environment = MakeEnvironment(directory);
  const Run run = Compare({"--daemon",
                           KVKEEPD_PATH,
                           "--scratch",
                           directory,
                           "--json",
                           json_path,
                           "--only",
                           "memcpy,kvkeep local,kvkeep staging,kvkeep gRPC,kvkeep TCP,gRPC stream,"
                           "Redis,files,LMCache,Mooncake",
                           "--mooncake",
                           environment,
                           "--peers",
                           DICTIONARY_PATH,
                           "--capacity-mib",
                           "96",
                           "--region-mib",
                           "32",
                           "--sizes",
                           "1MiB,300000",
                           "--rounds",
                           "2",
                           "--seconds",
                           "0.02",
                           "--no-nvme"});
  INFO(run.err << run.out);
  REQUIRE(run.code == 0);
  CHECK_THAT(run.out, Catch::Contains("wrong bytes: 0"));
  std::ifstream file(json_path);
  const nlohmann::json json = nlohmann::json::parse(file);
  REQUIRE(json["disciplines"].size() == 9);  // four of two sizes each, lookup
  CHECK(json["disciplines"][0]["operation"] == "first put");
  CHECK(json["about"]["Mooncake"] == "of a dictionary");
  CHECK_THAT(run.err, Catch::Contains("LMCache is not there"));
  CheckEverybody(json);
  for (const nlohmann::json& discipline : json["disciplines"]) {
    CHECK(discipline["times_as_fast"].size() == 2);  // of two paths; LMCache is not there
    CHECK(discipline["times_as_fast"]["kvkeep local / Mooncake"]["median"] > 0);
  }
  CHECK_THAT(run.out, Catch::Contains("kvkeep staging / Mooncake"));
  const std::string svg = absl::StrCat(directory, "/out.svg");
  REQUIRE(std::system(absl::StrCat("python3 -B '" CHART_PATH "' ", json_path, " ", svg).c_str()) ==
          0);
  std::ifstream picture(svg);
  const std::string text((std::istreambuf_iterator<char>(picture)), {});
  CHECK_THAT(text, Catch::Contains("kvkeep staging, 1 MiB"));
  CHECK_THAT(text, Catch::Contains("Mooncake, 1 MiB"));
  // Nothing else is left.
  fs::remove(json_path);
  fs::remove(svg);
  fs::remove_all(environment);
  CHECK(fs::is_empty(directory));
  fs::remove_all(directory);
}

TEST_CASE("what is read beside fio comes from NVMe, and every byte of it is compared") {
  if (!bench::HasFio()) return;
  char directory[] = "/var/tmp/compare-test-XXXXXX";  // a drive, where /tmp may be none
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string json_path = absl::StrCat(directory, "/out.json");
  const Run run = Compare(
      {"--daemon",       KVKEEPD_PATH, "--scratch",        directory, "--only",     "memcpy",
       "--sizes",        "4MiB",       "--batches",        "1",       "--rounds",   "2",
       "--seconds",      "0.05",       "--nvme-round-mib", "64",      "--json",     json_path,
       "--capacity-mib", "64",         "--region-mib",     "32",      "--revision", "v1-test"});
  INFO(run.err << run.out);
  std::ifstream file(json_path);
  const nlohmann::json json = nlohmann::json::parse(file);
  fs::remove_all(directory);
  CHECK(json["about"]["revision"] == "v1-test");
  if (!json.contains("nvme")) {
    WARN("skipped: no drive that fio can measure, or no room on it");
    return;
  }
  REQUIRE(run.code == 0);
  REQUIRE(json["nvme"].size() == 1);
  const nlohmann::json& nvme = json["nvme"][0];
  CHECK(nvme["from_nvme"] >= 0.98);
  CHECK(nvme["refused"] == false);
  CHECK(nvme["read"]["calls"] > 0);
  CHECK(nvme["read"]["verified_bytes"] == nvme["read"]["calls"].get<uint64_t>() * (4 << 20));
  for (const char* what : {"read", "first_fill", "overwrite"}) {
    const nlohmann::json& blocks = nvme[absl::StrCat("fio_", what, "_by_block")];
    REQUIRE(blocks.size() == 2);
    CHECK(blocks[0]["block_bytes"] == 1 << 20);
    CHECK(blocks[1]["block_bytes"] == 4 << 20);
    CHECK(nvme[what]["rounds"] == 2);
    const double better = std::max(blocks[0]["gb_per_second"]["median"].get<double>(),
                                   blocks[1]["gb_per_second"]["median"].get<double>());
    CHECK(nvme[absl::StrCat("fio_", what)]["median"] == better);
  }
  CHECK_THAT(run.out, Catch::Contains("NVMe read 4.0 MiB"));
}

TEST_CASE("a peer that does not start is absent, and its last words are said") {
  char directory[] = "/tmp/compare-test-XXXXXX";
  REQUIRE(mkdtemp(directory) != nullptr);
  const std::string environment = MakeEnvironment(directory);
  const std::string json_path = absl::StrCat(directory, "/out.json");
  const Run run =
      Compare({"--daemon",       KVKEEPD_PATH, "--scratch",    directory,  "--only",
               "memcpy,LMCache", "--lmcache",  environment,    "--peers",  DICTIONARY_PATH,
               "--capacity-mib", "64",         "--region-mib", "32",       "--sizes",
               "1MiB",           "--batches",  "1,8,64",       "--rounds", "5",
               "--seconds",      "0.02",       "--no-nvme",    "--json",   json_path});
  INFO(run.err << run.out);
  CHECK(run.code == 0);
  CHECK_THAT(run.err, Catch::Contains("LMCache is not there"));
  CHECK_THAT(run.err, Catch::Contains("lmcache_peer.py"));  // Python says what it did not find
  CHECK_THAT(run.out, Catch::Contains("8 x 1.0 MiB"));
  CHECK_THAT(run.out, !Catch::Contains("64 x 1.0 MiB"));  // more than a region
  // 32 MiB in calls of eight: no fifth round, rather than one of nothing.
  std::ifstream file(json_path);
  const nlohmann::json first_put = nlohmann::json::parse(file)["disciplines"][4];
  CHECK(first_put["operation"] == "first put");
  CHECK(first_put["results"]["memcpy"]["rounds"] == 4);
  CHECK(first_put["results"]["memcpy"]["gb_per_second"]["min"] > 0);
  fs::remove_all(directory);
}

TEST_CASE("what cannot be compared is refused by name") {
  CHECK(Compare({}).code == 2);
  CHECK(Compare({"--daemon", KVKEEPD_PATH, "--only", "somebody"}).code == 2);
  const Run sizes = Compare({"--daemon", KVKEEPD_PATH, "--sizes", "0"});
  CHECK(sizes.code == 2);
  CHECK_THAT(sizes.err, Catch::Contains("--sizes"));
  CHECK(Compare({"--daemon", KVKEEPD_PATH, "--sizes", "64MiB", "--region-mib", "32"}).code == 2);
  CHECK(Compare({"--daemon", KVKEEPD_PATH, "--batches", "0"}).code == 2);
  CHECK(Compare({"--daemon", KVKEEPD_PATH, "--sizes", "32MiB", "--batches", "16"}).code == 2);
}

}  // namespace kvkeep::compare
