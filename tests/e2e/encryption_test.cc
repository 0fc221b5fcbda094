// Encryption at rest with the real daemon: nothing readable on the device, hits with the key,
// misses without it, and starts that are refused instead of losing anything.
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/e2e/engine.h"
#include "tests/e2e/shell.h"

namespace kvkeep::e2e {
namespace {

using client::GetStatus;
namespace fs = std::filesystem;

constexpr char kTailMark[] = "token ids of a private prompt, told to nobody";

Outcome Kvkeep(const std::string& arguments) {
  return RunShell(absl::StrCat("'" KVKEEP_PATH "' ", arguments));
}

std::string Hex(char digit) { return std::string(32, digit) + std::string(32, '7') + "\n"; }

// A small daemon, with a tenant "a" beside the default one; encryption is on unless turned off.
struct Vault {
  explicit Vault(bool on = true)
      : site({.g2 = "64MiB", .segment_bytes = "16MiB", .devices = {{.capacity = "96MiB"}}}) {
    WriteMaster(Hex('1'));
    Encrypt(on);
  }
  void WriteMaster(const std::string& text, mode_t mode = 0600) const {
    WriteFile(site.path("master"), text);
    REQUIRE(chmod(site.path("master").c_str(), mode) == 0);
  }
  void Encrypt(bool on) {
    site.settings.extra = absl::StrCat(
        "tenants:\n  - name: a\n    unix: ", site.path("a.sock"), "\n    g2_share: 25%\n",
        on ? absl::StrCat("encryption:\n  master_key_file: ", site.path("master"), "\n") : "");
  }
  std::unique_ptr<Engine> Default() const { return std::make_unique<Engine>(site); }
  std::unique_ptr<Engine> TenantA() const {
    return std::make_unique<Engine>("unix://" + site.path("a.sock"), Engine::Options());
  }
  // Puts them with a metadata tail. When this returns everything is on the device, also after a
  // kill.
  void Put(Engine& engine, const std::vector<TestChunk>& chunks) const {
    for (const TestChunk& chunk : chunks) {
      const std::vector<std::byte> payload = Payload(chunk);
      std::vector<client::PutChunk> puts(1);
      puts[0] = {.key = Key(chunk.number), .runs = {std::span<const std::byte>(payload)}};
      puts[0].metadata = kTailMark;
      const auto put = engine.client().Put(engine.ns(), std::move(puts), {});
      REQUIRE(put.ok());
      REQUIRE(put->chunks[0].status == client::PutStatus::kStored);
    }
    REQUIRE(site.AwaitKept());
  }
  std::string ring() const { return site.path(site.settings.state) + "/keyring"; }

