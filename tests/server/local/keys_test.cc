#include <absl/strings/match.h>

#include <catch2/catch.hpp>

#include "tests/server/local/peer_tester.h"

namespace kvkeep {
namespace {

using local::Kind;

std::string Problem(const SentMessage& reply) {
  CHECK(absl::IsInvalidArgument(reply.status));
  return std::string(reply.status.message());
}

}  // namespace

TEST_CASE("a get tells where the whole chunk lies, header, payload and tail") {
  PeerTester t;
  t.Open();
  const auto payload = MakePayload(1, 1, 70'000);
  REQUIRE(t.PutPayload(1, payload, "tokens") == "stored");
  const TestFound found = t.Get({1});
  CHECK(found.head.lease != 0);
  CHECK(found.head.leased_keys == 1);
  CHECK(found.g2 == "\x01");
  REQUIRE(found.places.size() == 1);
  CHECK(found.places[0].place.progress_word == local::kNoProgressWord);
  CHECK(found.places[0].place.payload_bytes == 70'000);
  CHECK(t.Payload(found.places[0]) == payload);
  CHECK(t.Tail(found.places[0]) == "tokens");
  CHECK(t.store().snapshot().counters.leases_granted == 1);
}

TEST_CASE("places name segments of the arena and offsets within them") {
  WorldOptions options = PeerWorld();
  options.g2_segment_blocks = 64;
  PeerTester t(options);
  t.Open();
  for (uint64_t name = 1; name <= 20; ++name) {
    REQUIRE(t.PutPayload(name, MakePayload(name, 1, 100'000)) == "stored");
  }
  uint32_t highest = 0;
  for (uint64_t name = 1; name <= 20; ++name) {
    const TestFound found = t.Get({name});
    REQUIRE(found.places.size() == 1);
    CHECK(t.Payload(found.places[0]) == MakePayload(name, 1, 100'000));
    highest = std::max(highest, found.places[0].runs[0].segment);
    CHECK(found.places[0].runs[0].offset < 64 * kBlockBytes);
  }
  CHECK(highest > 0);
}

TEST_CASE("a lookup tells what is there, by key and part, and leases only when asked") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  REQUIRE(t.PutPayload(3, MakePayload(3, 1, 5000)) == "stored");
  const TestFound found =
      ReadFound(t.Ask(Kind::kLookup, t.KeysBody({1, 2, 3}, LeaseMode::kNone, {}, 0, {0, 1})));
  CHECK(found.head.row_bytes == 1);
  CHECK(found.g2 == std::string("\x01\x00\x01", 3));
  CHECK(found.head.leading_keys == 0);  // part 1 is missing
  CHECK(found.head.lease == 0);
  CHECK(found.cost.promotion_us == 0);
  CHECK_FALSE(t.peer->holds_something());
  const TestFound leased =
      ReadFound(t.Ask(Kind::kLookup, t.KeysBody({1, 2, 3}, LeaseMode::kLeadingRun)));
  CHECK(leased.head.leading_keys == 1);
  CHECK(leased.head.leased_keys == 1);
  CHECK(leased.head.lease != 0);
  CHECK(leased.places.empty());
  CHECK(t.peer->holds_something());
  t.Release(leased.head.lease);
  CHECK_FALSE(t.peer->holds_something());
}

TEST_CASE("no part named means all of the namespace") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  const TestFound found =
      ReadFound(t.Ask(Kind::kLookup, t.KeysBody({1}, LeaseMode::kNone, {}, 0, {})));
  CHECK(found.g2 == "\x01");
  REQUIRE(ReadAnswers(t.Ask(Kind::kPut, t.PutBody({{.name = 1, .bytes = 5000, .part = 3}}))) ==
          "stored");
  const TestFound both =
      ReadFound(t.Ask(Kind::kLookup, t.KeysBody({1}, LeaseMode::kNone, {}, 0, {})));
  CHECK(both.g2 == "\x09");
}

TEST_CASE("releases come first, ride on any request about keys, and unknown ones are ignored") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  const Kind kind = GENERATE(values(
      {Kind::kLookup, Kind::kGet, Kind::kTouch, Kind::kPrefetch, Kind::kDelete, Kind::kRelease}));
  const TestFound found = t.Get({1});
  CHECK(t.store().snapshot().g2.leased_bytes > 0);
  const auto body =
      t.KeysBody(kind == Kind::kRelease ? std::vector<uint64_t>{} : std::vector<uint64_t>{2},
                 kind == Kind::kGet ? LeaseMode::kLeadingRun : LeaseMode::kNone,
                 {{.lease = 12345}, {.lease = found.head.lease}, {.lease = found.head.lease}}, 0,
                 kind == Kind::kRelease ? std::vector<uint32_t>{} : std::vector<uint32_t>{0});
  CHECK(t.Ask(kind, body).status.ok());
  CHECK(t.store().snapshot().g2.leased_bytes == 0);
  CHECK_FALSE(t.peer->holds_something());
}

TEST_CASE("a lease shrinks to the keys that are kept and ends with the last") {
  PeerTester t;
  t.Open();
  for (const uint64_t name : {2, 3}) {
    REQUIRE(t.PutPayload(name, MakePayload(name, 1, 5000)) == "stored");
  }
  const TestFound found = t.Get({1, 2, 3});  // 1 is not there
  REQUIRE(found.places.size() == 2);
  const uint64_t all = t.store().snapshot().g2.leased_bytes;
  t.Release(found.head.lease, 2);
  CHECK(t.store().snapshot().g2.leased_bytes == all / 2);
  CHECK(t.peer->holds_something());
  t.Release(found.head.lease, 1);  // key 0 is kept, and has nothing
  CHECK(t.store().snapshot().g2.leased_bytes == 0);
  CHECK_FALSE(t.peer->holds_something());
}

TEST_CASE("touch, prefetch and delete count chunks") {
  PeerTester t;
  t.Open();
  for (const uint64_t name : {1, 2}) {
    REQUIRE(t.PutPayload(name, MakePayload(name, 1, 5000)) == "stored");
  }
  const auto body = t.KeysBody({1, 2, 3}, LeaseMode::kNone);
  CHECK(t.Ask(Kind::kTouch, body).As<local::CountReply>().chunks == 2);
  CHECK(t.Ask(Kind::kPrefetch, body).As<local::PrefetchReply>().ready_chunks == 2);
  CHECK(t.Ask(Kind::kDelete, body).As<local::CountReply>().chunks == 2);
  CHECK(t.Ask(Kind::kTouch, body).As<local::CountReply>().chunks == 0);
}

TEST_CASE("a request about keys that is wrong names its field") {
  PeerTester t;
  t.Open();
  const auto ask = [&](const std::function<void(local::KeysRequest*)>& edit, Kind kind,
                       size_t extra = 0) {
    auto body = t.KeysBody({1, 2}, LeaseMode::kNone);
    local::KeysRequest request;
    std::memcpy(&request, body.data(), sizeof(request));
    edit(&request);
    std::memcpy(body.data(), &request, sizeof(request));
    body.resize(body.size() + extra);
    return t.Ask(kind, body);
  };
  const auto nothing = [](local::KeysRequest*) {};
  CHECK(
      absl::StrContains(Problem(t.Ask(Kind::kLookup, std::vector<std::byte>(39))), "KeysRequest"));
  CHECK(absl::StrContains(Problem(ask(nothing, Kind::kLookup, 1)), "bytes that came"));
  CHECK(absl::StrContains(Problem(ask([](auto* r) { r->keys = UINT32_MAX; }, Kind::kLookup)),
                          "4294967295 keys"));
  CHECK(absl::StrContains(Problem(ask([](auto* r) { r->parts = 2; }, Kind::kLookup)), "2 parts"));
  CHECK(absl::StrContains(Problem(ask([](auto* r) { r->releases = UINT32_MAX; }, Kind::kLookup)),
                          "releases"));
  CHECK(absl::StrContains(Problem(ask([](auto* r) { r->lease_mode = 3; }, Kind::kLookup)),
                          "lease_mode is 3"));
  CHECK(absl::StrContains(Problem(ask(nothing, Kind::kGet)), "lease_mode is 0"));
  CHECK(absl::StrContains(Problem(ask([](auto* r) { r->lease_mode = 1; }, Kind::kTouch)),
                          "lease_mode is 1"));
  CHECK(absl::StrContains(Problem(ask([](auto* r) { r->transient = 2; }, Kind::kLookup)),
                          "transient"));
  CHECK(absl::StrContains(Problem(ask(nothing, Kind::kRelease)), "keys"));
  CHECK(absl::IsFailedPrecondition(ask([](auto* r) { r->ns[0] ^= 1; }, Kind::kLookup).status));
  CHECK(absl::StrContains(Problem(t.Ask(Kind::kLookup, t.KeysBody({}, LeaseMode::kNone))), "keys"));
  CHECK(absl::StrContains(
      Problem(t.Ask(Kind::kLookup, t.KeysBody({1}, LeaseMode::kNone, {}, 0, {4}))), "parts"));
  CHECK(absl::StrContains(
      Problem(t.Ask(Kind::kLookup, t.KeysBody({1}, LeaseMode::kNone, {}, 0, {1, 1}))), "twice"));
  CHECK(t.counters.errors == 14);
  CHECK(t.Ask(Kind::kLookup, t.KeysBody({1}, LeaseMode::kNone)).status.ok());
}

TEST_CASE("keys over the limit of a call are refused, up to it served") {
  WorldOptions options = PeerWorld();
  options.store.max_keys_per_call = 1000;
  PeerTester t(options);
  t.Open();
  CHECK(t.Ask(Kind::kLookup, t.KeysBody(std::vector<uint64_t>(1000, 1), LeaseMode::kNone))
            .status.ok());
  CHECK(absl::StrContains(
      Problem(t.Ask(Kind::kLookup, t.KeysBody(std::vector<uint64_t>(1001, 1), LeaseMode::kNone))),
      "1000"));
}

TEST_CASE("a get repeated under its request id has the same lease and the same words") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  t.Settle();
  t.FloodG2();
  const TestFound first = t.Get({1}, 7);
  const TestFound again = t.Get({1}, 7);
  CHECK(again.head.lease == first.head.lease);
  REQUIRE(first.places.size() == 1);
  REQUIRE(again.places.size() == 1);
  CHECK(first.places[0].place.progress_word != local::kNoProgressWord);
  CHECK(again.places[0].place.progress_word == first.places[0].place.progress_word);
  CHECK(t.counters.progress_words == 1);
  CHECK(t.counters.arriving_chunks == 1);
}

TEST_CASE("a lookup that leases nothing may name the request id of one that did") {
  PeerTester t;
  t.Open();
  REQUIRE(t.PutPayload(1, MakePayload(1, 1, 5000)) == "stored");
  const TestFound first = t.Get({1}, 7);
  const TestFound again = ReadFound(t.Ask(Kind::kLookup, t.KeysBody({1}, LeaseMode::kNone, {}, 7)));
  CHECK(again.head.lease == first.head.lease);
  CHECK(again.places.empty());
  t.Release(first.head.lease);
  CHECK_FALSE(t.peer->holds_something());
}

TEST_CASE("a request id is not taken for other keys") {
  PeerTester t;
  t.Open();
  for (const uint64_t name : {1, 2}) {
    REQUIRE(t.PutPayload(name, MakePayload(name, 1, 5000)) == "stored");
  }
  const TestFound first = t.Get({1, 2}, 7);
  const SentMessage other = t.Ask(Kind::kGet, t.KeysBody({1}, LeaseMode::kAllPresent, {}, 7));
  CHECK(absl::StrContains(Problem(other), "client_request_id"));
  CHECK(t.store().snapshot().g2.leased_bytes > 0);  // the first one's stays
  t.Release(first.head.lease);
  CHECK(t.store().snapshot().g2.leased_bytes == 0);
}

TEST_CASE("a lookup that asks beyond the node is answered when that was looked through") {
  WorldOptions options = PeerWorld();
  options.remote = true;
  PeerTester t(options);
  t.Open();
  const std::vector<uint64_t> names = {1, 2, 3, 4, 5, 6, 7, 8};
  for (const uint64_t name : names) {
    REQUIRE(t.PutPayload(name, MakePayload(name, 1, 5000)) == "stored");
  }
  t.Settle();
  REQUIRE(t.world.bucket().size() == names.size());
  t.store().Clear(std::nullopt);  // of this node
  t.Settle();
  const auto asks = [&](local::RemoteAsk ask, uint32_t flag) {
    std::vector<std::byte> body = t.KeysBody(names, LeaseMode::kLeadingRun);
    local::KeysRequest head;
    std::memcpy(&head, body.data(), sizeof(head));
    head.asks_remote = flag;
    std::memcpy(body.data(), &head, sizeof(head));
    const auto bytes = std::as_bytes(std::span(&ask, 1));
    body.insert(body.end(), bytes.begin(), bytes.end());
    return body;
  };
  SECTION("it is wrong") {
    std::vector<std::byte> two = asks({.wait_us = 1}, 2);
    two.resize(two.size() - sizeof(local::RemoteAsk));
    CHECK(t.Ask(Kind::kGet, two).status.message() == "asks_remote is 2, allowed here are 0 to 1");
    CHECK(t.Ask(Kind::kGet, asks({}, 1)).status.message() == "wait_us is 0, wanted is more");
    CHECK_FALSE(t.Ask(Kind::kGet, asks({.wait_us = 1}, 0)).status.ok());  // too long
    CHECK(t.Ask(Kind::kGet, asks({.wait_us = 10'000'001}, 1)).status.message() ==
          "remote_wait_us is 10000001, allowed are at most 10000000");
    CHECK_FALSE(t.Ask(Kind::kTouch, asks({.wait_us = 1}, 1)).status.ok());
  }
  SECTION("it comes") {
    const uint64_t id = t.Tell(Kind::kGet, asks({.wait_us = 1000}, 1));
    CHECK_FALSE(t.HasReply(id));
    CHECK_FALSE(t.HasReply(t.Tell(Kind::kGet, asks({.wait_us = 1000}, 1))));
    t.RunAll();
    const TestFound found = ReadFound(t.TakeReply(id));
    CHECK(found.head.leased_keys == 8);
    CHECK(found.places.size() == 8);
    CHECK(found.remote.asked == 1);
    CHECK(found.head.leading_keys + found.remote.keys == 8);
    for (size_t i = 0; i < 8; ++i) {
      CHECK(t.Payload(found.places[i]) == MakePayload(names[i], 1, 5000));
    }
  }
  SECTION("where a request may not be kept it is answered by what is here") {
    t.context->limits.max_message_bytes = 1;
    const TestFound found = ReadFound(t.Ask(Kind::kGet, asks({.wait_us = 1000}, 1)));
    CHECK(found.remote.asked == 0);
    CHECK(found.head.leased_keys == 0);
    CHECK(t.context->counters->refused_messages == 1);
  }
  SECTION("the connection ends meanwhile") {
    t.Tell(Kind::kGet, asks({.wait_us = 1000}, 1));
    t.peer->End();
    t.RunAll();
    CHECK(t.store().snapshot().g2.leased_bytes == 0);
  }
  SECTION("the session is revoked meanwhile") {
    const uint64_t id = t.Tell(Kind::kGet, asks({.wait_us = 1000}, 1));
    t.peer->Revoke("slow");
    t.RunAll();
    CHECK_FALSE(t.TakeReply(id).status.ok());
  }
}

}  // namespace kvkeep
