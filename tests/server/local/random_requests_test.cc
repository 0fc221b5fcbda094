// Requests that are nearly right, thousands of them: no crash, no state left behind.
#include <sys/mman.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "tests/server/local/peer_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

class RandomClient {
 public:
  RandomClient(PeerTester& t, uint64_t seed) : t_(t), random_(seed) {}

  void Step() {
    const uint64_t dice = random_.Below(40);
    const Kind kind = dice < 18   ? static_cast<Kind>(dice)
                      : dice < 24 ? Kind::kPut
                      : dice < 30 ? Kind::kPutInParts
                      : dice < 34 ? Kind::kPutUntil
                                  : Kind::kGet;
    std::vector<std::byte> body = Body(kind);
    if (kind == Kind::kPutInParts && random_.Below(4) > 0) SetWord(0);
    if (random_.Below(2) == 0) Damage(body);
    std::vector<UniqueFd> descriptors;
    if (kind == Kind::kRegisterMemory || random_.Below(50) == 0) {
      descriptors.emplace_back(memfd_create("random", MFD_CLOEXEC));
      REQUIRE(ftruncate(descriptors[0].get(), static_cast<off_t>(random_.Below(20'000))) == 0);
    }
    t_.Tell(kind, body, std::move(descriptors));
    if (random_.Below(4) == 0) t_.RunAll();
    if (random_.Below(2) == 0) FillSome();
    for (uint64_t i = random_.Below(4); i > 0 && t_.world.RunOneAtRandom(); --i) {
    }
    if (random_.Below(4) == 0) t_.loop->RunAll();
    NoteReplies();
  }

  void Stage(uint64_t bytes) {
    SentMessage reply = t_.AskFor(Kind::kStaging, local::StagingRequest{.bytes = bytes});
    REQUIRE(reply.descriptors.size() == 1);
    staging_ = std::move(reply.descriptors[0]);
  }

  uint64_t stored_in_parts = 0;

 private:
  // At the beginning of the staging memory, where payloads may lie too.
  void SetWord(uint64_t value) {
    // Fails if there is too little of it: it does not grow.
    CHECK(pwrite(staging_.get(), &value, sizeof(value), 0) >= -1);
  }

  // Advances the filled bytes of the last put in parts, or sets an impossible value; may tell the
  // daemon.
  void FillSome() {
    switch (random_.Below(16)) {
      case 0:
        SetWord(UINT64_MAX - random_.Below(3));
        break;
      case 1:
        SetWord(random_.Below(3000));  // may be less than before
        break;
      case 2:
      case 3:
        SetWord(bytes_in_parts_);
        break;
      default:
        break;
    }
    const uint64_t dice = random_.Below(8);
    if (dice < 5) {
      CHECK(t_.peer->OnPutFilled());
    } else if (dice == 5) {
      t_.peer->OnTick(tick_ += std::chrono::milliseconds(1));
    } else if (dice == 6) {  // so those that are not filled end
      for (int i = 0; i < 3; ++i) {
        t_.peer->OnTick(tick_ += t_.context->limits.grace);
        t_.RunAll();
      }
    }
  }

  std::vector<uint64_t> Names() {
    std::vector<uint64_t> names;
    for (uint64_t i = random_.Below(5); i > 0; --i) names.push_back(random_.Below(40));
    return names;
  }

  std::vector<std::byte> Body(Kind kind) {
    std::vector<local::ReleaseEntry> releases;
    for (uint64_t i = random_.Below(3); i > 0 && !leases_.empty(); --i) {
      releases.push_back({.lease = leases_[random_.Below(leases_.size())],
                          .keep_keys = static_cast<uint32_t>(random_.Below(3))});
    }
    switch (kind) {
      case Kind::kHello:
        return HelloBody();
      case Kind::kOpenNamespace:
        return NamespaceBody();
      case Kind::kStaging:
      case Kind::kRegisterMemory: {
        const uint64_t bytes = random_.Below(20'000);
        const auto raw = std::as_bytes(std::span(&bytes, 1));
        return {raw.begin(), raw.end()};
      }
      case Kind::kUnregisterMemory: {
        const local::UnregisterMemory request{.region = static_cast<uint32_t>(random_.Below(4))};
        const auto raw = std::as_bytes(std::span(&request, 1));
        return {raw.begin(), raw.end()};
      }
      case Kind::kPut:
      case Kind::kPutUntil: {
        std::vector<TestChunk> chunks;
        for (const uint64_t name : Names()) {
          chunks.push_back({.name = name,
                            .offset = random_.Below(2000),
                            .bytes = static_cast<uint32_t>(1 + random_.Below(3000)),
                            .runs = static_cast<uint32_t>(1 + random_.Below(2)),
                            .flags = static_cast<uint32_t>(random_.Below(16)) & ~1u,
                            .tail = std::string(random_.Below(3), 't'),
                            .region = static_cast<uint32_t>(random_.Below(5) / 3)});
        }
        if (kind == Kind::kPut) return t_.PutBody(chunks);
        const auto now = static_cast<uint64_t>(t_.world.clock().Now().count());
        return PutUntilBody(t_.ns, chunks, now + random_.Below(3));
      }
      case Kind::kPutInParts: {
        bytes_in_parts_ = static_cast<uint32_t>(1 + random_.Below(9000));
        return t_.PartsBody({{.name = random_.Below(40),
                              .offset = random_.Below(2000),
                              .bytes = bytes_in_parts_,
                              .runs = static_cast<uint32_t>(1 + random_.Below(2)),
                              .flags = static_cast<uint32_t>(random_.Below(16)) & ~1u,
                              .tail = std::string(random_.Below(3), 't')}},
                            0);
      }
      case Kind::kRelease:
        return t_.KeysBody({}, LeaseMode::kNone, releases, 0, {});
      default:
        return t_.KeysBody(Names(), static_cast<LeaseMode>(random_.Below(3)), releases,
                           random_.Below(6), {static_cast<uint32_t>(random_.Below(2))});
    }
  }

  void Damage(std::vector<std::byte>& body) {
    if (random_.Below(3) == 0) body.resize(random_.Below(body.size() + 8));
    for (uint64_t i = random_.Below(3); i > 0 && !body.empty(); --i) {
      constexpr uint8_t kNasty[] = {0, 1, 0x7f, 0x80, 0xff};
      body[random_.Below(body.size())] = std::byte{kNasty[random_.Below(5)]};
    }
  }

  // Every answered request had one answer; leases of gets are used in later requests.
  void NoteReplies() {
    for (SentMessage& sent : t_.sink.sent) {
      if (sent.is(Kind::kStaging) && sent.status.ok()) staging_ = std::move(sent.descriptors.at(0));
      if (sent.is(Kind::kPutInParts) && sent.status.ok()) {
        stored_in_parts += ReadAnswers(sent) == "stored";
      }
      const bool found = sent.is(Kind::kGet) || sent.is(Kind::kLookup);
      if (!found || !sent.status.ok() || sent.body.size() < sizeof(local::LookupReply)) continue;
      const uint64_t lease = sent.As<local::LookupReply>().lease;
      if (lease != 0) leases_.push_back(lease);
    }
    if (leases_.size() > 20) leases_.erase(leases_.begin(), leases_.end() - 10);
    t_.sink.sent.clear();
  }

  PeerTester& t_;
  SeededRandom random_;
  std::vector<uint64_t> leases_;
  UniqueFd staging_;
  uint32_t bytes_in_parts_ = 0;
  MonotonicTime tick_{0};
};

}  // namespace

TEST_CASE("random requests neither crash the daemon nor leave anything behind") {
  const uint64_t seed = GENERATE(values<uint64_t>({1, 2, 3, 4, 5, 6, 7, 8}));
  INFO("seed " << seed);
  WorldOptions options = PeerWorld();
  options.seed = seed;
  options.g2_blocks = 32;
  options.g2_segment_blocks = 16;
  PeerTester t(options);
  RandomClient client(t, seed);
  for (int round = 0; round < 10; ++round) {
    t.Open();
    client.Stage(16'384);
    for (int step = 0; step < 150; ++step) client.Step();
    if (round % 2 == 1) t.Settle();  // written back, so that G2 can evict it
    t.store().CheckInvariants();
    if (round % 3 == 0) t.peer->Revoke("test");
    if (round % 2 == 0) t.RunAll();
  }
  t.peer->End();
  t.peer.reset();
  t.RunAll();
  t.store().CheckInvariants();
  CHECK(t.counters.puts > 0);
  CHECK(t.counters.arriving_chunks > 0);
  CHECK(client.stored_in_parts > 0);
  CHECK(t.counters.stalled_puts > 0);
  CHECK(t.counters.progress_words == 0);
  CHECK(t.counters.puts_copying == 0);
  CHECK(t.counters.staging_bytes == 0);
  CHECK(t.counters.registered_bytes == 0);
  const StoreSnapshot snapshot = t.store().snapshot();
  CHECK(snapshot.g2.leased_bytes == 0);
  CHECK(snapshot.g2.reserved_bytes == 0);
  CHECK(snapshot.sessions.empty());
}

}  // namespace kvkeep