  Site site;
};

// Returns how many of these some file below the directory holds.
size_t FoundBelow(const std::string& dir, const std::vector<std::string>& needles) {
  std::vector<bool> found(needles.size());
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    if (!entry.is_regular_file()) continue;
    const std::string bytes = ReadFile(entry.path());
    for (size_t i = 0; i < needles.size(); ++i) {
      found[i] = found[i] || memmem(bytes.data(), bytes.size(), needles[i].data(),
                                    needles[i].size()) != nullptr;
    }
  }
  return static_cast<size_t>(std::count(found.begin(), found.end(), true));
}

// Returns some bytes of every piece of every chunk, its first and last ones, and the metadata.
std::vector<std::string> Patterns(const std::vector<TestChunk>& chunks) {
  std::vector<std::string> patterns = {kTailMark};
  for (const TestChunk& chunk : chunks) {
    const std::vector<std::byte> payload = Payload(chunk);
    const auto* text = reinterpret_cast<const char*>(payload.data());
    for (size_t at = 0; at + 32 < payload.size(); at += 100'000)
      patterns.emplace_back(text + at, 32);
    patterns.emplace_back(text + payload.size() - 32, 32);
  }
  return patterns;
}

// Flips a bit of the chunk's payload at its place on the device.
void FlipBit(const Site& site, const TestChunk& chunk) {
  const int fd = open(site.path("nvme0/data.000").c_str(), O_RDWR | O_CLOEXEC);
  REQUIRE(fd >= 0);
  const ChunkKey key = Key(chunk.number);
  std::array<char, 4096> block;
  size_t flipped = 0;
  for (off_t at = 0; pread(fd, block.data(), block.size(), at) == 4096; at += 4096) {
    if (std::memcmp(block.data(), "KVKIMAGE", 8) != 0) continue;
    if (std::memcmp(block.data() + 32, key.bytes.data(), key.bytes.size()) != 0) continue;
    char byte = 0;
    REQUIRE(pread(fd, &byte, 1, at + 4096 + 777) == 1);
    byte ^= 1;
    REQUIRE(pwrite(fd, &byte, 1, at + 4096 + 777) == 1);
    ++flipped;
  }
  close(fd);
  REQUIRE(flipped == 1);
}

}  // namespace

TEST_CASE("what was put is on the device in no file, and is hit again after a restart") {
  const bool on = GENERATE(true, false);  // without encryption everything is found
  Vault vault(on);
  const std::vector<TestChunk> chunks = Chunks(1, 6, (2 << 20) + 5000);
  const std::vector<std::string> patterns = Patterns(chunks);
  vault.site.Start();
  vault.Put(*vault.Default(), chunks);
  CHECK(vault.site.Counter("write_backs_encrypted") == (on ? chunks.size() : 0));
  CHECK(vault.site.Stop().exit_status == 0);
  CHECK(FoundBelow(vault.site.path("nvme0"), patterns) == (on ? 0 : patterns.size()));
  CHECK(FoundBelow(vault.site.path("state"), patterns) == 0);

  vault.site.Start();
  const auto engine = vault.Default();
  CHECK(engine->Find(chunks).g3 == chunks.size());
  CHECK(engine->Hits(chunks) == chunks.size());
  CHECK(engine->wrong_bytes == 0);
  CHECK(vault.site.Counter("promotions") == chunks.size());
}

TEST_CASE("turned on later, what lies there stays readable, and nothing is added to it in plain") {
  Vault vault(false);
  // The sizes differ, as payloads of one size are shifts of each other.
  const std::vector<TestChunk> before = Chunks(1, 3, 2'000'000), after = Chunks(11, 3, 1'900'001);
  vault.site.Start();
  vault.Put(*vault.Default(), before);
  vault.site.Kill();
  vault.Encrypt(true);
  vault.site.Start();
  vault.Put(*vault.Default(), after);
  CHECK(vault.Default()->Hits(before) == before.size());
  vault.site.Kill();
  CHECK(FoundBelow(vault.site.path("nvme0"), Patterns(after)) == 1);  // the mark of the others
  vault.site.Start();
  CHECK(vault.Default()->Hits(before) == before.size());
  CHECK(vault.Default()->Hits(after) == after.size());
  vault.site.Kill();

  vault.Encrypt(false);  // turned off again, and reported
  vault.site.Start();
  CHECK(vault.site.AwaitLog("encryption is off"));
  CHECK(vault.Default()->Hits(before) == before.size());
  CHECK(vault.Default()->Hits(after) == 0);
  CHECK(Eventually([&] { return vault.site.Counter("keyless_chunks") == after.size(); }));
}

TEST_CASE("a flipped bit is a miss, counted, and the other chunks are hits") {
  Vault vault;
  const std::vector<TestChunk> chunks = Chunks(1, 4, 2'000'000);
  vault.site.Start();
  vault.Put(*vault.Default(), chunks);
  vault.site.Kill();
  FlipBit(vault.site, chunks[1]);
  vault.site.Start();
  const auto engine = vault.Default();
  CHECK(engine->Get(chunks[1]) == GetStatus::kCorrupt);
  CHECK(Eventually([&] { return vault.site.Counter("unauthentic_chunks") == 1; }));
  CHECK(engine->Get(chunks[1]) == GetStatus::kMiss);
  CHECK(engine->Hits(chunks) == chunks.size() - 1);
  CHECK(engine->wrong_bytes == 0);
  CHECK(engine->Put(chunks[1]).status == client::PutStatus::kStored);
  CHECK(engine->Hits(chunks) == chunks.size());
}

TEST_CASE("dropping a tenant's key makes its chunks misses for ever, and nobody else's") {
  Vault vault;
  const std::vector<TestChunk> chunks = Chunks(1, 4, 1'500'000);
  vault.site.Start();
  vault.Put(*vault.Default(), chunks);
  vault.Put(*vault.TenantA(), chunks);
  const std::string where = " --config " + vault.site.config_file();
  const Outcome running = Kvkeep("keys drop a --yes" + where);
  INFO(running.output);
  CHECK(running.status == 4);
  CHECK(absl::StrContains(running.output, "keyring.lock"));
  vault.site.Stop();

  const std::string old_ring = ReadFile(vault.ring());
  const Outcome listed = Kvkeep("keys list" + where);
  CHECK(listed.status == 0);
  CHECK(absl::StrContains(listed.output, "@default"));
  const Outcome nobody = Kvkeep("keys drop b --yes" + where);
  CHECK(nobody.status == 3);
  CHECK(Kvkeep("keys drop a" + where + " </dev/null").status == 2);
  CHECK(ReadFile(vault.ring()) == old_ring);
  const Outcome dropped = Kvkeep("keys drop a --yes --json" + where);
  INFO(dropped.output);
  CHECK(dropped.status == 0);

  vault.site.Start();
  CHECK(vault.Default()->Hits(chunks) == chunks.size());
  const auto a = vault.TenantA();
  CHECK(a->Hits(chunks) == 0);
  CHECK(Eventually([&] { return vault.site.Counter("keyless_chunks") == chunks.size(); }));
  CHECK(vault.site.Counter("corrupt_chunks") == 0);
  CHECK(Eventually([&] { return vault.site.Status().g3().chunks() == chunks.size(); }));
  vault.Put(*a, chunks);  // under a new key
  vault.site.Kill();
  vault.site.Start();
  CHECK(vault.TenantA()->Hits(chunks) == chunks.size());
  vault.site.Stop();
  // The old ring, put back, would have brought them back: only the key was erased.
  CHECK(ReadFile(vault.ring()).find(old_ring.substr(old_ring.rfind("key "), 36)) ==
        std::string::npos);
}

TEST_CASE("a master key that is wrong, open to others or not there is refused by name") {
  Vault vault;
  const std::vector<TestChunk> chunks = Chunks(1, 2, 1'000'000);
  vault.site.Start();
  vault.Put(*vault.Default(), chunks);
  vault.site.Stop();
  const std::string ring = ReadFile(vault.ring());
  const auto refused = [&](const std::string& why) {
    const Ending end = vault.site.StartAndAwaitEnd();
    INFO(end.err);
    CHECK(end.exit_status == 78);
    CHECK(absl::StrContains(end.err, "encryption.master_key_file"));
    CHECK(absl::StrContains(end.err, why));
    CHECK_FALSE(absl::StrContains(end.err, "777777"));  // not a digit of a key
    CHECK(ReadFile(vault.ring()) == ring);
  };
  vault.WriteMaster(Hex('2'));
  refused("it is another one");
  vault.WriteMaster(Hex('1'), 0644);
  refused("has mode 0644");
  vault.WriteMaster("short", 0600);
  refused("32 random bytes");
  fs::remove(vault.site.path("master"));
  refused("cannot be read");

  vault.WriteMaster(Hex('1'));
  vault.site.Start();
  CHECK(vault.Default()->Hits(chunks) == chunks.size());
}

namespace {

// The next start uses another master key; the earlier one is named, or not.
void Rotate(Vault& vault, char from, char to, bool name_previous) {
  vault.WriteMaster(Hex(to));
  vault.Encrypt(true);
  WriteFile(vault.site.path("previous"), Hex(from));
  REQUIRE(chmod(vault.site.path("previous").c_str(), 0600) == 0);
  if (!name_previous) return;
  absl::StrAppend(&vault.site.settings.extra, "  previous_master_key_files: [",
                  vault.site.path("previous"), "]\n");
}

// For starts while it lives.
struct KilledAt {
  explicit KilledAt(const std::string& point) {
    setenv("KVKEEP_KILL_AT", (point + ":1").c_str(), 1);
  }
  ~KilledAt() { unsetenv("KVKEEP_KILL_AT"); }
};

}  // namespace

TEST_CASE("another master key: all is hit again, and the one of before is needed for one start") {
  Vault vault;
  const std::vector<TestChunk> chunks = Chunks(1, 4, 1'500'000);
  vault.site.Start();
  vault.Put(*vault.Default(), chunks);
  vault.Put(*vault.TenantA(), chunks);
  vault.site.Kill();
  const std::string old_ring = ReadFile(vault.ring());

  Rotate(vault, '1', '2', /*name_previous=*/false);
  CHECK(vault.site.StartAndAwaitEnd().exit_status == 78);
  CHECK(ReadFile(vault.ring()) == old_ring);
  Rotate(vault, '1', '2', /*name_previous=*/true);
  vault.site.Start();
  CHECK(vault.site.AwaitLog("were_needed=yes"));
  CHECK(vault.Default()->Hits(chunks) == chunks.size());
  vault.site.Kill();

  Rotate(vault, '1', '2', /*name_previous=*/false);
  fs::remove(vault.site.path("previous"));
  vault.site.Start();
  CHECK(vault.Default()->Hits(chunks) == chunks.size());
  CHECK(vault.TenantA()->Hits(chunks) == chunks.size());
  CHECK(vault.site.Counter("keyless_chunks") == 0);
  vault.site.Stop();
  // The earlier key opens nothing any more: a start with it is refused. Without the ring its chunks
  // are misses, under any master key.
  vault.WriteMaster(Hex('1'));
  CHECK(vault.site.StartAndAwaitEnd().exit_status == 78);
  fs::remove(vault.ring());
  vault.site.Start();
  const auto engine = vault.Default();
  CHECK(engine->Hits(chunks) == 0);
  CHECK(engine->wrong_bytes == 0);
  CHECK(Eventually([&] { return vault.site.Counter("keyless_chunks") == chunks.size(); }));
}

TEST_CASE("killed while the master key is changed: the same two keys open what is there") {
  const char* const point = GENERATE("keyring-written", "keyring-renamed");
  INFO(point);
  Vault vault;
  const std::vector<TestChunk> chunks = Chunks(1, 3, 1'500'000);
  vault.site.Start();
  vault.Put(*vault.Default(), chunks);
  vault.site.Kill();
  const std::string old_ring = ReadFile(vault.ring());
  Rotate(vault, '1', '2', /*name_previous=*/true);
  {
    const KilledAt killed(point);
    CHECK(vault.site.StartAndAwaitEnd().signal == SIGKILL);
  }
  const bool renamed = absl::string_view(point) == "keyring-renamed";
  CHECK((ReadFile(vault.ring()) != old_ring) == renamed);
  // With the earlier ring, and with the new one.
  const Outcome checked =
      Kvkeep("fsck " + vault.site.path("nvme0") + " --config " + vault.site.config_file());
  INFO(checked.output);
  CHECK(checked.status == 0);
  vault.site.Start();
  CHECK(vault.Default()->Hits(chunks) == chunks.size());
  vault.site.Kill();
  CHECK_FALSE(fs::exists(vault.ring() + ".new"));
  Rotate(vault, '1', '2', /*name_previous=*/false);
  vault.site.Start();
  CHECK(vault.Default()->Hits(chunks) == chunks.size());
}

}  // namespace kvkeep::e2e
