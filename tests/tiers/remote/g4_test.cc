#include "tiers/remote/g4.h"

#include <absl/strings/str_cat.h>
#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/manual_clock.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tests/fakes/stored_page.h"

namespace kvkeep {
namespace {

Secret SecretOf(uint8_t number) {
  const auto bytes = CountedFrom<std::array<std::byte, 32>>(number);
  return Secret(bytes);
}

// G4 of a fleet with a previous key and a tenant with its own, in a directory.
struct G4InDirectory {
  G4InDirectory() {
    options.place.directory = dir.path();
    options.fleet_name = "f";
    options.tenants = {"", "a", "b"};
    secrets.fleet = SecretOf(0);
    secrets.previous.push_back(SecretOf(1));
    secrets.tenants["a"] = SecretOf(2);
  }
  absl::StatusOr<std::unique_ptr<G4>> Open() {
    return G4::Open(options, secrets, &clock, &random);
  }
  ScratchDir dir;
  ManualClock clock;
  SeededRandom random{1};
  G4Options options;
  G4Secrets secrets;
};

KeyId DataKeyId(uint8_t number, const char* tenant) {
  return FleetKeys::DeriveDataKey(SecretOf(number), "f", tenant).id;
}

}  // namespace

TEST_CASE("a tenant's data key comes from its own key, the others' from the fleet's") {
  G4InDirectory g4;
  const auto opened = g4.Open();
  REQUIRE(opened.ok());
  const KeyRing& keys = *(*opened)->keys();
  CHECK(keys.ForTenant("a")->id == DataKeyId(2, "a"));
  CHECK(keys.ForTenant("b")->id == DataKeyId(0, "b"));
  CHECK(keys.ForTenant("")->id == DataKeyId(0, ""));
  // Images under previous keys can be read, except for a tenant that has its own key.
  CHECK(keys.Find(DataKeyId(1, "b")) != nullptr);
  CHECK(keys.Find(DataKeyId(1, "")) != nullptr);
  CHECK(keys.Find(DataKeyId(1, "a")) == nullptr);
  CHECK(keys.Find(DataKeyId(0, "a")) == nullptr);
}

TEST_CASE("as many requests go to a bucket at a time as there may be connections") {
  G4InDirectory g4;
  const ScratchDir keys;
  const std::string file = absl::StrCat(keys.path(), "/keys");
  std::ofstream(file) << "ID\nsecret\n";
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  g4.options.place = {.bucket = {.endpoints = {"http://127.0.0.1:9"}, .bucket = "bucket"},
                      .keys = {.file = file}};
  g4.options.place.http.connections = 5;
  const auto opened = g4.Open();
  REQUIRE(opened.ok());
  CHECK((*opened)->snapshot().requests->window == 5);
}

TEST_CASE("a bucket's connections are shared out among threads, where there are enough") {
  const ScratchDir keys;
  const std::string file = absl::StrCat(keys.path(), "/keys");
  std::ofstream(file) << "ID\nsecret\n";
  REQUIRE(chmod(file.c_str(), 0600) == 0);
  ObjectPlace place{.bucket = {.endpoints = {"http://127.0.0.1:9"}, .bucket = "bucket"},
                    .keys = {.file = file}};
  const auto threads_of = [&](uint32_t connections, uint32_t threads) {
    place.http.connections = connections;
    place.http_threads = threads;
    const OpenedPlace opened = OpenObjectPlace(place, RealClock(), RealRandom()).value();
    return opened.s3.size();
  };
  CHECK(threads_of(15, 4) == 1);
  CHECK(threads_of(35, 4) == 2);
  CHECK(threads_of(64, 4) == 4);
  CHECK(threads_of(1024, 4) == 4);
  CHECK(threads_of(64, 1) == 1);
  CHECK(threads_of(64, 0) == 1);
}

TEST_CASE("counters of several stores of a bucket are added up") {
  S3StoreCounters one{.attempts = 1, .read_bytes = 10, .window = 4};
  one.answers[1][2] = 3;
  S3StoreCounters other{.retries = 2, .read_bytes = 5, .window = 5, .clock_skew_seconds = -7};
  other.answers[1][2] = 4;
  one.Add(other);
  CHECK(one.attempts == 1);
  CHECK(one.retries == 2);
  CHECK(one.read_bytes == 15);
  CHECK(one.window == 9);
  CHECK(one.answers[1][2] == 7);
  CHECK(one.clock_skew_seconds == -7);
}

TEST_CASE("two keys of G4 that are the same are refused, by their names") {
  G4InDirectory g4;
  const auto said = [&g4] { return std::string(g4.Open().status().message()); };
  g4.secrets.tenants["b"] = SecretOf(2);
  CHECK(said() ==
        "the g4_key_file of tenant 'b' has the same key as the g4_key_file of tenant 'a'");
  g4.secrets.tenants["b"] = SecretOf(1);
  CHECK(said() ==
        "the g4_key_file of tenant 'b' has the same key as fleet.previous_key_files[0]");
  g4.secrets.tenants.erase("b");
  g4.secrets.previous.push_back(SecretOf(0));
  CHECK(said() == "fleet.previous_key_files[1] has the same key as fleet.key_file");
  g4.secrets.previous.pop_back();
  CHECK(said().empty());
}

}  // namespace kvkeep
