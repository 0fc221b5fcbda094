// kvkeep fsck on what a real daemon leaves behind, and a daemon on what fsck rebuilt.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

namespace fs = std::filesystem;

struct Said {
  int code = -1;
  std::string text;
};

Said Fsck(const Site& site, const std::string& more = "") {
  const std::string command =
      absl::StrCat("'" KVKEEP_PATH "' fsck ", site.path("nvme0"), " --identity ",
                   site.path(site.settings.state), "/identity ", more, " 2>&1");
  FILE* const out = popen(command.c_str(), "r");
  REQUIRE(out != nullptr);
  Said said;
  std::array<char, 4096> some;
  while (fgets(some.data(), some.size(), out) != nullptr) said.text += some.data();
  const int status = pclose(out);
  if (WIFEXITED(status)) said.code = WEXITSTATUS(status);
  return said;
}

TEST_CASE("a killed daemon's device is clean, and a running one's is refused") {
  Site site;
  const std::vector<TestChunk> chunks = Chunks(1, 40, 300'000);
  site.Start();
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(chunks));
    REQUIRE(site.AwaitKept());
  }
  const Said running = Fsck(site);
  CHECK(running.code == 2);
  CHECK(absl::StrContains(running.text, "locked by another process"));
  for (int round = 0; round < 3; ++round) {
    Engine engine(site);
    REQUIRE(engine.PutAll(Chunks(100, 20, 500'000)));
    site.Kill();  // with whatever is dirty, being written or being committed
    const Said said = Fsck(site, "--json");
    INFO(said.text);
    CHECK(said.code == 0);
    const nlohmann::json report = nlohmann::json::parse(said.text);
    CHECK(report["clean"] == true);
    CHECK(report["good_chunks"] == report["records"]);
    CHECK(report["records"] >= chunks.size());
    // "clean" does not exclude planted bytes.
    CHECK(report["plain_chunks"] == report["good_chunks"]);
    CHECK(absl::StrContains(Fsck(site).text, "but not planted bytes (encryption"));
    site.Start();
  }
  CHECK(Engine(site).Hits(chunks) == chunks.size());
}

TEST_CASE("a wrecked index is found, rebuilt, and served; what was deleted stays away") {
  Site site;
  const std::vector<TestChunk> chunks = Chunks(1, 40, 300'000), deleted = Chunks(900, 5, 200'000);
  site.Start();
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(chunks));
    REQUIRE(engine.PutAll(deleted));
    REQUIRE(site.AwaitClean());
    REQUIRE(engine.client().Delete(engine.ns(), KeysOf(deleted)).ok());
    // An index commit comes after the call; then the space is back.
    REQUIRE(Eventually([&] { return site.Status().devices(0).chunks() == chunks.size(); }));
    REQUIRE(engine.PutAll(Chunks(950, 1, 1000), {.durable = true}));
  }
  site.Kill();
  for (const auto& file : fs::directory_iterator(site.path("nvme0/index"))) {
    const std::string name = file.path().filename().string();
    const bool wreck = absl::StartsWith(name, "MANIFEST") || absl::EndsWith(name, ".sst");
    if (wreck) fs::resize_file(file.path(), fs::file_size(file.path()) / 2);
  }
  const Said wrecked = Fsck(site);
  INFO(wrecked.text);
  CHECK(wrecked.code == 1);
  CHECK(absl::StrContains(wrecked.text, "--rebuild-index"));

  // A daemon without that device serves, and says the same.
  site.Start();
  CHECK(site.Status().devices(0).state() == "offline");
  CHECK(absl::StrContains(site.Status().devices(0).message(), "kvkeep fsck --rebuild-index"));
  CHECK(Engine(site).Find(chunks).any == 0);
  site.Kill();

  const Said rebuilt = Fsck(site, "--rebuild-index --yes");
  INFO(rebuilt.text);
  REQUIRE(rebuilt.code == 0);
  const Said clean = Fsck(site);
  INFO(clean.text);
  CHECK(clean.code == 0);

  site.Start();
  CHECK(site.Status().devices(0).state() == "ok");
  Engine engine(site);
  CHECK(engine.Find(chunks).g3 == chunks.size());
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.Find(deleted).any == 0);
  CHECK(engine.wrong_bytes == 0);
  CHECK(engine.PutAll(deleted));
}

}  // namespace
}  // namespace kvkeep::e2e
