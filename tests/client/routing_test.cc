// The path that a client's calls take, and what the client says about it.
#include <catch2/catch.hpp>
#include <filesystem>

#include "client/client.h"
#include "tests/client/fixture.h"
#include "tests/fakes/fake_local_daemon.h"

namespace kvkeep::client {

TEST_CASE("the local path is taken where it is offered, and gRPC is not even started") {
  fakes::FakeLocalDaemon local;
  // An endpoint without a gRPC server.
  const std::string endpoint =
      "unix://" + std::filesystem::path(local.socket()).replace_filename("kvkeep.sock").string();
  auto client = Client::Connect({.endpoint = endpoint});  // finds local.sock beside it
  REQUIRE(client.ok());
  CHECK((*client)->path().path == Path::kLocal);
  CHECK((*client)->path().why == "local: " + local.socket());
  auto ns = (*client)->OpenNamespace({.model = "m", .tokens_per_chunk = 1});
  REQUIRE(ns.ok());
  CHECK_FALSE(ns->digest().is_zero());
  const std::vector<std::byte> payload = Bytes(100'000, 1);
  REQUIRE((*client)->Put(*ns, {Chunk(Key("a"), payload)}).ok());
  std::vector<std::byte> back(payload.size());
  std::span<std::byte> to(back);
  auto found = (*client)->Lookup(*ns, {Key("a")}, {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  auto got = (*client)->Get(*ns, {Key("a")},
                            {.lease = &found->lease, .destinations = absl::MakeSpan(&to, 1)});
  REQUIRE(got.ok());
  CHECK(back == payload);
  CHECK((*client)->Release(std::move(found->lease)).ok());
  CHECK(local.released().size() == 1);
  auto acquired = (*client)->Acquire(*ns, {Key("a")});
  REQUIRE(acquired.ok());
  CHECK(acquired->Verify(0));
  CHECK((*client)->AllocateStaging(4096).ok());
  CHECK((*client)->GetServerInfo()->version == "fake");
}

TEST_CASE("without a local socket gRPC is used, and what only the local path has says so") {
  ClientFixture f;
  CHECK(f.client->path().path == Path::kGrpc);
  CHECK(f.client->path().why.find("grpc: no local socket at ") == 0);
  CHECK(absl::IsFailedPrecondition(f.client->Acquire(f.ns, {Key("a")}).status()));
  CHECK(absl::IsFailedPrecondition(f.client->AllocateStaging(1).status()));
  const std::byte byte{};
  CHECK(absl::IsFailedPrecondition(f.client->RegisterMemory(0, {&byte, 1}).status()));
}

TEST_CASE("what only the local path has is UNAVAILABLE while the daemon is away") {
  ClientFixture f;
  REQUIRE(absl::IsFailedPrecondition(f.client->Acquire(f.ns, {Key("a")}).status()));
  f.daemon.Stop();
  REQUIRE(Eventually([&] { return !f.client->connected(); }));
  CHECK(absl::IsUnavailable(f.client->Lookup(f.ns, {Key("a")}).status()));
  CHECK(absl::IsUnavailable(f.client->Acquire(f.ns, {Key("a")}).status()));
}

TEST_CASE("a refused client takes gRPC and says why; once let in, it takes the local path") {
  fakes::FakeLocalDaemon local;
  local.script.refuse = true;
  fakes::FakeDaemon daemon;
  auto client = Client::Connect({.endpoint = daemon.endpoint(), .local_socket = local.socket()});
  REQUIRE(client.ok());
  CHECK((*client)->path().path == Path::kGrpc);
  CHECK((*client)->path().why.find("grpc: local path refused: PERMISSION_DENIED") == 0);
  CHECK((*client)->path().why.find("allowed_uids") != std::string::npos);
  auto ns = (*client)->OpenNamespace({.model = "m", .tokens_per_chunk = 1});
  REQUIRE(ns.ok());
  const std::vector<std::byte> payload = Bytes(100, 1);
  REQUIRE((*client)->Put(*ns, {Chunk(Key("a"), payload)}).ok());
  auto found = (*client)->Lookup(*ns, {Key("a")}, {.lease = LeaseMode::kLeadingRun});
  REQUIRE(found.ok());
  REQUIRE(found->leased_keys == 1);

  local.script.refuse = false;
  REQUIRE(Eventually([&] { return (*client)->path().path == Path::kLocal; }));
  CHECK((*client)->Lookup(*ns, {Key("a")})->leading_keys == 0);  // another daemon in this test
  // A lease stays with the transport that granted it.
  std::vector<std::byte> back(payload.size());
  std::span<std::byte> to(back);
  auto got = (*client)->Get(*ns, {Key("a")},
                            {.lease = &found->lease, .destinations = absl::MakeSpan(&to, 1)});
  REQUIRE(got.ok());
  CHECK(back == payload);
  CHECK((*client)->Release(std::move(found->lease)).ok());
  CHECK(daemon.kv.releases == 1);

  local.Stop();
  CHECK(Eventually([&] { return (*client)->path().path == Path::kGrpc; }));
  CHECK((*client)->Lookup(*ns, {Key("a")})->leading_keys == 1);
}

TEST_CASE("a client that has no local version in common takes gRPC") {
  fakes::FakeLocalDaemon local;
  local.script.other_version = true;
  fakes::FakeDaemon daemon;
  auto client = Client::Connect({.endpoint = daemon.endpoint(), .local_socket = local.socket()});
  REQUIRE(client.ok());
  CHECK((*client)->path().path == Path::kGrpc);
}

TEST_CASE("the path can be chosen") {
  fakes::FakeLocalDaemon local;
  fakes::FakeDaemon daemon;
  auto grpc = Client::Connect(
      {.endpoint = daemon.endpoint(), .path = PathChoice::kGrpc, .local_socket = local.socket()});
  REQUIRE(grpc.ok());
  CHECK((*grpc)->path().path == Path::kGrpc);
  CHECK((*grpc)->path().why == "grpc: asked for");
  CHECK(local.connections == 0);
  local.Stop();
  auto only = Client::Connect({.endpoint = daemon.endpoint(),
                               .default_deadline = Deadline(300),
                               .path = PathChoice::kLocal,
                               .local_socket = local.socket()});
  REQUIRE(only.ok());
  CHECK_FALSE((*only)->connected());
  CHECK((*only)->path().path == Path::kLocal);
  CHECK(absl::IsUnavailable((*only)->GetServerInfo().status()));
  CHECK(absl::IsInvalidArgument(
      Client::Connect({.endpoint = "localhost:1", .path = PathChoice::kLocal}).status()));
  auto tcp = Client::Connect({.endpoint = "localhost:1", .default_deadline = Deadline(100)});
  REQUIRE(tcp.ok());
  CHECK((*tcp)->path().why == "grpc: the endpoint is TCP");
}

}  // namespace kvkeep::client
