// RequestPlayer: plays one request of a pattern through the client library, as an engine would:
// recalls the prompt, compares every byte of it, and stores the missing chunks and the answer.
//
// On the local path a prefix is leased and read in place: a chunk has arrived with its last piece.
// Over gRPC it is leased and got in calls of some chunks each, as many as fit the buffer: a chunk
// has arrived when its call has ended. The clock stands while bytes are compared. Reads ahead that
// the daemon has begun go on, which only matters to prefixes larger than the buffer. Blocking; one
// thread each.
#pragma once

#include <absl/status/status.h>

#include <vector>

#include "client/client.h"
#include "tools/bench/client/operation.h"
#include "tools/bench/client/pattern_measured.h"
#include "tools/bench/client/pattern_request.h"
#include "tools/bench/client/payload_pool.h"

namespace kvkeep::bench {

// State that all players of a worker share. Outlives them.
struct PlayerContext {
  ClientContext* side = nullptr;
  PatternJob job;
  const PayloadPool* pool = nullptr;  // payloads of puts

  // Returns the key of a chunk. No load or case of the same seed uses it.
  ChunkKey KeyOf(uint64_t chunk) const;
};

class RequestPlayer {
 public:
  explicit RequestPlayer(const PlayerContext* context) : context_(*context) {}

  // Plays a request and adds its results to `measured`. `due_at` is in WallSeconds(). Without
  // `stores` // it only recalls.
  void Play(const PromptRequest& request, double due_at, bool stores, PatternMeasured* measured);
  // Stores chunks in order, each the child of the one before. Returns the first failure; counts //
  // refusals.
  absl::Status Store(const std::vector<uint64_t>& chunks, size_t first, size_t count,
                     PatternMeasured* measured);

 private:
  class Watch;

  // Returns how many chunks from the head were present.
  absl::StatusOr<size_t> ReadPrefix(const PromptRequest& request, double due_at,
                                    PatternMeasured* measured);
  absl::Status ReadInPlace(const std::vector<ChunkKey>& keys, Watch* watch, Recall* recall,
                           PatternMeasured* measured);
  absl::Status WaitAndCompare(const std::vector<ChunkKey>& keys, const client::Acquired& held,
                              Watch* watch, Recall* recall, PatternMeasured* measured);
  absl::Status ReadByCopy(const std::vector<ChunkKey>& keys, Watch* watch, Recall* recall,
                          PatternMeasured* measured);
  // Fills the buffer with chunks [first, end) of the lease.
  absl::Status FillBuffer(const std::vector<ChunkKey>& keys, const client::Lease& lease,
                          size_t first, size_t end, Watch* watch, Recall* recall);

  client::Client& client() const { return *context_.side->client; }
  const client::Namespace& ns() const { return context_.side->ns; }
  uint64_t seed() const { return context_.side->seed; }
  uint64_t chunk_bytes() const { return context_.job.chunk_bytes; }

  const PlayerContext& context_;
  std::vector<std::byte> buffer_;  // gRPC's
};

}  // namespace kvkeep::bench
