// PeerTester: a LocalPeer without a socket over a World's store: it takes requests as messages and
// keeps the answers. It uses no other threads; RunAll does the copies and the I/O.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "server/local/peer.h"
#include "tests/server/local/fake_gpu.h"
#include "tests/server/local/wire.h"
#include "tests/sim/world.h"

namespace kvkeep {

class FakeSink final : public PeerSink {
 public:
  void Send(std::span<const std::byte> message, std::vector<UniqueFd> descriptors) override;
  absl::StatusOr<UniqueFd> OpenEvents() override;
  void SendEvent(std::span<const std::byte> message) override;
  void Close(const absl::Status& why) override { closed = why; }

  std::deque<SentMessage> sent, events;
  std::optional<absl::Status> closed;
};

WorldOptions PeerWorld();

class PeerTester {
 public:
  explicit PeerTester(const WorldOptions& options = PeerWorld(),
                      const std::function<void(LocalLimits*)>& edit = {});
  ~PeerTester();

  // Makes a new connection of this store, and ends the present one.
  void Connect(LocalPeer::Identity identity = {.peer = "test"});
  // Connects, sends Hello and opens a namespace of four parts with varying sizes.
  void Open(LocalPeer::Identity identity = {.peer = "test"}, uint16_t version = local::kVersion);

  // Runs everything queued. Returns the reply to one request.
  SentMessage Ask(local::Kind kind, std::span<const std::byte> body,
                  std::vector<UniqueFd> descriptors = {});
  template <typename T>
  SentMessage AskFor(local::Kind kind, const T& body) {
    return Ask(kind, std::as_bytes(std::span(&body, 1)));
  }
  // Sends only.
  uint64_t Tell(local::Kind kind, std::span<const std::byte> body,
                std::vector<UniqueFd> descriptors = {});
  // Takes the reply with this id out of the sent messages; fails the test if there is none.
  SentMessage TakeReply(uint64_t id);
  bool HasReply(uint64_t id) const;
  void RunAll();
  // Runs until nothing is dirty.
  void Settle();

  std::vector<std::byte> KeysBody(const std::vector<uint64_t>& names, LeaseMode mode,
                                  const std::vector<local::ReleaseEntry>& releases = {},
                                  uint64_t request_id = 0,
                                  const std::vector<uint32_t>& parts = {0}) const {
    return kvkeep::KeysBody(ns, names, mode, releases, request_id, parts);
  }
  std::vector<std::byte> PutBody(const std::vector<TestChunk>& chunks) const {
    return kvkeep::PutBody(ns, chunks);
  }

  std::vector<std::byte> PartsBody(const std::vector<TestChunk>& chunks,
                                   uint64_t filled_offset) const {
    return kvkeep::PartsBody(ns, chunks, filled_offset);
  }

  // Maps staging memory of this size; call it at least once before puts.
  std::span<std::byte> Stage(uint64_t bytes);
  // Fills staging memory from 0 on, puts one chunk and settles. Returns its answer.
  std::string PutPayload(uint64_t name, std::span<const std::byte> payload,
                         const std::string& tail = "");
  TestFound Get(const std::vector<uint64_t>& names, uint64_t request_id = 0);
  void Release(uint64_t lease, uint32_t keep_keys = 0);
  // Returns the chunk's payload as the client reads it from the segments.
  std::vector<std::byte> Payload(const TestPlace& place) const;
  std::string Tail(const TestPlace& place) const;
  // Returns the key in its header page.
  ChunkKey KeyInHeader(const TestPlace& place) const;
  local::ProgressWord Word(uint32_t word) const;
  // Evicts `name` from G2 by putting other chunks that stay out of G3.
  void FloodG2();

  Store& store() { return world.store(); }

  World world;
  FakeGpuPath gpu;
  LocalCounters counters;
  std::shared_ptr<ManualExecutor> loop = std::make_shared<ManualExecutor>();
  std::shared_ptr<LocalContext> context = std::make_shared<LocalContext>();
  FakeSink sink;
  std::shared_ptr<LocalPeer> peer;
  NamespaceDigest ns;

 private:
  std::vector<std::byte> Image(const TestPlace& place) const;

  uint64_t next_id_ = 1;
  uint64_t next_flood_ = 1'000'000;
  UniqueFd words_fd_;
  const local::ProgressWord* words_ = nullptr;
  std::span<std::byte> staging_;
};

}  // namespace kvkeep
