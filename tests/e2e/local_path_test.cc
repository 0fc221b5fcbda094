// The local path end to end: the real daemon, the real client library, shared memory between them.
#include <absl/strings/str_join.h>

#include <catch2/catch.hpp>

#include "tests/e2e/engine.h"

namespace kvkeep::e2e {
namespace {

using client::Path;

Settings WithLocal() {
  Settings settings;
  settings.local = true;
  return settings;
}

}  // namespace

TEST_CASE("a worker on the daemon's host takes the local path, and gets back what it put") {
  Site site(WithLocal());
  site.Start();
  Engine engine(site);
  INFO(engine.client().path().why);
  REQUIRE(engine.client().path().path == Path::kLocal);
  const auto chunks = Chunks(1, 20, 1'500'000);
  REQUIRE(engine.PutAll(chunks));
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.wrong_bytes == 0);
  CHECK(site.Counter("local_puts") > 0);
  CHECK(site.Counter("local_put_bytes") == 20 * 1'500'000);
  CHECK(site.Counter("local_open_connections") == 1);
  CHECK(site.Counter("put_streams") == 0);
}

TEST_CASE("what was put by one path is there by the other") {
  Site site(WithLocal());
  site.Start();
  Engine local(site);
  const auto chunks = Chunks(1, 5, 700'000);
  REQUIRE(local.PutAll(chunks));
  auto remote = client::Client::Connect({.endpoint = site.endpoint(),
                                         .client_name = "g",
                                         .default_deadline = client::Deadline(60'000),
                                         .path = client::PathChoice::kGrpc});
  REQUIRE(remote.ok());
  CHECK((*remote)->path().path == Path::kGrpc);
  const auto info = (*remote)->GetServerInfo();
  REQUIRE(info.ok());
  CHECK(absl::StrJoin(info->features, ",") == "grpc,watch,shm");
  const auto ns = (*remote)->OpenNamespace(Engine::DefaultSpec());
  REQUIRE(ns.ok());
  const std::vector<ChunkKey> keys = KeysOf(chunks);
  const auto found = (*remote)->Lookup(*ns, keys, {});
  REQUIRE(found.ok());
  CHECK(found->leading_keys == 5);
}

TEST_CASE("chunks of G3 come by the local path, verified, after a kill") {
  Site site(WithLocal());
  site.Start();
  const auto chunks = Chunks(1, 10, 3'000'000);
  {
    Engine engine(site);
    REQUIRE(engine.PutAll(chunks));
    REQUIRE(site.AwaitKept());
  }
  site.Kill();
  site.Start();
  Engine engine(site);
  REQUIRE(engine.client().path().path == Path::kLocal);
  CHECK(engine.Find(chunks).g3 == chunks.size());
  CHECK(engine.Hits(chunks) == chunks.size());
  CHECK(engine.wrong_bytes == 0);
  CHECK(site.Counter("local_arriving_chunks") > 0);
}

TEST_CASE("a stop with local sessions open ends in time, and the next start listens again") {
  Site site(WithLocal());
  site.settings.drain_timeout = "120s";
  site.Start();
  Engine engine(site);
  REQUIRE(engine.PutAll(Chunks(1, 10, 1'000'000)));
  const Ending ending = site.Stop();  // fails the test if the daemon waits for the sessions
  CHECK(ending.exit_status == 0);
  site.Start();
  CHECK(Eventually([&] { return engine.Hits(Chunks(1, 10, 1'000'000)) == 10; }));
  CHECK(Eventually([&] { return engine.client().path().path == Path::kLocal; }));
}

}  // namespace kvkeep::e2e
