// ReplayWorker: one engine of a replay: plays requests, one after the other. Not thread-safe.
//
// Payloads share one buffer of at least one chunk: a long run is got and put in batches that fit
// into it.
#pragma once

#include <absl/status/status.h>

#include <memory>
#include <span>
#include <vector>

#include "client/client.h"
#include "tools/kvkeep/replay.h"

namespace kvkeep::tools {

class ReplayWorker {
 public:
  static absl::StatusOr<std::unique_ptr<ReplayWorker>> Create(const ReplayOptions& options,
                                                              int number);

  // Returns an error only if the replay must end: the daemon is away, and restarts are not
  // tolerated.
  absl::Status Play(const TraceRequest& request);
  ReplayReport TakeReport() { return std::move(report_); }

 private:
  explicit ReplayWorker(const ReplayOptions& options) : options_(options) {}

  struct Chain {
    std::vector<uint64_t> ids;
    std::vector<ChunkKey> keys;
    std::vector<uint64_t> sizes;
  };
  Chain MakeChain(const TraceRequest& request) const;
  // Gets the leading run and returns how many chunks of it were delivered.
  absl::Status GetLeadingRun(const Chain& chain, size_t* delivered);
  // Keys [begin, end), all of them in `lease`, if there is one. Keys before `promised` were present
  // at the lookup; the others were on their way from beyond the node.
  struct Window {
    size_t begin, promised, end;
    const client::Lease* lease;
  };
  // Gets a window, batch by batch. Stops at the first chunk that is no hit; `*next` is its index.
  absl::Status GetWindow(const Chain& chain, const Window& window, size_t* next);
  size_t CheckBatch(const Chain& chain, size_t begin, const client::GetResult& result,
                    const std::vector<std::span<std::byte>>& to, size_t promised);
  absl::Status PutRest(const Chain& chain, size_t begin);
  // Returns room for as many chunks from `begin` on, up to `end`, as fit into the buffer; at least
  // one.
  std::vector<std::span<std::byte>> Batch(const Chain& chain, size_t begin, size_t end);
  // Counts a failed call. Waits for the daemon if restarts are tolerated.
  absl::Status Failed(const absl::Status& status);
  client::Deadline payload_deadline() const;

  const ReplayOptions& options_;
  std::unique_ptr<client::Client> client_;
  client::Namespace ns_;
  std::vector<std::byte> buffer_;
  ReplayReport report_;
};

}  // namespace kvkeep::tools
