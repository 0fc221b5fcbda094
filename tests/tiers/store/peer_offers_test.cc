// Chunks that a node which leaves gives to this one: what has room, and what an offer may cost. And
// what this node would give itself.
#include "tiers/store/peer_offers.h"

#include <catch2/catch.hpp>

#include "tests/tiers/store/store_tester.h"
#include "tiers/base/tenant_tag.h"

namespace kvkeep {
namespace {

constexpr uint32_t kPayload = 4096;  // an image of two blocks; G2 has 64
constexpr size_t kChunksOfG2 = 32;

// A node with other nodes, which are a bucket here.
struct Offered {
  explicit Offered(const WorldOptions& options = WithPeers()) : s(options) {}
  static WorldOptions WithPeers() {
    WorldOptions options = SmallWorld();
    options.remote = true;
    return options;
  }

  // Has only other nodes have these chunks. This node begins anew, without a device.
  void Leave(const std::vector<uint64_t>& names) {
    for (const uint64_t name : names) REQUIRE(s.Put(name, kPayload) == "stored");
    s.Settle();
    s.LoseNode();
  }
  // Likewise, with chunks that were never here.
  void LeaveElsewhere(const std::vector<uint64_t>& names) {
    StoreTester other(WithPeers());
    for (const uint64_t name : names) REQUIRE(other.Put(name, kPayload) == "stored");
    other.Settle();
    s.world.bucket() = other.world.bucket();
  }
  // Returns a letter for each chunk: taken, had or "-", and "!" if there is no more room; or why
  // nothing was taken.
  std::string Offer(const std::vector<uint64_t>& names) {
    std::string answer = "waiting";
    Begin(names, &answer);
    s.RunAll();
    s.store().CheckInvariants();
    return answer;
  }
  void Begin(const std::vector<uint64_t>& names, std::string* answer) {
    std::vector<OfferedChunk> chunks;
    for (const uint64_t name : names) chunks.push_back({s.Id(name), {kPayload, 0}});
    s.store().TakeOffer(std::move(chunks), [answer](const absl::StatusOr<OfferAnswer>& said) {
      *answer = said.ok() ? "" : std::string(said.status().message());
      if (!said.ok()) return;
      for (const OfferEnd end : said->chunks) {
        *answer += end == OfferEnd::kTaken ? "t" : end == OfferEnd::kHad ? "h" : "-";
      }
      if (said->full) *answer += "!";
    });
  }
  // Fills G2 with chunks from `first` on.
  void FillG2(uint64_t first, const PutHow& how = {}) {
    for (size_t i = 0; i < kChunksOfG2; ++i) REQUIRE(s.Put(first + i, kPayload, how) == "stored");
    s.Settle();
  }
  // Returns how many of the chunks of FillG2 are in G2, or in any tier. No use of them.
  size_t Count(uint64_t first, bool in_g2) {
    std::vector<ChunkId> ids;
    for (size_t i = 0; i < kChunksOfG2; ++i) ids.push_back(s.Id(first + i));
    size_t count = 0;
    for (const std::optional<PeerChunk>& chunk : s.store().LookForPeer(ids)) {
      count += chunk.has_value() && (!in_g2 || chunk->tier == Tier::kG2);
    }
    return count;
  }
  std::vector<uint64_t> Hottest(size_t most = 100, uint64_t* all = nullptr) {
    const HotChunks hot = s.store().NameHottest({TenantTagOf(s.ns)}, most);
    if (all != nullptr) *all = hot.all;
    std::vector<uint64_t> names;
    for (const OfferedChunk& chunk : hot.hottest) {
      for (uint64_t name = 1; name < 200; ++name) {
        if (s.Id(name) == chunk.id) names.push_back(name);
      }
      CHECK(chunk.shape == ImageShape{kPayload, 0});
    }
    return names;
  }
  OfferCounters counters() { return s.store().snapshot().offers; }

