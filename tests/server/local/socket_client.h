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
#include "tiers/base/clock.h"
#include "tiers/base/random.h"

namespace kvkeep {

// Waits until `condition` holds, at most a minute.
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
  Clock* clock = RealClock();  // of the endpoint
  std::unique_ptr<ThreadPool> copy_pool;
  std::unique_ptr<Arena> arena;
  std::unique_ptr<Store> store;
  std::unique_ptr<LocalEndpoint> endpoint;

 private:
  ScratchDir dir_;
};

// One blocking connection. It maps the memory that it gets.
class SocketClient {
 public:
  SocketClient() = default;
  // Waits for a listener.
  explicit SocketClient(const std::string& path);
  ~SocketClient();
  SocketClient(const SocketClient&) = delete;
  SocketClient& operator=(const SocketClient&) = delete;

  // Sends Hello, handles the handshake, and opens a namespace.
  void Open();
  uint64_t Send(local::Kind kind, std::span<const std::byte> body, std::span<const int> fds = {});
  // Returns the next message; a bad status, kind 0, if the connection is closed.
  SentMessage Receive();
  SentMessage Ask(local::Kind kind, std::span<const std::byte> body, std::span<const int> fds = {});
  // Returns the kind of the next event; 0 if there is none for `timeout`, or the socket is closed.
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
