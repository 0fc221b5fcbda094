// G4 on a real server of S3's protocol. The test is hidden, as it needs one: tools/g4-server starts
// a server and runs this. KVKEEP_G4_URL is an empty bucket; KVKEEP_TEST_G4_CREDENTIALS is the file
// with its keys.
#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>

#include "tests/e2e/g4_place.h"

namespace kvkeep::e2e {
namespace {

struct ServerNode {
  ServerNode(const ScratchDir& dir, char key_digit)
      : site({.g2 = "256MiB", .segment_bytes = "64MiB", .devices = {{.capacity = "512MiB"}},
              .local = true}) {
    const char* const url = std::getenv("KVKEEP_G4_URL");
    const char* const credentials = std::getenv("KVKEEP_TEST_G4_CREDENTIALS");
    REQUIRE(url != nullptr);
    REQUIRE(credentials != nullptr);
    const std::string key = absl::StrCat(dir.path(), "/key-", std::string(1, key_digit));
    WriteForOwner(key, FleetKeyOf(key_digit));
    site.settings.extra = absl::StrCat(
        "g4: {url: \"", url, "\", credentials_file: ", credentials,
        ", write_bytes_per_second: 1GiB, admission: all}\nfleet: {name: t, key_file: ", key, "}\n");
    site.Start();
    engine = std::make_unique<Engine>(site);
  }
  // Keys that are on their way or here; all of them are got.
  size_t Recall(const std::vector<TestChunk>& chunks) {
    return RecallLeading(*engine, chunks, std::chrono::seconds(5));
  }

  Site site;
  std::unique_ptr<Engine> engine;
};

// From 300 KB to 20 MB: in one request, and in parts.
std::vector<TestChunk> ChunksOfManySizes() {
  std::vector<TestChunk> chunks = Chunks(1, 16, 300'000);
  const std::vector<TestChunk> large = Chunks(100, 2, 20'000'001);
  chunks.insert(chunks.end(), large.begin(), large.end());
  return chunks;
}

}  // namespace

TEST_CASE("what a daemon put into a real server's bucket is there for another one", "[.][server]") {
  const ScratchDir dir;
  const std::vector<TestChunk> chunks = ChunksOfManySizes();
  {
    ServerNode first(dir, '1');
    REQUIRE(first.engine->PutAll(chunks));
    CHECK(Eventually([&] { return first.site.Status().g4().written_chunks() == chunks.size(); },
                     milliseconds(60'000)));
    CHECK(first.site.Stop().exit_status == 0);
  }
  {
    ServerNode stranger(dir, '2');
    CHECK(stranger.Recall(chunks) == 0);
  }
  ServerNode second(dir, '1');
  // A server on a busy machine may be slower than one lookup waits.
  CHECK(Eventually([&] { return second.Recall(chunks) == chunks.size(); }, milliseconds(60'000)));
  CHECK(second.engine->wrong_bytes == 0);
  CHECK(second.site.Status().g4().recalled_chunks() == chunks.size());
  CHECK(second.site.Stop().exit_status == 0);
}

}  // namespace kvkeep::e2e
