// Encrypted images on the device: nothing readable there, the same bytes back, and misses where a
// key or a tag differs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/tiers/store/store_tester.h"

namespace kvkeep {
namespace {

using Encryption = WorldOptions::Encryption;

// Room for some chunks of three pieces.
WorldOptions CipherWorld(Encryption encryption = Encryption::kOn, uint64_t g2_blocks = 2048) {
  WorldOptions options = SmallWorld();
  options.encryption = encryption;
  options.g2_blocks = options.g2_segment_blocks = g2_blocks;
  options.device_blocks = {2 * g2_blocks};
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = g2_blocks * kBlockBytes;
  options.store.max_leased_bytes = g2_blocks * kBlockBytes;
  return options;
}

bool Holds(std::span<const std::byte> where, std::span<const std::byte> what) {
  return std::search(where.begin(), where.end(), what.begin(), what.end()) != where.end();
}

uint64_t KeyId8(const DataKey* key) {
  uint64_t first;
  std::memcpy(&first, key->id.bytes.data(), sizeof(first));
  return first;
}

}  // namespace

TEST_CASE("what an image holds is nowhere on the device, and comes back whole") {
  const bool on = GENERATE(true, false);
  StoreTester s(CipherWorld(on ? Encryption::kOn : Encryption::kOff));
  constexpr size_t kBytes = 2 * kMiB + 4097;
  REQUIRE(s.Put(1, kBytes, {.tail_bytes = 100}) == "stored");
  ChunkReader reader = s.Pin(1);
  // Some bytes of every piece, of the tail, and the checksums.
  std::vector<std::vector<std::byte>> secrets;
  for (const uint64_t at : {uint64_t{0}, kPieceBytes - 32, kPieceBytes, 2 * kPieceBytes + 4000}) {
    const auto bytes = reader.Payload(at, 32);
    secrets.emplace_back(bytes.begin(), bytes.end());
  }
  const std::string tail = reader.Metadata();
  REQUIRE(tail.size() == 100);
  const auto* tail_bytes = reinterpret_cast<const std::byte*>(tail.data());
  secrets.emplace_back(tail_bytes, tail_bytes + tail.size());
  for (const uint64_t checksum : reader.PieceChecksums()) {
    const auto bytes = std::as_bytes(std::span(&checksum, 1));
    secrets.emplace_back(bytes.begin(), bytes.end());
  }
  reader = ChunkReader();
  s.Settle();
  for (size_t i = 0; i < secrets.size(); ++i) {
    CAPTURE(i);
    CHECK(Holds(s.world.disk().bytes(), secrets[i]) == !on);
  }
  CHECK(s.counters().write_backs_encrypted == (on ? 1 : 0));
  s.KillAndStart();
  CHECK(s.Get(1) == "hit");
  CHECK(s.Pin(1).Metadata() == tail);
  CHECK(s.counters().promotions_failed == 0);
}

TEST_CASE("a chunk of more than 64 pieces has units of two, and comes back") {
  StoreTester s(CipherWorld(Encryption::kOn, 20'000));
  constexpr size_t kBytes = 66 * kMiB + 5;
  PutIntoG3(s, 1, kBytes, 16384);
  ChunkReader reader = s.Pin(1);
  CHECK(s.WaitFor(reader, 1, 1) == "ok");
  CHECK(s.WaitFor(reader, 0, 67) == "ok");
  CHECK(s.Bytes(1, reader) == "hit");
}

TEST_CASE("a changed byte of a unit or of a tag is a miss, counted, and goes from the device") {
  StoreTester s(CipherWorld());
  PutIntoG3(s, 1, kMiB + 5, 100);
  const uint64_t block = s.DeviceBlock(1);
  const std::span<std::byte> image = s.OnDisk(block, 258);
  size_t at = 0;
  SECTION("in the first piece") { at = 2 * kBlockBytes + 77; }
  SECTION("in the tail") { at = kHeaderBytes + kMiB + 64 + 99; }
  SECTION("behind the tail") { at = 258 * kBlockBytes - 1; }
  SECTION("in the first unit's tag") { at = 2800; }
  SECTION("in the checksums' tag") { at = 2784; }
  image[at] ^= std::byte{1};
  CHECK(s.Get(1) == "damaged");
  CHECK(s.counters().unauthentic_chunks == 1);
  CHECK(s.counters().keyless_chunks == 0);
  CHECK(s.counters().corrupt_chunks == 1);
  s.Settle();
  CHECK(s.Where(1).empty());
  CHECK(s.store().snapshot().g3.chunks == 0);
  CHECK(s.Put(1, kMiB + 5) == "stored");  // and may be put anew
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("without its key a chunk is a miss, counted, and goes from the device") {
  StoreTester s(CipherWorld());
  PutIntoG3(s, 1, 4096);
  SECTION("the tenant has another one") {
    SeededRandom random(99);
    s.world.SetKeys(KeyRing::InMemory({""}, &random));
  }
  SECTION("encryption was turned off") { s.world.SetKeys(nullptr); }
  bool confirmed = false;
  SECTION("after a power cut") {
    s.world.SetKeys(nullptr);
    confirmed = true;
  }
  if (confirmed) {
    s.PowerCutAndStart();
    s.Settle();
    CHECK(s.Where(1).empty());  // known when its header is confirmed, before any read
    CHECK(s.counters().stale_records == 0);
  } else {
    s.KillAndStart();
    REQUIRE(s.Where(1) == "3");
    CHECK(s.Get(1) == "NOT_FOUND");
    CHECK(s.counters().corrupt_chunks == 0);
  }
  CHECK(s.counters().keyless_chunks == 1);
  CHECK(s.counters().unauthentic_chunks == 0);
  s.Settle();
  CHECK(s.Where(1).empty());
  CHECK(s.store().snapshot().g3.chunks == 0);
}

TEST_CASE("turned on later, it encrypts what is written from then on, and reads what is there") {
  StoreTester s(CipherWorld(Encryption::kLater));
  PutIntoG3(s, 1, 4096);
  PutIntoG3(s, 2, 4096);
  CHECK(s.OnDisk(s.DeviceBlock(1), 1)[8] == std::byte{3});
  CHECK(s.OnDisk(s.DeviceBlock(2), 1)[8] == std::byte{4});
  const std::span<std::byte> page = s.OnDisk(s.DeviceBlock(2), 1);
  uint64_t id;
  std::memcpy(&id, page.data() + 96, sizeof(id));
  CHECK(id == KeyId8(s.world.keys()->ForTenant("")));
  CHECK(s.Get(1) == "hit");
  CHECK(s.Get(2) == "hit");
}

TEST_CASE("leased bytes stay as they are while they are encrypted, in few and bounded buffers") {
  StoreTester s(CipherWorld(Encryption::kOn, 4096));
  constexpr size_t kBytes = 6 * kMiB + 5;
  REQUIRE(s.Put(1, kBytes) == "stored");
  ChunkReader reader = s.Pin(1);
  uint64_t most = 0;
  for (uint64_t i = 0; s.world.RunOneAtRandom(); ++i) {
    most = std::max(most, s.store().snapshot().cipher_buffer_bytes);
    if (i % 4 == 0) REQUIRE(s.Bytes(1, reader) == "hit");
  }
  s.Settle();
  CHECK(s.counters().write_backs_encrypted == 1);
  CHECK(most == 4 * kMiB);
  CHECK(s.store().snapshot().cipher_buffer_bytes == 0);
}

TEST_CASE("an encrypted write that fails leaves the chunk in G2 and no buffer") {
  WorldOptions options = CipherWorld(Encryption::kOn, 4096);
  options.device_faults.write_error = 0.3;
  StoreTester s(options);
  REQUIRE(s.Put(1, 6 * kMiB) == "stored");
  s.Settle();
  CHECK(s.Where(1) == "2");
  CHECK(s.counters().write_backs_failed == 1);
  CHECK(s.store().snapshot().cipher_buffer_bytes == 0);
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("each tenant's images carry its own key") {
  WorldOptions options = CipherWorld();
  options.g2_segment_blocks = 1024;
  options.store.tenants = {{.name = "", .g2_segments = 1}, {.name = "b", .g2_segments = 1}};
  StoreTester s(options);
  const auto id_on_disk = [&s](uint64_t name) {
    uint64_t id;
    std::memcpy(&id, s.OnDisk(s.DeviceBlock(name), 1).data() + 96, sizeof(id));
    return id;
  };
  REQUIRE(s.Put(1) == "stored");
  s.Settle();
  CHECK(id_on_disk(1) == KeyId8(s.world.keys()->ForTenant("")));
  s.session = s.store().OpenSession({.client_name = "b", .tenant = TenantId(1)}).value();
  s.ns =
      s.store()
          .OpenNamespace(s.session,
                         {.model = "m", .dtype = "d", .tokens_per_chunk = 1, .hash_algorithm = "h"})
          .value();
  REQUIRE(s.Put(2) == "stored");
  s.Settle();
  CHECK(id_on_disk(2) == KeyId8(s.world.keys()->ForTenant("b")));
  CHECK(KeyId8(s.world.keys()->ForTenant("b")) != KeyId8(s.world.keys()->ForTenant("")));
}

}  // namespace kvkeep
