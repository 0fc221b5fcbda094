// StagingArea: the session's staging memory, handed out in ranges, or memory of this process in its
// place. LocalRegion: memory of the caller's that the daemon knows. The daemon reads puts from all
// of them, without a copy through its socket.
//
// A range is never handed out again while a put still fills it, or while the daemon may store what
// it reads there: a put whose answer has not come by its deadline defers all frees until the answer
// is there, unless the daemon stores nothing that it reads later (PutHold::EndsAt). If the
// connection breaks first, the area is closed for good, and stays in use until the daemon's end is
// closed. Thread-safe.
#pragma once

#include <absl/functional/any_invocable.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/internal/daemon_end.h"
#include "client/internal/fork_guard.h"
#include "client/internal/mappings.h"
#include "client/local/range_allocator.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class StagingArea {
 public:
  using Clock = std::chrono::steady_clock;
  // `region`: its number in the session. `gone` is called when the area is destroyed, in the
  // process that made it.
  explicit StagingArea(std::shared_ptr<const MappedFile> file,
                       uint32_t region = local::kStagingRegion,
                       absl::AnyInvocable<void() &&> gone = nullptr);
  ~StagingArea();

  uint32_t region() const { return region_; }
  std::span<std::byte> memory() const { return file_->memory(); }
  uint64_t OffsetOf(std::span<const std::byte> run) const {
    return static_cast<uint64_t>(run.data() - memory().data());
  }
  bool Contains(std::span<const std::byte> run) const;

  std::optional<std::span<std::byte>> TryAllocate(uint64_t bytes);
  // Returns none if there was no room by the deadline, or the area was closed.
  std::optional<std::span<std::byte>> AllocateUntil(uint64_t bytes, Clock::time_point deadline);
  void Free(std::span<std::byte> range);
  // Waits until `deadline` for all of it to be free, handing nothing out meanwhile, and closes it.
  // Returns false, and changes nothing, if it does not become free.
  bool Retire(Clock::time_point deadline = {});
  // Returns when a range was last asked for or came back; none if some are out, or kept back.
  std::optional<Clock::time_point> idle_since() const;
  // Hands out nothing any more, and ends all waits for room.
  void Close();

  // While any Deferral lives, freed ranges are kept back.
  class Deferral {
   public:
    explicit Deferral(std::shared_ptr<StagingArea> area);
    ~Deferral();

   private:
    const std::shared_ptr<StagingArea> area_;
  };
  // Closes the area, for a put that was sent on a connection that broke before its answer. It stays
  // in use until the daemon has left, or until `until`.
  void LeaveTo(std::shared_ptr<const DaemonEnd> connection, DaemonEnds::Time until);
  // Returns whether the daemon may still read a put that has ended from it.
  bool in_use() const;

 private:
  std::optional<std::span<std::byte>> AllocateLocked(uint64_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::shared_ptr<const MappedFile> file_;
  const uint32_t region_;
  const ForkMark mark_;
  absl::AnyInvocable<void() &&> gone_;
  mutable Mutex mu_;
  CondVar freed_;
  RangeAllocator ranges_ ABSL_GUARDED_BY(mu_);
  int deferrals_ ABSL_GUARDED_BY(mu_) = 0;
  std::vector<uint64_t> kept_back_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int retiring_ ABSL_GUARDED_BY(mu_) = 0;  // Retire calls that wait
  Clock::time_point last_use_ ABSL_GUARDED_BY(mu_) = Clock::now();
  mutable DaemonEnds left_to_ ABSL_GUARDED_BY(mu_);
};

// Ranges of an area, which go back when this is destroyed.
class StagedRanges {
 public:
  explicit StagedRanges(std::shared_ptr<StagingArea> area) : area_(std::move(area)) {}
  ~StagedRanges() { Free(); }
  StagedRanges(const StagedRanges&) = delete;
  StagedRanges& operator=(const StagedRanges&) = delete;

  void Add(std::span<std::byte> range) { ranges_.push_back(range); }
  void Free() {
    for (std::span<std::byte> range : ranges_) area_->Free(range);
    ranges_.clear();
  }

 private:
  const std::shared_ptr<StagingArea> area_;
  std::vector<std::span<std::byte>> ranges_;
};

struct LocalRegion {
  const ForkMark mark{};
  std::span<const std::byte> mapping;  // constant
  bool reused = false;                 // likewise: RegisterOptions
  GuardedFd fd;                        // ours; to register it again after a reconnect
  std::atomic<int> late_puts{0};       // puts that ended without an answer, perhaps still read

  // Like StagingArea's.
  void LeaveTo(std::shared_ptr<const DaemonEnd> connection, DaemonEnds::Time until);
  bool in_use();

  Mutex mu;
  DaemonEnds left_to ABSL_GUARDED_BY(mu);
  bool closed ABSL_GUARDED_BY(mu) = false;  // its owner is gone
  absl::AnyInvocable<void(uint32_t region) &&> unregister ABSL_GUARDED_BY(mu);
  uint64_t asked_epoch ABSL_GUARDED_BY(mu) = 0;  // of the session that was last asked to know it
  uint64_t epoch ABSL_GUARDED_BY(mu) = 0;   // of the session that knows it; 0: none
  uint32_t region ABSL_GUARDED_BY(mu) = 0;  // its number there
};

}  // namespace kvkeep::client
