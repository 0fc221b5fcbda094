// FakeGpuEndpoint: the GPU path of a FakeLocalDaemon. "GPU memory" is bytes of this process, named
// by the first byte of a handle; chunks are a map. It answers at once, or as its script requires.
// Thread-safe.
#pragma once

#include <absl/status/status.h>

#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "proto/local/message.h"
#include "tiers/base/key.h"
#include "tiers/base/mutex.h"

namespace kvkeep::fakes {

class FakeGpuEndpoint {
 public:
  struct Script {
    absl::Status refuse;       // registrations
    bool silent = false;       // puts and gets have no answer
    uint32_t max_runs = 1000;  // of one message: more are INVALID_ARGUMENT
    uint32_t max_timeout_ms = 30'000;
    std::set<uint32_t> fail_parts;  // gets of these parts fail, puts are rejected
  };
  struct Registration {
    local::RegisterGpuMemory said;
    bool descriptor = false;  // a descriptor came with it
  };

  void Set(Script script);
  // Adds memory of that name with `bytes` zero bytes.
  void AddMemory(uint8_t name, size_t bytes);
  std::vector<std::byte> Read(uint8_t name, uint64_t offset, uint64_t bytes) const;
  void Write(uint8_t name, uint64_t offset, const std::vector<std::byte>& bytes);
  // Ends the connection with all its registrations.
  void Forget();

  std::vector<Registration> registrations() const;  // requests of this connection, in order
  size_t unregistered() const;
  std::vector<uint32_t> timeouts_ms() const;   // of puts and gets
  std::vector<uint64_t> deadlines_ns() const;  // of puts with an absolute deadline
  std::vector<size_t> message_runs() const;   // of each put and get

  // For FakeLocalDaemon::SetOther.
  std::optional<local::MessageWriter> Answer(local::Kind kind, local::Message& message);

 private:
  using Chunk = std::pair<std::vector<std::byte>, std::vector<std::byte>>;  // payload, tail

  local::MessageWriter Register(local::Message& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  local::MessageWriter Put(local::Kind kind, const local::Message& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  local::MessageWriter Get(const local::Message& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Check(const std::vector<local::GpuMemoryRun>& runs)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::byte* At(const local::GpuMemoryRun& run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  mutable Mutex mu_;
  Script script_ ABSL_GUARDED_BY(mu_);
  std::map<uint8_t, std::vector<std::byte>> memory_ ABSL_GUARDED_BY(mu_);
  std::vector<Registration> registrations_ ABSL_GUARDED_BY(mu_);  // number - 1
  size_t unregistered_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint32_t> timeouts_ms_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> deadlines_ns_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> message_runs_ ABSL_GUARDED_BY(mu_);
  std::map<std::pair<ChunkKey, uint32_t>, Chunk> chunks_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::fakes
