// DevicePlace: one device that the configuration names. It opens the device, has the store take it
// in, and tries again as long as that fails: a drive that is locked, hung or not mounted joins by
// itself when it can. One whose I/O fails while it is here is opened anew (failure_watch.h says
// when): where it cannot be read, else when its file system takes writes again, as after a write of
// the index's that failed, or was unmounted.
//
//   opening --locked--> locked --the index is open--> open --the store has read it--> here
//    ^  ^                  |                           |                                |
//    |  +-- after a pause -+--------- failed <---------+                                |
//    +-------------------------- the store lets go of it -------------------------------+
//
// Owns the device and its executors; borrows its engine. The place's own thread opens it, since
// that may hang with the drive; whoever waits for the place says how long. Thread-safe.
#pragma once

#include <absl/status/status.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "server/observe/log.h"
#include "server/storage/failure_watch.h"
#include "tiers/base/clock.h"
#include "tiers/base/executor.h"
#include "tiers/base/mutex.h"
#include "tiers/io/io_engine.h"
#include "tiers/nvme/nvme_device.h"
#include "tiers/store/store.h"

namespace kvkeep {

class DevicePlace {
 public:
  // What it needs of the store's home. Both may be called on any thread.
  struct Home {
    StoreIdentity identity;
    // Whether this store has had a device in the directory: then an empty one there is a file
    // system that is not mounted.
    std::function<bool(const std::string& dir)> knows;
    std::function<absl::Status(const std::string& dir)> note;  // it has one there now
    std::string known_file;                                    // where that is noted, for messages
  };
  enum class Step : uint8_t { kOpening, kLocked, kOpen, kHere, kFailed };

  // `engine` and `log` outlive it. Begins at once.
  DevicePlace(const NvmeDeviceOptions& options, const Home& home, IoEngine* engine,
              const Log* log);
  // REQUIRES: Stop said true; the store is gone.
  ~DevicePlace();
  DevicePlace(const DevicePlace&) = delete;
  DevicePlace& operator=(const DevicePlace&) = delete;

  // Whether no I/O of an earlier process can be under way there any more: its locks are ours. Waits
  // until that is known, at most until `deadline`.
  bool AwaitLocks(MonotonicTime deadline);
  // Waits until the first attempt to open it has ended, or `deadline`.
  bool AwaitOpened(MonotonicTime deadline);  // false: it has not
  void AwaitHere(MonotonicTime deadline);  // or failed
  // Of the last attempt, if that failed.
  std::optional<NvmeDevice::OpenError> error() const;

  // From now on it joins the store whenever it is open. The store outlives it, but for the
  // destructor.
  void JoinTo(Store* store, size_t number);
  // The daemon is about to serve: what is wrong with it now is logged, and what becomes of it from
  // now on. A start that fails says why by itself.
  void BeginLog();
  // Tells of a device that the store does not know.
  void AddTo(DeviceSnapshot* snapshot) const;
  // The executors' turn has come once for each.
  void PassThrough();

  // No attempt any more. False when the thread had not ended by then: then this must not be
  // destroyed, only the process ended.
  bool Stop(MonotonicTime deadline);

 private:
  void Run();
  void Attempt();
  void JoinStore(Store* store, size_t number);
  // Until the device that is here is to be opened anew; false: until Stop.
  bool AwaitFailure(Store* store, size_t number);
  bool MayBeOpened() const;
  bool LetGo(Store* store, size_t number);
  bool SleepFor(std::chrono::nanoseconds time);  // false: Stop came
  void Fail(NvmeDevice::OpenError error);
  void NoteError(NvmeDevice::OpenError error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Enter(Step step);
  void LogError() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::chrono::nanoseconds Pause() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const NvmeDeviceOptions options_;
  const Home home_;
  IoEngine* const engine_;
  const Log* const log_;
  ThreadPool index_{"kvkeep-index", 1}, sync_{"kvkeep-sync", 1};

  mutable Mutex mu_;
  CondVar changed_;
  Step step_ ABSL_GUARDED_BY(mu_) = Step::kOpening;
  bool was_locked_ ABSL_GUARDED_BY(mu_) = false;  // once is enough, whatever came of it
  bool attempted_ ABSL_GUARDED_BY(mu_) = false;   // an attempt has ended
  uint32_t failures_ ABSL_GUARDED_BY(mu_) = 0;    // attempts, one after the other
  std::optional<absl::Status> left_ ABSL_GUARDED_BY(mu_);  // the store, as asked
  bool stopping_ ABSL_GUARDED_BY(mu_) = false, ended_ ABSL_GUARDED_BY(mu_) = false;
  bool logs_ ABSL_GUARDED_BY(mu_) = false;
  std::optional<NvmeDevice::OpenError> error_ ABSL_GUARDED_BY(mu_);
  Store* store_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t number_ ABSL_GUARDED_BY(mu_) = 0;
  FailureWatch watch_;                  // the thread's
  std::unique_ptr<NvmeDevice> device_;  // the thread's, and the store's while it knows it
  std::thread thread_;
};

}  // namespace kvkeep
