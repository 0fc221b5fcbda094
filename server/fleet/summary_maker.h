// SummaryMaker: makes the summary of this node's chunks that other nodes ask for.
//
// The chunks are looked at only while somebody asks, once in `every` at most, and for at most a
// twentieth of the time. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/remote/chunk_summary.h"
#include "tiers/remote/offered_chunk.h"

namespace kvkeep {

class SummaryMaker {
 public:
  // All summaries that a node holds of others have this many bytes together.
  static constexpr size_t kBytesOfAll = 128 << 20;
  static constexpr size_t kLeastBytes = 64 << 10;  // of one
  // Returns how many bytes a summary has at most in a fleet where each node has so many peers.
  static size_t MostBytes(size_t peers);

  struct Made {
    uint64_t version;  // of the content: two equal summaries have one version; never 0
    ChunkSummary summary;
  };
  struct Options {
    std::chrono::milliseconds every{10'000};
  };
  // Returns the summary of a node that has no chunks.
  static std::shared_ptr<const Made> OfNothing();

  // Calls its argument for each chunk that others may read. Called on the executor.
  using NameAll = std::function<void(TakeName)>;

  // The executor and the clock are borrowed.
  SummaryMaker(const Options& options, const NameHash& hash, NameAll name_all, Executor* executor,
               const Clock* clock);

  // Returns the newest summary, and has another one made if this one is old. Null: there is none
  // yet.
  std::shared_ptr<const Made> Newest();
  // Has summaries made for so many peers from now on.
  void SetPeers(size_t peers);
  // Makes none any more, and ends one that is being made. Wait until busy() is false before what
  // was borrowed goes.
  void Stop();
  bool busy() const;

 private:
  void Make(size_t most_bytes);

  const Options options_;
  const NameHash hash_;
  const NameAll name_all_;
  Executor& executor_;
  const Clock& clock_;
  mutable Mutex mu_;
  std::shared_ptr<const Made> newest_ ABSL_GUARDED_BY(mu_);
  size_t most_bytes_ ABSL_GUARDED_BY(mu_) = ChunkSummary::kMostBytes;
  MonotonicTime not_before_ ABSL_GUARDED_BY(mu_){0};
  bool making_ ABSL_GUARDED_BY(mu_) = false;
  std::atomic<bool> stopped_{false};
};

}  // namespace kvkeep
