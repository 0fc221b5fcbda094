// Engine: a client of the daemon as a test plays it. Chunks are numbered; the number gives key and
// payload, so that whatever comes back can be verified without keeping it.
//
// Throws no Catch2 assertion, so that it may be used on any thread; one thread at a time.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "client/client.h"
#include "tests/e2e/daemon.h"

namespace kvkeep::e2e {

struct TestChunk {
  uint64_t number = 0;
  size_t bytes = 0;
};

ChunkKey Key(uint64_t number);
std::vector<std::byte> Payload(const TestChunk& chunk);

// `count` chunks of one size, numbered from `first`.
std::vector<TestChunk> Chunks(uint64_t first, size_t count, size_t bytes);
std::vector<ChunkKey> KeysOf(const std::vector<TestChunk>& chunks);

class Engine {
 public:
  struct Options {
    std::string name = "test";
    client::NamespaceSpec spec = DefaultSpec();
    client::Deadline deadline{20'000};
    client::PathChoice path = client::PathChoice::kAuto;
    client::SecurityOptions security = {};
    client::Deadline peer_timeout{30'000};
    uint32_t channels = 1;
  };
  Engine(const std::string& endpoint, const Options& options);
  explicit Engine(const Site& site) : Engine(site.endpoint(), Options()) {}
  Engine(const Site& site, const Options& options) : Engine(site.endpoint(), options) {}
  static client::NamespaceSpec DefaultSpec() { return {.model = "e2e", .tokens_per_chunk = 256}; }

  // One chunk; kUnfinished when the call failed: `error` says why.
  client::PutOutcome Put(const TestChunk& chunk, client::PutOptions options = {});
  // All of them, in streams of some MB, waiting for room when there is none. False: one of them was
  // neither stored nor present in the end.
  bool PutAll(const std::vector<TestChunk>& chunks, client::PutOptions options = {});
  // Returns the daemon's answer. Counts bytes that are not the chunk's in `wrong_bytes`.
  client::GetStatus Get(const TestChunk& chunk, const client::Lease* lease = nullptr,
                        uint32_t index_in_lease = 0);
  // How many of them are hits, all with the right bytes.
  size_t Hits(const std::vector<TestChunk>& chunks);
  // One lookup without a lease: which of them are in G2 / G3 / anywhere.
  struct Presence {
    size_t g2 = 0, g3 = 0, any = 0;
  };
  Presence Find(const std::vector<TestChunk>& chunks);

  client::Client& client() { return *client_; }
  const client::Namespace& ns() const { return ns_; }

  uint64_t wrong_bytes = 0;  // chunks
  absl::Status error;        // of the last call that failed

 private:
  std::unique_ptr<client::Client> client_;
  client::Namespace ns_;
  std::vector<std::byte> buffer_;
};

}  // namespace kvkeep::e2e
