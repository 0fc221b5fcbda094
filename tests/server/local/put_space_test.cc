// Puts that need space which puts of other sessions hold.
#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/server/local/peer_tester.h"

namespace kvkeep {
namespace {

using local::Kind;
using std::chrono::milliseconds;

WorldOptions LittleSpace() {
  WorldOptions options = PeerWorld();
  options.store.max_reserved_bytes = 3 * kMiB;
  return options;
}

// A peer of a daemon where another session holds most of the space for puts.
struct Crowded {
  Crowded() : t(LittleSpace()) {
    t.Open();
    t.Stage(2 * kMiB);
    const auto session = t.store().OpenSession({});
    REQUIRE(session.ok());
    const auto ns = t.store().OpenNamespace(*session, {.model = "m", .tokens_per_chunk = 16});
    REQUIRE(ns.ok());
    auto reserved = t.store().Reserve(
        *session,
        {.ns = *ns, .key = MakeKey(9), .part = PartId(0), .shape = {.payload_bytes = 2 * kMiB}});
    REQUIRE(reserved.ok());
    REQUIRE(reserved->reservation);
    held = std::move(reserved->reservation);
  }
  uint64_t Put(uint64_t name, uint32_t bytes) {
    const uint64_t id = t.Tell(Kind::kPut, t.PutBody({{.name = name, .bytes = bytes}}));
    t.RunAll();
    return id;
  }
  void Tick(int ms) {
    t.world.clock().Advance(milliseconds(ms));
    t.peer->OnTick(t.world.clock().Now());
    t.RunAll();
  }

  PeerTester t;
  Reservation held;
};

}  // namespace

TEST_CASE("a put waits for space that others hold, and is stored once they have ended") {
  Crowded c;
  const auto body = c.t.PutBody({{.name = 1, .bytes = 100}, {.name = 2, .bytes = 2 * kMiB}});
  const uint64_t put = c.t.Tell(Kind::kPut, body);
  c.t.RunAll();
  c.Tick(250);
  CHECK_FALSE(c.t.HasReply(put));
  CHECK(c.t.counters.waited_puts == 1);
  c.held.Abort();
  c.Tick(250);
  CHECK(ReadAnswers(c.t.TakeReply(put)) == "stored, stored");
  CHECK(c.t.store().snapshot().counters.puts_rejected == 0);
}

TEST_CASE("a put waits for others part of a second at most, then it is rejected") {
  Crowded c;
  const uint64_t put = c.Put(1, 2 * kMiB);
  c.Tick(300);
  c.Tick(300);
  CHECK_FALSE(c.t.HasReply(put));
  c.Tick(100);
  CHECK(absl::StartsWith(ReadAnswers(c.t.TakeReply(put)), "rejected 2: puts in progress"));
  CHECK(c.t.store().snapshot().counters.puts_rejected == 1);
}

TEST_CASE("a put of another session goes behind one that waits, and waits no longer than it") {
  Crowded c;
  const uint64_t large = c.Put(1, 2 * kMiB);
  FakeSink sink;
  auto other = std::make_shared<LocalPeer>(c.t.context, LocalPeer::Identity{.peer = "2"}, &sink);
  std::swap(c.t.peer, other);
  const auto hello = HelloBody();
  c.t.Tell(Kind::kHello, hello);
  c.t.Tell(Kind::kOpenNamespace, NamespaceBody());
  const local::StagingRequest little{.bytes = 4096};
  c.t.Tell(Kind::kStaging, std::as_bytes(std::span(&little, 1)));
  c.t.RunAll();
  const size_t before = sink.sent.size();
  c.Put(2, 100);  // it would fit
  CHECK(sink.sent.size() == before);
  c.held.Abort();
  std::swap(c.t.peer, other);
  c.Tick(250);  // the first one's, after which the second is tried too
  CHECK(ReadAnswers(c.t.TakeReply(large)) == "stored");
  CHECK(sink.sent.size() == before + 1);
  CHECK(ReadAnswers(sink.sent.back()) == "stored");
  other->End();
}

TEST_CASE("a session that ends while its put waits is in nobody's way") {
  Crowded c;
  c.Put(1, 2 * kMiB);
  c.t.Open({.peer = "next"});  // ends the first
  c.t.Stage(4096);
  const uint64_t put = c.Put(2, 100);
  CHECK(ReadAnswers(c.t.TakeReply(put)) == "stored");
}

}  // namespace kvkeep
