// Nodes that give their chunks to others before they are taken away.
#include <absl/strings/match.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "tests/e2e/peer_fleet.h"

namespace kvkeep::e2e {
namespace {

using std::chrono::seconds;

constexpr size_t kHandedBytes = 300'000;

v1::DrainResponse DrainToPeers(const Site& site, seconds within = seconds(60)) {
  const auto drained = site.admin()->Drain(within, false, true);
  if (!drained.ok()) FAIL(drained.status() << "\n" << site.Log());
  return *drained;
}

// Waits until all nodes have reached all others that run.
void AwaitAllUp(const PeerFleet& fleet) {
  for (const auto& site : fleet.sites) {
    const auto all_up = [&] {
      const v1::StatusResponse status = site->Status();
      const auto& peers = status.peers();
      return std::all_of(peers.begin(), peers.end(),
                         [](const auto& peer) { return peer.second == "up"; });
    };
    if (!Eventually(all_up, seconds(60))) FAIL(site->Log());
  }
}

using Prompts = std::vector<std::vector<TestChunk>>;

// Looks up each node's prompts there, and gets what is found. Returns the part of the chunks that
// are hits. Each missing chunk is searched for: a lookup that tells no cost asks for eight at
// least, and a prompt of ten chunks may be in two places. Peers have five milliseconds to answer;
// if this machine was too slow for that, the prompt is looked up again.
double HitRatio(const PeerFleet& fleet, const std::vector<Prompts>& prompts) {
  size_t hits = 0, wanted = 0;
  for (size_t i = 0; i < fleet.sites.size(); ++i) {
    for (const std::vector<TestChunk>& prompt : prompts[i]) {
      wanted += prompt.size();
      size_t of_prompt = 0;
      for (int tries = 0; tries < 20; ++tries) {
        const uint64_t late = fleet.sites[i]->Counter("peer_late_questions");
        of_prompt = RecallLeading(*fleet.engines[i], prompt, seconds(5), client::kNotComputable);
        if (fleet.sites[i]->Counter("peer_late_questions") == late) break;
      }
      hits += of_prompt;
    }
    CHECK(fleet.engines[i]->wrong_bytes == 0);
  }
  return static_cast<double>(hits) / static_cast<double>(wanted);
}

// Engines of some nodes, which get their prompts and put others all the time.
class Load {
 public:
  Load(const PeerFleet& fleet, const std::vector<Prompts>& prompts, size_t but, uint64_t first)
      : next_(first) {
    for (size_t i = 0; i < fleet.sites.size(); ++i) {
      if (i == but) continue;
      engines_.push_back(std::make_unique<Engine>(*fleet.sites[i]));
      prompts_.push_back(prompts[i]);
    }
    thread_ = std::thread([this] {
      while (!over_) Step();
    });
  }
  ~Load() {
    over_ = true;
    thread_.join();
  }
  uint64_t wrong_bytes() const {
    uint64_t wrong = 0;
    for (const auto& engine : engines_) wrong += engine->wrong_bytes;
    return wrong;
  }

