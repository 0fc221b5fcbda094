#include "tiers/nvme/key_ring_file.h"

#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tiers/base/bytes.h"

namespace kvkeep {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void Write(const std::string& path, const std::string& text, mode_t mode = 0600) {
  std::ofstream(path, std::ios::binary) << text;
  REQUIRE(chmod(path.c_str(), mode) == 0);
}

struct Files {
  ScratchDir dir;
  SeededRandom random{1};
  const std::string path = dir / "keyring";
  Secret master = Make();

  Secret Make() {
    Secret secret;
    random.Fill(secret.writable());
    return secret;
  }
  absl::StatusOr<std::unique_ptr<KeyRing>> Start(const std::vector<std::string>& tenants,
                                                 const Secret& key,
                                                 std::span<const Secret> previous = {}) {
    auto file = KeyRingFile::Open(path);
    if (!file.ok()) return file.status();
    return (*file)->UnwrapWithKeysFor(tenants, key, &random, previous);
  }
};

}  // namespace

TEST_CASE_METHOD(Files,
                 "the first start makes keys, later ones find them and add what is missing") {
  auto ring = Start({"", "a"}, master);
  REQUIRE(ring.ok());
  const KeyId first = (*ring)->ForTenant("a")->id;
  struct stat st;
  REQUIRE(stat(path.c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0600);
  const std::string text = Read(path);

  ring = Start({"a"}, master);
  REQUIRE(ring.ok());
  CHECK(Read(path) == text);
  CHECK((*ring)->ForTenant("a")->id == first);
  ring = Start({"a", "b"}, master);
  REQUIRE(ring.ok());
  CHECK((*ring)->size() == 3);
  CHECK((*ring)->ForTenant("a")->id == first);
  CHECK(Read(path).substr(0, text.size()) == text);
}

TEST_CASE_METHOD(Files, "another master key is refused, and the ring stays what it was") {
  REQUIRE(Start({"", "a"}, master).ok());
  const std::string text = Read(path);
  const absl::Status status = Start({"", "a", "b"}, Make()).status();
  CHECK(absl::IsInvalidArgument(status));
  CHECK(std::string(status.message()).find(path) != std::string::npos);
  CHECK(Read(path) == text);
}

TEST_CASE_METHOD(Files, "with the master key of before the file is wrapped anew, in one change") {
  auto ring = Start({"", "a"}, master);
  REQUIRE(ring.ok());
  const KeyId first = (*ring)->ForTenant("a")->id;
  const std::string text = Read(path);
  std::vector<Secret> previous;
  previous.push_back(std::move(master));
  const Secret current = Make();
  ring = Start({"", "a", "b"}, current, previous);
  REQUIRE(ring.ok());
  CHECK((*ring)->ForTenant("a")->id == first);
  CHECK((*ring)->size() == 3);
  const std::string rotated = Read(path);
  CHECK(rotated != text);
  ring = Start({"", "a", "b"}, current);
  REQUIRE(ring.ok());
  CHECK((*ring)->ForTenant("a")->id == first);
  CHECK(Read(path) == rotated);
  CHECK(Start({"", "a"}, current, previous).ok());  // still named: no harm, and no change
  CHECK(Read(path) == rotated);
  CHECK(absl::IsInvalidArgument(Start({"", "a"}, previous[0]).status()));
  CHECK(Read(path) == rotated);
}

TEST_CASE_METHOD(Files, "files of master keys of before are read only when they are needed") {
  REQUIRE(Start({"", "a"}, master).ok());
  const auto entries = KeyRingFile::Read(path);
  REQUIRE(entries.ok());
  const std::vector<std::string> gone = {dir / "gone"};
  const auto none = ReadPreviousMasterKeys(gone, *entries, master);
  REQUIRE(none.ok());
  CHECK(none->empty());
  const absl::Status status = ReadPreviousMasterKeys(gone, *entries, Make()).status();
  CHECK(std::string(status.message()).find(gone[0]) != std::string::npos);
  Write(dir / "there", std::string(32, '5') + std::string(32, '6'));
  const auto one = ReadPreviousMasterKeys({dir / "there"}, *entries, Make());
  REQUIRE(one.ok());
  CHECK(one->size() == 1);
}

TEST_CASE_METHOD(Files, "a dropped key is gone, a new one is made, and its old bytes are zeros") {
  REQUIRE(Start({"", "a"}, master).ok());
  const int old = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  KeyId dropped;
  {
    auto file = KeyRingFile::Open(path);
    REQUIRE(file.ok());
    dropped = (*file)->entries()[1].id;
    CHECK((*file)->entries()[1].tenant == "a");
    REQUIRE((*file)->Replace({(*file)->entries()[0]}).ok());
  }
  std::string was(64 * 1024, 'x');
  const ssize_t got = read(old, was.data(), was.size());
  close(old);
  REQUIRE(got > 0);
  CHECK(was.substr(0, static_cast<size_t>(got)).find_first_not_of('\0') == std::string::npos);
  const auto ring = Start({"", "a"}, master);
  REQUIRE(ring.ok());
  CHECK((*ring)->Find(dropped) == nullptr);
  CHECK((*ring)->ForTenant("a")->id != dropped);
}

TEST_CASE_METHOD(Files,
                 "what a change that was cut short left is zeros at the next start, and gone") {
  REQUIRE(Start({"", "a"}, master).ok());
  const std::string text = Read(path), unfinished = path + ".new";
  Write(unfinished, text);
  const int left = open(unfinished.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(left >= 0);
  CHECK(KeyRingFile::Open(path).ok());
  std::string was(text.size() + 1, 'x');
  const ssize_t got = read(left, was.data(), was.size());
  close(left);
  REQUIRE(got == static_cast<ssize_t>(text.size()));
  CHECK(was == std::string(text.size(), '\0') + "x");
  CHECK(access(unfinished.c_str(), F_OK) != 0);
  CHECK(Read(path) == text);
  // A file that is not ours is not written to.
  Write(dir / "other", "something else\n");
  REQUIRE(symlink((dir / "other").c_str(), unfinished.c_str()) == 0);
  CHECK_FALSE(KeyRingFile::Open(path).ok());
  CHECK(Read(dir / "other") == "something else\n");
}

TEST_CASE_METHOD(Files, "one process at a time, and what is no ring of ours is not replaced") {
  {
    const auto file = KeyRingFile::Open(path);
    REQUIRE(file.ok());
    CHECK(absl::IsUnavailable(KeyRingFile::Open(path).status()));
  }
  CHECK(KeyRingFile::Open(path).ok());
  Write(path, "something else\n");
  CHECK(absl::IsDataLoss(Start({""}, master).status()));
  CHECK(Read(path) == "something else\n");
  Write(path, "kvkeep-keyring 1\n", 0644);
  CHECK(absl::IsFailedPrecondition(Start({""}, master).status()));
}

TEST_CASE_METHOD(Files, "a master key is 32 bytes or 64 digits, and no one else's to read") {
  const std::string file = dir / "master";
  const auto read = [&](const std::string& text, mode_t mode = 0600) {
    Write(file, text, mode);
    return ReadMasterKey(file);
  };
  std::string raw(32, '\0');
  for (size_t i = 0; i < raw.size(); ++i) raw[i] = static_cast<char>(i);
  const std::string hex = "000102030405060708090a0b0c0d0e0f101112131415161718191A1B1C1D1E1F";
  for (const std::string& text : {raw, hex, absl::StrCat(hex, "\n")}) {
    const auto key = read(text);
    REQUIRE(key.ok());
    CHECK(std::string(reinterpret_cast<const char*>(key->data()), 32) == raw);
  }
  for (const std::string& text :
       {std::string(), raw.substr(1), absl::StrCat(raw, "x"), hex.substr(1), std::string(64, 'g'),
        std::string(32, '\0'), std::string(64, '0')}) {
    const absl::Status status = read(text).status();
    CHECK(absl::IsInvalidArgument(status));
    if (text.size() > 8) CHECK(std::string(status.message()).find(text) == std::string::npos);
  }
  CHECK(absl::IsInvalidArgument(read(raw, 0644).status()));
  unlink(file.c_str());
  CHECK(absl::IsInvalidArgument(ReadMasterKey(file).status()));
}

TEST_CASE_METHOD(Files, "a ring with one damaged key is refused with its path and tenant") {
  REQUIRE(Start({"", "a"}, master).ok());
  const std::string text = Read(path);
  std::string damaged = text;
  char& digit = damaged[damaged.size() - 4];  // of the last key, that of "a"
  digit = digit == '0' ? '1' : '0';
  Write(path, damaged);
  const absl::Status status = Start({"", "a"}, master).status();
  INFO(status.ToString());
  CHECK(absl::IsDataLoss(status));
  CHECK(std::string(status.message()).find(path + ": the key of tenant 'a'") == 0);
  CHECK(Read(path) == damaged);
}

TEST_CASE_METHOD(Files, "a ring is never given more keys than it may have") {
  std::vector<std::string> tenants;
  for (size_t i = 0; i < KeyRing::kMaxKeys; ++i) tenants.push_back(std::to_string(i));
  REQUIRE(Start(tenants, master).ok());
  const std::string text = Read(path);
  tenants.push_back("one more");
  const absl::Status status = Start(tenants, master).status();
  INFO(status.ToString());
  CHECK(absl::IsResourceExhausted(status));
  CHECK(std::string(status.message()).find("1025 keys, the most are 1024") != std::string::npos);
  CHECK(Read(path) == text);
}

}  // namespace kvkeep
