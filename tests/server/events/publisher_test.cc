// The publisher of a whole daemon, heard through a real ZeroMQ socket.
#include <catch2/catch.hpp>
#include <deque>
#include <set>

#include "server/events/block_events.h"
#include "tests/server/events/zmq_socket.h"
#include "tests/server/grpc/service_harness.h"

namespace kvkeep {
namespace {

using Kind = BlockEvent::Kind;
constexpr uint64_t kEnd = UINT64_MAX;

// A payload without its time.
std::string Untimed(const std::string& payload) { return payload.substr(10); }
std::string Encoded(const std::vector<BlockEvent>& events, EventForm form = EventForm::kVllm) {
  return Untimed(EncodeEvents(form, 0, events));
}

// Returns an event as it lies in a payload: without the head and the rank.
std::string Inner(const BlockEvent& event) {
  const std::string one = Encoded({event});
  return one.substr(1, one.size() - 2);
}

BlockEvent Stored(int key, Tier tier, std::vector<uint32_t> tokens, int parent = 0,
                  uint32_t block_size = 0) {
  v1::ChunkMetadata metadata;
  metadata.set_format(0x316d766b);
  metadata.set_block_size(block_size);
  if (parent != 0) metadata.set_parent_key(TestKey(parent));
  metadata.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  BlockEvent event = *BlocksOf(*ChunkKey::FromBytes(TestKey(key)), metadata.SerializeAsString());
  event.tier = tier;
  return event;
}

void PutTokens(const TestClient& client, int key, std::vector<uint32_t> tokens, int parent = 0,
               uint32_t block_size = 0) {
  v1::ChunkMetadata metadata;
  metadata.set_format(0x316d766b);
  metadata.set_block_size(block_size);
  if (parent != 0) metadata.set_parent_key(TestKey(parent));
  metadata.mutable_token_ids()->Add(tokens.begin(), tokens.end());
  const v1::PutResult put = client.PutChunk(key, "payload", [&](v1::PutChunkHeader* header) {
    header->set_metadata(metadata.SerializeAsString());
  });
  REQUIRE(put.status() == v1::PUT_STATUS_STORED);
}

struct Published {
  TestDaemon daemon;
  std::string endpoint, replay;
  explicit Published(EventForm form = EventForm::kVllm) {
    daemon.Stop();
    endpoint = "ipc://" + daemon.options().storage.state_dir + "/../events";
    replay = endpoint + "-replay";
    daemon.options().events = {
        {.sockets = {.endpoint = endpoint, .replay_endpoint = replay}, .form = form}};
    daemon.Start();
  }
};

// Receives messages until all of these events were reported; their numbers rise.
void Expect(Socket& socket, std::vector<BlockEvent> events, uint64_t* last) {
  std::deque<std::string> wanted;
  for (const BlockEvent& event : events) wanted.push_back(Inner(event));
  while (!wanted.empty()) {
    const std::vector<std::string> frames = socket.Receive();
    REQUIRE(frames.size() == 3);
    CHECK(frames[0] == "kv-events");
    CHECK(FromBigEndian(frames[1]) > *last);
    *last = FromBigEndian(frames[1]);
    for (auto at = wanted.begin(); at != wanted.end();) {
      at = frames[2].find(*at) != std::string::npos ? wanted.erase(at) : at + 1;
    }
  }
}

}  // namespace

TEST_CASE("a subscriber is told of all that is there, of changes, and of all after a restart") {
  Published published;
  uint64_t last = 0;
  Socket socket(ZMQ_SUB, published.endpoint);
  {
    const TestClient client(published.daemon);
    PutTokens(client, 1, {10, 11, 12, 13});
    Expect(socket, {{.kind = Kind::kCleared}, Stored(1, Tier::kG2, {10, 11, 12, 13})}, &last);
    PutTokens(client, 2, {14, 15, 16, 17}, 1);
    Expect(socket,
           {Stored(2, Tier::kG2, {14, 15, 16, 17}, 1), Stored(2, Tier::kG3, {14, 15, 16, 17}, 1)},
           &last);
    v1::DeleteResponse deleted;
    grpc::ClientContext context;
    REQUIRE(client.stub->Delete(&context, client.About<v1::DeleteRequest>({1}), &deleted).ok());
    const std::vector<uint64_t> gone = {LastBlock(*ChunkKey::FromBytes(TestKey(1)))};
    Expect(socket,
           {{.kind = Kind::kRemoved, .tier = Tier::kG2, .blocks = gone},
            {.kind = Kind::kRemoved, .tier = Tier::kG3, .blocks = gone}},
           &last);
  }
  published.daemon.Stop();
  published.daemon.Start();
  Expect(socket, {{.kind = Kind::kCleared}, Stored(2, Tier::kG3, {14, 15, 16, 17}, 1)}, &last);
}

TEST_CASE("one after the other may subscribe, to a daemon at rest as well") {
  Published published;
  const TestClient client(published.daemon);
  PutTokens(client, 1, {10, 11});
  for (int i = 0; i < 3; ++i) {
    // Each one gets everything that is there; then nothing happens until the next one comes.
    Socket first(ZMQ_SUB, published.endpoint);
    uint64_t last = 0;
    Expect(first, {{.kind = Kind::kCleared}, Stored(1, Tier::kG2, {10, 11})}, &last);
    Socket second(ZMQ_SUB, published.endpoint);
    uint64_t seen = 0;
    Expect(second, {{.kind = Kind::kCleared}, Stored(1, Tier::kG2, {10, 11})}, &seen);
    Expect(first, {{.kind = Kind::kCleared}, Stored(1, Tier::kG2, {10, 11})}, &last);
  }
  PutTokens(client, 2, {12, 13});  // the daemon lives
}

TEST_CASE("who asks gets the last messages again, from the number it wants") {
  Published published;
  Socket socket(ZMQ_SUB, published.endpoint);
  const TestClient client(published.daemon);
  PutTokens(client, 1, {10, 11});
  uint64_t last = 0;
  Expect(socket, {Stored(1, Tier::kG2, {10, 11}), Stored(1, Tier::kG3, {10, 11})}, &last);
  Socket asks(ZMQ_DEALER, published.replay);
  asks.Send({"", std::string(8, '\0')});
  uint64_t number = 0, messages = 0;
  for (; number != kEnd; ++messages) {
    // As vLLM 0.33 and SGLang 0.5.23 answer.
    const std::vector<std::string> frames = asks.Receive();
    REQUIRE(frames.size() == 4);
    CHECK(frames[0].empty());
    const uint64_t before = std::exchange(number, FromBigEndian(frames[2]));
    CHECK(number > before);
    CHECK(frames[1] == (number == kEnd ? "" : "kv-events"));
    CHECK(frames[3].empty() == (number == kEnd));
  }
  CHECK(messages >= 2);
  asks.Send({"", std::string(8, '\x7f')});
  CHECK(FromBigEndian(asks.Receive().at(2)) == kEnd);
}

TEST_CASE("each tenant's routers are told of its own chunks alone, with numbers of their own") {
  TestDaemon daemon;
  daemon.Stop();
  DaemonOptions& options = daemon.options();
  options.storage.arena.segment_bytes = 16 * kMiB;
  options.storage.store.tenants = {{.g2_segments = 2}, {.name = "a", .g2_segments = 2}};
  const std::string path = options.tenants[0].grpc.path + ".a";
  options.tenants.push_back({.name = "a", .grpc = {.path = path}});
  const std::string endpoint = "ipc://" + options.storage.state_dir + "/../events";
  options.events = {{.sockets = {.endpoint = endpoint}},
                    {.sockets = {.endpoint = endpoint + "-a"}, .tenant = TenantId(1)}};
  daemon.Start();
  Socket all(ZMQ_SUB, endpoint), of_a(ZMQ_SUB, endpoint + "-a");
  const TestClient client(daemon);
  const TestClient client_a(
      grpc::CreateChannel("unix:" + path, grpc::InsecureChannelCredentials()));
  uint64_t last = 0, last_of_a = 0;
  PutTokens(client_a, 1, {10, 11});
  Expect(of_a, {{.kind = Kind::kCleared}, Stored(1, Tier::kG2, {10, 11})}, &last_of_a);
  PutTokens(client, 2, {12, 13});
  // The other's chunk came first: were it reported, it would be here by now.
  for (std::string payload;
       payload.find(Inner(Stored(2, Tier::kG2, {12, 13}))) == std::string::npos;) {
    const std::vector<std::string> frames = all.Receive();
    REQUIRE(frames.size() == 3);
    CHECK(FromBigEndian(frames[1]) > last);
    last = FromBigEndian(frames[1]);
    payload = frames[2];
    CHECK(payload.find(Inner(Stored(1, Tier::kG2, {10, 11}))) == std::string::npos);
  }
}

TEST_CASE("when too much waits for one that does not read, all are let go, and told all anew") {
  Published published;
  published.daemon.Stop();
  published.daemon.options().events[0].sockets.queued_bytes = 16 * kKiB;
  published.daemon.Start();
  const TestClient client(published.daemon);
  Socket reads(ZMQ_SUB, published.endpoint);
  uint64_t last = 0;
  Expect(reads, {{.kind = Kind::kCleared}}, &last);
  Socket idle(ZMQ_SUB, published.endpoint, /*received=*/1);
  Expect(reads, {{.kind = Kind::kCleared}}, &last);  // as another one came
  std::vector<int> keys;
  for (int key = 1; key <= 40; ++key) {
    PutTokens(client, key, std::vector<uint32_t>(4'000, 70'000));  // 20 KB in a message
    keys.push_back(key);
  }
  v1::DeleteResponse deleted;
  grpc::ClientContext context;
  REQUIRE(client.stub->Delete(&context, client.About<v1::DeleteRequest>(keys), &deleted).ok());
  Expect(reads, {{.kind = Kind::kCleared}}, &last);
}

TEST_CASE("SGLang's form is arrays") {
  Published published(EventForm::kSglang);
  Socket socket(ZMQ_SUB, published.endpoint);
  const std::vector<std::string> frames = socket.Receive();
  REQUIRE(frames.size() == 3);
  CHECK(Untimed(frames[2]) == Encoded({{.kind = Kind::kCleared}}, EventForm::kSglang));
}

TEST_CASE("chunks whose metadata says nothing of tokens are told to no router") {
  Published published;
  Socket socket(ZMQ_SUB, published.endpoint);
  const TestClient client(published.daemon);
  REQUIRE(client.PutChunk(1, "plain").status() == v1::PUT_STATUS_STORED);
  const auto opaque = [](v1::PutChunkHeader* header) { header->set_metadata("opaque"); };
  REQUIRE(client.PutChunk(2, "payload", opaque).status() == v1::PUT_STATUS_STORED);
  PutTokens(client, 3, {1});
  uint64_t last = 0;
  Expect(socket, {Stored(3, Tier::kG2, {1})}, &last);
}

TEST_CASE("a chunk that names too many blocks is not told of, and makes no removal longer") {
  Published published;
  uint64_t last = 0;
  // One block a token, as many as the namespace's 256 tokens a chunk can have; then too many.
  const std::vector<uint32_t> most(256, 7), beyond(257, 7), many(8'000, 7);
  const auto deletes = [&](const TestClient& client, int key) {
    v1::DeleteResponse deleted;
    grpc::ClientContext context;
    REQUIRE(client.stub->Delete(&context, client.About<v1::DeleteRequest>({key}), &deleted).ok());
    const uint64_t block = LastBlock(*ChunkKey::FromBytes(TestKey(key)));
    BlockEvent gone{.kind = Kind::kRemoved, .tier = Tier::kG2};
    for (uint64_t left = most.size(); left > 0; --left) gone.blocks.push_back(block - (left - 1));
    return gone;
  };
  Socket socket(ZMQ_SUB, published.endpoint);
  {
    const TestClient client(published.daemon);
    PutTokens(client, 1, most, 0, 1);
    PutTokens(client, 2, beyond, 0, 1);
    PutTokens(client, 3, many, 0, 1);
    PutTokens(client, 4, {1});
    Expect(socket, {Stored(4, Tier::kG2, {1}), Stored(4, Tier::kG3, {1})}, &last);
    Expect(socket, {deletes(client, 4)}, &last);
  }
  // No session has the namespace open, so nothing tells how many tokens a chunk of it has: the
  // second one may be right, the third one cannot.
  published.daemon.Stop();
  published.daemon.Start();
  Expect(socket,
         {{.kind = Kind::kCleared},
          Stored(1, Tier::kG3, most, 0, 1),
          Stored(2, Tier::kG3, beyond, 0, 1)},
         &last);
  const TestClient client(published.daemon);
  PutTokens(client, 5, {1});
  Expect(socket, {Stored(5, Tier::kG2, {1})}, &last);
  BlockEvent gone = deletes(client, 5);
  gone.blocks.insert(gone.blocks.begin(), gone.blocks.front() - 1);
  Expect(socket, {gone}, &last);
}

}  // namespace kvkeep