 private:
  void Step() {
    for (size_t e = 0; e < engines_.size(); ++e) {
      for (const std::vector<TestChunk>& prompt : prompts_[e]) engines_[e]->Hits(prompt);
      engines_[e]->PutAll(Chunks(next_, 1, 50'000));
      ++next_;
    }
    // So that new chunks do not push the prompts out, whatever the upgrade takes.
    std::this_thread::sleep_for(milliseconds(50));
  }

  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<Prompts> prompts_;
  uint64_t next_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

TEST_CASE("What a node handed over is at the others once it is gone") {
  PeerFleet fleet(3);
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 150, kHandedBytes);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  const v1::DrainResponse drained = DrainToPeers(*fleet.sites[0]);
  INFO(drained.DebugString());
  CHECK(drained.handed_chunks() == chunks.size());
  CHECK(drained.unhanded_chunks() == 0);
  CHECK(drained.dirty_chunks_left() == 0);
  const uint64_t taken = fleet.sites[1]->Counter("peer_served_taken_chunks") +
                         fleet.sites[2]->Counter("peer_served_taken_chunks");
  CHECK(taken == chunks.size());
  for (const size_t node : {1, 2}) {
    CHECK(fleet.sites[node]->Counter("peer_served_taken_chunks") >= 20);
  }
  CHECK(fleet.sites[0]->Counter("peer_handed_chunks") == chunks.size());
  // It answers its peers until it stops, and takes nothing itself.
  CHECK(RecallLeading(*fleet.engines[0], chunks, seconds(1)) == chunks.size());
  CHECK(fleet.sites[1]->Status().peers().at(NameOfNode(0)) == "up");
  fleet.engines[0].reset();
  fleet.sites[0]->Kill();
  REQUIRE(fleet.sites[1]->AwaitLog("a peer does not answer", seconds(60)));
  CHECK(RecallsAll(*fleet.engines[1], chunks));
  CHECK(fleet.engines[1]->wrong_bytes == 0);
}

TEST_CASE("Chunks that the node has on its drive alone are handed over, too") {
  PeerFleet fleet(2);
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 30, kHandedBytes);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  REQUIRE(fleet.sites[0]->AwaitClean());
  fleet.engines[0].reset();
  fleet.sites[0]->Stop();
  fleet.sites[0]->Start();
  AwaitAllUp(fleet);
  CHECK(fleet.sites[0]->Status().g2().chunks() == 0);
  const v1::DrainResponse drained = DrainToPeers(*fleet.sites[0]);
  CHECK(drained.handed_chunks() == chunks.size());
  CHECK(drained.unhanded_chunks() == 0);
  CHECK(fleet.engines[1]->Hits(chunks) == chunks.size());
  CHECK(fleet.engines[1]->wrong_bytes == 0);
}

TEST_CASE("Nothing goes of a tenant that is not shared, here or there") {
  PeerFleet fleet(2);
  const size_t alone = GENERATE(0, 1);
  std::string& access = fleet.sites[alone]->settings.access;
  access.replace(access.find("shared: true"), 12, "shared: false");
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 8, kHandedBytes);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  const v1::DrainResponse drained = DrainToPeers(*fleet.sites[0]);
  CHECK(drained.has_handed_chunks());
  CHECK(drained.handed_chunks() == 0);
  CHECK(drained.unhanded_chunks() == (alone == 0 ? 0 : chunks.size()));
  CHECK(fleet.sites[1]->Counter("peer_served_taken_chunks") == 0);
  CHECK(fleet.engines[1]->Find(chunks).any == 0);
}

TEST_CASE("A node without peers says so; a plain drain hands nothing over") {
  Site site;
  site.Start();
  const auto refused = site.admin()->Drain(seconds(5), false, true);
  CHECK(absl::IsFailedPrecondition(refused.status()));
  CHECK(absl::StrContains(refused.status().message(), "fleet.peers"));
  PeerFleet fleet(2);
  fleet.Start();
  REQUIRE(fleet.engines[0]->PutAll(Chunks(1, 4, kHandedBytes)));
  const auto drained = fleet.sites[0]->admin()->Drain(seconds(30));
  REQUIRE(drained.ok());
  CHECK_FALSE(drained->has_handed_chunks());
  CHECK(fleet.sites[1]->Counter("peer_served_offered_chunks") == 0);
}

TEST_CASE("A node that has no room takes what fits, and loses nothing for it") {
  PeerFleet fleet(2);
  fleet.sites[1]->settings.g2 = "16MiB";
  fleet.sites[1]->settings.devices = {};
  fleet.Start();
  const std::vector<TestChunk> own = Chunks(1000, 10, kHandedBytes);
  const std::vector<TestChunk> chunks = Chunks(1, 100, kHandedBytes);
  REQUIRE(fleet.engines[1]->PutAll(own));
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  const v1::DrainResponse drained = DrainToPeers(*fleet.sites[0]);
  INFO(drained.DebugString());
  CHECK(drained.handed_chunks() + drained.unhanded_chunks() == chunks.size());
  CHECK(drained.handed_chunks() > 20);
  CHECK(drained.unhanded_chunks() > 40);
  CHECK(fleet.engines[1]->Hits(own) == own.size());
  CHECK(fleet.engines[1]->Find(chunks).g2 == drained.handed_chunks());
}

TEST_CASE("A peer that dies in the middle leaves its part to the other one") {
  PeerFleet fleet(3, ", serve_bytes_per_second: 5MiB");
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 100, kHandedBytes);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  std::optional<absl::StatusOr<v1::DrainResponse>> drained;
  std::thread drain([&] { drained = fleet.sites[0]->admin()->Drain(seconds(60), false, true); });
  const bool some = Eventually([&] { return fleet.sites[1]->Counter("peer_read_bytes") > 0; });
  const uint64_t taken = fleet.sites[1]->Counter("peer_served_taken_chunks");
  fleet.sites[1]->Kill();
  drain.join();
  REQUIRE(some);
  REQUIRE(drained->ok());
  INFO((*drained)->DebugString());
  INFO("the dead node had: " << taken);
  CHECK(taken < chunks.size());
  CHECK((*drained)->handed_chunks() + (*drained)->unhanded_chunks() == chunks.size());
  // What was under way to the dead node goes to the other one.
  CHECK((*drained)->unhanded_chunks() == 0);
  CHECK(fleet.sites[2]->Counter("peer_served_taken_chunks") >= 20);
}

TEST_CASE("A rolling upgrade of three nodes under load keeps what is warm, if stops hand over") {
  const bool hands_over = GENERATE(true, false);
  INFO("hands over: " << hands_over);
  PeerFleet fleet(3);
  for (const auto& site : fleet.sites) {
    site->settings.devices = {};  // so that a stop loses all that is not handed over
    if (hands_over) site->settings.drain_timeout = "30s\n  to_peers: true";
  }
  fleet.Start();
  std::vector<Prompts> prompts(3);
  for (uint64_t number = 1; number < 12 * 10; number += 10) {
    const size_t node = number / 10 % 3;
    prompts[node].push_back(Chunks(number, 10, kHandedBytes));
    REQUIRE(fleet.engines[node]->PutAll(prompts[node].back()));
  }
  const double before = HitRatio(fleet, prompts);
  CHECK(before > 0.99);
  for (size_t i = 0; i < fleet.sites.size(); ++i) {
    AwaitAllUp(fleet);
    const Load load(fleet, prompts, i, 10'000 * (i + 1));
    fleet.engines[i].reset();
    const Ending end = fleet.sites[i]->Stop();
    CHECK(end.exit_status == 0);
    CHECK(absl::StrContains(end.err, "chunks were handed to peers") == hands_over);
    fleet.sites[i]->Start();
    fleet.engines[i] = std::make_unique<Engine>(*fleet.sites[i]);
    CHECK(load.wrong_bytes() == 0);
  }
  AwaitAllUp(fleet);
  const double after = HitRatio(fleet, prompts);
  WARN("hit ratio before: " << before << ", after: " << after);
  if (hands_over) {
    CHECK(after >= 0.9 * before);
  } else {
    CHECK(after < 0.5 * before);
  }
}

}  // namespace kvkeep::e2e
