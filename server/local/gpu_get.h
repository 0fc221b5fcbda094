// GpuGet: one get to a GPU under way: its chunks are pinned, each piece is copied to the client's
// memory as soon as it is in place, and the answers follow when the last copy has ended.
//
// Parse, Start and the answers run on the loop. In between, threads of the store and of the device
// call it; it lives as long as they may.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "proto/local/message.h"
#include "server/local/session_gpu.h"
#include "server/requests/gauge.h"
#include "tiers/base/mutex.h"

namespace kvkeep {

struct GpuGetPlan {
  // InvalidArgument names the field.
  static absl::StatusOr<GpuGetPlan> Parse(std::span<const std::byte> body,
                                          const LocalLimits& limits, const SessionGpu& memory,
                                          GpuRuns::Skips skips);

  NamespaceDigest ns;
  LeaseId lease;
  bool transient = false;
  std::chrono::milliseconds timeout{0};
  std::vector<local::GpuGetChunk> chunks;
  std::optional<GpuRuns> runs;  // always there once parsed
};

class GpuGet : public std::enable_shared_from_this<GpuGet> {
 public:
  // `done` runs once, on the loop, when no copy is under way: never, if one cannot be ended.
  GpuGet(std::shared_ptr<const LocalContext> context, GpuGetPlan plan, std::function<void()> done);

  // On an error the whole get failed: nothing was copied, and `done` is not called.
  absl::Status Start(const SessionToken& session);
  // Lets no further copy begin.
  void Cancel() { cancelled_.store(true, std::memory_order_relaxed); }

  size_t chunks() const { return chunks_.size(); }
  // REQUIRES: done.
  void AppendAnswers(local::MessageWriter* reply) const;

 private:
  struct Chunk {
    ChunkReader reader;  // empty: a miss, or it failed before
    bool lost = false;   // a piece of it is lost: a miss
    absl::Status failure;
  };
  struct Piece {
    uint32_t chunk = 0, piece = 0;
  };

  absl::Status Pin(const SessionToken& session, size_t index);
  absl::Status CheckSizes();
  void Follow();
  void OnPiece(const Piece& piece, const absl::Status& status);
  void Copy(std::vector<Piece> pieces);
  void OnCopied(const std::vector<Piece>& pieces, const CopyEnd& end);
  void CopyCollected();
  // Notes that one awaited event has come; the last one ends the get.
  void Release();

  const std::shared_ptr<const LocalContext> context_;
  GpuGetPlan plan_;
  const std::function<void()> done_;
  const MonotonicTime deadline_;
  std::vector<Chunk> chunks_;  // threads write it under the lock
  std::optional<GaugeHold> copying_, pinned_bytes_;
  std::shared_ptr<GpuAccount> account_;  // that gave taken_bytes_
  uint64_t taken_bytes_ = 0;

  std::atomic<bool> cancelled_{false};
  std::atomic<bool> unfenced_{false};
  std::atomic<size_t> awaited_{1};  // pieces, copies, and the start itself

  Mutex mu_;
  bool collecting_ ABSL_GUARDED_BY(mu_) = true;  // pieces that are there at once go together
  std::vector<Piece> collected_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep
