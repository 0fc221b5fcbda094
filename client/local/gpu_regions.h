// GpuRegions: the GPU memory that a client has registered, over all its sessions. Belongs to the
// transport. Internal. Thread-safe.
//
// A region is registered with a session when a call first names it there (Bind), by one thread,
// while others wait. A registration that the session's daemon refused is not tried again in that
// session. One that failed for lack of room or a broken GPU (RESOURCE_EXHAUSTED, UNAVAILABLE) is
// tried again by the next call after a wait that doubles.
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/status/statusor.h>

#include <atomic>
#include <memory>
#include <vector>

#include "client/gpu/gpu_memory.h"
#include "client/gpu/gpu_region.h"
#include "client/gpu/gpu_use.h"
#include "client/gpu/gpu_values.h"
#include "client/local/daemon_process.h"
#include "client/local/requests.h"
#include "client/transport/backoff.h"
#include "tiers/base/mutex.h"

namespace kvkeep::client {

// A region's registration with one session's daemon.
struct GpuBinding {
  uint64_t epoch = 0;  // of the session; 0: none
  uint64_t generation = 0;
  uint32_t registration = 0;
  uint32_t max_runs = 0;
  uint32_t max_timeout_ms = 0;
  std::weak_ptr<LocalSession> session;
  std::shared_ptr<const DaemonProcess> daemon;
};

struct LocalGpuRegion {
  LocalGpuRegion(GpuRegionId given, GpuMemory what, const Backoff& wait)
      : id(given), memory(std::move(what)), backoff(wait) {}

  const GpuRegionId id;
  const GpuMemory memory;  // to register it again
  const ForkMark mark{};

  bool in_use();
  // Returns why that session's daemon must not be asked now; OK if it may be.
  absl::Status RefusedBy(uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Waits until no thread registers it, and the daemon has answered every registration and every
  // end of one.
  absl::Status AwaitAnswers(LocalSession::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  Mutex mu;
  CondVar changed;
  bool binding ABSL_GUARDED_BY(mu) = false;  // a thread is registering it
  bool closed ABSL_GUARDED_BY(mu) = false;   // unregistered: no call is sent any more
  bool left ABSL_GUARDED_BY(mu) = false;     // its owner is gone, too
  GpuBinding now ABSL_GUARDED_BY(mu);
  uint64_t ending ABSL_GUARDED_BY(mu) = 0;  // the generation being unregistered; 0: none
  uint64_t refused_epoch ABSL_GUARDED_BY(mu) = 0;
  absl::Status refused ABSL_GUARDED_BY(mu);
  LocalSession::Time ask_again ABSL_GUARDED_BY(mu);  // of refused_epoch's daemon
  Backoff backoff ABSL_GUARDED_BY(mu);
  int asked ABSL_GUARDED_BY(mu) = 0;  // registrations, and ends of them, without an answer
  // Daemons that may have it open: they never answered, or had it before the daemon of `now`.
  DaemonProcesses open_at ABSL_GUARDED_BY(mu);
  int unanswered ABSL_GUARDED_BY(mu) = 0;  // puts and gets that name it
  // Daemons that had calls when their connection broke.
  DaemonProcesses left_to ABSL_GUARDED_BY(mu);
};
using LocalGpuRegionPtr = std::shared_ptr<LocalGpuRegion>;

// Keeps the regions of one message in use until it is answered. If it is destroyed without an
// answer, because the connection broke, they stay in use until the daemon's process has ended.
class GpuHold {
 public:
  // `use` gets the same notices; may be null.
  GpuHold(std::shared_ptr<const DaemonProcess> daemon, std::vector<LocalGpuRegionPtr> regions,
          std::shared_ptr<GpuUse> use);
  ~GpuHold();
  GpuHold(const GpuHold&) = delete;
  GpuHold& operator=(const GpuHold&) = delete;

  // Call when nothing reads or writes the memory any more, or nothing was sent.
  void Answered();
  bool answered() const { return let_; }

 private:
  void Let(bool answered);

  const std::shared_ptr<const DaemonProcess> daemon_;
  const std::vector<LocalGpuRegionPtr> regions_;
  const std::shared_ptr<GpuUse> use_;
  std::atomic<bool> let_{false};
};

// One request to register a region, or to end its registration: counts until the daemon has
// answered. If it is destroyed before, because the connection broke, the daemon's process may have
// the memory open.
class GpuAsked {
 public:
  GpuAsked(std::shared_ptr<const DaemonProcess> daemon, LocalGpuRegionPtr region);
  ~GpuAsked();
  GpuAsked(const GpuAsked&) = delete;
  GpuAsked& operator=(const GpuAsked&) = delete;

  void Told() { told_ = true; }
  // The answer came too late, and another request ends the registration.
  void AskedAgain() { told_ = false; }

 private:
  const std::shared_ptr<const DaemonProcess> daemon_;
  const LocalGpuRegionPtr region_;
  std::atomic<bool> told_{false};
};
using GpuAskedPtr = std::shared_ptr<GpuAsked>;

local::MessageWriter UnregisterMessage(uint64_t id, const GpuBinding& known);
// Unregisters in the background. While a call of the region is not answered the daemon refuses;
// then the session's end unregisters. `asked` counts until the answer; may be null.
void SendUnregister(const GpuBinding& known, GpuAskedPtr asked);

class GpuRegions {
 public:
  // `wait`: until a daemon that had no room is asked again.
  GpuRegions(DaemonProcess::Watch watch, const Backoff& wait)
      : watch_(std::move(watch)), wait_(wait) {}

  absl::StatusOr<LocalGpuRegionPtr> Register(const LocalSessionPtr& session, GpuMemory memory,
                                             LocalSession::Time deadline);
  // Returns null if there is no such region, or its owner is done with it.
  LocalGpuRegionPtr Find(GpuRegionId id);
  // Returns whether the region is registered with this session and not refused: no need to wait.
  static bool IsBound(const LocalSession& session, LocalGpuRegion* region);
  absl::StatusOr<GpuBinding> Bind(const LocalSessionPtr& session, const LocalGpuRegionPtr& region,
                                  LocalSession::Time deadline);

  GpuStats stats() const;
  void CountUnanswered() { unanswered_.fetch_add(1, std::memory_order_relaxed); }
  void CountPut(uint64_t bytes) { bytes_put_.fetch_add(bytes, std::memory_order_relaxed); }
  void CountGot(uint64_t bytes) { bytes_got_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  absl::StatusOr<GpuBinding> Ask(const LocalSessionPtr& session, const LocalGpuRegionPtr& region,
                                 LocalSession::Time deadline);
  absl::StatusOr<std::shared_ptr<const DaemonProcess>> DaemonOf(const LocalSession& session);

  const DaemonProcess::Watch watch_;
  const Backoff wait_;
  std::atomic<uint64_t> ids_{1}, generations_{1};
  std::atomic<uint64_t> registered_{0}, registered_again_{0}, refused_{0}, unanswered_{0},
      bytes_put_{0}, bytes_got_{0};

  Mutex mu_;
  absl::flat_hash_map<GpuRegionId, std::weak_ptr<LocalGpuRegion>> regions_ ABSL_GUARDED_BY(mu_);
  uint64_t daemon_epoch_ ABSL_GUARDED_BY(mu_) = 0;
  std::shared_ptr<const DaemonProcess> daemon_ ABSL_GUARDED_BY(mu_);
};

}  // namespace kvkeep::client
