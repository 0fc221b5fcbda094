// RequestPlayer: plays one request of a pattern through the client library, as an engine would:
// recalls the prompt, compares every byte of it, stores what was missing and the answer.
//
// On the local path a prefix is leased and read in place: a chunk is there when its last piece is.
// Over gRPC it is leased and got in calls of some chunks each, as far as our memory goes: a chunk
// is there when its call has ended. While bytes are compared the clock stands; reads ahead that the
// daemon has begun go on, which only matters to prefixes of several calls' memory. Blocking; one
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
  const PayloadPool* pool = nullptr;  // what puts are made of

  // The key of a chunk. No load and no case of the same seed has it.
  ChunkKey KeyOf(uint64_t chunk) const;
};

class RequestPlayer {
 public:
  explicit RequestPlayer(const PlayerContext* context) : context_(*context) {}

  // `due_at` in WallSeconds(). Everything is counted in `measured`. Not `stores`: only recalls.
  void Play(const PromptRequest& request, double due_at, bool stores, PatternMeasured* measured);
  // Chunk after chunk, each the child of the one before. The first failure; refusals are counted.
  absl::Status Store(const std::vector<uint64_t>& chunks, size_t first, size_t count,
                     PatternMeasured* measured);

 private:
  class Watch;

  // How many chunks from the head were there.
  absl::StatusOr<size_t> ReadPrefix(const PromptRequest& request, double due_at,
                                    PatternMeasured* measured);
  absl::Status ReadInPlace(const std::vector<ChunkKey>& keys, Watch* watch, Recall* recall,
                           PatternMeasured* measured);
  absl::Status WaitAndCompare(const std::vector<ChunkKey>& keys, const client::Acquired& held,
                              Watch* watch, Recall* recall, PatternMeasured* measured);
  absl::Status ReadByCopy(const std::vector<ChunkKey>& keys, Watch* watch, Recall* recall,
                          PatternMeasured* measured);
  // One buffer full, chunks [first, end) of the lease.
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
