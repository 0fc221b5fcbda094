// A store with a local endpoint in this process, and clients of it over real sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/local/endpoint.h"
#include "tests/fakes/scratch_dir.h"
#include "tests/fakes/seeded_random.h"
#include "tests/server/local/wire.h"
#include "tiers/base/random.h"

namespace kvkeep {

// Until `condition` holds, at most ten seconds.
bool Eventually(const std::function<bool()>& condition);

class EndpointTester {
 public:
  explicit EndpointTester(const std::function<void(LocalEndpoint::Options*)>& edit = {});
  ~EndpointTester();

  void Start();
  std::string path() const { return dir_ / "local.sock"; }
  StoreSnapshot snapshot() const { return store->snapshot(); }

  LocalCounters counters;
  LocalEndpoint::Options options;
  SocketWatch* sockets = nullptr;
  std::unique_ptr<ThreadPool> copy_pool;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Store> store;
  std::unique_ptr<LocalEndpoint> endpoint;

 private:
  ScratchDir dir_;
};

// One connection, blocking. Maps what it is given.
class SocketClient {
 public:
  SocketClient() = default;
  // Waits until somebody listens.
  explicit SocketClient(const std::string& path);
  ~SocketClient();
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  // Hello with all that follows, and a namespace.
  void Open();
  uint64_t Send(local::Kind kind, std::span<const std::byte> body, std::span<const int> fds = {});
  // The next message; a bad status, kind 0, when the connection is closed.
  SentMessage Receive();
  SentMessage Ask(local::Kind kind, std::span<const std::byte> body, std::span<const int> fds = {});
  // The kind of the next event; 0 when there is none for `timeout`, or the socket is closed.
  uint16_t NextEvent(std::chrono::milliseconds timeout);
  void Pong();

  // Maps staging memory and fills it.
  void Stage(std::span<const std::byte> bytes);
  std::string Put(uint64_t name, std::span<const std::byte> payload);
  TestFound Get(const std::vector<uint64_t>& names);
  std::vector<std::byte> Payload(const TestPlace& place) const;
  bool revoked() const;
  uint64_t next_id() const { return next_id_; }  // of the next message

  UniqueFd socket, events;
  NamespaceDigest ns;

 private:
  uint64_t next_id_ = 1;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(local::kMaxPacketBytes);
  std::vector<std::span<const std::byte>> segments_;
  std::span<const std::byte> words_;
  std::span<std::byte> staging_;
};

}  // namespace kvkeep
