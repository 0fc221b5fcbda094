// PutBatch: one put message under construction, and what keeps its memory from being used again.
// Internal.
#pragma once

#include <absl/functional/any_invocable.h>
#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/local/put_memory.h"
#include "client/local/requests.h"
#include "client/values/types.h"

namespace kvkeep::client {

// Keeps the memory that a put names until the daemon reads it no more, or stores nothing that it
// reads later (EndsAt). Shared by the call's two ends: its reply, and its deadline. Destroyed
// without knowing, as the connection broke, it leaves the memory in use until the daemon's end is
// closed.
class PutHold {
 public:
  explicit PutHold(std::shared_ptr<const DaemonEnd> connection)
      : connection_(std::move(connection)) {}
  ~PutHold();
  PutHold(const PutHold&) = delete;
  PutHold& operator=(const PutHold&) = delete;

  // Adds a range that goes back to its staging area.
  void AddStaged(std::shared_ptr<StagingArea> area, std::span<std::byte> range);
  // Adds memory of the caller's.
  void AddDirect(const PutMemory::Direct& direct);
  // Whether the put names memory of the caller's, who must learn when that may be changed again.
  bool has_direct() const { return direct_staging_ != nullptr || !regions_.empty(); }
  // Whether that memory is the caller's by the deadline in any case: RegisterOptions::reused.
  bool has_reused() const;
  // The daemon stores nothing that it reads after `until`. Call before the put is sent.
  void EndsAt(LocalSession::Time until) { until_ = until; }
  // The daemon has read everything, or was never told.
  void Copied();
  // Between these two calls a thread of ours still writes the ranges: they go back afterwards.
  void BeginFilling();
  void EndFilling();
  // No reply came by the deadline, or before the connection broke: the caller hears of it, and the
  // daemon may still read. Nothing happens after Copied; after EndsAt's time it is Copied.
  void Late();

 private:
  void FreeRanges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const DaemonEnd> connection_;
  struct Range {
    std::shared_ptr<StagingArea> area;  // not always one: it may change between two chunks
    std::span<std::byte> memory;
  };
  std::vector<Range> ranges_;
  std::shared_ptr<StagingArea> direct_staging_;  // of buffers of the caller's
  std::vector<std::shared_ptr<LocalRegion>> regions_;
  LocalSession::Time until_ = LocalSession::Time::max();

  Mutex mu_;  // Copied and Late come on different threads
  bool filling_ ABSL_GUARDED_BY(mu_) = false;
  bool copied_ ABSL_GUARDED_BY(mu_) = false;
  bool late_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<StagingArea::Deferral> deferral_ ABSL_GUARDED_BY(mu_);
};

class PutBatch {
 public:
  PutBatch(LocalSessionPtr session, const NamespaceDigest& ns, const PutOptions& options);
  ~PutBatch();
  PutBatch(PutBatch&&) = default;

  bool empty() const { return chunks_.empty(); }
  uint64_t staged_bytes() const { return staged_bytes_; }
  // Whether the daemon would take one more chunk in this message.
  bool HasRoomFor(const PutChunk& chunk) const;

  // Adds a chunk: `direct[i]` says where the daemon reads run i; runs without are copied into
  // `staged`, which holds exactly them and is from `area`. `index`: of the chunk in its call.
  void Add(uint32_t index, const PutChunk& chunk,
           const std::vector<std::optional<PutMemory::Direct>>& direct,
           const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged);
  // The same for the only chunk of a batch, which is copied while the daemon reads it: by
  // FillParts, after Send. `word`: a range of `area` for a u64, in which the daemon sees how much
  // is there.
  void AddInParts(uint32_t index, const PutChunk& chunk,
                  const std::vector<std::optional<PutMemory::Direct>>& direct,
                  const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged,
                  std::span<std::byte> word);

  struct Outcome {
    uint32_t index = 0;
    PutOutcome outcome;
  };
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::vector<Outcome>>) &&>;
  // Sends it, once.
  void Send(LocalSession::Time deadline, Done done);
  // Copies the chunk that AddInParts left to be copied; does nothing without one.
  void FillParts();

 private:
  struct Copy {
    std::span<const std::byte> from;
    std::byte* to = nullptr;  // null: the daemon reads it where it is
  };

  void AddChunk(uint32_t index, const PutChunk& chunk);
  // Calls `each` with the copy to make for each run, in their order.
  void AddRuns(const PutChunk& chunk, const std::vector<std::optional<PutMemory::Direct>>& direct,
               const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged,
               absl::FunctionRef<void(const Copy&)> each);
  void AddRun(uint32_t region, uint64_t offset, uint64_t bytes);

  const LocalSessionPtr session_;
  const NamespaceDigest ns_;
  const PutOptions options_;
  std::shared_ptr<PutHold> hold_;
  std::vector<uint32_t> indexes_;
  std::vector<local::PutChunk> chunks_;
  std::vector<local::PutRun> runs_;
  std::string tails_;
  uint64_t staged_bytes_ = 0;

  // In parts.
  std::vector<Copy> parts_;
  uint64_t* filled_ = nullptr;  // the word
  uint64_t filled_offset_ = 0;
  std::shared_ptr<PutHold> filling_;  // once sent
};

}  // namespace kvkeep::client
