#include <catch2/catch.hpp>

#include "tests/server/local/peer_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

}  // namespace

TEST_CASE("a revoked session has nothing left, knows it, and is answered FAILED_PRECONDITION") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  const TestFound found = t.Get({1});
  CHECK(t.Word(0) == 0);
  CHECK(t.peer->holds_something());
  t.peer->Revoke("stopped for 10 s");
  CHECK(t.Word(0) == 1);
  CHECK_FALSE(t.peer->holds_something());
  REQUIRE(t.sink.events.size() == 1);
  CHECK(t.sink.events[0].kind == static_cast<uint16_t>(Kind::kRevoked));
  CHECK(t.sink.events[0].text() == "stopped for 10 s");
  const StoreSnapshot snapshot = t.store().snapshot();
  CHECK(snapshot.g2.leased_bytes == 0);
  CHECK(snapshot.sessions.empty());
  CHECK(snapshot.counters.sessions_revoked == 1);
  CHECK(snapshot.counters.leases_revoked == 1);
  CHECK(absl::IsFailedPrecondition(
      t.Ask(Kind::kGet, t.KeysBody({1}, LeaseMode::kLeadingRun)).status));
  CHECK(absl::IsFailedPrecondition(t.Ask(Kind::kServerInfo, {}).status));
  CHECK_FALSE(t.sink.closed.has_value());
  CHECK(t.counters.staging_bytes > 0);  // kept until the connection ends
  t.peer->Revoke("again");
  CHECK(t.sink.events.size() == 1);
  t.peer->End();
  CHECK(t.store().snapshot().counters.sessions_closed == 1);
}

TEST_CASE("the session word is set before the bytes are given to others") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  t.Settle();
  t.FloodG2();
  const TestFound found = t.Get({1});
  const uint32_t word = found.places.at(0).place.progress_word;
  t.peer->Revoke("stopped");
  t.RunAll();
  CHECK(t.Word(0) == 1);
  CHECK(t.Word(word) == 0);  // left alone
  CHECK(t.counters.progress_words == 0);
}

TEST_CASE("a put under way when its session is revoked is given up, answered, and leaves nothing") {
  PeerTester t;
  t.Open();
  t.Stage(4 * kMiB);
  const uint64_t id = t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 3 * kMiB}}));
  t.world.executor().RunOne();
  t.peer->Revoke("stopped");
  t.RunAll();
  CHECK(absl::IsFailedPrecondition(t.TakeReply(id).status));
  CHECK(t.store().snapshot().g2.reserved_bytes == 0);
  CHECK(t.store().snapshot().g2.chunks == 0);
  CHECK(t.counters.puts_copying == 0);
}

TEST_CASE("a connection that ends during a put gives back space and memory when the copies end") {
  PeerTester t;
  t.Open();
  t.Stage(4 * kMiB);
  t.Tell(Kind::kPut, t.PutBody({{.name = 1, .bytes = 3 * kMiB}, {.name = 2, .bytes = 100}}));
  t.world.executor().RunOne();
  t.peer->End();
  t.peer.reset();
  CHECK(t.counters.puts_copying == 1);
  CHECK(t.counters.staging_bytes == 4 * kMiB);  // a copy may read it
  const size_t sent = t.sink.sent.size();
  t.RunAll();
  CHECK(t.sink.sent.size() == sent);
  CHECK(t.counters.puts_copying == 0);
  CHECK(t.counters.staging_bytes == 0);
  CHECK(t.store().snapshot().g2.reserved_bytes == 0);
  CHECK(t.store().snapshot().sessions.empty());
}

TEST_CASE("a connection that ends gives back leases, words and registrations at once") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  t.Settle();
  t.FloodG2();
  t.Get({1});
  t.peer->End();
  CHECK(t.store().snapshot().g2.leased_bytes == 0);
  CHECK(t.counters.progress_words == 0);
  t.peer->End();  // once more does nothing
  CHECK(t.store().snapshot().counters.sessions_closed == 1);
}

TEST_CASE("staging memory that is made for a connection that ended goes nowhere") {
  PeerTester t;
  t.Open();
  const local::StagingRequest body{.bytes = kMiB};
  t.Tell(Kind::kStaging, std::as_bytes(std::span(&body, 1)));
  t.peer->End();
  t.peer.reset();
  t.RunAll();
  CHECK(t.counters.staging_bytes == 0);
}

TEST_CASE("draining is told on the event socket of open sessions") {
  PeerTester t;
  t.Connect();
  t.peer->NotifyDraining();
  CHECK(t.sink.events.empty());
  t.Open();
  t.peer->NotifyDraining();
  REQUIRE(t.sink.events.size() == 1);
  CHECK(t.sink.events[0].kind == static_cast<uint16_t>(Kind::kDraining));
}

}  // namespace kvkeep
