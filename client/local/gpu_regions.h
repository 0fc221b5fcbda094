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

// As one session's daemon knows a region.
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
  // Why that session's daemon is not to be asked now; OK: it is.
  absl::Status RefusedBy(uint64_t epoch) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);
  // Waits until nobody registers it and the daemon has answered every registration and its end.
  absl::Status AwaitAnswers(LocalSession::Time deadline) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu);

  Mutex mu;
  CondVar changed;
  bool binding ABSL_GUARDED_BY(mu) = false;  // a thread is registering it
  bool closed ABSL_GUARDED_BY(mu) = false;   // unregistered: no call is sent any more
  bool left ABSL_GUARDED_BY(mu) = false;     // and nobody will ask for it again
  GpuBinding now ABSL_GUARDED_BY(mu);
  uint64_t ending ABSL_GUARDED_BY(mu) = 0;  // the generation whose end is asked for; 0: none
  uint64_t refused_epoch ABSL_GUARDED_BY(mu) = 0;
  absl::Status refused ABSL_GUARDED_BY(mu);
  LocalSession::Time ask_again ABSL_GUARDED_BY(mu);  // of refused_epoch's daemon
  Backoff backoff ABSL_GUARDED_BY(mu);
  int asked ABSL_GUARDED_BY(mu) = 0;  // registrations, and ends of them, that are not answered
  // Daemons that never answered one, or that had it before the one of `now`: they may have it open.
  DaemonProcesses open_at ABSL_GUARDED_BY(mu);
  int unanswered ABSL_GUARDED_BY(mu) = 0;  // puts and gets that name it
  // Daemons that had calls when their connection broke.
  DaemonProcesses left_to ABSL_GUARDED_BY(mu);
};
using LocalGpuRegionPtr = std::shared_ptr<LocalGpuRegion>;

// Keeps the regions of one message in use until it is answered. Destroyed without an answer, as the
// connection broke, it leaves them in use until the daemon's process has ended.
class GpuHold {
 public:
  // `use`: told of the same; may be null.
  GpuHold(std::shared_ptr<const DaemonProcess> daemon, std::vector<LocalGpuRegionPtr> regions,
          std::shared_ptr<GpuUse> use);
  ~GpuHold();
  GpuHold(const GpuHold&) = delete;
  GpuHold& operator=(const GpuHold&) = delete;

  // Nothing reads or writes the memory any more, or nothing was sent.
  void Answered();
  bool answered() const { return let_; }

 private:
  void Let(bool answered);

  const std::shared_ptr<const DaemonProcess> daemon_;
  const std::vector<LocalGpuRegionPtr> regions_;
  const std::shared_ptr<GpuUse> use_;
  std::atomic<bool> let_{false};
};

// One registration that the daemon was asked for, or to end: counts until it has answered. Gone
// without that, as the connection broke, the daemon's process may have the memory open.
class GpuAsked {
 public:
  GpuAsked(std::shared_ptr<const DaemonProcess> daemon, LocalGpuRegionPtr region);
  ~GpuAsked();
  GpuAsked(const GpuAsked&) = delete;
  GpuAsked& operator=(const GpuAsked&) = delete;

  void Told() { told_ = true; }
  // It came too late, and is ended by another request.
  void AskedAgain() { told_ = false; }

 private:
  const std::shared_ptr<const DaemonProcess> daemon_;
  const LocalGpuRegionPtr region_;
  std::atomic<bool> told_{false};
};
using GpuAskedPtr = std::shared_ptr<GpuAsked>;

local::MessageWriter UnregisterMessage(uint64_t id, const GpuBinding& known);
// In the background: refused while a call of it is not answered; the session's end does it then.
// `asked`: counts until it is answered; may be null.
void SendUnregister(const GpuBinding& known, GpuAskedPtr asked);

class GpuRegions {
 public:
  // `wait`: before a daemon that had no room is asked again.
  GpuRegions(DaemonProcess::Watch watch, const Backoff& wait)
      : watch_(std::move(watch)), wait_(wait) {}

  absl::StatusOr<LocalGpuRegionPtr> Register(const LocalSessionPtr& session, GpuMemory memory,
                                             LocalSession::Time deadline);
  // Null: no such region, or its owner is done with it.
  LocalGpuRegionPtr Find(GpuRegionId id);
  // Registered with this session and not refused: no need to wait.
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
