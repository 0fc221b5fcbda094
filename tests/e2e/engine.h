// Engine: a client of the daemon in a test. Chunks are numbered; the number gives key and payload,
// so answers can be verified without a copy.
//
// It makes no Catch2 assertion, so any thread may use it; one thread at a time.
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
    std::string bulk = {};  // the bulk door; empty: gRPC alone
  };
  Engine(const std::string& endpoint, const Options& options);
  explicit Engine(const Site& site) : Engine(site.endpoint(), Options()) {}
  Engine(const Site& site, const Options& options) : Engine(site.endpoint(), options) {}
  static client::NamespaceSpec DefaultSpec() { return {.model = "e2e", .tokens_per_chunk = 256}; }

  // Puts one chunk. Returns kUnfinished if the call failed; `error` says why.
  client::PutOutcome Put(const TestChunk& chunk, client::PutOptions options = {});
  // Puts all chunks, in streams of some MB; waits for room if there is none. Returns false if one
  // of them was neither stored nor present in the end.
  bool PutAll(const std::vector<TestChunk>& chunks, client::PutOptions options = {});
  // Returns the daemon's answer. Counts chunks with wrong bytes in `wrong_bytes`.
  client::GetStatus Get(const TestChunk& chunk, const client::Lease* lease = nullptr,
                        uint32_t index_in_lease = 0);
  // Returns how many of them are hits with the right bytes.
  size_t Hits(const std::vector<TestChunk>& chunks);
  // Makes one lookup without a lease. Returns how many are in G2, in G3, and in either.
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
