// FakeLocalDaemon: the daemon's side of the local protocol over a std::map and a few memfds, with
// failures on request. It can die and come back, with the same arena or another.
//
// One thread a connection. Chunks, once put, never move; there is no eviction. Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "proto/local/message.h"
#include "tests/fakes/scratch_dir.h"
#include "tiers/base/image.h"
#include "tiers/base/key.h"
#include "tiers/base/mutex.h"

namespace kvkeep::fakes {

class FakeLocalDaemon {
 public:
  static constexpr size_t kSegments = 3;
  static constexpr uint64_t kSegmentBytes = 16 * kMiB;

  // May be changed at any time.
  struct Script {
    std::atomic<bool> refuse{false};        // Hello: PERMISSION_DENIED
    std::atomic<bool> other_version{false};  // Hello: UNIMPLEMENTED
    std::atomic<bool> hang_hello{false};    // requests of this kind get no answer
    std::atomic<int> slow_hello_ms{0};      // the delay of the answer
    std::atomic<uint16_t> version{local::kVersion};  // the highest version that it supports
    std::atomic<int64_t> clock_shift_ns{0};          // how far its clock is ahead
    std::atomic<uint16_t> hold{0};          // requests of this kind wait for Let()
    std::atomic<bool> from_g3{false};       // chunks of gets have a progress word, at 0
    std::atomic<bool> split_images{false};  // new chunks have two runs
    std::atomic<uint32_t> max_leased_keys{UINT32_MAX};
    std::atomic<uint64_t> default_staging{4 * kMiB};
    std::atomic<uint64_t> max_staging{8 * kMiB};
    std::atomic<bool> no_staging{false};  // requests for it get RESOURCE_EXHAUSTED
    std::atomic<uint32_t> max_put_chunks{1000};
    std::atomic<bool> say_copied{false};  // PutCopied at once; the reply waits for Let()
    std::atomic<bool> linger{false};      // does not close its end of a closed connection
  };
  Script script;
  // Changes a reply (or Segments) before it is sent. Set it while no client has a request.
  using Tamper = std::function<void(local::Kind kind, std::vector<std::byte>* message)>;
  void SetTamper(Tamper tamper);

  // Answers requests that this fake does not support; no value: no answer is sent. Script::hold
  // works.
  using Other =
      std::function<std::optional<local::MessageWriter>(local::Kind kind, local::Message& message)>;
  void SetOther(Other other) {
    MutexLock lock(&mu_);
    other_ = std::move(other);
  }

  FakeLocalDaemon();
  ~FakeLocalDaemon();
  std::string socket() const { return dir_ / "local.sock"; }

  void Start();
  void Stop();          // closes all connections; the socket's file stays, as after a kill
  void RemoveSocket();  // as after a stop
  void NewArena();      // while stopped
  void Let();           // answers held requests
  void Ping();
  void Revoke(const std::string& why);
  // Sets progress like the copy threads: waiting clients see it.
  void SetProgress(uint32_t word, local::ProgressWord value);

  void AddChunk(const std::string& model, const ChunkKey& key, uint32_t part,
                const std::vector<std::byte>& payload, const std::string& metadata = "");
  // Flips a byte of the payload in place.
  void Corrupt(const ChunkKey& key, uint32_t part = 0);

  // Counts of received requests.
  int requests(local::Kind kind) const { return requests_[static_cast<size_t>(kind)]; }
  std::atomic<int> connections{0}, pongs{0}, direct_runs{0};
  std::atomic<uint64_t> staging_asked{0};  // last, in bytes
  std::atomic<uint32_t> remote_wait_us{0};  // of the last request about keys
  std::vector<uint64_t> released() const;  // lease ids, in order
  size_t chunks() const;
  std::vector<std::byte> payload(const ChunkKey& key, uint32_t part = 0) const;

 private:
  struct Chunk {
    ImageShape shape;
    std::vector<local::ImageRun> runs;
  };
  struct Arena {
    Uuid uuid;
    std::vector<UniqueFd> files;
    std::vector<std::byte*> memory;
    uint64_t used = 0;  // of the whole; a chunk never straddles segments
    std::map<ChunkId, Chunk> chunks;
    ~Arena();
  };
  struct Connection;

  static NamespaceDigest DigestOf(const std::string& model);
  void Accept();
  void Serve(Connection& connection);
  void Greet(Connection& connection, const local::Message& message);
  UniqueFd Staging(Connection& connection, uint64_t asked, uint64_t id,
                   local::MessageWriter* reply);
  bool Handle(Connection& connection, local::Message& message);
  struct KeysAnswer {
    local::LookupReply found;
    std::vector<uint8_t> g2;
    std::vector<local::Place> places;
    std::vector<local::ImageRun> runs;
    uint64_t count = 0;
  };
  KeysAnswer Find(local::Kind kind, const local::KeysRequest& request,
                  const std::vector<uint32_t>& parts, const std::vector<ChunkKey>& keys)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void HandleKeys(Connection& connection, local::Kind kind, const local::Message& message);
  bool AwaitParts(const Connection& connection, const local::PutInParts& request,
                  const local::PutChunk& chunk);
  void HandlePut(Connection& connection, local::Kind kind, const local::Message& message);
  bool HandleOther(Connection& connection, local::Message& message);
  void Reply(Connection& connection, local::MessageWriter writer, std::span<const int> fds = {});
  void Store(const ChunkId& id, const std::vector<std::byte>& payload, const std::string& metadata)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::byte* At(const local::ImageRun& run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<std::byte> PayloadOf(const Chunk& chunk) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ScratchDir dir_;
  std::array<std::atomic<int>, 64> requests_{};
  UniqueFd progress_;
  local::ProgressWord* words_ = nullptr;

  mutable Mutex mu_;
  Tamper tamper_ ABSL_GUARDED_BY(mu_);
  Other other_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<Arena> arena_ ABSL_GUARDED_BY(mu_);
  uint64_t incarnation_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t next_lease_ ABSL_GUARDED_BY(mu_) = 1;
  uint32_t next_word_ ABSL_GUARDED_BY(mu_) = 1;
  std::vector<uint64_t> released_ ABSL_GUARDED_BY(mu_);
  std::vector<std::shared_ptr<Connection>> open_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread> threads_ ABSL_GUARDED_BY(mu_);
  std::atomic<bool> stopping_{false};
  UniqueFd listener_;
  std::thread acceptor_;
};

}  // namespace kvkeep::fakes
