#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"
#include "tiers/base/checksum.h"
#include "tiers/nvme/nvme_device.h"

namespace kvkeep {

TEST_CASE("the store's identity is made once and then read back, by its owner only") {
  ScratchDir dir;
  SeededRandom random(1);
  const auto made = LoadOrCreateStoreIdentity(dir / "state", &random);
  REQUIRE(made.ok());
  CHECK_FALSE(made->store_uuid.is_zero());
  CHECK(made->mac_key != MacKey{});
  const auto read = LoadOrCreateStoreIdentity(dir / "state", &random);
  REQUIRE(read.ok());
  CHECK(read->store_uuid == made->store_uuid);
  CHECK(read->mac_key == made->mac_key);
  struct stat st;
  REQUIRE(stat((dir / "state").c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0600);
  CHECK_FALSE(std::filesystem::exists(dir / "state.new"));
}

TEST_CASE("a state file that others may read, or that is not ours, is refused") {
  ScratchDir dir;
  SeededRandom random(1);
  REQUIRE(LoadOrCreateStoreIdentity(dir / "state", &random).ok());
  for (const mode_t mode : {0640, 0604, 0660, 0610}) {
    REQUIRE(chmod((dir / "state").c_str(), mode) == 0);
    CHECK(absl::IsFailedPrecondition(LoadOrCreateStoreIdentity(dir / "state", &random).status()));
  }
  REQUIRE(chmod((dir / "state").c_str(), 0600) == 0);
  CHECK(LoadOrCreateStoreIdentity(dir / "state", &random).ok());
  if (chown((dir / "state").c_str(), 65534, 65534) == 0) {  // only root may
    CHECK(absl::IsFailedPrecondition(LoadOrCreateStoreIdentity(dir / "state", &random).status()));
  }
  CHECK(symlink("state", (dir / "link").c_str()) == 0);
  CHECK(absl::IsFailedPrecondition(LoadOrCreateStoreIdentity(dir / "link", &random).status()));
  CHECK(absl::IsFailedPrecondition(LoadOrCreateStoreIdentity(dir.path(), &random).status()));
}

TEST_CASE("a damaged state file is data loss and stays as it is") {
  ScratchDir dir;
  SeededRandom random(1);
  REQUIRE(LoadOrCreateStoreIdentity(dir / "state", &random).ok());
  for (const int at : {0, 9, 20, 40, 71}) {
    std::fstream file(dir / "state", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(at);
    const int byte = file.get();
    file.seekp(at);
    file.put(static_cast<char>(byte ^ 1));
    file.flush();
    CHECK(absl::IsDataLoss(LoadOrCreateStoreIdentity(dir / "state", &random).status()));
    file.seekp(at);
    file.put(static_cast<char>(byte));
  }
  CHECK(LoadOrCreateStoreIdentity(dir / "state", &random).ok());
  for (const size_t length : {0, 71, 73, 4096}) {
    std::filesystem::resize_file(dir / "state", length);
    CHECK(absl::IsDataLoss(LoadOrCreateStoreIdentity(dir / "state", &random).status()));
    CHECK(std::filesystem::file_size(dir / "state") == length);
  }
}

TEST_CASE("a state file in a directory that does not exist names the directory") {
  SeededRandom random(1);
  const auto made = LoadOrCreateStoreIdentity("/nonexistent/kvkeep/state", &random);
  CHECK(absl::IsNotFound(made.status()));
  CHECK(made.status().message().find("/nonexistent/kvkeep") != absl::string_view::npos);
}

TEST_CASE("the boot id is the same twice") {
  REQUIRE(ReadBootId().ok());
  CHECK_FALSE(ReadBootId()->is_zero());
  CHECK(*ReadBootId() == *ReadBootId());
}

TEST_CASE("a state file of another format version is refused by name") {
  const ScratchDir dir;
  SeededRandom random(1);
  REQUIRE(LoadOrCreateStoreIdentity(dir / "state", &random).ok());
  std::string state(72, ' ');
  std::ifstream(dir / "state", std::ios::binary).read(state.data(), 72);
  state[8] = 2;
  std::byte* const at = reinterpret_cast<std::byte*>(state.data());
  StoreAt<uint64_t>(at + 64, Xxh3(AsBytes(state).first(64)));
  std::ofstream(dir / "state", std::ios::binary) << state;
  const absl::Status status = LoadOrCreateStoreIdentity(dir / "state", &random).status();
  INFO(status.ToString());
  CHECK(absl::IsFailedPrecondition(status));
  CHECK(status.message().find("format version 2") != absl::string_view::npos);
}

}  // namespace kvkeep
