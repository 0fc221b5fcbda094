// Nodes of a fleet that read from each other, with real daemons and mutual TLS on loopback.
#include <absl/strings/str_cat.h>
#include <grpcpp/create_channel.h>
#include <signal.h>

#include <catch2/catch.hpp>
#include <thread>

#include "kvkeep/v1/peer.grpc.pb.h"
#include "tests/e2e/peer_fleet.h"
#include "tests/e2e/relay.h"
#include "tiers/base/random.h"

namespace kvkeep::e2e {
namespace {

using std::chrono::seconds;

// A channel to a node, by mutual TLS with that certificate.
std::shared_ptr<grpc::Channel> ChannelTo(const std::string& address, const std::string& server_name,
                                         const std::string& ca_file,
                                         const CertificateFiles& files) {
  grpc::ChannelArguments arguments;
  arguments.SetSslTargetNameOverride(server_name);
  return grpc::CreateCustomChannel(address,
                                   grpc::SslCredentials({.pem_root_certs = ReadFile(ca_file),
                                                         .pem_private_key = ReadFile(files.key),
                                                         .pem_cert_chain = ReadFile(files.cert)}),
                                   arguments);
}

grpc::Status CallHello(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(60));
  v1::PeerHelloRequest request;
  request.set_max_version(1);
  v1::PeerHelloResponse response;
  return v1::Peer::NewStub(channel)->Hello(&context, request, &response);
}

}  // namespace

TEST_CASE("What one node was given, the others read from it: by DRAM and by NVMe") {
  PeerFleet fleet(3);
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 9, kPeerChunkBytes);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  CHECK(RecallsAll(*fleet.engines[1], chunks));
  CHECK(fleet.engines[1]->wrong_bytes == 0);

  // What is left of the first node is on its drive; the second one forgets all.
  REQUIRE(fleet.sites[0]->AwaitClean());
  fleet.sites[0]->Stop();
  fleet.sites[1]->Kill();
  fleet.sites[0]->Start();
  REQUIRE(fleet.sites[2]->AwaitLog("a peer does not answer"));
  CHECK(RecallsAll(*fleet.engines[2], chunks));
  CHECK(fleet.engines[2]->wrong_bytes == 0);
}

