#include "tiers/store/session_table.h"

#include <absl/strings/str_cat.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <vector>

#include "tests/fakes/manual_clock.h"
#include "tests/sim/payload.h"

namespace kvkeep::store_internal {
namespace {

constexpr TenantId kPlain(0), kReading(1), kLending(2);

SessionToken TokenOf(uint8_t name) { return {.bytes = {name}}; }
NamespaceSpec SpecOf(const std::string& tenant = "") {
  return {.model = "m", .tokens_per_chunk = 16, .parts = 2, .tenant = tenant};
}

// "a" may read "b"'s chunks. There may be four sessions: one for each of these tenants, two for the
// default one.
StoreOptions WithThreeTenants() {
  StoreOptions options;
  options.max_sessions = 4;
  options.max_keys_per_call = 4;
  options.tenants = {{.name = ""}, {.name = "a"}, {.name = "b", .readers = {kReading}}};
  return options;
}

struct SessionsWorld {
  explicit SessionsWorld(const StoreOptions& options = WithThreeTenants())
      : owners(options.tenants),
        table(options, {{.weight = 2}, {.weight = 1}, {.weight = 1}}, Incarnation(9),
              {&owners, &clock, &counters, &of_tenants}) {}
  ~SessionsWorld() { table.CheckInvariants(); }

  // Returns "ok", or the message.
  std::string Open(uint8_t name, TenantId tenant) {
    const absl::Status opened = table.Open(TokenOf(name), {.client_name = "t", .tenant = tenant});
    return opened.ok() ? "ok" : std::string(opened.message());
  }
  Session& With(uint8_t name, TenantId tenant, const Grants& grants = {}) {
    REQUIRE(table.Open(TokenOf(name), {.tenant = tenant, .grants = grants}).ok());
    return *table.FindOrNull(TokenOf(name));
  }

