// Contestant: one way to keep chunks, as compared: kvkeep by one of its paths, a rival, or a
// baseline that only moves bytes.
//
// Each runs in a process of its own (contest.h), and all are driven by the same loop (slice.h; for
// those in Python peers/slices.py), so that they differ in nothing but this interface. Calls are
// blocking; one thread.
// Bytes under one key never change. What is stored is bounded by the contestant's own limit
// (Setup::capacity_bytes): a put beyond it evicts.
#pragma once

#include <absl/status/statusor.h>
#include <absl/types/span.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tiers/base/key.h"

namespace kvkeep::compare {

// What a contestant can be asked to do.
enum class Operation { kGet, kLookupAndGet, kPut, kLookup };
absl::string_view OperationName(Operation operation);
absl::StatusOr<Operation> ParseOperation(absl::string_view name);

using Payloads = absl::Span<const std::span<const std::byte>>;
using Targets = absl::Span<const std::span<std::byte>>;

class Contestant {
 public:
  virtual ~Contestant() = default;

  // All of `payload` is stored when it returns.
  virtual absl::Status Put(const ChunkKey& key, std::span<const std::byte> payload) = 0;
  // The whole chunk lies in `out`, which has its size, when it returns. NotFound.
  virtual absl::Status Get(const ChunkKey& key, std::span<std::byte> out) = 0;
  // Several: in one call if the contestant has such a call, else one after the other.
  virtual absl::Status PutAll(absl::Span<const ChunkKey> keys, Payloads payloads);
  virtual absl::Status GetAll(absl::Span<const ChunkKey> keys, Targets targets);
  // How many of them are there.
  virtual absl::StatusOr<uint64_t> Lookup(absl::Span<const ChunkKey> keys) = 0;
  // Forgets everything.
  virtual absl::Status Clear() = 0;

  // Where payloads lie that are to be put, if the contestant has a place for that; else empty, and
  // they lie in ordinary memory. Valid as long as the contestant.
  virtual absl::StatusOr<std::span<std::byte>> PutMemory(uint64_t) {
    return std::span<std::byte>();
  }
  // The processes that serve it and that it started.
  virtual std::vector<pid_t> Servers() const { return {}; }
};

// Where servers listen and files lie; how much may be kept.
struct Setup {
  std::string directory;  // exists, and goes away afterwards
  std::string endpoint;   // of the kvkeepd: "unix:///..."
  std::string tcp_endpoint;
  std::string local_socket;
  std::string admin_endpoint;
  uint64_t capacity_bytes = 0;
};

enum class KvkeepPath { kLocal, kStaging, kUnix, kTcp };

absl::StatusOr<std::unique_ptr<Contestant>> MakeKvkeep(const Setup& setup, KvkeepPath path);
// A redis-server of our own on a Unix socket, spoken to with nothing between.
absl::StatusOr<std::unique_ptr<Contestant>> MakeRedis(const Setup& setup);
// A file a chunk, in the page cache: what a directory on tmpfs or a warm disk gives.
absl::StatusOr<std::unique_ptr<Contestant>> MakeFiles(const Setup& setup);
// gRPC that sends and drops the bytes and does nothing else with them.
absl::StatusOr<std::unique_ptr<Contestant>> MakeBareStream(const Setup& setup);
// A copy from cold memory to cold memory: get and put are that, lookup counts.
absl::StatusOr<std::unique_ptr<Contestant>> MakeMemcpy(const Setup& setup);

}  // namespace kvkeep::compare
