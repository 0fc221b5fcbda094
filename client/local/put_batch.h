// PutBatch: one put message under construction, and the hold that keeps its memory from being
// reused. Internal.
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

// Keeps the memory that a put names until the daemon no longer reads it, or stores nothing that it
// reads later (EndsAt). Shared by the call's two ends: its reply, and its deadline. If the
// connection broke before either, the memory stays in use until the daemon's end is closed.
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
  // Returns whether the put names memory of the caller's, who must learn when that may be changed
  // again.
  bool has_direct() const { return direct_staging_ != nullptr || !regions_.empty(); }
  // Returns whether the caller gets that memory back by the deadline in any case:
  // RegisterOptions::reused.
  bool has_reused() const;
  // Notes that the daemon stores nothing that it reads after `until`. Call before the put is sent.
  void EndsAt(LocalSession::Time until) { until_ = until; }
  // Call when the daemon has read everything, or the put was never sent.
  void Copied();
  // Between these two calls a thread of ours still writes the ranges, which go back afterwards.
  void BeginFilling();
  void EndFilling();
  // Call when no reply came by the deadline, or before the connection broke: the caller is told,
  // and the daemon may still read. No-op after Copied; like Copied after EndsAt's time.
  void Late();

 private:
  void FreeRanges() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const DaemonEnd> connection_;
  struct Range {
    std::shared_ptr<StagingArea> area;  // may differ between two chunks
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
  // Returns whether the daemon would accept one more chunk in this message.
  bool HasRoomFor(const PutChunk& chunk) const;

  // Adds a chunk. `direct[i]`: where the daemon reads run i; runs without it are copied into
  // `staged`, a range of `area` of exactly their size. `index`: of the chunk in its call.
  void Add(uint32_t index, const PutChunk& chunk,
           const std::vector<std::optional<PutMemory::Direct>>& direct,
           const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged);
  // Like Add, for the only chunk of a batch: FillParts copies it after Send, while the daemon reads
  // it. `word`: a range of `area` for a u64 that tells the daemon how many bytes are there.
  void AddInParts(uint32_t index, const PutChunk& chunk,
                  const std::vector<std::optional<PutMemory::Direct>>& direct,
                  const std::shared_ptr<StagingArea>& area, std::span<std::byte> staged,
                  std::span<std::byte> word);

  struct Outcome {
    uint32_t index = 0;
    PutOutcome outcome;
  };
  using Done = absl::AnyInvocable<void(absl::StatusOr<std::vector<Outcome>>) &&>;
  // Sends the message. Call once.
  void Send(LocalSession::Time deadline, Done done);
  // Copies the chunk of AddInParts; no-op without one.
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