  ManualClock clock;
  StoreCounters counters;
  std::vector<TenantCounters> of_tenants{4};
  Owners owners;
  SessionTable table;
};

}  // namespace

TEST_CASE("a session is found by its token until it is closed, once") {
  SessionsWorld w;
  w.clock.Advance(std::chrono::seconds(3));
  CHECK(w.Open(1, kReading) == "ok");
  const Session* session = w.table.Find(TokenOf(1)).value();
  CHECK(session == w.table.FindOrNull(TokenOf(1)));
  CHECK(session->tenant() == kReading);
  CHECK(session->info->client_name == "t");
  CHECK(session->opened == std::chrono::seconds(3));
  CHECK(w.table.IsOpen(TokenOf(1)));

  CHECK(w.table.Close(TokenOf(1), /*revoked=*/true).get() == session);
  CHECK(w.table.Close(TokenOf(1), /*revoked=*/true) == nullptr);
  CHECK_FALSE(w.table.IsOpen(TokenOf(1)));
  CHECK(w.table.FindOrNull(TokenOf(1)) == nullptr);
  const absl::Status gone = w.table.Find(TokenOf(1)).status();
  CHECK(gone.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(gone.message() == "session_token is not of an open session (daemon incarnation 9)");
  CHECK(w.counters.sessions_opened == 1);
  CHECK(w.counters.sessions_closed == 1);
  CHECK(w.counters.sessions_revoked == 1);
}

TEST_CASE("each tenant has its part of the sessions, whatever the others have open") {
  SessionsWorld w;
  CHECK(w.Open(1, kPlain) == "ok");
  CHECK(w.Open(2, kPlain) == "ok");
  CHECK(w.Open(3, kPlain) == "sessions: all 2 of this tenant's part of 4 are open");
  CHECK(w.Open(4, kLending) == "ok");
  w.table.Close(TokenOf(1), false);
  CHECK(w.Open(3, kPlain) == "ok");
  CHECK(w.Open(5, kReading) == "ok");
  CHECK(w.Open(6, kReading) == "sessions: all 4 are open");
}

TEST_CASE("fewer sessions than are open: those stay, no other one opens") {
  SessionsWorld w;
  w.With(1, kPlain);
  w.With(2, kPlain);
  w.table.SetMaxSessions(2);
  CHECK(w.Open(3, kReading) == "sessions: all 2 are open");
  w.table.Close(TokenOf(1), false);
  CHECK(w.Open(3, kPlain) == "sessions: all 1 of this tenant's part of 2 are open");
  CHECK(w.Open(3, kReading) == "ok");  // one at least
  w.table.SetMaxSessions(40);
  CHECK(w.Open(4, kReading) == "ok");
}

TEST_CASE("a walk comes by every session that stays, though another one is closed meanwhile") {
  SessionsWorld w;
  for (const uint8_t name : {4, 1, 3}) w.With(name, name == 1 ? kReading : kPlain);
  CHECK(w.table.Next(std::nullopt)->token == TokenOf(1));
  CHECK(w.table.Next(TokenOf(1))->token == TokenOf(3));
  w.table.Close(TokenOf(3), false);
  CHECK(w.table.Next(TokenOf(3))->token == TokenOf(4));
  CHECK(w.table.Next(TokenOf(4)) == nullptr);
}

TEST_CASE("a session opens namespaces of its tenant and of those that let it read") {
  SessionsWorld w;
  Session& a = w.With(1, kReading);
  const NamespaceDigest own = w.table.OpenNamespace(a, SpecOf()).value();
  CHECK(w.owners.OwnerOf(own) == kReading);
  const NamespaceDigest lent = w.table.OpenNamespace(a, SpecOf("b")).value();
  CHECK(w.owners.OwnerOf(lent) == kLending);
  CHECK(w.table.OpenNamespace(a, SpecOf()).value() == own);
  CHECK(a.namespaces.size() == 2);
  CHECK(a.FindNamespace(lent).value()->tenant == "b");

  CHECK(w.table.OpenNamespace(a, SpecOf("default")).status().code() ==
        absl::StatusCode::kPermissionDenied);
  CHECK(w.counters.denied_calls == 1);
  CHECK(a.namespaces.size() == 2);

  Session& b = w.With(2, kLending);
  CHECK_FALSE(b.HasOpen(lent));
  CHECK(b.FindNamespace(lent).status().message() ==
        "namespace_digest is not of a namespace of this session");
}

TEST_CASE("a session has a limited number of namespaces open; one of those opens again") {
  SessionsWorld w;
  Session& session = w.With(1, kReading);
  NamespaceSpec spec = SpecOf();
  for (size_t i = 0; i < SessionTable::kMostNamespaces; ++i) {
    spec.model = absl::StrCat("m", i);
    REQUIRE(w.table.OpenNamespace(session, spec).ok());
  }
  CHECK(w.table.OpenNamespace(session, spec).ok());
  CHECK(w.table.OpenNamespace(session, SpecOf()).status().message() ==
        "namespaces: this session has 256 open, the most allowed");
}

TEST_CASE("what a session has no right to is refused and counted") {
  SessionsWorld w;
  Session& reader = w.With(1, kReading, {.read = true, .write = false});
  CHECK(w.table.CheckGrant(reader, &Grants::read).ok());
  CHECK(w.table.CheckGrant(reader, &Grants::write).message() ==
        "this session may not write: its grant is read");
  CHECK(w.counters.denied_calls == 1);
  const NamespaceDigest lent = w.table.OpenNamespace(reader, SpecOf("b")).value();
  CHECK(w.table.CheckOwn(reader, w.table.OpenNamespace(reader, SpecOf()).value()).ok());
  CHECK(w.table.CheckOwn(reader, lent).message() ==
        "this namespace is tenant 'b's, who lets this session's tenant read there, not write");
  CHECK(w.counters.denied_calls == 2);
}

TEST_CASE("a set of chunks names parts that there are, each once, and not too many chunks") {
  SessionsWorld w;
  const Session& session = w.With(1, kReading);
  const NamespaceDigest ns = w.table.OpenNamespace(w.With(2, kPlain), SpecOf()).value();
  const std::vector<ChunkKey> keys = {MakeKey(1), MakeKey(2), MakeKey(3)};
  const std::vector<PartId> all = {PartId(0), PartId(1)}, wrong = {PartId(2)};
  const std::vector<PartId> twice = {PartId(1), PartId(1)};
  const std::vector<PartId> many(kMaxPartsPerCall + 1);
  const auto check = [&](std::span<const ChunkKey> of, std::span<const PartId> parts) {
    const absl::Status valid =
        w.table.CheckChunkSet(*w.table.FindOrNull(TokenOf(2)), {ns, of, parts});
    return std::string(valid.message());
  };
  const std::span<const ChunkKey> two = std::span(keys).first(2);
  CHECK(check(two, all).empty());
  CHECK(check({}, all) == "keys or parts is empty");
  CHECK(check(two, {}) == "keys or parts is empty");
  CHECK(check(two, wrong) == "parts names 2, the namespace has 2");
  CHECK(check(two, twice) == "parts names 1 twice");
  CHECK(check(two, many) == "parts names 65, allowed are at most 64");
  CHECK(check(keys, all) == "keys x parts is 6, allowed are at most 4");
  CHECK(w.table.CheckChunkSet(session, {ns, two, all}).code() ==
        absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("who is found for a call has the right, and pays for its keys") {
  StoreOptions options = WithThreeTenants();
  options.tenants[1].keys_per_second = 4;
  SessionsWorld w(options);
  Session& session = w.With(1, kReading, {.read = true, .write = false});
  const NamespaceDigest ns = w.table.OpenNamespace(session, SpecOf()).value();
  const std::vector<ChunkKey> keys = {MakeKey(1), MakeKey(2)};
  const std::vector<PartId> parts = {PartId(0), PartId(1)};
  const ChunkSet four{ns, keys, parts};
  w.clock.Advance(std::chrono::seconds(10));

  CHECK(w.table.FindFor(TokenOf(1), four, &Grants::write).status().code() ==
        absl::StatusCode::kPermissionDenied);
  CHECK(w.table.FindFor(TokenOf(2), four, &Grants::read).status().code() ==
        absl::StatusCode::kFailedPrecondition);
  CHECK(w.table.FindFor(TokenOf(1), four, &Grants::read).value() == &session);
  CHECK(w.table.FindFor(TokenOf(1), four, &Grants::read).status().code() ==
        absl::StatusCode::kResourceExhausted);
  CHECK(w.of_tenants[kReading.value()].key_rate_refusals == 1);
  w.clock.Advance(std::chrono::seconds(1));
  CHECK(w.table.FindFor(TokenOf(1), four, &Grants::read).ok());
}

TEST_CASE("bytes of a session that was closed meanwhile are its tenant's to pay") {
  SessionsWorld w;
  w.table.SetRates(kPlain, 0, 100);
  CHECK(w.table.rates(kPlain).bytes_per_second() == 100);
  w.With(1, kPlain);
  w.With(2, kPlain);
  w.clock.Advance(std::chrono::seconds(10));
  Session& stays = *w.table.FindOrNull(TokenOf(2));
  CHECK(w.table.AskRates(stays, /*keys=*/true, /*bytes=*/true).ok());
  w.table.Close(TokenOf(1), false);
  w.table.ChargeBytes(kPlain, 200);
  CHECK_FALSE(w.table.AskRates(stays, /*keys=*/false, /*bytes=*/true).ok());
  CHECK(w.table.AskRates(stays, /*keys=*/true, /*bytes=*/false).ok());
  CHECK(w.of_tenants[0].byte_rate_refusals == 1);
}

}  // namespace kvkeep::store_internal
