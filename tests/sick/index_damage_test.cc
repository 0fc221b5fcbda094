// Bits that flip in the files of a device's index while no daemon runs: the next start serves right
// chunks, or reports the device as offline. A copy of the files is put back each time.
// KVKEEP_SICK_FLIPS makes it run longer, KVKEEP_CRASH_SEED repeats it.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <random>

#include "tests/e2e/engine.h"
#include "tests/fakes/from_environment.h"

namespace kvkeep::sick {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kFlips = e2e::kSanitized ? 4 : 16;

// The index' files that hold anything, by kind.
std::vector<std::string> Files(const std::string& dir) {
  std::vector<std::string> files;
  for (const fs::directory_entry& file : fs::directory_iterator(dir)) {
    if (file.is_regular_file() && file.file_size() > 0) files.push_back(file.path().string());
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

TEST_CASE(
    "bits flipped in the index: the right bytes, misses, or a device that says it is offline") {
  e2e::Site site({.g2 = "32MiB", .devices = {{.capacity = "128MiB"}}});
  site.Start();
  const std::vector<e2e::TestChunk> chunks = e2e::Chunks(1, 150, 20'000);
  for (int start = 0; start < 2; ++start) {  // two logs, or a log and a table
    e2e::Engine engine(site);
    REQUIRE(engine.PutAll(chunks, {.durable = true}));
    site.Kill();
    site.Start();
  }
  site.Stop();
  const std::string index = site.path("nvme0/index"), good = site.path("good");
  fs::copy(index, good, fs::copy_options::recursive);
  const uint64_t seed = FromEnvironment("KVKEEP_CRASH_SEED", 1);
  std::mt19937_64 random(seed);
  std::map<std::string, int> outcomes;
  for (uint64_t flip = 0; flip < FromEnvironment("KVKEEP_SICK_FLIPS", kFlips); ++flip) {
    fs::remove_all(index);
    fs::copy(good, index, fs::copy_options::recursive);
    const std::vector<std::string> files = Files(index);
    const std::string& file = files[flip % files.size()];
    std::string bytes = e2e::ReadFile(file);
    const size_t at = random() % bytes.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
    e2e::WriteFile(file, bytes);
    INFO("seed " << seed << ", flip " << flip << ": byte " << at << " of " << file);
    site.Start();
    const std::string state = site.Status().devices(0).state();
    e2e::Engine engine(site);
    const size_t hits = engine.Hits(chunks);
    CHECK(engine.wrong_bytes == 0);
    const bool served = state == "ok" || state == "degraded";
    CHECK((served || (state == "offline" && hits == 0)));
    if (state == "offline") CHECK_FALSE(site.Status().devices(0).message().empty());
    ++outcomes[!served ? "offline" : hits == chunks.size() ? "all served" : "some served"];
    REQUIRE(engine.PutAll(chunks));  // the daemon still serves
    CHECK(engine.Hits(chunks) == chunks.size());
    site.Kill();
  }
  std::string told;
  for (const auto& [what, count] : outcomes) absl::StrAppend(&told, " | ", what, " ", count);
  WARN("seed " << seed << told);
}

}  // namespace kvkeep::sick