TEST_CASE("In a fleet of which a search asks only some, each asks the node with the chunks") {
  PeerFleet fleet(7);
  const std::vector<TestChunk> chunks = Chunks(1, 8, kPeerChunkBytes);
  fleet.sites[0]->Start();
  REQUIRE(Engine(*fleet.sites[0]).PutAll(chunks, {}));
  for (size_t i = 1; i < fleet.sites.size(); ++i) fleet.sites[i]->Start();
  fleet.AwaitPeers(1);
  Engine asks(*fleet.sites[1]);
  const auto spared = [&] { return fleet.sites[1]->Counter("peer_spared_questions"); };
  REQUIRE(Eventually([&] {  // until node 1 has the summaries of all six
    const uint64_t before = spared();
    CHECK(RecallLeading(asks, Chunks(1'000, 8, kPeerChunkBytes), std::chrono::seconds(1)) == 0);
    return spared() == before + 3;  // three are asked, as they may have got them since
  }));
  const auto served = [&] { return fleet.sites[0]->Counter("peer_served_finds"); };
  const auto searches = [&] { return fleet.sites[1]->Counter("peer_searches"); };
  const uint64_t served_before = served(), searches_before = searches();
  CHECK(RecallsAll(asks, chunks));
  CHECK(served() > served_before);
  CHECK(Eventually([&] { return served() - served_before == searches() - searches_before; }));
  CHECK(asks.wrong_bytes == 0);
}

TEST_CASE("A tenant that is not shared is not served, whoever asks") {
  PeerFleet fleet(2);
  std::string& access = fleet.sites[0]->settings.access;
  access.replace(access.find("shared: true"), 12, "shared: false");
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 8, 300'000);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  size_t hits = 0;
  CHECK(Eventually(
      [&] {
        hits += RecallLeading(*fleet.engines[1], chunks, seconds(1));
        return fleet.sites[0]->Counter("peer_served_refused") > 0;
      },
      seconds(30)));
  CHECK(hits == 0);
}

TEST_CASE("A node's certificate opens no session") {
  PeerFleet fleet(2);
  std::string& access = fleet.sites[0]->settings.access;
  access = "  shared: true\n";  // there are no clients by TCP
  fleet.Start();
  const CertificateFiles files =
      fleet.ca.Issue({.name = "as-client", .alt_names = "DNS:" + NameOfNode(1)});
  const auto channel = ChannelTo(fleet.addresses[0], NameOfNode(0), fleet.ca.cert_file(), files);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + seconds(60));
  v1::GetServerInfoResponse response;
  const grpc::Status status = v1::KvCache::NewStub(channel)->GetServerInfo(&context, {}, &response);
  CHECK(status.error_code() == grpc::StatusCode::UNAUTHENTICATED);
}

TEST_CASE("A node that serves nothing answers, and has nothing for its peers") {
  PeerFleet fleet(2, ", serve_bytes_per_second: 0");
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 8, 300'000);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  CHECK(RecallLeading(*fleet.engines[1], chunks, seconds(1)) == 0);
}

TEST_CASE("Only a node's certificate opens the service") {
  PeerFleet fleet(2);
  fleet.Start();
  const auto hello = [&](const TestCa& ca, const TestCa::Request& request) {
    return CallHello(
        ChannelTo(fleet.addresses[0], NameOfNode(0), fleet.ca.cert_file(), ca.Issue(request)));
  };
  const auto named = [](const std::string& name) {
    return TestCa::Request{.name = "caller", .alt_names = "DNS:" + name};
  };
  // The fleet's id is missing, so even a peer is told so; it came as far as that.
  CHECK(hello(fleet.ca, named(NameOfNode(1))).error_code() ==
        grpc::StatusCode::FAILED_PRECONDITION);
  CHECK(hello(fleet.ca, named("engine.example")).error_code() ==
        grpc::StatusCode::PERMISSION_DENIED);
  CHECK(hello(fleet.ca, named(NameOfNode(0))).error_code() == grpc::StatusCode::PERMISSION_DENIED);
  TestCa::Request expired = named(NameOfNode(1));
  expired.valid_to_s = -60;
  CHECK(hello(fleet.ca, expired).error_code() == grpc::StatusCode::UNAVAILABLE);
  const TestCa stranger(fleet.dir.path(), "stranger-ca");
  CHECK(hello(stranger, named(NameOfNode(1))).error_code() == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("Nodes with another key share nothing, and say why") {
  PeerFleet fleet(2);
  WriteForOwner(fleet.dir / "other", FleetKeyOf('2'));
  std::string& extra = fleet.sites[1]->settings.extra;
  const std::string key = fleet.dir / "key";
  extra.replace(extra.find(key), key.size(), fleet.dir / "other");
  for (const auto& site : fleet.sites) site->Start();
  for (const auto& site : fleet.sites) {
    // The first line may be of a node that did not listen yet.
    CHECK(site->AwaitLog("this node has another fleet.name or fleet.key_file", seconds(30)));
  }
  Engine first(*fleet.sites[0]), second(*fleet.sites[1]);
  const std::vector<TestChunk> chunks = Chunks(1, 8, 300'000);
  REQUIRE(first.PutAll(chunks));
  CHECK(RecallLeading(second, chunks, seconds(1)) == 0);
}

TEST_CASE("A peer that is killed, hangs or vanishes ends every get in time, with no wrong bytes") {
  PeerFleet fleet(2);
  Relay relay(fleet.ports[0]);
  fleet.addresses[0] = relay.address();
  fleet.sites[1] = fleet.MakeSite(1);
  fleet.Start();
  const std::vector<TestChunk> chunks = Chunks(1, 24, kPeerChunkBytes);
  REQUIRE(fleet.engines[0]->PutAll(chunks));
  // Another moment in each run.
  const auto delay = milliseconds(RealRandom()->NextU64() % 60);
  INFO("after ms: " << delay.count());
  const std::string how = GENERATE("killed", "stopped", "vanished");
  INFO(how);
  std::thread harm([&] {
    std::this_thread::sleep_for(delay);  // for some of the reads
    if (how == "killed") fleet.sites[0]->Kill();
    if (how == "stopped") fleet.sites[0]->Signal(SIGSTOP);
    if (how == "vanished") relay.Vanish();
  });
  const auto began = std::chrono::steady_clock::now();
  const size_t hits = RecallLeading(*fleet.engines[1], chunks, seconds(1));
  const auto took = std::chrono::steady_clock::now() - began;
  harm.join();
  CHECK(hits <= chunks.size());
  INFO("hits: " << hits);
  CHECK(fleet.engines[1]->wrong_bytes == 0);
  CHECK(took < seconds(kSanitized ? 60 : 20));
  // The node goes on: it takes puts, and knows that its peer is away.
  REQUIRE(fleet.sites[1]->AwaitLog("a peer does not answer", seconds(60)));
  CHECK(fleet.engines[1]->PutAll(Chunks(1000, 4, kPeerChunkBytes)));
  CHECK(fleet.engines[1]->Hits(Chunks(1000, 4, kPeerChunkBytes)) == 4);
  if (how == "stopped") fleet.sites[0]->Signal(SIGCONT);
}

}  // namespace kvkeep::e2e
