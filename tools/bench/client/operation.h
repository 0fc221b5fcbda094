// Operation: one slot of a client, which makes one call after the other, and the state that all
// slots of a client share. The driver (driver.h) times the calls; an operation makes them.
//
// Prepare, Run and Start are never called while a call of the same operation is under way; the last
// call's result stays until the next, so that Verify can look at it outside of the measured time.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "client/client.h"
#include "tools/bench/client/case.h"

namespace kvkeep::bench {

struct CallResult {
  absl::Status status;  // NotFound: some of it was missing
  uint32_t chunks = 0;
  uint64_t bytes = 0;
  uint64_t copied_bytes = 0;
  uint64_t first_piece_ns = 0;  // since the call began; 0: not measured
};

struct VerifyResult {
  uint64_t bytes = 0;
  uint64_t wrong = 0;

  void Add(const VerifyResult& other) {
    bytes += other.bytes;
    wrong += other.wrong;
  }
};

class GpuMemory;
class PayloadPool;

// One client's side of a case. Outlives its operations.
struct ClientContext {
  client::Client* client = nullptr;
  client::Namespace ns;
  uint64_t seed = 0;
  uint32_t number = 0;   // of this client, which puts keys of its own
  uint32_t clients = 1;  // number of clients that do the same
  bool local = false;    // on the local path, where chunks are read in place
  PayloadPool* pool = nullptr;
  GpuMemory* gpu = nullptr;  // of the paths cuda-ipc and pinned
  std::atomic<uint64_t> calls{0};
  std::atomic<uint64_t> fresh{0};  // chunks put under fresh keys so far
};

class Operation {
 public:
  virtual ~Operation() = default;
  // Prepares the next call's arguments: keys that an engine would have at hand. Not timed.
  virtual void Prepare() = 0;
  virtual CallResult Run() = 0;
  using Done = absl::AnyInvocable<void(CallResult) &&>;
  // `done` runs once, on a thread of the client library or within the call.
  virtual void Start(Done done) = 0;
  // Compares about `budget_bytes` that the last call got or put, at least one piece.
  virtual VerifyResult Verify(uint64_t budget_bytes) = 0;
};

std::unique_ptr<Operation> MakeOperation(ClientContext* context, const CaseSpec& spec);

// ---- for the kinds of operation

// One call of the client library. Self::Ask makes it, with or without a callback as the last
// argument, and Self::Judge turns its Result into a CallResult.
template <typename Self, typename Result>
class OneCall : public Operation {
 public:
  CallResult Run() override { return self().Judge(self().Ask()); }
  void Start(Done done) override {
    self().Ask([this, done = std::move(done)](absl::StatusOr<Result> result) mutable {
      std::move(done)(self().Judge(std::move(result)));
    });
  }

 protected:
  OneCall(ClientContext* context, const CaseSpec& spec) : context_(*context), spec_(spec) {}

  ClientContext& context_;
  const CaseSpec spec_;
  std::vector<ChunkKey> keys_;  // of the last prepared call

 private:
  Self& self() { return static_cast<Self&>(*this); }
};

// Judges a put of the case's batch.
CallResult JudgePut(const absl::StatusOr<client::PutResult>& result, const CaseSpec& spec);

// Returns how many payloads of `size` the loaded chunks share.
uint64_t LoadedPayloads(uint64_t size);
// Returns the keys of chunks [first, first + count) of `size` bytes in a load.
std::vector<ChunkKey> LoadedKeys(const ClientContext& context, uint64_t size, uint64_t first,
                                 uint64_t count);
// Returns number `number` of the keys that this client has put so far, with that payload.
ChunkKey FreshKey(const ClientContext& context, uint64_t number, uint64_t payload);
// Returns the first key of a get's next batch. Batches cycle over all keys, so that none is warm.
uint64_t NextFirst(ClientContext* context, const CaseSpec& spec);
// Compares `got`, which lies at `offset` of the payload under `key`.
VerifyResult Compare(const ClientContext& context, const ChunkKey& key,
                     std::span<const std::byte> got, uint64_t offset);
// Gets these chunks by the client's path and compares about `budget_bytes` of them.
VerifyResult ReadBack(ClientContext* context, std::span<const ChunkKey> keys, uint64_t size,
                      uint64_t budget_bytes);

// Makes the operation of a case with runs on a GPU, by that memory's way.
absl::StatusOr<std::unique_ptr<Operation>> MakeGpuOperation(ClientContext* context,
                                                            const CaseSpec& spec);

// Deadline of every call of a benchmark: long, since a call that fails measures nothing.
inline constexpr client::Deadline kCallDeadline{30'000};

}  // namespace kvkeep::bench
