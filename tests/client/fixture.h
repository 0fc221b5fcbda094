// Helpers of the tests of the client: a fake daemon, a client on it, keys and payloads.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <thread>

#include "client/client.h"
#include "tests/fakes/fake_kv_service.h"

namespace kvkeep::client {

inline ChunkKey Key(const std::string& name) { return *ChunkKey::FromBytes(name); }

inline std::vector<std::byte> Bytes(size_t size, uint64_t seed) {
  std::vector<std::byte> bytes(size);
  uint64_t x = seed * 0x9E3779B97F4A7C15 + 1;
  for (std::byte& b : bytes) {
    x = x * 6364136223846793005 + 1442695040888963407;
    b = static_cast<std::byte>(x >> 56);
  }
  return bytes;
}

inline PutChunk Chunk(const ChunkKey& key, const std::vector<std::byte>& payload,
                      uint32_t part = 0) {
  return {.key = key, .part = part, .runs = {payload}};
}

// Polls, as the daemon and the background send no events.
template <typename F>
bool Eventually(F&& condition, int timeout_ms = 60'000) {
  for (int i = 0; i < timeout_ms / 2; ++i) {
    if (condition()) return true;
    // The condition is about the daemon or a thread of gRPC.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return condition();
}

struct ClientFixture {
  explicit ClientFixture(Deadline deadline = Deadline(60'000)) {
    auto connected = Client::Connect(
        {.endpoint = daemon.endpoint(), .client_name = "test", .default_deadline = deadline});
    REQUIRE(connected.ok());
    client = *std::move(connected);
    auto opened = client->OpenNamespace({.model = "m", .tokens_per_chunk = 16, .parts = 2});
    REQUIRE(opened.ok());
    ns = *opened;
  }

  GetStatus GetOne(const ChunkKey& key, std::vector<std::byte>& to, const Lease* lease = nullptr) {
    std::span<std::byte> span(to);
    auto got =
        client->Get(ns, absl::MakeSpan(&key, 1),
                    {.parts = part0, .lease = lease, .destinations = absl::MakeSpan(&span, 1)});
    last = got.status();
    if (!got.ok()) return GetStatus::kUnfinished;
    last = got->error;
    return got->chunks[0].status;
  }

  fakes::FakeDaemon daemon;  // first: it goes last
  std::unique_ptr<Client> client;
  Namespace ns;
  const std::vector<uint32_t> part0 = {0};
  absl::Status last;
};

}  // namespace kvkeep::client
