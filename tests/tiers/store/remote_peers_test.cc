// Images that come from peers: plain, in a header page of theirs. And a source that is peers alone:
// nothing is written there or removed.
#include <catch2/catch.hpp>
#include <cstring>

#include "tests/tiers/store/store_tester.h"
#include "tiers/base/checksum.h"

namespace kvkeep {
namespace {

constexpr size_t kTwoPieces = kPieceBytes + 5000;

WorldOptions NearPeers(bool keeps) {
  WorldOptions options = SmallWorld();
  options.g2_blocks = options.g2_segment_blocks = 2048;
  options.device_blocks = {4096};
  options.store.dirty_budget_bytes = options.store.max_reserved_bytes = 2048 * kBlockBytes;
  options.store.max_leased_bytes = 2048 * kBlockBytes;
  options.remote = true;
  options.remote_keeps = keeps;
  options.arena_outlives = true;
  return options;
}

struct NearPeer {
  explicit NearPeer(bool keeps = true) : s(NearPeers(keeps)) {}

  // Puts a chunk, has the node lose it, and has a peer offer it, in a header that `change` alters.
  void Offer(uint64_t name, size_t bytes, const std::function<void(ImageHeader&)>& change = {}) {
    const uint32_t tail_bytes = 100;
    REQUIRE(s.Put(name, bytes, {.tail_bytes = tail_bytes}) == "stored");
    s.Settle();
    LoseNode();
    const std::vector<std::byte> payload = MakePayload(name, 1, static_cast<uint32_t>(bytes));
    const std::vector<std::byte> tail(tail_bytes, std::byte{'t'});
    ImageHeader header;
    header.identity = {.id = s.Id(name),
                       .shape = {static_cast<uint32_t>(bytes), tail_bytes},
                       .created_unix_us = 5,
                       .tail_checksum = Xxh3(tail)};
    const ImageShape shape = header.identity.shape;
    for (size_t i = 0; i < shape.pieces(); ++i) {
      header.identity.piece_checksums.push_back(
          Xxh3(std::span(payload).subspan(i * kPieceBytes, PieceSize(bytes, i))));
    }
    header.placement = {.tier = Tier::kG2,
                        .place = s.world.remote().place(),
                        .incarnation = Incarnation(7),
                        .generation = Generation(9),
                        .extents = {Extent{BlockNumber(0), shape.blocks()}}};
    if (change) change(header);
    std::vector<std::byte> image(shape.blocks().value() * kBlockBytes);
    EncodeHeader(header, s.world.remote().mac_key(), HeaderPage(image.data(), kHeaderBytes));
    std::memcpy(image.data() + kHeaderBytes, payload.data(), payload.size());
    std::memcpy(image.data() + shape.tail_offset(), tail.data(), tail.size());
    s.world.bucket()[s.Id(name)] = std::make_shared<const std::vector<std::byte>>(image);
  }
  void LoseNode() { s.LoseNode(); }
  std::string Recall(uint64_t name) {
    std::string answer = "waiting";
    Begin(name, &answer);
    s.RunAll();
    s.store().CheckInvariants();
    return answer;
  }
  void Begin(uint64_t name, std::string* answer) {
    const ChunkKey key = MakeKey(name);
    const PartId part(0);
    s.store().Recall(s.session, {s.ns, std::span(&key, 1), std::span(&part, 1)},
                     [answer](const absl::StatusOr<uint64_t>& came) {
                       *answer =
                           came.ok() ? std::to_string(*came) : std::string(came.status().message());
                     });
  }
  RemoteCounters counters() { return *s.store().snapshot().remote; }

