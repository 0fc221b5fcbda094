// PutMemory: the memory that the daemon reads a client's puts from: the session's staging area and
// the caller's registered memory. The transport owns it, over all sessions. Thread-safe.
//
// All sessions of the daemon share its staging memory. So an area begins small, is replaced by a
// larger one once puts wait for room in it, and is given back when no put has used it for a while.
// If the daemon has none for us, or our area cannot be used now, puts go through an area of this
// process's own memory that is registered with the daemon: no put is refused for lack of staging
// memory, and the daemon is asked again soon.
#pragma once

#include <absl/status/statusor.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "client/local/requests.h"
#include "client/local/staging.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

class PutMemory {
 public:
  using Time = LocalSession::Time;
  // `idle`: the time after which an unused area is given back.
  explicit PutMemory(std::chrono::milliseconds idle = std::chrono::milliseconds(2'000))
      : idle_(idle) {}

  // Returns the staging area to copy chunks of `chunk_bytes` to, large enough for one.
  // RESOURCE_EXHAUSTED: a chunk is over the daemon's limit of a session, or there is no memory.
  absl::StatusOr<std::shared_ptr<StagingArea>> Area(const LocalSessionPtr& session,
                                                    uint64_t chunk_bytes, Time deadline);
  // Returns whether Area would replace the staging area, which must be free for that.
  bool Changes(const LocalSessionPtr& session, uint64_t chunk_bytes);
  // Notes that a put of such chunks waited for room in `area`: next time asks for a larger one.
  void NoteWait(const LocalSessionPtr& session, const StagingArea& area, uint64_t chunk_bytes);
  // Notes that `area` is kept in use, so nothing in it comes free: puts use our own areas for a
  // while.
  void Avoid(const StagingArea& area);
  // Returns staging memory for a buffer of the caller's, always of the daemon. RESOURCE_EXHAUSTED:
  // over the daemon's limit, or the session's area is in use.
  absl::StatusOr<std::span<std::byte>> Buffer(const LocalSessionPtr& session, uint64_t bytes,
                                              Time deadline, std::shared_ptr<StagingArea>* area);
  // Gives back idle areas. Returns when the background thread must call it again.
  Time Tend(const LocalSessionPtr& session);
  // Returns how many areas of our own were made because there was no staging memory.
  uint64_t own_areas() const { return own_areas_.load(std::memory_order_relaxed); }

  // Makes a region that no daemon knows yet.
  static absl::StatusOr<std::shared_ptr<LocalRegion>> MakeRegion(
      int fd, std::span<const std::byte> mapping, const RegisterOptions& options);
  // Registers a region with a session. Each session is asked once.
  static absl::Status Register(const LocalSessionPtr& session,
                               const std::shared_ptr<LocalRegion>& region,
                               LocalSession::Time deadline);
  // Keeps a region: puts find it, and new sessions register it.
  void Keep(const std::shared_ptr<LocalRegion>& region);
  // Registers the kept regions with a new session.
  void RegisterAgain(const LocalSessionPtr& session, LocalSession::Time deadline);
  // Returns whether there is a kept region that this session was not asked to register.
  bool HasUnregistered(uint64_t epoch);
  // Call when the session is over.
  void Close(uint64_t epoch);

  // The place where the session's daemon can read a run itself; without one the run is copied.
  struct Direct {
    uint32_t region = local::kStagingRegion;
    uint64_t offset = 0;
    std::shared_ptr<StagingArea> area;  // one of the two
    // All regions that contain the run; `region` is the first one's number.
    std::vector<std::shared_ptr<LocalRegion>> registered;
  };
  std::optional<Direct> Find(const LocalSession& session, std::span<const std::byte> run);

 private:
  std::vector<std::shared_ptr<LocalRegion>> Kept() ABSL_LOCKS_EXCLUDED(mu_);

  using AreaPtr = std::shared_ptr<StagingArea>;

  bool Fits(const AreaPtr& area, const LocalSession& session, uint64_t bytes) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return area != nullptr && epoch_ == session.epoch() && area->memory().size() >= bytes;
  }
  bool Grows(Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return area_ != nullptr && wanted_bytes_ > area_->memory().size() && now >= grow_at_;
  }
  // Forgets the areas of an earlier session.
  void SetEpoch(uint64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns a staging area of at least `least` bytes that replaces area_, which is retired by
  // `free_by`. `wanted` 0: as many bytes as the daemon gives at first. Not OK: area_ is unchanged,
  // or there is none. REQUIRES: this thread is asking.
  absl::StatusOr<AreaPtr> Replace(const LocalSessionPtr& session, uint64_t least, uint64_t wanted,
                                  Time free_by, Time deadline);
  absl::StatusOr<AreaPtr> MakeOwn(const LocalSessionPtr& session, uint64_t chunk_bytes,
                                  Time deadline);
  void EndAsking(const LocalSessionPtr& session);
  void NoteNotGrown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const std::chrono::milliseconds idle_;
  std::atomic<uint64_t> own_areas_{0};
  Mutex mu_;
  CondVar asked_;
  bool asking_ ABSL_GUARDED_BY(mu_) = false;  // a thread is getting an area
  uint64_t epoch_ ABSL_GUARDED_BY(mu_) = 0;   // of the fields below
  AreaPtr area_ ABSL_GUARDED_BY(mu_);         // of the daemon's
  AreaPtr own_ ABSL_GUARDED_BY(mu_);
  uint64_t wanted_bytes_ ABSL_GUARDED_BY(mu_) = 0;  // of area_, as puts waited
  Time grow_at_ ABSL_GUARDED_BY(mu_);               // not before
  std::chrono::milliseconds grow_wait_ ABSL_GUARDED_BY(mu_){0};
  Time ask_at_ ABSL_GUARDED_BY(mu_);                // likewise; until then own_ serves
  std::vector<std::weak_ptr<LocalRegion>> regions_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
