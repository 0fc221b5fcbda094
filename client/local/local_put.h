// LocalPut: one put call: sends its chunks in one or several messages, through staging memory if
// the daemon cannot read the caller's memory itself. Blocks; runs on one thread. Internal.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "client/local/local_transport.h"
#include "client/local/put_batch.h"

namespace kvkeep::client {

class LocalPut {
 public:
  struct What {
    LocalSessionPtr session;
    NamespaceDigest ns;
    NamespaceSpec spec;
    std::vector<PutChunk> chunks;
    PutOptions options;
    LocalSession::Time deadline;
    std::shared_ptr<LocalCounters> counters;
    std::shared_ptr<PutMemory> memory;
  };
  explicit LocalPut(What what);

  // Not OK: no chunk has an outcome.
  absl::StatusOr<PutResult> Run();
  // If nothing has to be copied and all fits one message, sends it without waiting for the
  // answer (for room in the socket, until the deadline) and returns true. Otherwise returns false
  // and does nothing.
  static bool TrySend(What& what, Callback<PutResult>& done);

 private:
  using Batch = Completion<absl::StatusOr<std::vector<PutBatch::Outcome>>>;
  struct Sent {
    std::unique_ptr<Batch> reply = std::make_unique<Batch>();
    LocalSession::Blocking blocking;
  };

  // Adds a chunk; a chunk that cannot be put gets its outcome. Not OK: the put cannot go on.
  absl::Status AddChunk(uint32_t index);
  absl::StatusOr<std::span<std::byte>> Stage(uint64_t bytes, std::shared_ptr<StagingArea>* area);
  void Flush();
  void AwaitOldest();
  void Note(absl::StatusOr<std::vector<PutBatch::Outcome>> outcomes);
  PutBatch NewBatch() const { return {what_.session, what_.ns, what_.options}; }

  What what_;
  PutResult result_;
  std::optional<PutBatch> batch_;
  std::deque<Sent> sent_;
};

}  // namespace kvkeep::client