  StoreTester s;
};

}  // namespace

TEST_CASE("a peer's image comes in plain, and is an image of this node from then on") {
  NearPeer peer;
  StoreTester& s = peer.s;
  peer.Offer(1, kTwoPieces);
  CHECK(peer.Recall(1) == "1");
  CHECK(s.Get(1) == "hit");
  CHECK(s.Pin(1).Identity()->created_unix_us == 5);
  // Its header page is this node's: the next process takes it over, and verifies it.
  s.KillAndStart();
  CHECK(s.Where(1) == "2");
  CHECK(s.Get(1) == "hit");
  CHECK(s.counters().corrupt_chunks + s.counters().recovery_dropped_g2_chunks == 0);
}

TEST_CASE("a peer's image is checked piece by piece, and a bad one says nothing of the bucket's") {
  NearPeer peer;
  StoreTester& s = peer.s;
  peer.Offer(1, kTwoPieces);
  std::vector<std::byte> image = *s.world.bucket()[s.Id(1)];
  image[kHeaderBytes + kPieceBytes + 7] ^= std::byte{1};
  s.world.bucket()[s.Id(1)] = std::make_shared<const std::vector<std::byte>>(image);
  std::string answer = "waiting";
  peer.Begin(1, &answer);
  while (s.store().snapshot().g2.used_bytes == 0) REQUIRE(s.world.RunOneAtRandom());
  ChunkReader reader = s.Pin(1);
  REQUIRE(reader);
  CHECK(s.WaitFor(reader, 1, 1) == "damaged");
  CHECK(answer == "0");
  CHECK(peer.counters().bad_images == 1);
  s.Settle();
  CHECK(s.world.bucket().contains(s.Id(1)));
  CHECK(peer.counters().removed_chunks == 0);
}

TEST_CASE("an image of a form between a peer's and a bucket's is refused") {
  NearPeer peer;
  const auto encrypt = [](ImageHeader& header) {
    header.encryption.emplace().key_id.bytes[0] = 1;
    header.encryption->unit_tags.resize(header.identity.shape.units());
  };
  std::function<void(ImageHeader&)> change;
  SECTION("encrypted, of a peer") { change = encrypt; }
  SECTION("in plain, of the bucket") {
    change = [](ImageHeader& header) { header.placement.tier = Tier::kG4; };
  }
  SECTION("of a device") {
    change = [](ImageHeader& header) { header.placement.tier = Tier::kG3; };
  }
  SECTION("of another place") {
    change = [](ImageHeader& header) { header.placement.place.bytes[3] ^= 1; };
  }
  SECTION("of another chunk") {
    change = [](ImageHeader& header) { header.identity.id.key = MakeKey(2); };
  }
  peer.Offer(1, 4096, change);
  CHECK(peer.Recall(1) == "0");
  CHECK(peer.counters().bad_images == 1);
  CHECK(peer.s.Get(1) == "miss");
}

// The fake fails a check if it is asked to write, to remove or for an age.
TEST_CASE("where nothing is kept, nothing is written, aged or removed, and nobody waits for it") {
  NearPeer peer(/*keeps=*/false);
  StoreTester& s = peer.s;
  CHECK_FALSE(s.world.remote().keeps());
  for (uint64_t name = 1; name <= 20; ++name) CHECK(s.Put(name, 4096) == "stored");
  s.Lookup({1, 2, 3});
  s.Settle();
  CHECK(s.Delete({1, 2, 99}) == 2);
  std::string deleted = "waiting";
  s.world.removal_log().fails = true;
  s.store().WhenDeleted(true, [&](const absl::Status& status) { deleted = status.ToString(); });
  s.Settle();
  CHECK(deleted == "OK");
  CHECK(s.world.removal_log().Left().empty());
  StoreOptions options = s.store().options();
  options.remote_write_bytes_per_second = 123'456'789;
  CHECK(s.store().SetLimits(options).ok());
  CHECK(s.Put(30, 4096) == "stored");
  s.Touch({30});
  s.store().BeginDrain(/*write_remote=*/true);
  CHECK(s.store().snapshot().remote_writes_left == 0);
  CHECK(s.store().snapshot().remote_removals_left == 0);
  CHECK(s.store().beyond_is_quiet());
  s.Settle();
  const RemoteCounters counters = peer.counters();
  CHECK(counters.offered_chunks + counters.written_chunks + counters.aged_chunks == 0);
  CHECK(counters.removed_chunks + counters.failed_removals + counters.refused_deletes == 0);
}

TEST_CASE("where nothing is kept, a bad image is a miss and is not to be removed") {
  NearPeer peer(/*keeps=*/false);
  peer.Offer(1, 4096, [](ImageHeader& header) { header.placement.tier = Tier::kG4; });
  CHECK(peer.Recall(1) == "0");
  CHECK(peer.counters().bad_images == 1);
  CHECK(peer.s.store().snapshot().remote_removals_left == 0);
}

TEST_CASE("what is deleted while peers are asked for it does not come, but later it may") {
  NearPeer peer(/*keeps=*/false);
  StoreTester& s = peer.s;
  peer.Offer(1, 4096);
  std::string answer = "waiting";
  peer.Begin(1, &answer);
  s.Delete({1});
  s.Delete({1});
  s.RunAll();
  CHECK(answer == "0");
  CHECK(s.Get(1) == "miss");
  CHECK(peer.Recall(1) == "1");  // peers have copies of their own
  CHECK(s.Get(1) == "hit");
}

TEST_CASE("removals that a process with a bucket left wait for the next bucket") {
  NearPeer peer(/*keeps=*/false);
  StoreTester& s = peer.s;
  s.world.removal_log().Write(
      std::make_shared<std::deque<RemovalLog::Note>>(1, RemovalLog::Note{s.Id(5), false}), false,
      [](const absl::Status& status) { CHECK(status.ok()); });
  s.RunAll();
  s.KillAndStart();
  s.Settle();
  CHECK(s.store().snapshot().remote_removals_left == 0);
  CHECK(s.world.removal_log().Left() == std::vector{s.Id(5)});
}

}  // namespace kvkeep