  StoreTester s;
};

}  // namespace

TEST_CASE("offered chunks come from the other node, but for those that are here already") {
  Offered o;
  o.Leave({1, 2});
  CHECK(o.s.Put(3, kPayload) == "stored");
  CHECK(o.Offer({1, 3, 2}) == "tht");
  for (const uint64_t name : {1, 2, 3}) CHECK(o.s.Get(name) == "hit");
  CHECK(o.Offer({1, 2, 3}) == "hhh");
  CHECK(o.counters().offers == 2);
  CHECK(o.counters().offered_chunks == 6);
  CHECK(o.counters().taken_chunks == 2);
}

TEST_CASE("an offered chunk that does not come is refused, and takes no space") {
  Offered o;
  o.Leave({1});
  CHECK(o.Offer({1, 2}) == "t-");
  CHECK(o.s.Get(2) == "miss");
  CHECK(o.s.store().snapshot().g2.used_bytes == 2 * kBlockBytes);
}

TEST_CASE("offers fill an eighth of G2 at once") {
  Offered o;
  o.Leave({1, 2, 3, 4, 5, 6});
  CHECK(o.Offer({1, 2, 3, 4, 5, 6}) == "tttt--");
  CHECK(o.Offer({1, 2, 3, 4, 5, 6}) == "hhhhtt");
}

TEST_CASE("an offer evicts no chunk that G2 alone has") {
  Offered o;
  o.LeaveElsewhere({1});
  o.FillG2(100, {.no_g3 = true});
  CHECK(o.Offer({1}) == "-!");
  CHECK(o.Count(100, true) == kChunksOfG2);
  CHECK(o.counters().displaced_chunks == 0);
}

TEST_CASE("for offers chunks that G3 has too leave G2: a quarter of it in ten minutes") {
  Offered o;
  o.LeaveElsewhere({1, 2, 3, 4, 5, 6, 7, 8, 9});
  o.FillG2(100);
  CHECK(o.Offer({1, 2, 3, 4}) == "tttt");
  CHECK(o.Offer({5, 6, 7, 8}) == "tttt");
  CHECK(o.Offer({9}) == "-!");
  CHECK(o.Count(100, false) == kChunksOfG2);
  CHECK(o.Count(100, true) == kChunksOfG2 - 8);
  CHECK(o.counters().displaced_chunks == 8);
  o.s.Pass(std::chrono::minutes(11));
  CHECK(o.Offer({9}) == "t");
  CHECK(o.Count(100, false) == kChunksOfG2);
}

TEST_CASE("whatever the policy, an offer takes nothing that G2 alone has") {
  for (const char* policy : {"lru", "arc", "lfu", "reuse", "seconds"}) {
    INFO(policy);
    WorldOptions options = Offered::WithPeers();
    options.store.g2_policy = policy;
    Offered o(options);
    const std::vector<uint64_t> offered = {1, 2, 3, 4, 5, 6, 7, 8};
    o.LeaveElsewhere(offered);
    for (size_t i = 0; i < kChunksOfG2; ++i) {
      REQUIRE(o.s.Put(100 + i, kPayload, {.no_g3 = i % 3 == 0}) == "stored");
    }
    o.s.Settle();
    for (const uint64_t name : offered) {
      // Without leases, which would bring chunks back from G3 and evict others for them.
      o.s.Lookup({100 + name, 110 + name, 120 + name}, LeaseMode::kNone);
      if (name % 2 == 0) o.s.store().Tick();  // now and then all is learned
      o.s.RunAll();
      o.Offer({name});
      CHECK(o.Count(100, false) == kChunksOfG2);
    }
  }
}

TEST_CASE("the hottest offered chunk is the last of them to be evicted") {
  Offered o;
  o.Leave({1, 2, 3});
  CHECK(o.Offer({1, 2, 3}) == "ttt");
  for (const uint64_t coldest : {3, 2, 1}) {
    const std::vector<ChunkId> id = {o.s.Id(coldest)};
    CHECK(o.s.store().LookForPeer(id)[0].has_value());
    CHECK(o.s.store().Evict({.bytes = 1})->chunks == 1);
    CHECK_FALSE(o.s.store().LookForPeer(id)[0].has_value());
  }
}

TEST_CASE("a node that drains takes nothing, and neither does one without others") {
  Offered o;
  o.Leave({1});
  o.s.store().BeginDrain();
  CHECK(o.Offer({1}) == "the daemon is draining");
  Offered alone{SmallWorld()};
  CHECK(alone.Offer({1}) == "this node takes no chunks of other nodes");
}

TEST_CASE("few offers are under way at once") {
  WorldOptions options = Offered::WithPeers();
  options.g2_blocks = options.g2_segment_blocks = 512;
  Offered o(options);
  constexpr uint32_t kMost = store_internal::PeerOffers::kMostOffers;
  std::vector<uint64_t> names;
  for (uint64_t name = 1; name <= kMost + 1; ++name) names.push_back(name);
  o.LeaveElsewhere(names);
  std::vector<std::string> answers(names.size());
  for (size_t i = 0; i < names.size(); ++i) o.Begin({names[i]}, &answers[i]);
  o.s.RunAll();
  for (size_t i = 0; i < kMost; ++i) CHECK(answers[i] == "t");
  CHECK(answers[kMost] == "too many offers are under way");
  CHECK(o.Offer({names.back()}) == "t");
}

TEST_CASE("this node names its chunks by how hot they are: those of G2 first") {
  Offered o{SmallWorld()};
  PutIntoG3(o.s, 1, kPayload);
  for (const uint64_t name : {2, 3, 4}) CHECK(o.s.Put(name, kPayload) == "stored");
  o.s.Settle();
  o.s.Touch({2});
  CHECK(o.Hottest() == std::vector<uint64_t>{2, 4, 3, 1});
  uint64_t all = 0;
  CHECK(o.Hottest(2, &all) == std::vector<uint64_t>{2, 4});
  CHECK(all == 4);
  // What is in use now is hotter than all.
  const ChunkReader reader = o.s.Pin(3);
  CHECK(o.Hottest(1) == std::vector<uint64_t>{3});
}

TEST_CASE("chunks of a tenant that is not shared are not named, nor are deleted ones") {
  Offered o{SmallWorld()};
  CHECK(o.s.Put(1, kPayload) == "stored");
  CHECK(o.s.Put(2, kPayload) == "stored");
  CHECK(o.s.store().NameHottest({TenantTagOf(o.s.ns) + 1}, 100).all == 0);
  CHECK(o.s.store().NameHottest({}, 100).all == 0);
  CHECK(o.s.Delete({1}) == 1);
  CHECK(o.Hottest() == std::vector<uint64_t>{2});
}

}  // namespace kvkeep
